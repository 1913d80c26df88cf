//! What a run has done so far, in numbers, and what its checkers remember. Not what they conclude.

use std::collections::BTreeMap;

use crate::clients::Asked;
use crate::commands::Verdict;
use crate::faults::FaultKind;
use crate::network::HostId;

/// A time in which writes may take longer for another reason than a node in trouble.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disturbance {
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// Only nodes were in trouble.
    pub(crate) node: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Commands of clients.
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    pub(crate) hits: u64,
    pub(crate) fills: u64,
    pub(crate) commits: u64,
    pub(crate) poisoned: u64,
    pub(crate) lapses: u64,
    pub(crate) invalidations: u64,
    pub(crate) storage_timeouts: u64,
    pub(crate) maps: u64,
    /// Control messages that were lost for good, as opposed to those of a link that broke.
    pub(crate) messages_lost: u64,
    pub(crate) faults: BTreeMap<FaultKind, u64>,
    pub(crate) disturbances: Vec<Disturbance>,
    /// Writes that were answered: when asked, when answered.
    pub(crate) slow_writes: Vec<(u64, u64)>,
    pub(crate) stall_longest: u64,
    /// Of the map that each process has or is about to get.
    epochs: BTreeMap<(HostId, u32), u32>,
}

impl Watch {
    pub(crate) fn answered(&mut self, asked: &Asked, verdict: &Verdict, now: u64) {
        self.unknown += u64::from(*verdict == Verdict::Unknown);
        self.refused += u64::from(*verdict == Verdict::NoEffect);
        if asked.writes && !asked.blocks {
            self.stall_longest = self.stall_longest.max(now - asked.since);
            self.slow_writes.push((asked.since, now));
        }
    }

    pub(crate) fn epoch_of(&self, host: HostId, life: u32) -> u32 {
        self.epochs.get(&(host, life)).copied().unwrap_or(1)
    }

    pub(crate) fn adopts(&mut self, host: HostId, life: u32, epoch: u32) {
        self.epochs.insert((host, life), epoch);
    }
}
