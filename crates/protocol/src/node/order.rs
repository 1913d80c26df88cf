//! Reads of one key by one router that are passed on or held back, so that none is answered with something older than one before
//! it. Not what becomes of them: `reads` decides.

use std::collections::VecDeque;

use smallvec::SmallVec;
use wire::message::Read;
use wire::{Key, Peer};

use super::object::Waiter;
use crate::hash::KeyMap;

pub(super) type HeldRead = (Waiter, Read);

#[derive(Clone, Debug, Default)]
pub(super) struct ReadOrder {
    keys: KeyMap<SmallVec<[RouterReads; 1]>>,
}

/// One router's reads of one key; there is one of them at least.
#[derive(Clone, Debug)]
struct RouterReads {
    from: Peer,
    /// When those arrived that are passed on, in order.
    passed_on: SmallVec<[u64; 2]>,
    /// Each waits for all that have arrived before it, and is behind those before it here.
    held: VecDeque<HeldRead>,
}

impl ReadOrder {
    fn of(&self, key: &Key, from: Peer) -> Option<&RouterReads> {
        // Most of the time nothing is under way.
        let routers = if self.keys.is_empty() { None } else { self.keys.get(key) };
        routers?.iter().find(|reads| reads.from == from)
    }

    fn of_mut(&mut self, key: &Key, from: Peer) -> &mut RouterReads {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.clone(), SmallVec::new());
        }
        let routers = self.keys.get_mut(key).expect("it is there now");
        let place = routers.iter().position(|reads| reads.from == from);
        let place = place.unwrap_or_else(|| {
            routers.push(RouterReads { from, passed_on: SmallVec::new(), held: VecDeque::new() });
            routers.len() - 1
        });
        &mut routers[place]
    }

    /// Changes one router's reads, and forgets it if none is left.
    fn change<T>(&mut self, key: &Key, from: Peer, change: impl FnOnce(&mut RouterReads) -> T) -> Option<T> {
        let routers = self.keys.get_mut(key)?;
        let place = routers.iter().position(|reads| reads.from == from)?;
        let changed = change(&mut routers[place]);
        if routers[place].passed_on.is_empty() && routers[place].held.is_empty() {
            routers.remove(place);
            if routers.is_empty() {
                self.keys.remove(key);
            }
        }
        Some(changed)
    }

    pub(super) fn passed_on(&mut self, key: &Key, waiter: &Waiter) {
        let passed_on = &mut self.of_mut(key, waiter.from).passed_on;
        let place = passed_on.partition_point(|arrival| *arrival < waiter.arrival);
        passed_on.insert(place, waiter.arrival);
    }

    /// A read that was passed on is over.
    pub(super) fn over(&mut self, key: &Key, waiter: &Waiter) {
        self.change(key, waiter.from, |reads| {
            if let Ok(place) = reads.passed_on.binary_search(&waiter.arrival) {
                reads.passed_on.remove(place);
            }
        });
    }

    /// Whether a read that came before this one is still passed on.
    pub(super) fn is_behind_passed_on(&self, key: &Key, waiter: &Waiter) -> bool {
        let first = self.of(key, waiter.from).and_then(|reads| reads.passed_on.first());
        first.is_some_and(|arrival| *arrival < waiter.arrival)
    }

    /// Whether reads of this router are held back.
    pub(super) fn holds(&self, key: &Key, from: Peer) -> bool {
        self.of(key, from).is_some_and(|reads| !reads.held.is_empty())
    }

    /// Behind all others.
    pub(super) fn hold(&mut self, waiter: Waiter, read: Read) {
        let reads = self.of_mut(&read.key, waiter.from);
        debug_assert!(reads.held.back().is_none_or(|(last, _)| last.arrival < waiter.arrival));
        reads.held.push_back((waiter, read));
    }

    /// Its turn has not come: before all others once more.
    pub(super) fn hold_first(&mut self, waiter: Waiter, read: Read) {
        self.of_mut(&read.key, waiter.from).held.push_front((waiter, read));
    }

    pub(super) fn next(&mut self, key: &Key, from: Peer) -> Option<HeldRead> {
        self.change(key, from, |reads| reads.held.pop_front()).flatten()
    }

    /// Routers of which reads of this key are held back.
    pub(super) fn held_of(&self, key: &Key) -> SmallVec<[Peer; 2]> {
        let routers = self.keys.get(key).into_iter().flatten();
        routers.filter(|reads| !reads.held.is_empty()).map(|reads| reads.from).collect()
    }

    pub(super) fn passed_on_count(&self) -> usize {
        self.keys.values().flatten().map(|reads| reads.passed_on.len()).sum()
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &HeldRead> {
        self.keys.values().flatten().flat_map(|reads| &reads.held)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::{Digest, Key, Peer, RouterId, View};

    use super::ReadOrder;
    use crate::node::object::Waiter;

    #[test]
    fn each_router_waits_for_its_own() {
        let key = Key { digest: Digest(7), database: 0, bytes: Bytes::from_static(b"k") };
        let waiter = |router, arrival| Waiter {
            from: Peer::Router(RouterId(router)),
            request: arrival,
            resp3: false,
            arrival,
        };
        let read = |waiter: &Waiter| waiter.read(key.clone(), View::GET, Bytes::new());
        let mut order = ReadOrder::default();
        // The third is passed on before the first, as one that was held back for long may be.
        for arrival in [2, 3, 1] {
            order.passed_on(&key, &waiter(0, arrival));
        }
        assert!(!order.is_behind_passed_on(&key, &waiter(0, 1)), "it is the first");
        assert!(!order.is_behind_passed_on(&key, &waiter(1, 4)), "another router's");
        for arrival in 4..6 {
            let waiter = waiter(0, arrival);
            assert!(order.is_behind_passed_on(&key, &waiter));
            order.hold(waiter, read(&waiter));
        }
        assert!(
            order.holds(&key, Peer::Router(RouterId(0))) && !order.holds(&key, Peer::Router(RouterId(1)))
        );
        assert_eq!(order.held_of(&key)[..], [Peer::Router(RouterId(0))]);
        for arrival in [1, 3] {
            order.over(&key, &waiter(0, arrival));
            assert!(order.is_behind_passed_on(&key, &waiter(0, 4)));
        }
        order.over(&key, &waiter(0, 2));
        assert!(!order.is_behind_passed_on(&key, &waiter(0, 4)));
        assert_eq!((order.passed_on_count(), order.held().count()), (0, 2));
        let (first, _) = order.next(&key, Peer::Router(RouterId(0))).unwrap();
        order.hold_first(first, read(&first));
        let router = Peer::Router(RouterId(0));
        let served: Vec<u64> =
            std::iter::from_fn(|| order.next(&key, router)).map(|(it, _)| it.arrival).collect();
        assert_eq!(served, [4, 5]);
        assert!(order.keys.is_empty());
    }
}
