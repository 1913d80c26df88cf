//! Where each object is, in 16 bytes: a compact open-addressing table over digests. Neither keys nor values.
//!
//! An object is known by 40 bits of its digest: eight choose a shard, 32 order the slots within it. Two keys that agree
//! in all of them are one to the index, so the newer displaces the older; whole keys are compared when one is read.
//! A shard grows by a fifth when seven eighths are used, so between 18.3 and 22 bytes are in use per object, and at
//! most one of the shards is ever held twice.

/// 256 shards: growing copies less than half a percent of the table at once.
const SHARDS: usize = 256;
const SLOTS_MIN: usize = 8;

/// What the index knows of an object. `block` is where its bytes are, `moved_to` a virtual block it was updated into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexPlace {
    pub block: u32,
    /// In units, as `units` is.
    pub offset: u32,
    pub units: u32,
    pub moved_to: Option<u32>,
    /// Requests since it was inserted, this one included; 255 stands for more.
    pub frequency: u8,
}

/// Blocks of both kinds are numbered below this.
pub const BLOCKS_MAX: u32 = (1 << 20) - 1;
const NOT_MOVED: u32 = BLOCKS_MAX;

/// A slot's 128 bits, from the highest: tag 32, block 20, virtual block 20, offset 24, units 24, frequency 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexSlot(u128);

const _: () = assert!(size_of::<IndexSlot>() == 16);
const EMPTY: IndexSlot = IndexSlot(0);

impl IndexSlot {
    fn new(tag: u32, place: &IndexPlace) -> IndexSlot {
        let moved_to = place.moved_to.unwrap_or(NOT_MOVED);
        debug_assert!(place.units > 0 && place.block < BLOCKS_MAX && moved_to <= NOT_MOVED);
        debug_assert!(place.offset < 1 << 24 && place.units < 1 << 24);
        IndexSlot(
            u128::from(tag) << 96
                | u128::from(place.block) << 76
                | u128::from(moved_to) << 56
                | u128::from(place.offset) << 32
                | u128::from(place.units) << 8
                | u128::from(place.frequency),
        )
    }

    /// An object has at least one unit, so a slot that holds one is never zero.
    fn is_empty(self) -> bool {
        self == EMPTY
    }

    fn tag(self) -> u32 {
        (self.0 >> 96) as u32
    }

    fn place(self) -> IndexPlace {
        let moved_to = (self.0 >> 56) as u32 & NOT_MOVED;
        IndexPlace {
            block: (self.0 >> 76) as u32 & BLOCKS_MAX,
            offset: (self.0 >> 32) as u32 & 0xff_ffff,
            units: (self.0 >> 8) as u32 & 0xff_ffff,
            moved_to: (moved_to != NOT_MOVED).then_some(moved_to),
            frequency: self.0 as u8,
        }
    }
}

/// Slots in the order of their tags from each one's home on (Robin Hood), so that a search ends early.
#[derive(Debug)]
struct Shard {
    slots: Vec<IndexSlot>,
    used: usize,
}

impl Shard {
    fn with_slots(slots: usize) -> Shard {
        Shard { slots: vec![EMPTY; slots], used: 0 }
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    fn next(&self, index: usize) -> usize {
        if index + 1 == self.slots.len() { 0 } else { index + 1 }
    }

    fn displacement(&self, index: usize) -> usize {
        let home = self.home(self.slots[index].tag());
        if index >= home { index - home } else { index + self.slots.len() - home }
    }

    /// Where the tag is, or where it belongs.
    fn find(&self, tag: u32) -> Result<usize, usize> {
        let mut index = self.home(tag);
        let mut walked = 0;
        loop {
            let slot = self.slots[index];
            if slot.is_empty() {
                return Err(index);
            }
            if slot.tag() == tag {
                return Ok(index);
            }
            if self.displacement(index) < walked {
                return Err(index);
            }
            index = self.next(index);
            walked += 1;
        }
    }

    fn insert_new(&mut self, slot: IndexSlot) {
        if (self.used + 1) * 8 > self.slots.len() * 7 {
            self.resize(self.slots.len() + self.slots.len().div_ceil(5));
        }
        let Err(mut index) = self.find(slot.tag()) else { unreachable!("the tag is new") };
        let mut carried = slot;
        self.used += 1;
        // Pushing the rest of the run on by one keeps everyone's order.
        loop {
            std::mem::swap(&mut self.slots[index], &mut carried);
            if carried.is_empty() {
                return;
            }
            index = self.next(index);
        }
    }

    fn remove_at(&mut self, mut index: usize) {
        self.used -= 1;
        loop {
            let next = self.next(index);
            if self.slots[next].is_empty() || self.displacement(next) == 0 {
                self.slots[index] = EMPTY;
                return;
            }
            self.slots[index] = self.slots[next];
            index = next;
        }
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(self, Shard::with_slots(slots));
        for slot in old.slots.into_iter().filter(|slot| !slot.is_empty()) {
            self.insert_new(slot);
        }
    }
}

#[derive(Debug)]
pub struct Index {
    shards: Vec<Shard>,
    objects: usize,
}

impl Default for Index {
    fn default() -> Index {
        Index { shards: (0..SHARDS).map(|_| Shard::with_slots(SLOTS_MIN)).collect(), objects: 0 }
    }
}

impl Index {
    fn shard(digest: u64) -> usize {
        (digest >> 56) as usize
    }

    fn tag(digest: u64) -> u32 {
        (digest >> 24) as u32
    }

    pub fn len(&self) -> usize {
        self.objects
    }

    pub fn is_empty(&self) -> bool {
        self.objects == 0
    }

    /// Bytes of memory, free slots included.
    pub fn bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|shard| shard.slots.capacity()).sum();
        slots * size_of::<IndexSlot>() + self.shards.capacity() * size_of::<Shard>()
    }

    pub fn get(&self, digest: u64) -> Option<IndexPlace> {
        let shard = &self.shards[Index::shard(digest)];
        shard.find(Index::tag(digest)).ok().map(|index| shard.slots[index].place())
    }

    /// Puts it where it was or adds it; the place it had.
    pub fn insert(&mut self, digest: u64, place: &IndexPlace) -> Option<IndexPlace> {
        let shard = &mut self.shards[Index::shard(digest)];
        let slot = IndexSlot::new(Index::tag(digest), place);
        match shard.find(slot.tag()) {
            Ok(index) => Some(std::mem::replace(&mut shard.slots[index], slot).place()),
            Err(_) => {
                shard.insert_new(slot);
                self.objects += 1;
                None
            }
        }
    }

    pub fn remove(&mut self, digest: u64) -> Option<IndexPlace> {
        let shard = &mut self.shards[Index::shard(digest)];
        let index = shard.find(Index::tag(digest)).ok()?;
        let place = shard.slots[index].place();
        shard.remove_at(index);
        self.objects -= 1;
        Some(place)
    }

    /// Every object once, in no useful order.
    pub fn places(&self) -> impl Iterator<Item = IndexPlace> {
        let slots = self.shards.iter().flat_map(|shard| &shard.slots);
        slots.filter(|slot| !slot.is_empty()).map(|slot| slot.place())
    }

    /// Rewrites or, where `change` says none, drops every object. For rare repairs: it reads the whole table.
    pub fn update_all(&mut self, mut change: impl FnMut(IndexPlace) -> Option<IndexPlace>) {
        for shard in &mut self.shards {
            let fresh = Shard::with_slots(shard.slots.len());
            let old = std::mem::replace(shard, fresh);
            for slot in old.slots.into_iter().filter(|slot| !slot.is_empty()) {
                match change(slot.place()) {
                    Some(place) => shard.insert_new(IndexSlot::new(slot.tag(), &place)),
                    None => self.objects -= 1,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn place(number: u32) -> IndexPlace {
        let moved_to = number.is_multiple_of(3).then_some(number % 1000);
        IndexPlace {
            block: number % 7919,
            offset: number,
            units: number + 1,
            moved_to,
            frequency: number as u8,
        }
    }

    /// Few tags in few shards, so that runs are long and wrap around the end.
    fn digests() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0..3u64, 0..64u64).prop_map(|(shard, tag)| shard << 56 | (u64::from(u32::MAX) - tag) << 24),
            (0..3u64, 0..64u64).prop_map(|(shard, tag)| shard << 56 | (tag << 26) << 24),
            any::<u64>(),
        ]
    }

    proptest! {
        #![proptest_config(cases::proptest(256))]

        #[test]
        fn is_a_map(steps in prop::collection::vec((digests(), 0..4u8, 0..1000u32), 1..800)) {
            let mut index = Index::default();
            let mut twin = BTreeMap::new();
            for (digest, action, number) in steps {
                // The index tells digests apart by 40 bits.
                let known = digest >> 24;
                match action {
                    0 => prop_assert_eq!(index.remove(digest), twin.remove(&known)),
                    1 => prop_assert_eq!(index.get(digest), twin.get(&known).copied()),
                    _ => prop_assert_eq!(index.insert(digest, &place(number)), twin.insert(known, place(number))),
                }
                prop_assert_eq!(index.len(), twin.len());
            }
            for (known, place) in &twin {
                prop_assert_eq!(index.get(known << 24), Some(*place));
            }
            let mut all: Vec<u32> = index.places().map(|place| place.offset).collect();
            let mut expected: Vec<u32> = twin.values().map(|place| place.offset).collect();
            all.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(all, expected);
            index.update_all(|place| (place.offset.is_multiple_of(2)).then_some(IndexPlace { frequency: 9, ..place }));
            twin.retain(|_, place| place.offset.is_multiple_of(2));
            prop_assert_eq!(index.len(), twin.len());
            for (known, place) in &twin {
                prop_assert_eq!(index.get(known << 24), Some(IndexPlace { frequency: 9, ..*place }));
            }
        }
    }

    #[test]
    fn takes_at_most_24_bytes_per_object() {
        let mut index = Index::default();
        for number in 0..400_000u64 {
            index.insert(super::super::record::digest(&number.to_le_bytes(), 1), &place(number as u32));
            if number > 50_000 && number.is_multiple_of(1000) {
                let bytes = index.bytes() as f64 / index.len() as f64;
                assert!((18.0..24.0).contains(&bytes), "{bytes} bytes per object at {number} objects");
            }
        }
    }
}
