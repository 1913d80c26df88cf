//! Segmented LRU: a request moves an object to the head of the next higher segment, what a segment cannot hold moves to the
//! head of the next lower one. The lowest segment may use what room the others leave, as in RIPQ.

use super::{ObjectNumber, QueuedObject};

const NOBODY: ObjectNumber = ObjectNumber::MAX;

/// Neighbours towards head and tail, and the segment.
#[derive(Clone, Copy, Debug)]
struct QueueLink {
    above: ObjectNumber,
    below: ObjectNumber,
    segment: u8,
}

#[derive(Clone, Copy, Debug)]
struct SipqSegment {
    head: ObjectNumber,
    tail: ObjectNumber,
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct Segmented {
    links: Vec<QueueLink>,
    /// The lowest first.
    segments: Vec<SipqSegment>,
    bytes_max: u64,
}

impl Segmented {
    pub(super) fn new(segments: u8, bytes_max: u64) -> Segmented {
        let segment = SipqSegment { head: NOBODY, tail: NOBODY, bytes: 0 };
        Segmented { links: Vec::new(), segments: vec![segment; usize::from(segments)], bytes_max }
    }

    pub(super) fn insert(&mut self, number: ObjectNumber, objects: &[QueuedObject]) {
        if self.links.len() < objects.len() {
            self.links.resize(objects.len(), QueueLink { above: NOBODY, below: NOBODY, segment: 0 });
        }
        self.push(number, 0, objects);
    }

    /// It had so many bytes before.
    pub(super) fn hit(&mut self, number: ObjectNumber, before: u32, objects: &[QueuedObject]) {
        let from = usize::from(self.links[number as usize].segment);
        self.segments[from].bytes += u64::from(objects[number as usize].bytes);
        self.segments[from].bytes -= u64::from(before);
        self.remove(number, objects);
        let to = (from + 1).min(self.segments.len() - 1);
        self.push(number, to, objects);
        self.settle(to, objects);
    }

    pub(super) fn resize(&mut self, bytes_max: u64, objects: &[QueuedObject]) {
        self.bytes_max = bytes_max;
        self.settle(self.segments.len() - 1, objects);
    }

    /// What a segment from this one down cannot hold moves to the next lower one.
    fn settle(&mut self, from: usize, objects: &[QueuedObject]) {
        let segment_bytes_max = self.bytes_max / self.segments.len() as u64;
        for upper in (1..=from).rev() {
            while self.segments[upper].bytes > segment_bytes_max {
                let tail = self.segments[upper].tail;
                self.remove(tail, objects);
                self.push(tail, upper - 1, objects);
            }
        }
    }

    pub(super) fn remove(&mut self, number: ObjectNumber, objects: &[QueuedObject]) {
        let QueueLink { above, below, segment } = self.links[number as usize];
        let segment = &mut self.segments[usize::from(segment)];
        segment.bytes -= u64::from(objects[number as usize].bytes);
        match above {
            NOBODY => segment.head = below,
            above => self.links[above as usize].below = below,
        }
        match below {
            NOBODY => segment.tail = above,
            below => self.links[below as usize].above = above,
        }
    }

    /// Takes the lowest object out if there are too many.
    pub(super) fn evict(&mut self, objects: &[QueuedObject]) -> Option<ObjectNumber> {
        let bytes: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        let lowest = self.segments[0].tail;
        (bytes > self.bytes_max).then(|| self.remove(lowest, objects))?;
        Some(lowest)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.links.capacity() * size_of::<QueueLink>()
    }

    fn push(&mut self, number: ObjectNumber, to: usize, objects: &[QueuedObject]) {
        let segment = &mut self.segments[to];
        segment.bytes += u64::from(objects[number as usize].bytes);
        let below = std::mem::replace(&mut segment.head, number);
        match below {
            NOBODY => segment.tail = number,
            below => self.links[below as usize].above = number,
        }
        self.links[number as usize] = QueueLink { above: NOBODY, below, segment: to as u8 };
    }
}
