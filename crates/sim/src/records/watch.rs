//! What a run has done so far, in numbers, and what its checkers remember. Not what they conclude.

use std::collections::BTreeMap;

use protocol::controller::partitions::Ownership;

use crate::clients::AskedCommand;
use crate::commands::CommandVerdict;
use crate::fault_kind::FaultKind;

/// A time in which writes may take longer for another reason than a node in trouble.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disturbance {
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// How many leases a write may wait for, one after the other. `None`: it may wait for other things as well.
    pub(crate) leases: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct WatchChecker {
    /// Commands of clients.
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    pub(crate) hits: u64,
    pub(crate) near_hits: u64,
    pub(crate) fills: u64,
    pub(crate) commits: u64,
    pub(crate) poisoned: u64,
    pub(crate) lapses: u64,
    pub(crate) stale_hits: u64,
    pub(crate) invalidations: u64,
    /// Times that a router left a node alone.
    pub(crate) breakers: u64,
    /// Times that storage ceased to serve a shim.
    pub(crate) storage_downs: u64,
    pub(crate) maps: u64,
    /// Writes that bypassed the shims, and reports of changes that shims got.
    pub(crate) outside: u64,
    pub(crate) reports: u64,
    /// Writes that shims have found to be others' in mode `strict`.
    pub(crate) foreign_writes: u64,
    /// How often keys got more places than before, and fewer.
    pub(crate) raises: u64,
    pub(crate) lowerings: u64,
    /// Replies that clients kept, and what they heard of changes.
    pub(crate) kept: u64,
    pub(crate) pushes: u64,
    /// Until when a feed may be held up.
    pub(crate) feed_trouble: u64,
    /// Control messages that were lost for good, as opposed to those of a link that broke.
    pub(crate) messages_lost: u64,
    pub(crate) faults: BTreeMap<FaultKind, u64>,
    pub(crate) disturbances: Vec<Disturbance>,
    /// Writes: when asked, when answered or given up.
    pub(crate) slow_writes: Vec<(u64, u64)>,
    pub(crate) stall_longest: u64,
    /// What each node owns in the maps that members were told, by history and epoch.
    pub(crate) told: BTreeMap<(u64, u32), Vec<Ownership>>,
}

impl WatchChecker {
    pub(crate) fn answered(&mut self, asked: &AskedCommand, verdict: &CommandVerdict, now: u64) {
        self.unknown += u64::from(*verdict == CommandVerdict::Unknown);
        self.refused += u64::from(*verdict == CommandVerdict::NoEffect);
        self.waited(asked.writes && !asked.blocks, asked.since, now);
    }

    /// A client has waited until `now`, for an answer or in vain.
    pub(crate) fn waited(&mut self, writes: bool, since: u64, now: u64) {
        if writes {
            self.stall_longest = self.stall_longest.max(now - since);
            self.slow_writes.push((since, now));
        }
    }
}
