//! S3-FIFO (Yang et al., SOSP '23): a small FIFO queue for what is new, a main one for what was requested again, and a
//! ghost queue of what left the small one lately. As the authors' simulator had it for the paper.

use std::collections::VecDeque;

use super::queue::{NOWHERE, QueuePlace, SlotQueue};
use super::sizes::ObjectSizes;
use super::{ObjectRequest, Policy};

/// Shares of the cache, in percent: the small queue's, and the bytes that the ghosts had.
const SMALL_PERCENT: u64 = 10;
const GHOSTS_PERCENT: u64 = 90;
/// Requests that take an object from the small queue to the main one.
const REQUESTS_TO_MAIN: u8 = 2;
const COUNTED_MAX: u8 = 3;

/// What is known of a cached object: 1 and its requests since it came into its queue. 0 for one that is not cached.
type ObjectState = u8;
const ABSENT: ObjectState = 0;
const PRESENT: ObjectState = 1;

#[derive(Clone, Debug)]
pub struct S3Fifo {
    capacity: u64,
    main_bytes_max: u64,
    ghosts_bytes_max: u64,
    states: Vec<ObjectState>,
    sizes: ObjectSizes,
    small: FifoQueue,
    main: FifoQueue,
    places: Vec<QueuePlace>,
    ghosts: SlotQueue,
    ghosts_bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct FifoQueue {
    objects: VecDeque<u32>,
    bytes: u64,
}

impl S3Fifo {
    pub fn new(capacity: u64) -> S3Fifo {
        S3Fifo {
            capacity,
            main_bytes_max: capacity - percent(capacity, SMALL_PERCENT),
            ghosts_bytes_max: percent(capacity, GHOSTS_PERCENT),
            states: Vec::new(),
            sizes: ObjectSizes::default(),
            small: FifoQueue::default(),
            main: FifoQueue::default(),
            places: Vec::new(),
            ghosts: SlotQueue::new(1),
            ghosts_bytes: 0,
        }
    }

    fn evict(&mut self) {
        if self.main.bytes > self.main_bytes_max || self.small.objects.is_empty() {
            self.evict_from_main();
        } else {
            self.evict_from_small();
        }
    }

    /// Objects that were requested again move on, until one leaves or none is left.
    fn evict_from_small(&mut self) {
        while let Some(object) = self.small.objects.pop_front() {
            let bytes = self.sizes.get(object);
            self.small.bytes -= bytes;
            let state = &mut self.states[object as usize];
            if *state < PRESENT + REQUESTS_TO_MAIN {
                *state = ABSENT;
                return self.remember(object, bytes);
            }
            *state = PRESENT;
            self.main.bytes += bytes;
            self.main.objects.push_back(object);
        }
    }

    fn evict_from_main(&mut self) {
        while let Some(object) = self.main.objects.pop_front() {
            let state = &mut self.states[object as usize];
            *state -= 1;
            if *state == ABSENT {
                self.main.bytes -= self.sizes.get(object);
                return;
            }
            self.main.objects.push_back(object);
        }
    }

    /// The size of a ghost is the one that it had; nothing overwrites it while it is not cached.
    fn remember(&mut self, object: u32, bytes: u64) {
        if bytes > self.ghosts_bytes_max {
            return;
        }
        while self.ghosts_bytes + bytes > self.ghosts_bytes_max {
            let Some(oldest) = self.ghosts.pop(&mut self.places) else { break };
            self.ghosts_bytes -= self.sizes.get(oldest);
        }
        self.ghosts_bytes += bytes;
        self.ghosts.push(&mut self.places, object);
    }

    /// Whether the object was a ghost; it no longer is.
    fn recall(&mut self, object: u32) -> bool {
        let place = std::mem::replace(&mut self.places[object as usize], NOWHERE);
        if place != NOWHERE {
            self.ghosts_bytes -= self.sizes.get(object);
        }
        place != NOWHERE
    }
}

impl Policy for S3Fifo {
    fn reserve(&mut self, objects: usize) {
        self.states.resize(objects, ABSENT);
        self.places.resize(objects, NOWHERE);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let state = &mut self.states[request.object as usize];
        if *state != ABSENT {
            *state = (*state + 1).min(PRESENT + COUNTED_MAX);
            return true;
        }
        let recalled = self.recall(request.object);
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.small.bytes + self.main.bytes + bytes > self.capacity {
            self.evict();
        }
        self.states[request.object as usize] = PRESENT;
        self.sizes.set(request.object, request.bytes);
        let queue = if recalled { &mut self.main } else { &mut self.small };
        queue.bytes += bytes;
        queue.objects.push_back(request.object);
        false
    }

    fn memory(&self) -> usize {
        let words = self.places.capacity() + self.small.objects.capacity() + self.main.objects.capacity();
        self.states.capacity() + self.sizes.memory() + words * size_of::<u32>() + self.ghosts.memory()
    }
}

fn percent(capacity: u64, percent: u64) -> u64 {
    (u128::from(capacity) * u128::from(percent) / 100) as u64
}
