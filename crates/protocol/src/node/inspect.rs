//! What a node would serve and what it still owes, for tests and the model checker. Changes nothing.

use bytes::Bytes;
use wire::{Key, View};

use super::Node;
use crate::time::Time;

/// What must be empty once nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeBacklog {
    /// Reads passed on and not answered.
    pub forwarded: usize,
    pub fetches: usize,
    /// Readers that wait for fetches.
    pub waiters: usize,
    /// Offers that wait for a session.
    pub offers: usize,
}

impl Node {
    /// The reply that a read of `view` would get from this node's copy at `now`; empty for the null reply to GET.
    pub fn servable(&self, now: Time, key: &Key, view: View) -> Option<&Bytes> {
        let object = self.objects.get(key)?;
        let lease = self.links.get(usize::from(object.shim.0))?.session.holds(now);
        object.reply(now, view).filter(|_| lease).map(|(_, value)| value)
    }

    /// Whether the node has an object for this key, servable or not.
    pub fn knows(&self, key: &Key) -> bool {
        self.objects.contains_key(key)
    }

    pub fn backlog(&self) -> NodeBacklog {
        let fetches = || self.objects.values().flat_map(|object| &object.fetching);
        NodeBacklog {
            forwarded: self.forwarded.len(),
            fetches: fetches().count(),
            waiters: fetches().map(|fetching| fetching.waiters.len() + fetching.followers.len()).sum(),
            offers: self.offers.len(),
        }
    }

    /// Whether the counts kept beside the objects and the reads passed on agree with them.
    pub fn is_consistent(&self) -> bool {
        let bytes: u64 = self.objects.values().map(|object| object.bytes).sum();
        let objects: usize = self.links.iter().map(|link| link.objects).sum();
        let forwarded: u32 = self.forwarded_keys.values().sum();
        let passed_on = forwarded as usize == self.forwarded.len();
        bytes == self.bytes && objects == self.objects.len() && passed_on
    }
}
