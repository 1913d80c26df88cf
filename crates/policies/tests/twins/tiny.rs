//! Twin of W-TinyLFU: lists for its segments, and for frequencies the product's sketch, which has tests of its own.

use policies::{FrequencySketch, ObjectRequest};

use super::{List, Twin};

pub(crate) struct WTinyLfu {
    capacity: u64,
    window: List,
    probation: List,
    protected: List,
    sketch: FrequencySketch,
}

impl WTinyLfu {
    pub(crate) fn new(capacity: u64) -> WTinyLfu {
        let [window, probation, protected] = [(); 3].map(|()| List::default());
        WTinyLfu { capacity, window, probation, protected, sketch: FrequencySketch::new() }
    }

    fn main_max(&self) -> u64 {
        self.capacity * 99 / 100
    }

    fn bytes(&self) -> u64 {
        self.window.bytes() + self.probation.bytes() + self.protected.bytes()
    }

    fn admit(&mut self, candidate: (u32, u64)) {
        while self.bytes() + candidate.1 > self.capacity {
            let segment = if self.probation.0.is_empty() { &mut self.protected } else { &mut self.probation };
            let Some((victim, _)) = segment.0.first().copied() else { return };
            if self.sketch.frequency(candidate.0) <= self.sketch.frequency(victim) {
                return;
            }
            segment.pop();
        }
        self.probation.push(candidate);
    }
}

impl Twin for WTinyLfu {
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let object = request.object;
        self.sketch.increment(object);
        if self.window.touch(object) || self.protected.touch(object) {
            return true;
        }
        if let Some(cached) = self.probation.take(object) {
            self.protected.push(cached);
            while self.protected.bytes() > self.main_max() * 80 / 100 {
                let lowered = self.protected.pop();
                self.probation.push(lowered);
            }
            return true;
        }
        let bytes = u64::from(request.bytes);
        if bytes <= self.capacity {
            self.window.push((object, bytes));
            self.sketch.reserve(self.window.0.len() + self.probation.0.len() + self.protected.0.len());
            while self.window.bytes() > self.capacity - self.main_max() {
                let candidate = self.window.pop();
                self.admit(candidate);
            }
        }
        false
    }
}
