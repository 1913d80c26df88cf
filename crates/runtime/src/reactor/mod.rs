//! One thread's sockets as events to a driver: read, step, one write per connection. Not what the bytes mean.
//!
//! A turn waits for the kernel, hands every event to the driver, and at its end writes what the driver has
//! appended, once per connection. Readiness is edge-triggered; a read that comes back short has drained the
//! socket, so a request costs one read and one write and its share of a wait.

mod busy;
mod connection;
mod deal;
mod handshakes;
mod input;
mod io;
mod listener;
mod output;
mod socket;
mod tls;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::time::Time;

pub use busy::BusyMeter;
pub use config::Address;
pub use deal::Dealer;
pub use io::Io;
pub use turn::{Patience, Poller, Reactor, run};

/// How often `Event::Tick` comes where time matters.
pub const TICK: Duration = Duration::from_millis(10);

/// A connection of one reactor. Never reused: an id that outlived its connection names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

impl ConnectionId {
    /// Small and dense, for tables; another connection may have it later.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// As one number, for those who keep it and give it back.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// What `to_bits` made a number of.
    pub fn from_bits(bits: u64) -> ConnectionId {
        ConnectionId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(u32);

/// What a driver sees of the world.
#[derive(Debug)]
pub enum Event {
    /// Its TLS handshake, if there is one, is over.
    Accepted {
        listener: ListenerId,
        connection: ConnectionId,
    },
    /// A dialled connection is there, with its TLS handshake done. If it cannot be made, `Closed` comes instead.
    Connected(ConnectionId),
    /// Everything read and not consumed yet; what the driver cannot use now it gives to `Io::unread`. No bytes come where
    /// nothing is there and the driver has asked with `Io::call_again`.
    Data {
        connection: ConnectionId,
        bytes: Bytes,
        /// Sampled after the read system call that delivered the last of `bytes`.
        now: Time,
    },
    /// Output that had grown above `OUT_LOW_BYTES` has drained below it.
    Writable(ConnectionId),
    /// The other end or the network has ended the connection (`error` is `None` for an orderly end). Not sent
    /// for connections that the driver closes itself.
    Closed {
        connection: ConnectionId,
        error: Option<std::io::Error>,
    },
    Tick,
    /// Somebody called `Waker::wake` since the last `Woken`.
    Woken,
}

/// Pending output below which `Event::Writable` is sent: enough to keep a socket busy for one turn.
pub const OUT_LOW_BYTES: usize = 64 << 10;

/// What runs on a reactor.
pub trait Driver {
    fn event(&mut self, io: &mut Io, event: Event);

    /// The other end sends no more but may still read. True: the driver has something to say yet and closes the
    /// connection itself; of a paused one it is asked again after the resume. False: `Closed` follows.
    fn ended(&mut self, _io: &mut Io, _connection: ConnectionId) -> bool {
        false
    }

    /// For how long no tick is needed after this turn if nothing else happens: [`TICK`] or longer.
    fn rest(&mut self, _now: Time) -> Duration {
        TICK
    }

    /// Called once per turn after stop was requested, at least every 10 ms. True: everything is in order and
    /// the reactor may end; output still pending is written first. Ten seconds later it ends anyway.
    fn stopping(&mut self, _io: &mut Io) -> bool {
        true
    }
}

/// Ends the wait of a reactor from any thread; the driver gets `Event::Woken`.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    pub fn wake(&self) {
        if let Err(error) = self.0.wake() {
            tracing::error!(%error, "cannot wake a reactor");
        }
    }
}
