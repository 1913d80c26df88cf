//! Random: whichever cached object the generator picks leaves. The seed is fixed, so that runs agree.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::sizes::Sizes;
use super::{Policy, Request};

const SEED: u64 = 1;

#[derive(Clone, Debug)]
pub struct Random {
    capacity: u64,
    used: u64,
    present: Vec<bool>,
    sizes: Sizes,
    cached: Vec<u32>,
    picks: SmallRng,
}

impl Random {
    pub fn new(capacity: u64) -> Random {
        Random {
            capacity,
            used: 0,
            present: Vec::new(),
            sizes: Sizes::default(),
            cached: Vec::new(),
            picks: SmallRng::seed_from_u64(SEED),
        }
    }
}

impl Policy for Random {
    fn reserve(&mut self, objects: usize) {
        self.present.resize(objects, false);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &Request) -> bool {
        if self.present[request.object as usize] {
            return true;
        }
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.used + bytes > self.capacity {
            let victim = self.cached.swap_remove(self.picks.random_range(0..self.cached.len()));
            self.present[victim as usize] = false;
            self.used -= self.sizes.get(victim);
        }
        self.used += bytes;
        self.present[request.object as usize] = true;
        self.sizes.set(request.object, request.bytes);
        self.cached.push(request.object);
        false
    }

    fn memory(&self) -> usize {
        self.present.capacity() + self.sizes.memory() + self.cached.capacity() * size_of::<u32>()
    }
}
