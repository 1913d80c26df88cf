//! The objects of a node, found by their keys and looked at one after the other, a few at a time. Not what is done with them.

use std::time::Duration;

use hashbrown::HashTable;
use wire::{Digest, Key, ShimId};

use super::object::Object;

/// Objects close together, in blocks, so that more of them move none of those there are.
#[derive(Clone, Debug, Default)]
struct Slots {
    /// All full but the last.
    blocks: Vec<Vec<Object>>,
    len: usize,
}

const BLOCK: usize = 1024;

impl Slots {
    fn get(&self, place: usize) -> &Object {
        &self.blocks[place / BLOCK][place % BLOCK]
    }

    fn get_mut(&mut self, place: usize) -> &mut Object {
        &mut self.blocks[place / BLOCK][place % BLOCK]
    }

    fn push(&mut self, object: Object) {
        if self.len.is_multiple_of(BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        self.blocks[self.len / BLOCK].push(object);
        self.len += 1;
    }

    /// Takes one out, whose place the last one takes.
    fn swap_remove(&mut self, place: usize) -> Option<Object> {
        let last_block = self.blocks.last_mut()?;
        let last = last_block.pop()?;
        if last_block.is_empty() {
            self.blocks.pop();
        }
        self.len -= 1;
        Some(if place == self.len { last } else { std::mem::replace(self.get_mut(place), last) })
    }

    fn iter(&self) -> impl Iterator<Item = &Object> {
        self.blocks.iter().flatten()
    }

    fn iter_from(&self, first: usize) -> impl Iterator<Item = &Object> {
        let (block, within) = (first / BLOCK, first % BLOCK);
        let begun = self.blocks.get(block).map_or(&[][..], |block| block.get(within..).unwrap_or(&[]));
        begun.iter().chain(self.blocks.iter().skip(block + 1).flatten())
    }
}

/// Numbers of slots by the lower half of the digest, in parts, so that growing takes a part of the time.
#[derive(Clone, Debug)]
struct Index(Box<[HashTable<u32>; INDEX_PARTS]>);

const INDEX_PARTS: usize = 256;

/// By bits that a table of some thousands does not look at.
fn part_of(half: u64) -> usize {
    (half >> 40) as usize % INDEX_PARTS
}

impl Default for Index {
    fn default() -> Index {
        Index(Box::new(std::array::from_fn(|_| HashTable::new())))
    }
}

impl Index {
    fn part(&self, half: u64) -> &HashTable<u32> {
        &self.0[part_of(half)]
    }

    fn part_mut(&mut self, half: u64) -> &mut HashTable<u32> {
        &mut self.0[part_of(half)]
    }
}

/// The objects of one shim that are there.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectLife {
    number: u16,
    objects: usize,
    bytes: u64,
}

/// Slots lie close together, so that a pass may stop anywhere and go on there: the last one takes the place of one that goes.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectTable {
    index: Index,
    slots: Slots,
    /// By shim: objects of an earlier life are gone, though some of them still take a slot.
    lives: Vec<ObjectLife>,
    /// What is there of all shims.
    objects: usize,
    bytes: u64,
    /// Slots below this number are still to be looked at in this pass.
    left: usize,
    /// How many there were when it began.
    begun: usize,
    pass: u8,
}

/// Slots that are looked at without a rest: enough to tell what is cold, and done in less than a millisecond.
const SLICE: usize = 4096;
/// Slots that are freed of them at most: that takes several times as long.
const FREED_MAX: usize = 512;

/// The lower half of a digest.
pub(super) fn half_of(digest: Digest) -> u64 {
    digest.0 as u64
}

impl ObjectTable {
    pub(super) fn len(&self) -> usize {
        self.objects
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the counts kept beside the objects agree with them.
    pub(super) fn is_consistent(&self) -> bool {
        let of_lives = self
            .lives
            .iter()
            .fold((0, 0), |(objects, bytes), life| (objects + life.objects, bytes + life.bytes));
        let there =
            self.iter().fold((0, 0), |(objects, bytes), object| (objects + 1, bytes + object.bytes()));
        of_lives == there && there == (self.objects, self.bytes)
    }

    /// Objects of one shim.
    pub(super) fn count_of(&self, shim: ShimId) -> usize {
        self.lives.get(usize::from(shim.0)).map_or(0, |life| life.objects)
    }

    fn is_there(&self, object: &Object) -> bool {
        self.lives[usize::from(object.shim.0)].number == object.life
    }

    /// The slot of a key, which may hold what is gone.
    fn slot(&self, key: &Key) -> Option<usize> {
        let half = half_of(key.digest);
        let is_it = |place: &u32| self.slots.get(*place as usize).is_of(key);
        self.index.part(half).find(half, is_it).map(|place| *place as usize)
    }

    fn place(&self, key: &Key) -> Option<usize> {
        self.slot(key).filter(|place| self.is_there(self.slots.get(*place)))
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Object> {
        self.place(key).map(|place| self.slots.get(place))
    }

    /// For changes that leave what the object takes as it is.
    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Object> {
        self.place(key).map(|place| self.slots.get_mut(place))
    }

    /// Changes an object, which may take more or less afterwards.
    pub(super) fn change<T>(&mut self, key: &Key, change: impl FnOnce(&mut Object) -> T) -> Option<T> {
        let place = self.place(key)?;
        let object = self.slots.get_mut(place);
        let before = object.bytes();
        let outcome = change(object);
        let (after, shim) = (object.bytes(), object.shim);
        self.count(shim, |_, bytes| *bytes = *bytes - before + after);
        Some(outcome)
    }

    fn count(&mut self, shim: ShimId, change: impl Fn(&mut usize, &mut u64)) {
        let life = &mut self.lives[usize::from(shim.0)];
        change(&mut life.objects, &mut life.bytes);
        change(&mut self.objects, &mut self.bytes);
    }

    pub(super) fn contains_key(&self, key: &Key) -> bool {
        self.place(key).is_some()
    }

    /// The object whose digest has this lower half. Keys that share it are as good as the same where nothing is answered.
    pub(super) fn with_half(&self, half: u64) -> Option<&Object> {
        let is_it = |place: &u32| {
            let object = self.slots.get(*place as usize);
            half_of(object.digest()) == half && self.is_there(object)
        };
        let found = self.index.part(half).find(half, is_it);
        found.map(|place| self.slots.get(*place as usize))
    }

    /// Puts an object in for a key that has none.
    pub(super) fn insert(&mut self, mut object: Object, key: &Key) {
        if let Some(gone) = self.slot(key) {
            self.free(gone);
        }
        let shim = usize::from(object.shim.0);
        if self.lives.len() <= shim {
            self.lives.resize(shim + 1, ObjectLife::default());
        }
        object.life = self.lives[shim].number;
        let added = object.bytes();
        self.count(object.shim, |objects, bytes| (*objects, *bytes) = (*objects + 1, *bytes + added));
        let (place, slots, half) = (self.slots.len as u32, &self.slots, half_of(object.digest()));
        let hash_of = |place: &u32| half_of(slots.get(*place as usize).digest());
        self.index.part_mut(half).insert_unique(half, place, hash_of);
        // Not seen in this pass, but the pass does not come there any more.
        object.seen = self.pass.wrapping_sub(1);
        self.slots.push(object);
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Object> {
        let place = self.place(key)?;
        let removed = self.free(place)?;
        let freed = removed.bytes();
        self.count(removed.shim, |objects, bytes| (*objects, *bytes) = (*objects - 1, *bytes - freed));
        Some(removed)
    }

    /// All objects of one shim are gone. Their slots are freed by the next pass, or by what comes in for the same keys.
    pub(super) fn remove_all(&mut self, shim: ShimId) {
        let life = self.lives.get_mut(usize::from(shim.0)).filter(|life| life.objects > 0);
        let Some(life) = life else { return };
        let next = life.number.checked_add(1);
        (self.objects, self.bytes) = (self.objects - life.objects, self.bytes - life.bytes);
        *life = ObjectLife { number: next.unwrap_or(0), ..ObjectLife::default() };
        if next.is_none() {
            // What is left of an earlier life with that number would be there again.
            self.free_all(shim);
        }
    }

    fn free_all(&mut self, shim: ShimId) {
        for place in (0..self.slots.len).rev() {
            if self.slots.get(place).shim == shim {
                self.free(place);
            }
        }
    }

    fn free(&mut self, place: usize) -> Option<Object> {
        let half = half_of(self.slots.get(place).digest());
        let entry = self.index.part_mut(half).find_entry(half, |number| *number as usize == place).ok()?;
        entry.remove();
        let freed = self.slots.swap_remove(place);
        let last = self.slots.len;
        if place != last {
            let moved = half_of(self.slots.get(place).digest());
            let its = self.index.part_mut(moved).find_mut(moved, |number| *number as usize == last);
            if let Some(its) = its {
                *its = place as u32;
            }
        }
        self.left = self.left.min(last);
        freed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Object> {
        self.slots.iter().filter(|object| self.is_there(object))
    }

    /// Some of the slots from a place that goes round with `turn`.
    pub(super) fn sample(&self, turn: u64, count: usize) -> impl Iterator<Item = &Object> {
        let first = (turn % self.slots.len.max(1) as u64) as usize;
        let round = self.slots.iter_from(first).chain(self.slots.iter().take(first)).take(count);
        round.filter(|object| self.is_there(object))
    }

    /// Everything is to be looked at once more.
    pub(super) fn begin_pass(&mut self) {
        self.pass = self.pass.wrapping_add(1);
        (self.left, self.begun) = (self.slots.len, self.slots.len);
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

    /// In what time a slice is due, where a pass takes `whole`.
    pub(super) fn rest(&self, whole: Duration) -> Duration {
        match self.slots.len <= SLICE {
            true => whole,
            false => whole * SLICE as u32 / self.slots.len as u32,
        }
    }

    pub(super) fn look_at(&mut self, slots: usize, mut look: impl FnMut(&mut Object)) {
        let (end, mut freed) = (self.left.saturating_sub(slots), 0);
        while self.left > end {
            self.left -= 1;
            if !self.is_there(self.slots.get(self.left)) {
                // What is left of a great many goes in the next passes.
                if freed < FREED_MAX {
                    self.free(self.left);
                    freed += 1;
                }
                continue;
            }
            let object = self.slots.get_mut(self.left);
            // It may have been moved here from behind.
            if object.seen != self.pass {
                object.seen = self.pass;
                look(object);
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
    use wire::{Digest, Key, ShimId, View};

    use super::ObjectTable;
    use crate::node::object::Object;

    /// Some share a hash, and some of those a digest.
    fn key(number: u32) -> Key {
        let half = u128::from(number / 2 % 7) | u128::from(number / 60) << 40;
        let digest = Digest(half | u128::from(number / 2) << 64);
        Key { digest, database: 0, bytes: Bytes::from(number.to_string()) }
    }

    fn shim_of(number: u32) -> ShimId {
        ShimId((number % 2) as u16)
    }

    fn insert(table: &mut ObjectTable, number: u32, heat: u32) {
        let key = key(number);
        table.insert(Object::new(shim_of(number), &key, View::GET, heat), &key);
    }

    #[test]
    fn it_is_a_map() {
        for case in cases::seeds(20) {
            let mut random = SmallRng::seed_from_u64(case.seed);
            let (mut table, mut twin) = (ObjectTable::default(), BTreeMap::new());
            // In one block of slots and in several.
            let keys = [60, 3000][case.seed as usize % 2];
            for number in 0..keys {
                insert(&mut table, number, 0);
                twin.insert(number, 0);
            }
            for step in 0..2000 + 3 * keys {
                let number = random.random_range(0..keys);
                let key = key(number);
                match random.random_range(0..10) {
                    0..4 if !table.contains_key(&key) => {
                        insert(&mut table, number, step);
                        twin.insert(number, step * 16);
                    }
                    0..6 => {
                        let removed = table.remove(&key).map(|object| object.heat);
                        assert_eq!(removed, twin.remove(&number), "seed {}", case.seed);
                    }
                    6 => table.begin_pass(),
                    7 => table.look_at(random.random_range(0..50), |object| assert_eq!(object.heat % 16, 0)),
                    8 if random.random_ratio(1, 50) => {
                        table.remove_all(shim_of(number));
                        twin.retain(|other, _| shim_of(*other) != shim_of(number));
                    }
                    _ => assert_eq!(table.get(&key).map(|object| object.heat), twin.get(&number).copied()),
                }
                assert_eq!(table.len(), twin.len());
            }
            let there: BTreeSet<Bytes> = table.iter().map(|object| object.key().bytes).collect();
            assert_eq!(there, twin.keys().map(|number| key(*number).bytes).collect());
            assert!(table.is_consistent());
            while table.slots.len > table.len() {
                let slots = table.slots.len;
                table.begin_pass();
                table.look_at(usize::MAX, |_| {});
                assert!(table.slots.len < slots, "a pass frees some of what is gone");
            }
        }
    }

    #[test]
    fn what_is_gone_never_comes_back_however_many_lives_there_are() {
        let mut table = ObjectTable::default();
        insert(&mut table, 0, 0);
        for _ in 0..=u16::MAX {
            table.remove_all(shim_of(0));
            insert(&mut table, 2, 0);
            assert!(!table.contains_key(&key(0)) && table.len() == 1);
        }
        assert!(table.is_consistent() && table.slots.len == 1);
    }

    #[test]
    fn a_pass_sees_what_was_there_once_whatever_comes_and_goes() {
        for case in cases::seeds(50) {
            let mut random = SmallRng::seed_from_u64(case.seed);
            let mut table = ObjectTable::default();
            for number in 0..100 {
                insert(&mut table, number, 0);
            }
            for _ in 0..3 {
                let there: BTreeSet<Bytes> = table.iter().map(|object| object.key().bytes).collect();
                let (mut seen, mut gone) = (BTreeMap::<Bytes, u32>::new(), BTreeSet::new());
                table.begin_pass();
                for rest in (0..10).rev() {
                    let slots = if rest == 0 { usize::MAX } else { 10 };
                    table.look_at(slots, |object| *seen.entry(object.key().bytes).or_default() += 1);
                    for _ in 0..8 {
                        let number = random.random_range(0..200);
                        if table.remove(&key(number)).is_some() {
                            gone.insert(key(number).bytes);
                        } else {
                            insert(&mut table, number, 0);
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
