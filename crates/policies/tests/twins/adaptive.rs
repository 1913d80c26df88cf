//! Twin of ARC: the four lists of the paper's figure, case by case.

use policies::ObjectRequest;

use super::{List, Twin};

pub(crate) struct Arc {
    capacity: u64,
    p: f64,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
}

impl Arc {
    pub(crate) fn new(capacity: u64) -> Arc {
        let [t1, t2, b1, b2] = [(); 4].map(|()| List::default());
        Arc { capacity, p: 0.0, t1, t2, b1, b2 }
    }

    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.bytes() as f64;
        if !self.t1.0.is_empty() && (t1 > self.p || (t1 == self.p && in_b2)) || self.t2.0.is_empty() {
            let object = self.t1.pop();
            self.b1.push(object);
        } else {
            let object = self.t2.pop();
            self.b2.push(object);
        }
    }

    fn too_large(&self, bytes: u64) -> bool {
        self.t1.bytes() + self.t2.bytes() + bytes > self.capacity
    }

    /// Case IV.
    fn insert_new(&mut self, object: (u32, u64)) {
        while self.too_large(object.1) {
            let l1 = self.t1.bytes() + self.b1.bytes();
            let l2 = self.t2.bytes() + self.b2.bytes();
            if l1 + object.1 > self.capacity && self.b1.0.is_empty() {
                self.t1.pop();
                continue;
            }
            if l1 + object.1 > self.capacity {
                self.b1.pop();
            } else if l1 + l2 >= 2 * self.capacity && !self.b2.0.is_empty() {
                self.b2.pop();
            }
            self.replace(false);
        }
        self.t1.push(object);
    }
}

impl Twin for Arc {
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let bytes = u64::from(request.bytes);
        let object = (request.object, bytes);
        if let Some(cached) = self.t1.take(object.0).or_else(|| self.t2.take(object.0)) {
            self.t2.push(cached);
            return true;
        }
        let (b1, b2) = (self.b1.bytes() as f64, self.b2.bytes() as f64);
        let (in_b1, in_b2) = (self.b1.has(object.0), self.b2.has(object.0));
        if in_b1 {
            self.p = (self.p + (b2 / b1).max(1.0)).min(self.capacity as f64);
            self.b1.take(object.0);
        }
        if in_b2 {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
            self.b2.take(object.0);
        }
        if bytes > self.capacity {
            return false;
        }
        if in_b1 || in_b2 {
            while self.too_large(bytes) {
                self.replace(in_b2);
            }
            self.t2.push(object);
        } else {
            self.insert_new(object);
        }
        false
    }
}
