//! Requests sent and not answered yet, by request id. Not the clients' pipelines, which they point into.

use bytes::Bytes;
use wire::{Key, LayerSet, Peer, View};

use crate::router::flow::request::RequestOrigin;
use crate::time::Time;

/// A request of some client's operation.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) origin: RequestOrigin,
    pub(crate) peer: Peer,
    pub(crate) sent: Time,
    /// Its outcome matters when its shim vanishes.
    pub(crate) writes: bool,
    /// A script, which may run for long.
    pub(crate) script: bool,
    /// A blocking command is cancelled when its client goes.
    pub(crate) blocking: bool,
    /// It takes a place in its peer's window.
    pub(crate) counted: bool,
    /// Its reply has begun; the rest comes in parts.
    pub(crate) streams: bool,
    /// What it takes to learn from the reply, and to ask again.
    pub(crate) read: Option<PendingRead>,
}

impl Pending {
    /// A request of a command that neither writes nor blocks, and is not asked again.
    pub(crate) fn new(origin: RequestOrigin, peer: Peer) -> Pending {
        Pending {
            origin,
            peer,
            sent: Time(0),
            writes: false,
            script: false,
            blocking: false,
            counted: false,
            streams: false,
            read: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PendingRead {
    pub(crate) key: Key,
    pub(crate) view: View,
    pub(crate) command: Bytes,
    /// Its reply goes to the client as it is, so it may come in parts.
    pub(crate) streams: bool,
    pub(crate) tried: Tried,
}

/// Where a read has been by now: no place is asked twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) layers: LayerSet,
    pub(crate) shim: bool,
}

/// Slab with a generation per slot: a late reply never meets the request that took its place.
#[derive(Debug, Default)]
pub(crate) struct PendingTable {
    slots: Vec<PendingSlot>,
    free: Vec<u32>,
    generation_first: u32,
    scripts: usize,
    /// How many are counted, by node and by shim.
    under_way: [Vec<u32>; 2],
}

#[derive(Debug)]
struct PendingSlot {
    generation: u32,
    pending: Option<Pending>,
}

impl PendingTable {
    /// Two processes that begin with different generations never take each other's replies for their own.
    pub(crate) fn new(generation_first: u32) -> PendingTable {
        PendingTable { generation_first, ..PendingTable::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many wait for another client's write.
    pub(crate) fn blocking(&self) -> usize {
        self.slots.iter().filter(|slot| slot.pending.as_ref().is_some_and(|pending| pending.blocking)).count()
    }

    /// How many scripts have not ended.
    pub(crate) fn scripts(&self) -> usize {
        self.scripts
    }

    /// The request is for a script.
    pub(crate) fn set_script(&mut self, request: u64) {
        let slot = self.slots.get_mut(request as u32 as usize);
        if let Some(pending) = slot.and_then(|slot| slot.pending.as_mut()).filter(|pending| !pending.script) {
            pending.script = true;
            self.scripts += 1;
        }
    }

    /// The reply of a request has begun.
    pub(crate) fn set_streams(&mut self, request: u64) {
        let slot = self.slots.get_mut(request as u32 as usize);
        if let Some(pending) = slot.and_then(|slot| slot.pending.as_mut()) {
            pending.streams = true;
            if std::mem::take(&mut pending.counted) {
                let peer = pending.peer;
                self.count(peer, -1);
            }
        }
    }

    /// How many requests take a place in the window of `peer`.
    pub(crate) fn under_way(&self, peer: Peer) -> u32 {
        let (index, id) = match peer {
            Peer::Node(node) => (0, node.0),
            Peer::Shim(shim) => (1, shim.0),
            Peer::Router(_) => return 0,
        };
        self.under_way[index].get(usize::from(id)).copied().unwrap_or(0)
    }

    fn count(&mut self, peer: Peer, change: i32) {
        let (index, id) = match peer {
            Peer::Node(node) => (0, usize::from(node.0)),
            Peer::Shim(shim) => (1, usize::from(shim.0)),
            Peer::Router(_) => return,
        };
        let counts = &mut self.under_way[index];
        if counts.len() <= id {
            counts.resize(id + 1, 0);
        }
        counts[id] = counts[id].saturating_add_signed(change);
    }

    pub(crate) fn insert(&mut self, pending: Pending) -> u64 {
        if pending.counted {
            self.count(pending.peer, 1);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(PendingSlot { generation: self.generation_first, pending: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.pending.is_none());
        slot.pending = Some(pending);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    pub(crate) fn get(&self, request: u64) -> Option<&Pending> {
        let slot = self.slots.get(request as u32 as usize)?;
        if slot.generation != (request >> 32) as u32 {
            return None;
        }
        slot.pending.as_ref()
    }

    pub(crate) fn remove(&mut self, request: u64) -> Option<Pending> {
        self.leave(request)?.take()
    }

    /// A request is over, of which nothing is wanted any more: it is not moved anywhere.
    pub(crate) fn end(&mut self, request: u64) {
        if let Some(place) = self.leave(request) {
            *place = None;
        }
    }

    /// The place of a request that gives it up; whoever calls empties it.
    fn leave(&mut self, request: u64) -> Option<&mut Option<Pending>> {
        let index = request as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != (request >> 32) as u32 {
            return None;
        }
        let pending = slot.pending.as_ref()?;
        self.scripts -= usize::from(pending.script);
        let counted = pending.counted.then_some(pending.peer);
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        if let Some(peer) = counted {
            self.count(peer, -1);
        }
        Some(&mut self.slots[index as usize].pending)
    }

    /// The ids of all requests that wait for one of `peers`, in the order of their clients' pipelines.
    pub(crate) fn waiting_for(&self, asked: impl Fn(Peer) -> bool) -> Vec<u64> {
        let mut found: Vec<(u32, u64, u32, u64)> = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(pending) = slot.pending.as_ref().filter(|pending| asked(pending.peer)) {
                let request = u64::from(slot.generation) << 32 | index as u64;
                let RequestOrigin { client, sequence, part, .. } = pending.origin;
                found.push((client, sequence, part, request));
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(.., request)| request).collect()
    }
}

#[cfg(test)]
mod tests {
    use wire::ShimId;

    use super::*;

    fn pending(sequence: u64) -> Pending {
        let peer = Peer::Shim(ShimId(0));
        let origin = RequestOrigin { client: 0, part: 0, sequence, resp3: false, waited_ms: 0 };
        Pending::new(origin, peer)
    }

    #[test]
    fn an_old_id_never_finds_the_slot_s_next_request() {
        let mut table = PendingTable::new(u32::MAX);
        let first = table.insert(pending(1));
        assert!(table.remove(first).is_some());
        let second = table.insert(pending(2));
        assert_eq!(first as u32, second as u32, "the slot is used again");
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        assert_eq!(table.get(second).map(|pending| pending.origin.sequence), Some(2));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn ids_from_nowhere_find_nothing() {
        let mut table = PendingTable::default();
        assert!(table.get(u64::MAX).is_none() && table.remove(17).is_none());
    }
}
