//! CLOCK, or second chance: a FIFO queue whose oldest object goes back to the new end if it was requested meanwhile.
//! One bit for each object, not a count.

use std::collections::VecDeque;

use super::room::Room;
use super::{ObjectRequest, Policy};

const ABSENT: u8 = 0;
const UNREQUESTED: u8 = 1;
const REQUESTED: u8 = 2;

#[derive(Clone, Debug)]
pub struct Clock {
    room: Room,
    states: Vec<u8>,
    queue: VecDeque<u32>,
}

impl Clock {
    pub fn new(capacity: u64) -> Clock {
        Clock { room: Room::new(capacity), states: Vec::new(), queue: VecDeque::new() }
    }
}

fn evict(states: &mut [u8], queue: &mut VecDeque<u32>) -> Option<u32> {
    while let Some(object) = queue.pop_front() {
        let state = &mut states[object as usize];
        if *state == UNREQUESTED {
            *state = ABSENT;
            return Some(object);
        }
        *state = UNREQUESTED;
        queue.push_back(object);
    }
    None
}

impl Policy for Clock {
    fn reserve(&mut self, objects: usize) {
        self.states.resize(objects, ABSENT);
        self.room.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let state = &mut self.states[request.object as usize];
        if *state != ABSENT {
            *state = REQUESTED;
            return true;
        }
        if self.room.take_in(request, || evict(&mut self.states, &mut self.queue)) {
            self.states[request.object as usize] = UNREQUESTED;
            self.queue.push_back(request.object);
        }
        false
    }

    fn memory(&self) -> usize {
        self.states.capacity() + self.room.memory() + self.queue.capacity() * size_of::<u32>()
    }
}
