//! The storage of one shim: which backend the configuration names, and the sockets it uses. Not when it may be asked what,
//! and not how servers are fenced (`protocol::storage`).

pub mod durable;
pub mod embedded;
mod guests;
mod memory;
mod open;
mod served;
mod topics;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;

use bytes::Bytes;
use config::Address;
use protocol::storage::StorageEvent;
use protocol::storage::network::{self, Backend, Endpoint, StorageInput};
use protocol::time::Time;
use runtime::reactor::{ConnectionId, Event, Io};
use runtime::tls::Dialer;
use wire::ShimId;

pub(crate) use open::open;

/// A backend and where its servers are.
pub struct Storage {
    backend: Box<dyn Backend>,
    /// What the configuration names; none where nothing is dialled, or where discovery gives the addresses.
    configured: Option<Address>,
    tls: Option<Dialer>,
    /// Where other shims' storage is, for keys that leave for it.
    others: BTreeMap<ShimId, (Address, Option<Dialer>)>,
}

/// The reactor's sockets as a backend's network.
struct Sockets<'a> {
    io: &'a mut Io,
    configured: Option<&'a Address>,
    tls: Option<&'a Dialer>,
    others: &'a BTreeMap<ShimId, (Address, Option<Dialer>)>,
}

impl Storage {
    pub fn new(backend: Box<dyn Backend>, configured: Option<Address>, tls: Option<Dialer>) -> Storage {
        Storage { backend, configured, tls, others: BTreeMap::new() }
    }

    /// With addresses that `Endpoint::Of` names.
    pub fn with_others(self, others: BTreeMap<ShimId, (Address, Option<Dialer>)>) -> Storage {
        Storage { others, ..self }
    }

    pub fn step(&mut self, io: &mut Io, now: Time, input: StorageInput, events: &mut Vec<StorageEvent>) {
        let Storage { configured, tls, others, .. } = self;
        let mut sockets = Sockets { io, configured: configured.as_ref(), tls: tls.as_ref(), others };
        self.backend.step(now, input, &mut sockets, events);
    }

    /// Gives back what is not its own. `Tick` and `Woken` are taken and given back.
    pub fn event(&mut self, io: &mut Io, event: Event, events: &mut Vec<StorageEvent>) -> Option<Event> {
        let (now, input) = match event {
            Event::Tick | Event::Woken => {
                self.step(io, io.now(), StorageInput::Tick, events);
                return Some(event);
            }
            Event::Data { connection, bytes, now } if self.is_own(connection) => {
                (now, StorageInput::Data { connection: number(connection), bytes })
            }
            Event::Connected(connection) if self.is_own(connection) => {
                (io.now(), StorageInput::Connected(number(connection)))
            }
            Event::Closed { connection, ref error } if self.is_own(connection) => {
                let reason =
                    error.as_ref().map_or("the server closed the connection".into(), ToString::to_string);
                (io.now(), StorageInput::Closed { connection: number(connection), reason })
            }
            Event::Writable(connection) if self.is_own(connection) => return None,
            other => return Some(other),
        };
        self.step(io, now, input, events);
        None
    }

    fn is_own(&self, connection: ConnectionId) -> bool {
        self.backend.owns(number(connection))
    }
}

impl Deref for Storage {
    type Target = dyn Backend;

    fn deref(&self) -> &(dyn Backend + 'static) {
        &*self.backend
    }
}

fn number(connection: ConnectionId) -> network::ConnectionId {
    network::ConnectionId(connection.to_bits())
}

fn connection(number: network::ConnectionId) -> ConnectionId {
    ConnectionId::from_bits(number.0)
}

impl network::Network for Sockets<'_> {
    fn dial(&mut self, to: Endpoint, urgent: bool) -> network::ConnectionId {
        let discovered;
        let (address, tls) = match (to, self.configured) {
            (Endpoint::Configured, Some(address)) => (address, self.tls),
            (Endpoint::Discovered(address), _) => {
                discovered = Address::Tcp(address);
                (&discovered, self.tls)
            }
            (Endpoint::Of(shim), _) => {
                let (address, tls) = self.others.get(&shim).expect("who names a shim has its address");
                (address, tls.as_ref())
            }
            (Endpoint::Configured, None) => unreachable!("this backend was given no address"),
        };
        let connection = self.io.dial_tls(address, tls);
        if urgent {
            self.io.set_urgent(connection);
        }
        number(connection)
    }

    fn out(&mut self, id: network::ConnectionId) -> &mut Vec<u8> {
        self.io.out(connection(id))
    }

    fn unwritten_bytes(&self, id: network::ConnectionId) -> usize {
        self.io.out_bytes(connection(id))
    }

    fn unread(&mut self, id: network::ConnectionId, rest: Bytes) {
        self.io.unread(connection(id), rest);
    }

    fn pause(&mut self, id: network::ConnectionId) {
        self.io.pause(connection(id));
    }

    fn resume(&mut self, id: network::ConnectionId) {
        self.io.resume(connection(id));
    }

    fn close(&mut self, id: network::ConnectionId) {
        self.io.close(connection(id));
    }

    fn close_confirmed(&mut self, id: network::ConnectionId) {
        self.io.close_confirmed(connection(id));
    }

    fn own_address(&self, id: network::ConnectionId) -> Option<SocketAddr> {
        self.io.own_address(connection(id))
    }
}
