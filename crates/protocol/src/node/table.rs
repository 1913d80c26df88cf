//! The objects of a node, found by their keys and looked at one after the other, a few at a time. Not what is done with them.

use hashbrown::HashTable;
use wire::{Digest, Key};

use super::object::Object;

#[derive(Clone, Debug)]
struct Slot {
    key: Key,
    object: Object,
    /// The last pass that has looked at it.
    seen: u8,
}

/// Slots lie close together, so that a pass may stop anywhere and go on there: the last one takes the place of one that goes.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectTable {
    /// Numbers of slots, by the lower half of the digest.
    places: HashTable<u32>,
    slots: Vec<Slot>,
    /// Slots below this number are still to be looked at in this pass.
    left: usize,
    /// How many there were when it began.
    begun: usize,
    pass: u8,
}

/// Slots that are looked at without a rest: enough to tell what is cold, and done in less than a millisecond.
const SLICE: usize = 4096;

fn hash(digest: Digest) -> u64 {
    digest.0 as u64
}

impl ObjectTable {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    fn place(&self, key: &Key) -> Option<usize> {
        let found = self.places.find(hash(key.digest), |place| self.slots[*place as usize].key == *key);
        found.map(|place| *place as usize)
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Object> {
        self.place(key).map(|place| &self.slots[place].object)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Object> {
        self.place(key).map(|place| &mut self.slots[place].object)
    }

    pub(super) fn contains_key(&self, key: &Key) -> bool {
        self.place(key).is_some()
    }

    /// The object with this digest. Keys that share one are as good as the same where nothing is answered.
    pub(super) fn with_digest(&self, digest: Digest) -> Option<(&Key, &Object)> {
        let found = self.places.find(hash(digest), |place| self.slots[*place as usize].key.digest == digest);
        found.map(|place| &self.slots[*place as usize]).map(|slot| (&slot.key, &slot.object))
    }

    /// Puts an object in for a key that has none.
    pub(super) fn insert(&mut self, key: Key, object: Object) {
        let place = self.slots.len() as u32;
        let slots = &self.slots;
        self.places.insert_unique(hash(key.digest), place, |place| hash(slots[*place as usize].key.digest));
        // Not seen in this pass, but the pass does not come there any more.
        self.slots.push(Slot { key, object, seen: self.pass.wrapping_sub(1) });
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Object> {
        let slots = &self.slots;
        let is_it = |place: &u32| slots[*place as usize].key == *key;
        let entry = self.places.find_entry(hash(key.digest), is_it).ok()?;
        let (place, _) = entry.remove();
        let removed = self.slots.swap_remove(place as usize);
        let last = self.slots.len() as u32;
        if place != last {
            let moved = hash(self.slots[place as usize].key.digest);
            if let Some(its) = self.places.find_mut(moved, |number| *number == last) {
                *its = place;
            }
        }
        self.left = self.left.min(self.slots.len());
        Some(removed.object)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Object)> {
        self.slots.iter().map(|slot| (&slot.key, &slot.object))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Object> {
        self.slots.iter().map(|slot| &slot.object)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Object)> {
        self.slots.iter_mut().map(|slot| (&slot.key, &mut slot.object))
    }

    /// Some of the slots from a place that goes round with `turn`.
    pub(super) fn sample(&self, turn: u64, count: usize) -> impl Iterator<Item = (&Key, &Object)> {
        let first = (turn % self.slots.len().max(1) as u64) as usize;
        let (before, after) = self.slots.split_at(first.min(self.slots.len()));
        after.iter().chain(before).take(count).map(|slot| (&slot.key, &slot.object))
    }

    /// Everything is to be looked at once more.
    pub(super) fn begin_pass(&mut self) {
        self.pass = self.pass.wrapping_add(1);
        (self.left, self.begun) = (self.slots.len(), self.slots.len());
    }

    /// Whether this pass has not looked at anything yet; then it may begin anew.
    pub(super) fn is_untouched(&self) -> bool {
        self.left == self.begun
    }

    /// How many slots are to be looked at next, once a pass has taken `share` of its time, in thousandths: a slice, or what is left
    /// at its end.
    pub(super) fn next_slice(&self, share: u64) -> Option<usize> {
        let due = (self.begun as u64 * share / 1000) as usize;
        let behind = due.saturating_sub(self.begun - self.left).min(self.left);
        match share >= 1000 {
            true if self.left > 0 => Some(self.left.min(SLICE)),
            false if behind >= SLICE => Some(SLICE),
            _ => None,
        }
    }

    pub(super) fn look_at(&mut self, slots: usize, mut look: impl FnMut(&Key, &mut Object)) {
        let end = self.left.saturating_sub(slots);
        while self.left > end {
            self.left -= 1;
            let slot = &mut self.slots[self.left];
            // It may have been moved here from behind.
            if slot.seen != self.pass {
                slot.seen = self.pass;
                look(&slot.key, &mut slot.object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use bytes::Bytes;
    use rand::rngs::SmallRng;
    use rand::{RngExt as _, SeedableRng as _};
    use wire::{Digest, Key, ShimId};

    use super::ObjectTable;
    use crate::node::object::Object;

    /// Some share a hash, and some of those a digest.
    fn key(number: u32) -> Key {
        let digest = Digest(u128::from(number / 2 % 7) | u128::from(number / 2) << 64);
        Key { digest, database: 0, bytes: Bytes::from(number.to_string()) }
    }

    #[test]
    fn it_is_a_map() {
        for case in cases::seeds(20) {
            let mut random = SmallRng::seed_from_u64(case.seed);
            let (mut table, mut twin) = (ObjectTable::default(), BTreeMap::new());
            for step in 0..2000 {
                let number = random.random_range(0..60);
                let key = key(number);
                match random.random_range(0..10) {
                    0..4 if !table.contains_key(&key) => {
                        table.insert(key, Object::new(ShimId(0), 0, step));
                        twin.insert(number, step * 16);
                    }
                    0..6 => {
                        let removed = table.remove(&key).map(|object| object.heat);
                        assert_eq!(removed, twin.remove(&number), "seed {}", case.seed);
                    }
                    6 => table.begin_pass(),
                    7 => {
                        table.look_at(random.random_range(0..50), |_, object| assert_eq!(object.heat % 16, 0))
                    }
                    _ => assert_eq!(table.get(&key).map(|object| object.heat), twin.get(&number).copied()),
                }
                assert_eq!(table.len(), twin.len());
            }
        }
    }

    #[test]
    fn a_pass_sees_what_was_there_once_whatever_comes_and_goes() {
        for case in cases::seeds(50) {
            let mut random = SmallRng::seed_from_u64(case.seed);
            let mut table = ObjectTable::default();
            for number in 0..100 {
                table.insert(key(number), Object::new(ShimId(0), 0, 0));
            }
            for _ in 0..3 {
                let there: BTreeSet<Bytes> = table.iter().map(|(key, _)| key.bytes.clone()).collect();
                let (mut seen, mut gone) = (BTreeMap::<Bytes, u32>::new(), BTreeSet::new());
                table.begin_pass();
                for rest in (0..10).rev() {
                    let slots = if rest == 0 { usize::MAX } else { 10 };
                    table.look_at(slots, |key, _| *seen.entry(key.bytes.clone()).or_default() += 1);
                    for _ in 0..8 {
                        let key = key(random.random_range(0..200));
                        if table.remove(&key).is_some() {
                            gone.insert(key.bytes);
                        } else {
                            table.insert(key, Object::new(ShimId(0), 0, 0));
                        }
                    }
                }
                for bytes in there.difference(&gone) {
                    assert_eq!(seen.get(bytes), Some(&1), "seed {}: {bytes:?}", case.seed);
                }
            }
        }
    }
}
