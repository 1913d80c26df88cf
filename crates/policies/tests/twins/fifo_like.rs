//! Twins of CLOCK, SIEVE and S3-FIFO: one list in order of arrival, or two, with what was requested beside each object.

use std::collections::{BTreeMap, HashMap};

use policies::ObjectRequest;

use super::{List, Twin};

pub(crate) struct Clock {
    capacity: u64,
    /// The oldest first: object, size, whether it was requested.
    queue: Vec<(u32, u64, bool)>,
}

impl Clock {
    pub(crate) fn new(capacity: u64) -> Clock {
        Clock { capacity, queue: Vec::new() }
    }
}

impl Twin for Clock {
    fn request(&mut self, request: &ObjectRequest) -> bool {
        if let Some((_, _, requested)) = self.queue.iter_mut().find(|(object, ..)| *object == request.object)
        {
            *requested = true;
            return true;
        }
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.queue.iter().map(|(_, bytes, _)| bytes).sum::<u64>() + bytes > self.capacity {
            let (object, bytes, requested) = self.queue.remove(0);
            if requested {
                self.queue.push((object, bytes, false));
            }
        }
        self.queue.push((request.object, bytes, false));
        false
    }
}

/// The algorithm of the paper's figure: a hand that points to an object of one list.
pub(crate) struct Sieve {
    capacity: u64,
    used: u64,
    arrivals: u64,
    /// By number of arrival: object, size, whether it was visited.
    queue: BTreeMap<u64, (u32, u64, bool)>,
    cached: HashMap<u32, u64>,
    /// The object where the hand looks next; none for the oldest.
    hand: Option<u64>,
}

impl Sieve {
    pub(crate) fn new(capacity: u64) -> Sieve {
        Sieve { capacity, used: 0, arrivals: 0, queue: BTreeMap::new(), cached: HashMap::new(), hand: None }
    }

    fn evict(&mut self) {
        let mut at = self.hand.unwrap_or_else(|| *self.queue.first_key_value().unwrap().0);
        while let Some((_, _, visited @ true)) = self.queue.get_mut(&at) {
            *visited = false;
            at = self.newer(at).unwrap_or_else(|| *self.queue.first_key_value().unwrap().0);
        }
        self.hand = self.newer(at);
        let (object, bytes, _) = self.queue.remove(&at).unwrap();
        self.cached.remove(&object);
        self.used -= bytes;
    }

    fn newer(&self, at: u64) -> Option<u64> {
        self.queue.range(at + 1..).next().map(|(arrival, _)| *arrival)
    }
}

impl Twin for Sieve {
    fn request(&mut self, request: &ObjectRequest) -> bool {
        if let Some(arrival) = self.cached.get(&request.object) {
            self.queue.get_mut(arrival).unwrap().2 = true;
            return true;
        }
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.used + bytes > self.capacity {
            self.evict();
        }
        self.arrivals += 1;
        self.used += bytes;
        self.queue.insert(self.arrivals, (request.object, bytes, false));
        self.cached.insert(request.object, self.arrivals);
        false
    }
}

pub(crate) struct S3Fifo {
    capacity: u64,
    small: List,
    main: List,
    ghosts: List,
    requests: HashMap<u32, u32>,
}

impl S3Fifo {
    pub(crate) fn new(capacity: u64) -> S3Fifo {
        let [small, main, ghosts] = [(); 3].map(|()| List::default());
        S3Fifo { capacity, small, main, ghosts, requests: HashMap::new() }
    }

    fn evict(&mut self) {
        let main_max = self.capacity - self.capacity * 10 / 100;
        if self.main.bytes() > main_max || self.small.0.is_empty() {
            while !self.main.0.is_empty() {
                let object = self.main.pop();
                let requests = self.requests.get_mut(&object.0).unwrap();
                if *requests == 0 {
                    return;
                }
                *requests = (*requests).min(3) - 1;
                self.main.push(object);
            }
        } else {
            while !self.small.0.is_empty() {
                let object = self.small.pop();
                if self.requests[&object.0] < 2 {
                    return self.remember(object);
                }
                self.requests.insert(object.0, 0);
                self.main.push(object);
            }
        }
    }

    fn remember(&mut self, object: (u32, u64)) {
        let max = self.capacity * 90 / 100;
        if object.1 <= max {
            while self.ghosts.bytes() + object.1 > max {
                self.ghosts.pop();
            }
            self.ghosts.push(object);
        }
    }
}

impl Twin for S3Fifo {
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let object = request.object;
        if self.small.has(object) || self.main.has(object) {
            *self.requests.get_mut(&object).unwrap() += 1;
            return true;
        }
        let ghost = self.ghosts.take(object).is_some();
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.small.bytes() + self.main.bytes() + bytes > self.capacity {
            self.evict();
        }
        self.requests.insert(object, 0);
        let queue = if ghost { &mut self.main } else { &mut self.small };
        queue.push((object, bytes));
        false
    }
}
