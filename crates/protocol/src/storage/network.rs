//! What a storage machine hears and how it reaches its servers. Not who carries the bytes: sockets in production, the
//! simulated network in tests.

use core::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use wire::ShimId;

use super::{CommandControl, StorageEvent, Store};
use crate::migration::{Departures, MigrationProgress};
use crate::time::Time;

/// A connection of one storage machine. Its network gives the numbers, and none twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Where a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// The address that the configuration gives to this storage.
    Configured,
    /// The address that another server has told.
    Discovered(SocketAddr),
    /// The address that the configuration gives to another shim's storage.
    Of(ShimId),
}

/// What a storage machine is told.
#[derive(Clone, Debug)]
pub enum StorageInput {
    Store(Store),
    Control {
        ticket: u64,
        control: CommandControl,
    },
    /// The connection that watches under this number serves nobody any more. `clean`: it watches nothing.
    Release {
        number: u64,
        clean: bool,
    },
    /// A dialled connection is there. If it cannot be made, `Closed` comes instead.
    Connected(ConnectionId),
    /// Everything that came and was not given to `Network::unread`.
    Data {
        connection: ConnectionId,
        bytes: Bytes,
    },
    /// Nothing more comes or goes. It is not said of connections that the machine has closed.
    Closed {
        connection: ConnectionId,
        reason: String,
    },
    /// Every few milliseconds, and whenever somebody has woken the driver, as threads of the storage do.
    Tick,
    /// Keys leave for the storage of these shims from now on, once that is on record. `again`: an earlier process may have begun.
    Migrate {
        departures: Arc<dyn Departures>,
        destinations: Vec<ShimId>,
        again: bool,
    },
    /// Keys are about to come: what is there of them is from before and goes. `Migrated` follows once that is done, and on record.
    /// `again`: an earlier process may have done it. Without any: they may come now, or none does, and nothing goes any more.
    Prepare {
        departures: Option<Arc<dyn Departures>>,
        again: bool,
    },
    /// No command for a key that leaves comes any more. `MigrationEnded` follows once none is under way.
    EndMigration,
    /// Puts on record at the server that keys leave, or that they have left; `Marked` follows, at a server that takes marks.
    Record {
        left: bool,
    },
    /// Another process that may be the shim is gone, as far as is known, or only says that it is not the shim.
    Vacant {
        gone: bool,
    },
    /// Nothing is under way, and no copy can be served any more: another process may have the servers. `Left` follows once they say
    /// so, and then `Leave`.
    HandOver,
    /// The last that it is told: it leaves its servers as it found them, and closes everything.
    Leave,
}

/// The connections of a storage machine, as its driver keeps them. Calls about a connection that is closed do nothing.
pub trait Network {
    /// Begins a connection; `Connected` or `Closed` follows. `urgent`: what comes on it goes before what peers want begun.
    fn dial(&mut self, to: Endpoint, urgent: bool) -> ConnectionId;
    /// What is appended is written soon, in order.
    fn out(&mut self, connection: ConnectionId) -> &mut Vec<u8>;
    /// Bytes of `out` that have certainly not reached the server.
    fn unwritten_bytes(&self, connection: ConnectionId) -> usize;
    /// What cannot be used yet: it comes again with what follows.
    fn unread(&mut self, connection: ConnectionId, rest: Bytes);
    /// Nothing is read any more until `resume`.
    fn pause(&mut self, connection: ConnectionId);
    fn resume(&mut self, connection: ConnectionId);
    /// At once; what is unwritten is lost.
    fn close(&mut self, connection: ConnectionId);
    /// Once the server has taken everything that was written.
    fn close_confirmed(&mut self, connection: ConnectionId);
    /// This end's address, as the server sees it; none without a TCP connection.
    fn own_address(&self, connection: ConnectionId) -> Option<SocketAddr>;
}

/// The storage behind one shim: takes what the shim's machine wants stored, and reports what becomes of it.
///
/// A backend is one implementation of this and one line in `shim::storage::open`.
pub trait Backend: Send {
    /// Carries out one input; what became known is appended to `events`.
    fn step(
        &mut self,
        now: Time,
        input: StorageInput,
        network: &mut dyn Network,
        events: &mut Vec<StorageEvent>,
    );

    /// Whether a connection is this backend's.
    fn owns(&self, _connection: ConnectionId) -> bool {
        false
    }

    fn is_up(&self) -> bool;

    /// Why only a person can make it usable, if so.
    fn refusal(&self) -> Option<&str> {
        None
    }

    /// Whether another process of this shim has taken a server over, and this one stands by.
    fn is_replaced(&self) -> bool {
        false
    }

    /// How often storage came back with its connections made anew.
    fn reconnects(&self) -> u64 {
        0
    }

    /// Commands without a reply.
    fn pending_count(&self) -> usize {
        0
    }

    /// How far keys are that leave; none if none does.
    fn migration(&self) -> Option<MigrationProgress> {
        None
    }
}
