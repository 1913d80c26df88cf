//! LRU: the object whose last request is longest ago leaves first. One queue, no segments.

use super::queue::{NOWHERE, Place, Queue};
use super::sizes::Sizes;
use super::{Policy, Request};

#[derive(Clone, Debug)]
pub struct Lru {
    capacity: u64,
    used: u64,
    places: Vec<Place>,
    sizes: Sizes,
    queue: Queue,
}

impl Lru {
    pub fn new(capacity: u64) -> Lru {
        Lru { capacity, used: 0, places: Vec::new(), sizes: Sizes::default(), queue: Queue::new(1) }
    }
}

impl Policy for Lru {
    fn reserve(&mut self, objects: usize) {
        self.places.resize(objects, NOWHERE);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &Request) -> bool {
        let hit = self.places[request.object as usize] != NOWHERE;
        if !hit {
            let bytes = u64::from(request.bytes);
            if bytes > self.capacity {
                return false;
            }
            while self.used + bytes > self.capacity {
                let Some(victim) = self.queue.pop(&mut self.places) else { break };
                self.used -= self.sizes.get(victim);
            }
            self.used += bytes;
            self.sizes.set(request.object, request.bytes);
        }
        self.queue.push(&mut self.places, request.object);
        hit
    }

    fn memory(&self) -> usize {
        self.places.capacity() * size_of::<Place>() + self.sizes.memory() + self.queue.memory()
    }
}
