//! W-TinyLFU (Einziger et al., TOS '17), with the shares of Caffeine: a small LRU window, and behind it a segmented LRU
//! that the window's oldest object enters only if it was requested more often than the one that would leave.

use super::queue::{NOWHERE, QueuePlace, SlotQueue, queue_of};
use super::sizes::ObjectSizes;
use super::sketch::FrequencySketch;
use super::{ObjectRequest, Policy};

/// The main part's share of the cache, and the protected segment's of that, in percent.
const MAIN_PERCENT: u64 = 99;
const PROTECTED_PERCENT: u64 = 80;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

#[derive(Clone, Debug)]
pub struct WTinyLfu {
    capacity: u64,
    window_bytes_max: u64,
    protected_bytes_max: u64,
    places: Vec<QueuePlace>,
    sizes: ObjectSizes,
    segments: [SlotQueue; 3],
    bytes: [u64; 3],
    cached: usize,
    sketch: FrequencySketch,
}

impl WTinyLfu {
    pub fn new(capacity: u64) -> WTinyLfu {
        let main = percent(capacity, MAIN_PERCENT);
        WTinyLfu {
            capacity,
            window_bytes_max: capacity - main,
            protected_bytes_max: percent(main, PROTECTED_PERCENT),
            places: Vec::new(),
            sizes: ObjectSizes::default(),
            segments: [1, 2, 3].map(SlotQueue::new),
            bytes: [0; 3],
            cached: 0,
            sketch: FrequencySketch::new(),
        }
    }

    fn hit(&mut self, object: u32, segment: usize) {
        let to = if segment == PROBATION { PROTECTED } else { segment };
        if to != segment {
            self.bytes[segment] -= self.sizes.get(object);
            self.bytes[to] += self.sizes.get(object);
        }
        self.segments[to].push(&mut self.places, object);
        while self.bytes[PROTECTED] > self.protected_bytes_max {
            let Some(object) = self.take_oldest(PROTECTED) else { break };
            self.enter(PROBATION, object);
        }
    }

    fn enter(&mut self, segment: usize, object: u32) {
        self.bytes[segment] += self.sizes.get(object);
        self.segments[segment].push(&mut self.places, object);
    }

    fn take_oldest(&mut self, segment: usize) -> Option<u32> {
        let object = self.segments[segment].pop(&mut self.places)?;
        self.bytes[segment] -= self.sizes.get(object);
        Some(object)
    }

    /// Lets the window's oldest objects try to enter the main part.
    fn overflow(&mut self) {
        while self.bytes[WINDOW] > self.window_bytes_max {
            let Some(candidate) = self.take_oldest(WINDOW) else { break };
            if self.admit(candidate) {
                self.enter(PROBATION, candidate);
            } else {
                self.cached -= 1;
            }
        }
    }

    /// Puts out what must leave for the candidate, unless it is requested as often: then it must leave itself.
    fn admit(&mut self, candidate: u32) -> bool {
        let bytes = self.sizes.get(candidate);
        let frequency = self.sketch.frequency(candidate);
        while self.bytes.iter().sum::<u64>() + bytes > self.capacity {
            let segment = if self.bytes[PROBATION] > 0 { PROBATION } else { PROTECTED };
            let Some(victim) = self.segments[segment].peek(&self.places) else { return false };
            if frequency <= self.sketch.frequency(victim) {
                return false;
            }
            self.take_oldest(segment);
            self.cached -= 1;
        }
        true
    }
}

impl Policy for WTinyLfu {
    fn reserve(&mut self, objects: usize) {
        self.places.resize(objects, NOWHERE);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        self.sketch.increment(request.object);
        let place = self.places[request.object as usize];
        if place != NOWHERE {
            self.hit(request.object, queue_of(place) as usize - 1);
            return true;
        }
        if u64::from(request.bytes) <= self.capacity {
            self.sizes.set(request.object, request.bytes);
            self.cached += 1;
            self.sketch.reserve(self.cached);
            self.enter(WINDOW, request.object);
            self.overflow();
        }
        false
    }

    fn memory(&self) -> usize {
        let queues: usize = self.segments.iter().map(SlotQueue::memory).sum();
        self.places.capacity() * size_of::<QueuePlace>() + self.sizes.memory() + queues + self.sketch.memory()
    }
}

fn percent(capacity: u64, percent: u64) -> u64 {
    (u128::from(capacity) * u128::from(percent) / 100) as u64
}
