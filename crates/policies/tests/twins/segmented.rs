//! Twin of segmented LRU in its forms: a list for each segment, measured anew at every step.

use policies::{Insertion, ObjectRequest};

use super::{List, Twin};

pub(crate) struct Slru {
    capacity: u64,
    quota: u64,
    insertion: Insertion,
    /// The lowest first.
    segments: Vec<List>,
}

impl Slru {
    pub(crate) fn new(capacity: u64, segments: u32, insertion: Insertion) -> Slru {
        let lists = vec![List::default(); segments as usize];
        Slru { capacity, quota: capacity / u64::from(segments), insertion, segments: lists }
    }

    fn is_too_large(&self, segment: usize) -> bool {
        if segment == 0 && self.insertion == Insertion::LowestBorrowing {
            return self.segments.iter().map(List::bytes).sum::<u64>() > self.capacity;
        }
        self.segments[segment].bytes() > self.quota
    }

    /// One object at a time moves down, and what that makes too large comes first.
    fn cool(&mut self, segment: usize) {
        while self.is_too_large(segment) {
            let object = self.segments[segment].pop();
            if segment > 0 {
                self.segments[segment - 1].push(object);
                self.cool(segment - 1);
            }
        }
    }
}

impl Twin for Slru {
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let top = self.segments.len() - 1;
        if let Some(segment) = self.segments.iter().position(|segment| segment.has(request.object)) {
            let object = self.segments[segment].take(request.object).unwrap();
            let to = top.min(segment + 1);
            self.segments[to].push(object);
            self.cool(to);
            return true;
        }
        let bytes = u64::from(request.bytes);
        if bytes > self.quota {
            return false;
        }
        match self.insertion {
            Insertion::Lowest | Insertion::LowestBorrowing => {
                self.segments[0].push((request.object, bytes));
                self.cool(0);
            }
            Insertion::LowestWithRoom => {
                while self.segments.iter().map(List::bytes).sum::<u64>() + bytes > self.capacity {
                    self.segments.iter_mut().find(|segment| !segment.0.is_empty()).unwrap().pop();
                }
                let room = self.segments.iter().position(|segment| segment.bytes() + bytes <= self.quota);
                self.segments[room.unwrap_or(0)].push((request.object, bytes));
            }
        }
        false
    }
}
