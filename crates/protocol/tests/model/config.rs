//! What one exploration starts from and how much may go wrong in it. Which explorations there are is `table`'s.

use std::time::Duration;

use protocol::coherence::lease::{LeaseLimits, LeaseTerms};
use protocol::requests::{Overload, RequestLimits};

use super::coverage::Event;

/// One unit of the model's clocks.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// A client's write. Values differ, so that no two writes leave the same one behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Write {
    /// Unconditional: its value rides on INV.
    Set(u8),
    /// The same over the other connection to storage.
    Set3(u8),
    Increment,
    /// A barrier.
    Flush,
    /// Takes effect when storage pleases, over a connection of its own.
    Block,
}

/// When machines get their ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ticks {
    /// With every step of their clock: nobody is ever paused.
    Clocked,
    /// At any time, or not for long.
    Free,
}

/// What has happened before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Nothing: the shim has just begun, and holds writes.
    Cold,
    /// Writes go through; no session is open.
    Quiet,
    /// Every node has opened its session for a first copy; its FETCH and its RENEW are on their way.
    Opened,
    /// Every node holds a copy of the plain GET under a lease, and what led there has arrived and is forgotten.
    Warm,
}

/// For clocks that run for ever.
pub(crate) const UNLIMITED: u8 = u8::MAX;

/// What may yet happen. Everything else (deliveries, ticks, storage) has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Steps of the clocks, or `UNLIMITED`. Without any, no lease ends: then more of all else can be explored.
    pub(crate) time: u8,
    /// Offers of the plain GET, per node.
    pub(crate) offers: u8,
    /// Offers of a second view of the key.
    pub(crate) offers_second: u8,
    pub(crate) reads: u8,
    /// Reads that a client sends behind others of its own.
    pub(crate) ordered_reads: u8,
    pub(crate) evictions: u8,
    pub(crate) node_crashes: u8,
    /// Another process starts with a node's id while the first one lives on.
    pub(crate) doubles: u8,
    pub(crate) shim_crashes: u8,
    /// A second shim takes over while the first one lives on.
    pub(crate) takeovers: u8,
    /// The shim that governs is told to leave, so that the next one waits for nobody.
    pub(crate) handovers: u8,
    /// All connections from shim to storage break.
    pub(crate) losses: u8,
    /// Storage ends and comes back without its data.
    pub(crate) storage_restarts: u8,
    pub(crate) relinks: u8,
    pub(crate) remaps: u8,
    pub(crate) drains: u8,
    /// Reports that the key takes a whole node.
    pub(crate) heats: u8,
    /// Reads of routers that take the key to have two places.
    pub(crate) elastic_reads: u8,
    /// Nodes are told how many places there are: what a shim has said once may come at any time.
    pub(crate) degrees: u8,
    /// How many of the faults, from evictions on, may happen together. `None`: as many as each of them may.
    pub(crate) faults: Option<u8>,
}

/// When a configuration is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scale {
    /// With the tests, also where nothing is optimised.
    Small,
    Ci,
    Deep,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: &'static str,
    pub(crate) scale: Scale,
    pub(crate) nodes: usize,
    /// All nodes are in one layer, so that the key has one place and the others are further ones.
    pub(crate) elastic: bool,
    /// The last node is a router's own, as its shim sees it.
    pub(crate) near: bool,
    /// Keys are divided anew, and the key goes to another shim.
    pub(crate) divides: bool,
    pub(crate) lease_ticks: u32,
    /// What later lives of the shim are configured for, if it differs. Then storage keeps a record of how long successors wait.
    pub(crate) later_lease_ticks: Option<u32>,
    pub(crate) guard_ticks: u32,
    /// How long a request waits before it is begun; none waits where this is 0.
    pub(crate) patience_ticks: u32,
    /// How far a node's clock may be ahead of the shims'.
    pub(crate) drift: u64,
    pub(crate) ticks: Ticks,
    pub(crate) start: Start,
    pub(crate) writes: &'static [Write],
    pub(crate) budget: Budget,
    /// A REJECT leads to the next HELLO up to this number: each could be rejected in turn because it comes twice.
    pub(crate) hellos_max: u64,
    /// Reads at storage at a time.
    pub(crate) storage_slots: usize,
    /// PINGs queue like other commands, instead of being answered at once.
    pub(crate) proofs_queue: bool,
    /// What must have happened somewhere, or the exploration says nothing.
    pub(crate) expected: &'static [Event],
}

impl Config {
    pub(crate) fn lease(&self) -> LeaseTerms {
        LeaseTerms { duration: TICK * self.lease_ticks, guard: TICK * self.guard_ticks }
    }

    /// The terms of one life of the shim.
    pub(crate) fn lease_of(&self, life: u8) -> LeaseTerms {
        let ticks = self.later_lease_ticks.filter(|_| life > 0).unwrap_or(self.lease_ticks);
        LeaseTerms { duration: TICK * ticks, ..self.lease() }
    }

    /// Storage that keeps no record has short leases, and here all of them are.
    pub(crate) fn lease_limits(&self) -> LeaseLimits {
        let longest = LeaseTerms { guard: Duration::ZERO, ..self.lease() };
        let short = TICK * self.later_lease_ticks.unwrap_or(self.lease_ticks);
        LeaseLimits { wait_max: longest.restart_wait(), short, growth: 1 }
    }

    pub(crate) fn requests(&self) -> RequestLimits {
        let overload = match self.patience_ticks {
            0 => Overload::Refuse,
            ticks => Overload::Wait { patience: TICK * ticks },
        };
        RequestLimits { overload, ..RequestLimits::default() }
    }

    /// Messages that carry a time are alike once they are older than this: no lease of theirs can still run.
    pub(crate) fn age_max(&self) -> u64 {
        u64::from(self.lease_ticks)
    }
}
