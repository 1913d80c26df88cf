//! ARC (Megiddo and Modha, FAST '03): one LRU list for objects requested once and one for the others, whose shares of the
//! cache follow the hits among those that left each list lately. Sizes as in libCacheSim: lists are measured in bytes, and
//! so is the step by which the shares move.

use super::queue::{NOWHERE, QueuePlace, SlotQueue, queue_of};
use super::sizes::ObjectSizes;
use super::{ObjectRequest, Policy};

/// The paper's lists, as numbers of queues.
const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

#[derive(Clone, Debug)]
pub struct Arc {
    capacity: u64,
    /// What T1 should have: the paper's p.
    target: f64,
    places: Vec<QueuePlace>,
    sizes: ObjectSizes,
    queues: [SlotQueue; 4],
    bytes: [u64; 4],
}

impl Arc {
    pub fn new(capacity: u64) -> Arc {
        Arc {
            capacity,
            target: 0.0,
            places: Vec::new(),
            sizes: ObjectSizes::default(),
            queues: [1, 2, 3, 4].map(SlotQueue::new),
            bytes: [0; 4],
        }
    }

    /// Takes the object out of the list's account; its place is for the caller to change.
    fn leave(&mut self, list: usize, object: u32) {
        self.bytes[list] -= self.sizes.get(object);
    }

    fn enter(&mut self, list: usize, object: u32) {
        self.bytes[list] += self.sizes.get(object);
        self.queues[list].push(&mut self.places, object);
    }

    fn drop_oldest(&mut self, list: usize) {
        if let Some(object) = self.queues[list].pop(&mut self.places) {
            self.leave(list, object);
        }
    }

    /// Cases II and III: a request for what left lately moves the target toward the list that it left.
    fn adapt(&mut self, ghosts: usize, object: u32) {
        let other = if ghosts == B1 { B2 } else { B1 };
        let step = (self.bytes[other] as f64 / (self.bytes[ghosts] as f64).max(1.0)).max(1.0);
        self.target = if ghosts == B1 {
            (self.target + step).min(self.capacity as f64)
        } else {
            (self.target - step).max(0.0)
        };
        self.leave(ghosts, object);
        self.places[object as usize] = NOWHERE;
    }

    /// The paper's REPLACE.
    fn replace(&mut self, ghosts: Option<usize>) {
        let once = self.bytes[T1] as f64;
        let over = once > self.target || (once == self.target && ghosts == Some(B2));
        let (from, to) =
            if (self.bytes[T1] > 0 && over) || self.bytes[T2] == 0 { (T1, B1) } else { (T2, B2) };
        if let Some(object) = self.queues[from].pop(&mut self.places) {
            self.leave(from, object);
            self.enter(to, object);
        }
    }

    /// Makes room for what is in no list: the paper's case IV, a step of it.
    fn replace_for_new(&mut self, bytes: u64) {
        if self.bytes[T1] + self.bytes[B1] + bytes > self.capacity {
            if self.bytes[B1] == 0 {
                return self.drop_oldest(T1);
            }
            self.drop_oldest(B1);
        } else if self.bytes.iter().sum::<u64>() >= 2 * self.capacity {
            self.drop_oldest(B2);
        }
        self.replace(None);
    }
}

impl Policy for Arc {
    fn reserve(&mut self, objects: usize) {
        self.places.resize(objects, NOWHERE);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let object = request.object;
        let place = self.places[object as usize];
        let list = (queue_of(place) as usize).checked_sub(1);
        if let Some(list @ (T1 | T2)) = list {
            if list == T1 {
                self.leave(T1, object);
                self.bytes[T2] += self.sizes.get(object);
            }
            self.queues[T2].push(&mut self.places, object);
            return true;
        }
        if let Some(ghosts) = list {
            self.adapt(ghosts, object);
        }
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.bytes[T1] + self.bytes[T2] + bytes > self.capacity {
            match list {
                Some(_) => self.replace(list),
                None => self.replace_for_new(bytes),
            }
        }
        self.sizes.set(object, request.bytes);
        self.enter(if list.is_some() { T2 } else { T1 }, object);
        false
    }

    fn memory(&self) -> usize {
        let queues: usize = self.queues.iter().map(SlotQueue::memory).sum();
        self.places.capacity() * size_of::<QueuePlace>() + self.sizes.memory() + queues
    }
}
