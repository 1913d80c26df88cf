//! SIEVE (Zhang et al., NSDI '24): a FIFO queue from which a hand takes what was not requested since it last came by.
//! Objects never move; only the hand does.

use std::collections::VecDeque;

use super::sizes::Sizes;
use super::{Policy, Request};

/// What is known of an object.
const ABSENT: u8 = 0;
const UNVISITED: u8 = 1;
const VISITED: u8 = 2;

/// The queue from its old to its new end is `behind`, the hand, `ahead`.
#[derive(Clone, Debug)]
pub struct Sieve {
    capacity: u64,
    used: u64,
    states: Vec<u8>,
    sizes: Sizes,
    /// Survivors of the hand's present way.
    behind: VecDeque<u32>,
    /// Not empty while anything is cached: at the new end the hand goes back to the old one at once.
    ahead: VecDeque<u32>,
}

impl Sieve {
    pub fn new(capacity: u64) -> Sieve {
        Sieve {
            capacity,
            used: 0,
            states: Vec::new(),
            sizes: Sizes::default(),
            behind: VecDeque::new(),
            ahead: VecDeque::new(),
        }
    }

    fn evict(&mut self) {
        while let Some(object) = self.ahead.pop_front() {
            let state = &mut self.states[object as usize];
            let visited = *state == VISITED;
            if visited {
                *state = UNVISITED;
                self.behind.push_back(object);
            } else {
                *state = ABSENT;
                self.used -= self.sizes.get(object);
            }
            if self.ahead.is_empty() {
                std::mem::swap(&mut self.ahead, &mut self.behind);
            }
            if !visited {
                break;
            }
        }
    }
}

impl Policy for Sieve {
    fn reserve(&mut self, objects: usize) {
        self.states.resize(objects, ABSENT);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &Request) -> bool {
        let state = &mut self.states[request.object as usize];
        if *state != ABSENT {
            *state = VISITED;
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
        self.states[request.object as usize] = UNVISITED;
        self.sizes.set(request.object, request.bytes);
        self.ahead.push_back(request.object);
        false
    }

    fn memory(&self) -> usize {
        let queues = self.behind.capacity() + self.ahead.capacity();
        self.states.capacity() + self.sizes.memory() + queues * size_of::<u32>()
    }
}
