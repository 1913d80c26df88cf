//! SIEVE (Zhang et al., NSDI '24): a FIFO queue from which a hand takes what was not requested since it last came by.
//! Objects never move; only the hand does.

use std::collections::VecDeque;

use super::room::Room;
use super::{ObjectRequest, Policy};

/// What is known of an object.
const ABSENT: u8 = 0;
const UNVISITED: u8 = 1;
const VISITED: u8 = 2;

/// The queue from its old to its new end is `behind`, the hand, `ahead`.
#[derive(Clone, Debug)]
pub struct Sieve {
    room: Room,
    states: Vec<u8>,
    /// Survivors of the hand's present way.
    behind: VecDeque<u32>,
    /// Not empty while anything is cached: at the new end the hand goes back to the old one at once.
    ahead: VecDeque<u32>,
}

impl Sieve {
    pub fn new(capacity: u64) -> Sieve {
        Sieve {
            room: Room::new(capacity),
            states: Vec::new(),
            behind: VecDeque::new(),
            ahead: VecDeque::new(),
        }
    }
}

fn evict(states: &mut [u8], behind: &mut VecDeque<u32>, ahead: &mut VecDeque<u32>) -> Option<u32> {
    while let Some(object) = ahead.pop_front() {
        let state = &mut states[object as usize];
        let visited = *state == VISITED;
        if visited {
            *state = UNVISITED;
            behind.push_back(object);
        } else {
            *state = ABSENT;
        }
        if ahead.is_empty() {
            std::mem::swap(ahead, behind);
        }
        if !visited {
            return Some(object);
        }
    }
    None
}

impl Policy for Sieve {
    fn reserve(&mut self, objects: usize) {
        self.states.resize(objects, ABSENT);
        self.room.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let state = &mut self.states[request.object as usize];
        if *state != ABSENT {
            *state = VISITED;
            return true;
        }
        if self.room.take_in(request, || evict(&mut self.states, &mut self.behind, &mut self.ahead)) {
            self.states[request.object as usize] = UNVISITED;
            self.ahead.push_back(request.object);
        }
        false
    }

    fn memory(&self) -> usize {
        let queues = self.behind.capacity() + self.ahead.capacity();
        self.states.capacity() + self.room.memory() + queues * size_of::<u32>()
    }
}
