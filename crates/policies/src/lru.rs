//! LRU: the object whose last request is longest ago leaves first. One queue, no segments.

use super::queue::{NOWHERE, QueuePlace, SlotQueue};
use super::room::Room;
use super::{ObjectRequest, Policy};

#[derive(Clone, Debug)]
pub struct Lru {
    room: Room,
    places: Vec<QueuePlace>,
    queue: SlotQueue,
}

impl Lru {
    pub fn new(capacity: u64) -> Lru {
        Lru { room: Room::new(capacity), places: Vec::new(), queue: SlotQueue::new(1) }
    }
}

impl Policy for Lru {
    fn reserve(&mut self, objects: usize) {
        self.places.resize(objects, NOWHERE);
        self.room.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let hit = self.places[request.object as usize] != NOWHERE;
        if !hit && !self.room.take_in(request, || self.queue.pop(&mut self.places)) {
            return false;
        }
        self.queue.push(&mut self.places, request.object);
        hit
    }

    fn memory(&self) -> usize {
        self.places.capacity() * size_of::<QueuePlace>() + self.room.memory() + self.queue.memory()
    }
}
