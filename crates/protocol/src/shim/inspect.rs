//! What a shim knows of a key and what it still owes, for tests and the model checker. Changes nothing.

use wire::{Key, NodeId};

use super::Shim;

/// What must be empty once nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShimBacklog {
    pub operations: usize,
    /// Commands at storage, the shim's own PING and TOUCH among them.
    pub tickets: usize,
    /// Keys with reads under way.
    pub readings: usize,
    /// INVs and REVOKEs without an acknowledgement.
    pub outstanding: usize,
    pub ready: usize,
    pub held: usize,
    pub barriers: usize,
    pub quarantined: usize,
    /// States of keys that nobody holds, writes or waits for.
    pub idle_keys: usize,
}

impl Shim {
    pub fn backlog(&self) -> ShimBacklog {
        let unacknowledged = self.links.iter();
        let unacknowledged =
            unacknowledged.map(|link| link.outstanding.len() + usize::from(link.revoking.is_some()));
        ShimBacklog {
            operations: self.operations.len(),
            tickets: self.tickets.len(),
            readings: self.readings.len(),
            outstanding: unacknowledged.sum(),
            ready: self.ready.len(),
            held: self.held.len(),
            barriers: self.barriers.len(),
            quarantined: self.quarantined.len() + usize::from(self.quarantined_whole),
            idle_keys: self.keys.values().filter(|state| state.is_idle()).count(),
        }
    }

    /// The nodes that hold this key as far as the directory knows.
    pub fn holders(&self, key: &Key) -> impl Iterator<Item = NodeId> + '_ {
        let entries = self.keys.get(key).into_iter().flat_map(|state| &state.directory.entries);
        entries.map(|entry| entry.node)
    }
}
