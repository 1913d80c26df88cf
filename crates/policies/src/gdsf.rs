//! Greedy-Dual-Size-Frequency (Cherkasova 1998), with the dissertation's cap on the frequency (section 4.3.3): what is
//! small and often requested stays, and ages as others leave. Every miss costs the same. What comes is ranked with what is
//! there before anything leaves, so that it may leave at once.

use super::ranking::Ranking;
use super::room::Room;
use super::{ObjectRequest, Policy};

/// Priorities grow by this over the size: only so that ties and rounding are those of libCacheSim.
const SCALE: f64 = 1e6;

#[derive(Clone, Debug)]
pub struct Gdsf {
    room: Room,
    /// Requests served.
    now: u64,
    /// L of section 4.3.3; `u32::MAX` for no cap.
    frequency_max: u32,
    /// The priority of what left last, from which new priorities count ("Lowest").
    lowest: f64,
    objects: Vec<Valued>,
    ranking: Ranking<(PriorityBits, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Valued {
    priority: f64,
    /// The last request, which decides between equal priorities: the older leaves.
    last: u64,
    /// Requests since it came; 0 while it is not cached.
    frequency: u32,
}

/// A priority's bits: floating-point numbers that are not negative compare as these do.
type PriorityBits = u64;

impl Gdsf {
    pub fn new(capacity: u64, frequency_max: Option<u32>) -> Gdsf {
        Gdsf {
            room: Room::new(capacity),
            now: 0,
            frequency_max: frequency_max.unwrap_or(u32::MAX),
            lowest: 0.0,
            objects: Vec::new(),
            ranking: Ranking::new(),
        }
    }

    fn evict(&mut self) {
        let present = |object: u32| {
            let Valued { priority, last, .. } = self.objects[object as usize];
            (priority.to_bits(), last)
        };
        if let Some((victim, (priority, _))) = self.ranking.pop(present) {
            self.lowest = f64::from_bits(priority);
            self.objects[victim as usize].frequency = 0;
            self.room.leave(victim);
        }
    }

    fn valued(&self, frequency: u32, bytes: u64) -> Valued {
        let counted = f64::from(frequency.min(self.frequency_max));
        // Objects without bytes cost no room, and are worth as much as those of one byte.
        Valued { priority: self.lowest + counted * SCALE / bytes.max(1) as f64, last: self.now, frequency }
    }
}

impl Policy for Gdsf {
    fn reserve(&mut self, objects: usize) {
        self.objects.resize(objects, Valued::default());
        self.room.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        self.now += 1;
        let frequency = self.objects[request.object as usize].frequency;
        if frequency > 0 {
            let bytes = self.room.bytes_of(request.object);
            self.objects[request.object as usize] = self.valued(frequency.saturating_add(1), bytes);
            return true;
        }
        if !self.room.admits(request.bytes) {
            return false;
        }
        self.room.enter(request.object, request.bytes);
        let inserted = self.valued(1, u64::from(request.bytes));
        self.objects[request.object as usize] = inserted;
        self.ranking.insert(request.object, (inserted.priority.to_bits(), inserted.last));
        while self.room.lacks(0) {
            self.evict();
        }
        false
    }

    fn memory(&self) -> usize {
        self.objects.capacity() * size_of::<Valued>() + self.room.memory() + self.ranking.memory()
    }
}
