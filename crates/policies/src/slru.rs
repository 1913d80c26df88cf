//! Segmented LRU: segments of equal size, each an LRU queue; a hit moves an object up a segment, and what a segment cannot
//! hold moves down to the next lower one. Its forms differ in where a miss goes and in what the lowest segment may hold.

use super::queue::{NOWHERE, QueuePlace, SlotQueue, queue_of};
use super::sizes::ObjectSizes;
use super::{ObjectRequest, Policy};

/// More segments than this are refused: they would not fit into a `Place`.
pub const SEGMENTS_MAX: u32 = super::queue::QUEUES_MAX;

/// Where a miss goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// To the head of the lowest segment (the dissertation's Table 3.4 and section 4.3.3). Before a segment above it is
    /// full, room there stays empty.
    Lowest,
    /// To the head of the lowest segment that has room for it; where none has, objects leave from the tail of the lowest
    /// segment that has any until the whole cache has room (libCacheSim).
    LowestWithRoom,
    /// To the head of the lowest segment, which may use what room the segments above it leave (Karedla et al., 1994).
    LowestBorrowing,
}

#[derive(Clone, Debug)]
pub struct Slru {
    capacity: u64,
    insertion: Insertion,
    places: Vec<QueuePlace>,
    sizes: ObjectSizes,
    /// The lowest first; the queue with number n is segment n - 1.
    segments: Vec<SlruSegment>,
    segment_bytes_max: u64,
}

#[derive(Clone, Debug)]
struct SlruSegment {
    queue: SlotQueue,
    used: u64,
}

impl Slru {
    pub fn new(capacity: u64, segments: u32, insertion: Insertion) -> Slru {
        let segment = |number| SlruSegment { queue: SlotQueue::new(number), used: 0 };
        Slru {
            capacity,
            insertion,
            places: Vec::new(),
            sizes: ObjectSizes::default(),
            segments: (1..=segments).map(segment).collect(),
            segment_bytes_max: capacity / u64::from(segments),
        }
    }

    #[inline]
    fn hit(&mut self, object: u32, segment: usize) {
        let to = (segment + 1).min(self.segments.len() - 1);
        if to != segment {
            let bytes = self.sizes.get(object);
            self.segments[segment].used -= bytes;
            self.segments[to].used += bytes;
        }
        self.segments[to].queue.push(&mut self.places, object);
        self.settle(to);
    }

    /// Moves tails down from this segment on, as far as each step makes the next segment too large.
    #[inline]
    fn settle(&mut self, from: usize) {
        let lowest_bounded = usize::from(self.insertion == Insertion::LowestBorrowing);
        for upper in (lowest_bounded..=from).rev() {
            if self.segments[upper].used <= self.segment_bytes_max {
                break;
            }
            while self.segments[upper].used > self.segment_bytes_max {
                let Some((object, bytes)) = self.take_tail(upper) else { break };
                if upper > 0 {
                    self.segments[upper - 1].used += bytes;
                    self.segments[upper - 1].queue.push(&mut self.places, object);
                }
            }
        }
    }

    fn take_tail(&mut self, segment: usize) -> Option<(u32, u64)> {
        let object = self.segments[segment].queue.pop(&mut self.places)?;
        let bytes = self.sizes.get(object);
        self.segments[segment].used -= bytes;
        Some((object, bytes))
    }

    fn insert(&mut self, object: u32, bytes: u32) {
        self.sizes.set(object, bytes);
        let bytes = u64::from(bytes);
        let segment = match self.insertion {
            Insertion::Lowest => {
                while self.segments[0].used + bytes > self.segment_bytes_max {
                    self.take_tail(0);
                }
                0
            }
            Insertion::LowestBorrowing => {
                self.make_room(bytes);
                0
            }
            Insertion::LowestWithRoom => {
                self.make_room(bytes);
                let has_room = |segment: &SlruSegment| segment.used + bytes <= self.segment_bytes_max;
                self.segments.iter().position(has_room).unwrap_or(0)
            }
        };
        self.segments[segment].used += bytes;
        self.segments[segment].queue.push(&mut self.places, object);
    }

    /// From the tail of the lowest segment that has any.
    fn make_room(&mut self, bytes: u64) {
        while self.used() + bytes > self.capacity {
            let lowest = self.segments.iter().position(|segment| segment.used > 0).unwrap_or(0);
            self.take_tail(lowest);
        }
    }

    fn used(&self) -> u64 {
        self.segments.iter().map(|segment| segment.used).sum()
    }
}

impl Policy for Slru {
    fn reserve(&mut self, objects: usize) {
        self.places.resize(objects, NOWHERE);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let place = self.places[request.object as usize];
        if place != NOWHERE {
            self.hit(request.object, queue_of(place) as usize - 1);
            return true;
        }
        // What is larger than a segment could not stay in any.
        if u64::from(request.bytes) <= self.segment_bytes_max {
            self.insert(request.object, request.bytes);
        }
        false
    }

    fn memory(&self) -> usize {
        let queues: usize = self.segments.iter().map(|segment| segment.queue.memory()).sum();
        self.places.capacity() * size_of::<QueuePlace>() + self.sizes.memory() + queues
    }
}
