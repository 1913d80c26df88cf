//! 2Q in its full version (Johnson and Shasha, VLDB '94): what is new passes through a FIFO queue; only what is requested
//! again soon after it left that one enters the main LRU queue.

use std::collections::VecDeque;

use super::queue::{NOWHERE, QueuePlace, SlotQueue, queue_of};
use super::sizes::ObjectSizes;
use super::{ObjectRequest, Policy};

/// The paper's A1out and Am, as numbers of queues.
const OUT: u32 = 1;
const MAIN: u32 = 2;

#[derive(Clone, Debug)]
pub struct TwoQ {
    capacity: u64,
    /// Kin and Kout, the paper's 25 % and 50 % of the cache.
    new_bytes_max: u64,
    out_bytes_max: u64,
    /// Whether an object is in A1in; in the others its place says so.
    is_new: Vec<bool>,
    places: Vec<QueuePlace>,
    sizes: ObjectSizes,
    new: VecDeque<u32>,
    out: SlotQueue,
    main: SlotQueue,
    new_bytes: u64,
    out_bytes: u64,
    main_bytes: u64,
}

impl TwoQ {
    pub fn new(capacity: u64) -> TwoQ {
        TwoQ {
            capacity,
            new_bytes_max: capacity / 4,
            out_bytes_max: capacity / 2,
            is_new: Vec::new(),
            places: Vec::new(),
            sizes: ObjectSizes::default(),
            new: VecDeque::new(),
            out: SlotQueue::new(OUT),
            main: SlotQueue::new(MAIN),
            new_bytes: 0,
            out_bytes: 0,
            main_bytes: 0,
        }
    }

    /// The paper's reclaimfor.
    fn reclaim(&mut self) {
        if self.new_bytes > self.new_bytes_max || self.main_bytes == 0 {
            let Some(object) = self.new.pop_front() else { return };
            let bytes = self.sizes.get(object);
            self.is_new[object as usize] = false;
            self.new_bytes -= bytes;
            self.remember(object, bytes);
        } else if let Some(object) = self.main.pop(&mut self.places) {
            self.main_bytes -= self.sizes.get(object);
        }
    }

    fn remember(&mut self, object: u32, bytes: u64) {
        if bytes > self.out_bytes_max {
            return;
        }
        while self.out_bytes + bytes > self.out_bytes_max {
            let Some(oldest) = self.out.pop(&mut self.places) else { break };
            self.out_bytes -= self.sizes.get(oldest);
        }
        self.out_bytes += bytes;
        self.out.push(&mut self.places, object);
    }
}

impl Policy for TwoQ {
    fn reserve(&mut self, objects: usize) {
        self.is_new.resize(objects, false);
        self.places.resize(objects, NOWHERE);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let object = request.object;
        let queue = queue_of(self.places[object as usize]);
        if queue == MAIN {
            self.main.push(&mut self.places, object);
            return true;
        }
        if self.is_new[object as usize] {
            return true;
        }
        if queue == OUT {
            self.places[object as usize] = NOWHERE;
            self.out_bytes -= self.sizes.get(object);
        }
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.new_bytes + self.main_bytes + bytes > self.capacity {
            self.reclaim();
        }
        self.sizes.set(object, request.bytes);
        if queue == OUT {
            self.main_bytes += bytes;
            self.main.push(&mut self.places, object);
        } else {
            self.new_bytes += bytes;
            self.is_new[object as usize] = true;
            self.new.push_back(object);
        }
        false
    }

    fn memory(&self) -> usize {
        let words = self.places.capacity() + self.new.capacity();
        let queues = self.out.memory() + self.main.memory();
        self.is_new.capacity() + self.sizes.memory() + words * size_of::<u32>() + queues
    }
}
