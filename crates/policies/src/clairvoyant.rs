//! Clairvoyant (Belady's MIN): the object whose next request is farthest away leaves first. It knows the future but not
//! sizes, and every miss comes in, so that with sizes it is a bound in practice only (the dissertation's section 3.7.1).

use std::collections::BinaryHeap;

use super::room::Room;
use super::{NEVER, ObjectRequest, Policy};

/// The next request of an object that is not cached; no request comes before itself.
const ABSENT: u64 = 0;

/// A hit's old entry stays in the heap, for it is below all that count: those lie in the future.
#[derive(Clone, Debug)]
pub struct Clairvoyant {
    room: Room,
    /// Each object's next request while it is cached.
    next: Vec<u64>,
    /// Next requests of cached objects, and old ones.
    heap: BinaryHeap<(u64, u32)>,
    /// Cached objects that are never requested again: they leave first, in any order.
    done: Vec<u32>,
    cached: usize,
}

impl Clairvoyant {
    pub fn new(capacity: u64) -> Clairvoyant {
        Clairvoyant {
            room: Room::new(capacity),
            next: Vec::new(),
            heap: BinaryHeap::new(),
            done: Vec::new(),
            cached: 0,
        }
    }

    fn expect(&mut self, object: u32, next: u64) {
        let next = next.max(ABSENT + 1);
        self.next[object as usize] = next;
        if next == NEVER {
            self.done.push(object);
            return;
        }
        if self.heap.len() == self.heap.capacity() && self.heap.len() > 2 * self.cached {
            self.heap.retain(|(next, object)| self.next[*object as usize] == *next);
        }
        self.heap.push((next, object));
    }
}

impl Policy for Clairvoyant {
    fn reserve(&mut self, objects: usize) {
        self.next.resize(objects, ABSENT);
        self.room.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        if self.next[request.object as usize] != ABSENT {
            self.expect(request.object, request.next);
            return true;
        }
        let evict = || {
            let entry = || self.done.pop().map(|object| (NEVER, object)).or_else(|| self.heap.pop());
            // An entry is out of date here only where the trace is wrong about the future.
            let current = |(next, object): &(u64, u32)| self.next[*object as usize] == *next;
            let (_, victim) = std::iter::from_fn(entry).find(current)?;
            self.next[victim as usize] = ABSENT;
            self.cached -= 1;
            Some(victim)
        };
        if self.room.take_in(request, evict) {
            self.cached += 1;
            self.expect(request.object, request.next);
        }
        false
    }

    fn memory(&self) -> usize {
        let queues = self.heap.capacity() * size_of::<(u64, u32)>() + self.done.capacity() * size_of::<u32>();
        self.next.capacity() * size_of::<u64>() + self.room.memory() + queues
    }
}
