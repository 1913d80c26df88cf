//! Greedy-Dual-Size-Frequency as a heap in which every object knows its place. Not segments.
//!
//! Section 4.3.3: a request gives an object the rank lowest + min(L, n) / size, where n counts its requests since it came
//! and lowest is the rank of what went last.

use super::{ObjectNumber, QueuedObject};

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct RankedObject {
    rank: f64,
    /// In the heap.
    place: u32,
    requests: u8,
}

#[derive(Debug)]
pub(super) struct Ranked {
    standings: Vec<RankedObject>,
    /// The lowest first.
    heap: Vec<ObjectNumber>,
    frequency_max: u8,
    lowest: f64,
    bytes: u64,
    bytes_max: u64,
}

impl Ranked {
    pub(super) fn new(frequency_max: u8, bytes_max: u64) -> Ranked {
        Ranked { standings: Vec::new(), heap: Vec::new(), frequency_max, lowest: 0.0, bytes: 0, bytes_max }
    }

    pub(super) fn insert(&mut self, number: ObjectNumber, objects: &[QueuedObject]) {
        if self.standings.len() < objects.len() {
            self.standings.resize(objects.len(), RankedObject { rank: 0.0, place: NOWHERE, requests: 0 });
        }
        self.bytes += u64::from(objects[number as usize].bytes);
        let place = self.heap.len();
        self.standings[number as usize] = RankedObject { rank: 0.0, place: place as u32, requests: 0 };
        self.heap.push(number);
        self.hit(number, objects[number as usize].bytes, objects);
    }

    /// It had so many bytes before.
    pub(super) fn hit(&mut self, number: ObjectNumber, before: u32, objects: &[QueuedObject]) {
        self.bytes += u64::from(objects[number as usize].bytes);
        self.bytes -= u64::from(before);
        let standing = &mut self.standings[number as usize];
        standing.requests = standing.requests.saturating_add(1);
        let counted = f64::from(standing.requests.min(self.frequency_max));
        standing.rank = self.lowest + counted / f64::from(objects[number as usize].bytes);
        let place = standing.place as usize;
        self.sink(place, objects);
        // A newcomer, or one that has grown, may be below its parent.
        self.rise(self.standings[number as usize].place as usize, objects);
    }

    pub(super) fn remove(&mut self, number: ObjectNumber, objects: &[QueuedObject]) {
        self.bytes -= u64::from(objects[number as usize].bytes);
        let place = std::mem::replace(&mut self.standings[number as usize].place, NOWHERE) as usize;
        self.heap.swap_remove(place);
        if let Some(moved) = self.heap.get(place).copied() {
            self.standings[moved as usize].place = place as u32;
            self.sink(place, objects);
            self.rise(self.standings[moved as usize].place as usize, objects);
        }
    }

    pub(super) fn resize(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Takes the lowest object out if there are too many.
    pub(super) fn evict(&mut self, objects: &[QueuedObject]) -> Option<ObjectNumber> {
        if self.bytes <= self.bytes_max {
            return None;
        }
        let number = *self.heap.first()?;
        self.lowest = self.standings[number as usize].rank;
        self.remove(number, objects);
        Some(number)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.standings.capacity() * size_of::<RankedObject>()
            + self.heap.capacity() * size_of::<ObjectNumber>()
    }

    /// Whether what stands at one place goes before what stands at the other; of equals the larger.
    fn is_lower(&self, one: usize, other: usize, objects: &[QueuedObject]) -> bool {
        let (one, other) = (self.heap[one] as usize, self.heap[other] as usize);
        let ranks = self.standings[one].rank.total_cmp(&self.standings[other].rank);
        ranks.then(objects[other].bytes.cmp(&objects[one].bytes)).is_lt()
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for place in [one, other] {
            self.standings[self.heap[place] as usize].place = place as u32;
        }
    }

    fn sink(&mut self, mut place: usize, objects: &[QueuedObject]) {
        loop {
            let mut lower = place;
            for child in (2 * place + 1..2 * place + 3).take_while(|child| *child < self.heap.len()) {
                if self.is_lower(child, lower, objects) {
                    lower = child;
                }
            }
            if lower == place {
                return;
            }
            self.swap(place, lower);
            place = lower;
        }
    }

    fn rise(&mut self, mut place: usize, objects: &[QueuedObject]) {
        while place > 0 && self.is_lower(place, (place - 1) / 2, objects) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }
}
