//! A list of objects in order of their last push, from which any object leaves at once. Not what its order means.
//!
//! A push writes two words: the object behind the newest slot of a ring, and the slot into the object's place. Where the
//! object stood before is left as it is; a slot counts only while its object's place points back to it. Stale slots are
//! skipped by `pop` and swept out when the ring is full, so that every operation takes constant time on average, and
//! none follows pointers from object to object.

/// Where each object stands: the number of its queue and its slot there, or 0 for nowhere.
pub(crate) type QueuePlace = u32;

pub(crate) const NOWHERE: QueuePlace = 0;
const SLOT_BITS: u32 = 28;
const CAPACITY_MIN: u32 = 64;

/// As many objects as a ring can hold live when it must grow; the interner gives out no more.
pub const OBJECTS_MAX: usize = 1 << (SLOT_BITS - 1);
/// Queues that can share one array of places.
pub(crate) const QUEUES_MAX: u32 = (1 << (QueuePlace::BITS - SLOT_BITS)) - 1;

/// The number of the queue in which an object with this place stands; 0 for none.
pub(crate) fn queue_of(place: QueuePlace) -> u32 {
    place >> SLOT_BITS
}

#[derive(Clone, Debug)]
pub(crate) struct SlotQueue {
    tag: QueuePlace,
    /// A power of two of them.
    slots: Vec<u32>,
    /// The oldest slot and the one after the newest; they count on beyond the length of `slots`.
    oldest: u32,
    end: u32,
}

impl SlotQueue {
    /// Queues that share places have different numbers, from 1 on.
    pub(crate) fn new(number: u32) -> SlotQueue {
        assert!((1..=QUEUES_MAX).contains(&number), "{number} is not the number of a queue");
        SlotQueue { tag: number << SLOT_BITS, slots: vec![0; CAPACITY_MIN as usize], oldest: 0, end: 0 }
    }

    /// Puts the object at the newest end, wherever it stood among the queues of these places.
    #[inline]
    pub(crate) fn push(&mut self, places: &mut [QueuePlace], object: u32) {
        if self.end.wrapping_sub(self.oldest) as usize == self.slots.len() {
            self.make_room(places);
        }
        let slot = self.slot(self.end);
        self.slots[slot as usize] = object;
        places[object as usize] = self.tag | slot;
        self.end = self.end.wrapping_add(1);
    }

    /// Takes the oldest object out; it then stands nowhere.
    #[inline]
    pub(crate) fn pop(&mut self, places: &mut [QueuePlace]) -> Option<u32> {
        let object = self.peek(places)?;
        self.oldest = self.oldest.wrapping_add(1);
        places[object as usize] = NOWHERE;
        Some(object)
    }

    /// The oldest object.
    #[inline]
    pub(crate) fn peek(&mut self, places: &[QueuePlace]) -> Option<u32> {
        while self.oldest != self.end {
            let slot = self.slot(self.oldest);
            let object = self.slots[slot as usize];
            if places[object as usize] == self.tag | slot {
                return Some(object);
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
        None
    }

    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    fn slot(&self, position: u32) -> u32 {
        position & (self.slots.len() as u32 - 1)
    }

    /// Sweeps the stale slots out, and doubles the ring where they were less than half of it.
    #[cold]
    fn make_room(&mut self, places: &mut [QueuePlace]) {
        let mut kept = self.oldest;
        for position in (0..self.slots.len() as u32).map(|offset| self.oldest.wrapping_add(offset)) {
            let (from, to) = (self.slot(position), self.slot(kept));
            let object = self.slots[from as usize];
            let place = &mut places[object as usize];
            if *place == self.tag | from {
                self.slots[to as usize] = object;
                *place = self.tag | to;
                kept = kept.wrapping_add(1);
            }
        }
        self.end = kept;
        let live = self.end.wrapping_sub(self.oldest);
        if live as usize > self.slots.len() / 2 {
            self.grow(places, live);
        }
    }

    fn grow(&mut self, places: &mut [QueuePlace], live: u32) {
        let capacity = self.slots.len() * 2;
        assert!(capacity <= 1 << SLOT_BITS, "more objects than OBJECTS_MAX in a queue");
        let mut slots = vec![0; capacity];
        for (to, slot) in (0..live).zip(&mut slots) {
            *slot = self.slots[self.slot(self.oldest.wrapping_add(to)) as usize];
            places[*slot as usize] = self.tag | to;
        }
        (self.slots, self.oldest, self.end) = (slots, 0, live);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(cases::proptest(256))]

        /// Two queues that share places, against two lists.
        #[test]
        fn queues_are_lists(steps in proptest::collection::vec((0_u32..4, 0_u32..100), 0..2000)) {
            let mut places = vec![NOWHERE; 100];
            let mut queues = [SlotQueue::new(1), SlotQueue::new(QUEUES_MAX)];
            let mut lists = [VecDeque::new(), VecDeque::new()];
            for (step, object) in steps {
                let which = (step % 2) as usize;
                if step < 2 {
                    lists.iter_mut().for_each(|list| list.retain(|other| *other != object));
                    lists[which].push_back(object);
                    queues[which].push(&mut places, object);
                    prop_assert_eq!(queue_of(places[object as usize]), [1, QUEUES_MAX][which]);
                } else {
                    let popped = lists[which].pop_front();
                    prop_assert_eq!(queues[which].pop(&mut places), popped);
                    prop_assert!(popped.is_none_or(|object| places[object as usize] == NOWHERE));
                }
                prop_assert_eq!(queues[which].peek(&places), lists[which].front().copied());
            }
        }
    }

    #[test]
    fn a_ring_stays_within_four_slots_for_each_live_object() {
        let mut places = vec![NOWHERE; 1000];
        let mut queue = SlotQueue::new(1);
        for object in (0..1000).cycle().take(100_000) {
            queue.push(&mut places, object);
        }
        assert!(queue.memory() <= 1000 * 16, "{}", queue.memory());
    }
}
