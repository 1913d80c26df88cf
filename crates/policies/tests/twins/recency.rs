//! Twins of 2Q and LIRS, from the text of their papers, on plain lists.

use std::collections::HashMap;

use policies::ObjectRequest;

use super::{List, Twin};

pub(crate) struct TwoQ {
    capacity: u64,
    a1in: List,
    a1out: List,
    am: List,
}

impl TwoQ {
    pub(crate) fn new(capacity: u64) -> TwoQ {
        let [a1in, a1out, am] = [(); 3].map(|()| List::default());
        TwoQ { capacity, a1in, a1out, am }
    }

    fn reclaim(&mut self) {
        if self.a1in.bytes() <= self.capacity / 4 && !self.am.0.is_empty() {
            self.am.pop();
            return;
        }
        let object = self.a1in.pop();
        if object.1 <= self.capacity / 2 {
            while self.a1out.bytes() + object.1 > self.capacity / 2 {
                self.a1out.pop();
            }
            self.a1out.push(object);
        }
    }
}

impl Twin for TwoQ {
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let object = request.object;
        if self.am.touch(object) || self.a1in.has(object) {
            return true;
        }
        let was_out = self.a1out.take(object).is_some();
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.a1in.bytes() + self.am.bytes() + bytes > self.capacity {
            self.reclaim();
        }
        let queue = if was_out { &mut self.am } else { &mut self.a1in };
        queue.push((object, bytes));
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Lir,
    Hir,
    Gone,
}

pub(crate) struct Lirs {
    capacity: u64,
    lir_max: u64,
    /// S from its bottom on, Q from its front on, and the objects of S that are gone in the order in which they went.
    stack: List,
    queue: List,
    gone: List,
    statuses: HashMap<u32, Status>,
    lir_bytes: u64,
}

impl Lirs {
    pub(crate) fn new(capacity: u64) -> Lirs {
        let lir_max = capacity.saturating_sub((capacity / 100).max(1));
        let [stack, queue, gone] = [(); 3].map(|()| List::default());
        Lirs { capacity, lir_max, stack, queue, gone, statuses: HashMap::new(), lir_bytes: 0 }
    }

    fn is(&self, object: u32, status: Status) -> bool {
        self.statuses.get(&object) == Some(&status)
    }

    fn prune(&mut self) {
        while let Some((object, _)) = self.stack.0.first().copied() {
            if self.is(object, Status::Lir) {
                return;
            }
            self.stack.pop();
            self.gone.take(object);
            if self.is(object, Status::Gone) {
                self.statuses.remove(&object);
            }
        }
    }

    fn lower(&mut self) {
        self.prune();
        let object = self.stack.pop();
        self.lir_bytes -= object.1;
        self.statuses.insert(object.0, Status::Hir);
        self.queue.push(object);
        self.prune();
    }

    fn raise(&mut self, object: (u32, u64)) {
        self.statuses.insert(object.0, Status::Lir);
        self.lir_bytes += object.1;
        while self.lir_bytes > self.lir_max {
            self.lower();
        }
    }

    fn evict(&mut self) {
        if self.queue.0.is_empty() {
            self.lower();
        }
        let object = self.queue.pop();
        self.statuses.remove(&object.0);
        if self.stack.has(object.0) {
            self.statuses.insert(object.0, Status::Gone);
            self.gone.push(object);
        }
    }

    fn insert(&mut self, object: (u32, u64)) {
        let in_stack = self.stack.take(object.0).is_some();
        self.gone.take(object.0);
        self.statuses.remove(&object.0);
        while self.lir_bytes + self.queue.bytes() + object.1 > self.capacity {
            self.evict();
        }
        self.stack.push(object);
        if in_stack || self.lir_bytes + object.1 <= self.lir_max {
            self.raise(object);
        } else {
            self.statuses.insert(object.0, Status::Hir);
            self.queue.push(object);
        }
        while self.gone.bytes() > self.capacity {
            let object = self.gone.pop();
            self.stack.take(object.0);
            self.statuses.remove(&object.0);
        }
    }
}

impl Twin for Lirs {
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let object = request.object;
        if self.is(object, Status::Lir) {
            self.stack.touch(object);
            self.prune();
            return true;
        }
        if let Some(cached) = self.queue.take(object) {
            let in_stack = self.stack.take(object).is_some();
            self.stack.push(cached);
            if in_stack {
                self.raise(cached);
            } else {
                self.queue.push(cached);
            }
            return true;
        }
        if u64::from(request.bytes) <= self.capacity {
            self.insert((object, u64::from(request.bytes)));
        }
        false
    }
}
