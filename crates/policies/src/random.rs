//! Random: whichever cached object the generator picks leaves. The seed is fixed, so that runs agree.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::room::Room;
use super::{ObjectRequest, Policy};

const SEED: u64 = 1;

#[derive(Clone, Debug)]
pub struct Random {
    room: Room,
    present: Vec<bool>,
    cached: Vec<u32>,
    picks: SmallRng,
}

impl Random {
    pub fn new(capacity: u64) -> Random {
        Random {
            room: Room::new(capacity),
            present: Vec::new(),
            cached: Vec::new(),
            picks: SmallRng::seed_from_u64(SEED),
        }
    }
}

impl Policy for Random {
    fn reserve(&mut self, objects: usize) {
        self.present.resize(objects, false);
        self.room.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        if self.present[request.object as usize] {
            return true;
        }
        let evict = || {
            let victim = self.cached.swap_remove(self.picks.random_range(0..self.cached.len()));
            self.present[victim as usize] = false;
            Some(victim)
        };
        if self.room.take_in(request, evict) {
            self.present[request.object as usize] = true;
            self.cached.push(request.object);
        }
        false
    }

    fn memory(&self) -> usize {
        self.present.capacity() + self.room.memory() + self.cached.capacity() * size_of::<u32>()
    }
}
