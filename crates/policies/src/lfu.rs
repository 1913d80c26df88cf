//! LFU: the object with the fewest requests since it came leaves first; of equals, the one whose last request is longest
//! ago. Counts end with the stay in the cache, and do not age.

use std::collections::VecDeque;

use super::ranking::Ranking;
use super::room::Room;
use super::{ObjectRequest, Policy};

/// Requests in the upper bits, the time of the last one in the lower: ranks compare as one number.
type Rank = u128;

#[derive(Clone, Debug)]
pub struct Lfu {
    room: Room,
    /// Requests served.
    now: u64,
    objects: Vec<Requested>,
    /// Objects in order of arrival that were requested once when last looked at: most of what leaves, without a heap.
    newcomers: VecDeque<u32>,
    /// All other objects.
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
            room: Room::new(capacity),
            now: 0,
            objects: Vec::new(),
            newcomers: VecDeque::new(),
            ranking: Ranking::new(),
        }
    }
}

/// The oldest object that was requested once; those before it that were requested again are ranked from now on.
fn newcomer(
    objects: &[Requested],
    newcomers: &mut VecDeque<u32>,
    ranking: &mut Ranking<Rank>,
) -> Option<u32> {
    while let Some(object) = newcomers.pop_front() {
        let requested = objects[object as usize];
        if requested.times == 1 {
            return Some(object);
        }
        ranking.insert(object, requested.rank());
    }
    None
}

impl Policy for Lfu {
    fn reserve(&mut self, objects: usize) {
        self.objects.resize(objects, Requested::default());
        self.room.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        self.now += 1;
        let object = &mut self.objects[request.object as usize];
        if object.times > 0 {
            *object = Requested { times: object.times.saturating_add(1), last: self.now };
            return true;
        }
        let evict = || {
            let victim = newcomer(&self.objects, &mut self.newcomers, &mut self.ranking).or_else(|| {
                let present = |object: u32| self.objects[object as usize].rank();
                self.ranking.pop(present).map(|(object, _)| object)
            })?;
            self.objects[victim as usize].times = 0;
            Some(victim)
        };
        if self.room.take_in(request, evict) {
            self.objects[request.object as usize] = Requested { times: 1, last: self.now };
            self.newcomers.push_back(request.object);
        }
        false
    }

    fn memory(&self) -> usize {
        let objects = self.objects.capacity() * size_of::<Requested>();
        objects + self.room.memory() + self.newcomers.capacity() * size_of::<u32>() + self.ranking.memory()
    }
}
