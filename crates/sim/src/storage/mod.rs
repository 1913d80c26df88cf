//! Storage servers and the production machines that reach and fence them for the shims. Not the data.

mod data;
pub(crate) mod links;
pub(crate) mod redis;
pub(crate) mod site;

use std::collections::VecDeque;
use std::time::Duration;

use linearize::{ModelState, ModelWindow};
use protocol::storage::network::{Backend as _, ConnectionId, Endpoint};
use protocol::storage::redis::{FenceDemand, FenceName, FenceShare, LeaseRecord, Redis, RedisSettings};
use protocol::storage::{MarkedPart, StorageEvent};

use crate::clock::HostClock;
use crate::history::Executed;
use crate::network::HostId;
use crate::random::SimRandom;
use crate::shape::Shape;
pub(crate) use data::{Changes, Data, Effect};
use links::Links;
use redis::RedisServer;
use site::{Habits, Site, WireEvent};

/// A server's clock counts whole milliseconds.
const CLOCK_US: u64 = 2_000;
/// The longest that a shim waits before it dials again, and what the dialogue takes: microseconds.
pub(crate) const RECONNECT: u64 = 1_500_000;
/// Connections of a process, places of processes: where their numbers begin among the bits of a connection's.
pub(crate) const SLOT_SHIFT: u32 = 24;
pub(crate) const LIFE_SHIFT: u32 = 40;

/// One storage server.
pub(crate) struct Server {
    pub(crate) site: Site<RedisServer>,
    clock: HostClock,
    pub(crate) paused_until: u64,
    /// What it was to do while it was paused.
    pub(crate) parked: VecDeque<WireEvent>,
    pub(crate) slow_until: u64,
    /// The slot of the shim that is to have it. Until an earlier one has ended, that one may win.
    pub(crate) current: HostId,
    /// The slot of the shim that was told last that it may write.
    pub(crate) obeyed: HostId,
    /// When it carried out which write.
    pub(crate) executed: Executed,
    /// Writes carried out although their shim had given them up.
    pub(crate) late_writes: u64,
    /// What it will come back with, if it is about to lose what has been written since.
    pub(crate) earlier: Option<Data>,
    /// When it did so, and until when copies may show what it had.
    pub(crate) rollbacks: Vec<(u64, u64)>,
}

/// One shim process's machine for its storage.
#[derive(Default)]
pub(crate) struct Backend {
    pub(crate) machine: Option<Redis>,
    pub(crate) links: Links,
    /// What the machine has said and the shim has not heard.
    pub(crate) said: VecDeque<StorageEvent>,
    /// The shim is being told.
    pub(crate) telling: bool,
    /// It has served in this life.
    pub(crate) settled: bool,
}

impl Server {
    pub(crate) fn new(shape: &Shape, slot: HostId, random: &mut SimRandom) -> Server {
        let wrong = shape.faults.contains(crate::fault_kind::FaultKind::Clock);
        let habits =
            Habits { part_percent: 1, part_delay: shape.storage_latency * 2, late_percent: 0, late_delay: 0 };
        Server {
            site: Site::new(RedisServer::new(shape.refused), habits),
            clock: HostClock::draw(random, wrong),
            paused_until: 0,
            parked: VecDeque::new(),
            slow_until: 0,
            current: slot,
            obeyed: slot,
            executed: Executed::new(),
            late_writes: 0,
            earlier: None,
            rollbacks: Vec::new(),
        }
    }

    pub(crate) fn now_ms(&self, now: u64) -> u64 {
        self.clock.at(now).0 / 1000
    }

    pub(crate) fn data(&mut self) -> &mut Data {
        &mut self.site.server.data
    }

    /// What it has now it will have again.
    pub(crate) fn keep(&mut self) {
        self.earlier = Some(self.site.server.data.clone());
    }

    /// A key as a checker imagines it, if there is one.
    pub(crate) fn imagined(&self, key: &[u8]) -> Option<ModelState> {
        let window = |at: u64| ModelWindow { earliest: at.saturating_sub(CLOCK_US), latest: at + CLOCK_US };
        self.site.server.data.imagined(key, self.expires_at(key).map(window))
    }

    /// When a key of it expires, in virtual time.
    pub(crate) fn expires_at(&self, key: &[u8]) -> Option<u64> {
        Some(self.clock.when(self.site.server.data.expires_ms(key)? * 1000))
    }
}

impl Backend {
    pub(crate) fn is_serving(&self) -> bool {
        self.machine.as_ref().is_some_and(Redis::is_up)
    }

    /// Whether it has served its shim.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }
}

/// All keys, of the only shim.
pub(crate) fn marked_part() -> MarkedPart {
    MarkedPart {
        id: "c".to_owned(),
        cluster: "c".to_owned(),
        shims: vec!["s".to_owned()],
        shim: "s".to_owned(),
        next: Vec::new(),
    }
}

/// Settings of a machine before a server without a password.
pub(crate) fn settings(
    address: String,
    timeout: Duration,
    seed: u64,
    lease_record: LeaseRecord,
) -> RedisSettings {
    RedisSettings {
        endpoint: Endpoint::Configured,
        address,
        tls: false,
        user: None,
        password: None,
        fence: FenceName { cluster: "c".to_owned(), shim: "s".to_owned(), share: FenceShare::Whole },
        fence_demand: FenceDemand::Always,
        mark: Some(marked_part()),
        adopts: false,
        lease_record,
        standby: None,
        cluster_mode: false,
        timeout,
        pinned_max: 16,
        seed,
    }
}

/// The slot of the process that made a connection.
pub(crate) fn slot_of(connection: ConnectionId) -> HostId {
    (connection.0 >> SLOT_SHIFT) as usize & ((1 << (LIFE_SHIFT - SLOT_SHIFT)) - 1)
}
