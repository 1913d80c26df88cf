//! LFU: the object with the fewest requests since it came leaves first; of equals, the one whose last request is longest
//! ago. Counts end with the stay in the cache, and do not age.

use super::ranking::Ranking;
use super::sizes::Sizes;
use super::{Policy, Request};

/// Requests in the upper bits, the time of the last one in the lower: ranks compare as one number.
type Rank = u128;

#[derive(Clone, Debug)]
pub struct Lfu {
    capacity: u64,
    used: u64,
    /// Requests served.
    now: u64,
    objects: Vec<Requested>,
    sizes: Sizes,
    ranking: Ranking<Rank>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Requested {
    /// 0 while the object is not cached.
    times: u32,
    last: u64,
}

impl Requested {
    fn rank(self) -> Rank {
        u128::from(self.times) << u64::BITS | u128::from(self.last)
    }
}

impl Lfu {
    pub fn new(capacity: u64) -> Lfu {
        Lfu {
            capacity,
            used: 0,
            now: 0,
            objects: Vec::new(),
            sizes: Sizes::default(),
            ranking: Ranking::new(),
        }
    }
}

impl Policy for Lfu {
    fn reserve(&mut self, objects: usize) {
        self.objects.resize(objects, Requested::default());
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &Request) -> bool {
        self.now += 1;
        let object = &mut self.objects[request.object as usize];
        if object.times > 0 {
            *object = Requested { times: object.times.saturating_add(1), last: self.now };
            return true;
        }
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.used + bytes > self.capacity {
            let present = |object: u32| self.objects[object as usize].rank();
            let Some((victim, _)) = self.ranking.pop(present) else { break };
            self.objects[victim as usize].times = 0;
            self.used -= self.sizes.get(victim);
        }
        self.used += bytes;
        self.sizes.set(request.object, request.bytes);
        let inserted = Requested { times: 1, last: self.now };
        self.objects[request.object as usize] = inserted;
        self.ranking.insert(request.object, inserted.rank());
        false
    }

    fn memory(&self) -> usize {
        self.objects.capacity() * size_of::<Requested>() + self.sizes.memory() + self.ranking.memory()
    }
}
