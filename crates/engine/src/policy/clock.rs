//! CLOCK, or second chance: a FIFO queue whose oldest object goes back to the new end if it was requested meanwhile.
//! One bit for each object, not a count.

use std::collections::VecDeque;

use super::sizes::Sizes;
use super::{Policy, Request};

const ABSENT: u8 = 0;
const UNREQUESTED: u8 = 1;
const REQUESTED: u8 = 2;

#[derive(Clone, Debug)]
pub struct Clock {
    capacity: u64,
    used: u64,
    states: Vec<u8>,
    sizes: Sizes,
    queue: VecDeque<u32>,
}

impl Clock {
    pub fn new(capacity: u64) -> Clock {
        Clock { capacity, used: 0, states: Vec::new(), sizes: Sizes::default(), queue: VecDeque::new() }
    }

    fn evict(&mut self) {
        while let Some(object) = self.queue.pop_front() {
            let state = &mut self.states[object as usize];
            if *state == UNREQUESTED {
                *state = ABSENT;
                self.used -= self.sizes.get(object);
                return;
            }
            *state = UNREQUESTED;
            self.queue.push_back(object);
        }
    }
}

impl Policy for Clock {
    fn reserve(&mut self, objects: usize) {
        self.states.resize(objects, ABSENT);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &Request) -> bool {
        let state = &mut self.states[request.object as usize];
        if *state != ABSENT {
            *state = REQUESTED;
            return true;
        }
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.used + bytes > self.capacity {
            self.evict();
        }
        self.used += bytes;
        self.states[request.object as usize] = UNREQUESTED;
        self.sizes.set(request.object, request.bytes);
        self.queue.push_back(request.object);
        false
    }

    fn memory(&self) -> usize {
        self.states.capacity() + self.sizes.memory() + self.queue.capacity() * size_of::<u32>()
    }
}
