//! Twins of the policies that evict by a rank: every cached object's rank is computed when it is requested, and the lowest
//! of all leaves. No queues.

use std::collections::{BTreeSet, HashMap};

use policies::ObjectRequest;

use super::Twin;

type Rank = (u64, u64);

/// What a rank depends on.
pub(crate) struct Seen {
    bytes: u32,
    /// Requests since it came, this one included.
    times: u64,
    /// The number of the request by which it came, of this one, and of the next one.
    came: u64,
    now: u64,
    next: u64,
    /// The first part of the rank of what was evicted last.
    evicted: u64,
}

pub(crate) struct Ranked<F> {
    capacity: u64,
    used: u64,
    rank: F,
    /// Whether what comes is among what may leave for it.
    may_bounce: bool,
    now: u64,
    evicted: u64,
    cached: HashMap<u32, (Rank, Seen)>,
    order: BTreeSet<(Rank, u32)>,
}

pub(crate) fn fifo(capacity: u64) -> Box<dyn Twin> {
    ranked(capacity, false, |seen| (seen.came, 0))
}

pub(crate) fn lru(capacity: u64) -> Box<dyn Twin> {
    ranked(capacity, false, |seen| (seen.now, 0))
}

pub(crate) fn lfu(capacity: u64) -> Box<dyn Twin> {
    ranked(capacity, false, |seen| (seen.times, seen.now))
}

pub(crate) fn clairvoyant(capacity: u64) -> Box<dyn Twin> {
    ranked(capacity, false, |seen| (u64::MAX - seen.next, 0))
}

pub(crate) fn gdsf(capacity: u64, frequency_max: Option<u32>) -> Box<dyn Twin> {
    let times_max = frequency_max.map_or(u64::MAX, u64::from);
    ranked(capacity, true, move |seen| {
        let worth = seen.times.min(times_max) as f64 * 1e6 / f64::from(seen.bytes);
        ((f64::from_bits(seen.evicted) + worth).to_bits(), seen.now)
    })
}

fn ranked(capacity: u64, may_bounce: bool, rank: impl Fn(&Seen) -> Rank + 'static) -> Box<dyn Twin> {
    let (cached, order) = (HashMap::new(), BTreeSet::new());
    Box::new(Ranked { capacity, used: 0, rank, may_bounce, now: 0, evicted: 0, cached, order })
}

impl<F> Ranked<F> {
    fn make_room(&mut self, bytes: u64) {
        while self.used + bytes > self.capacity {
            let (rank, victim) = self.order.pop_first().unwrap();
            self.evicted = rank.0;
            self.used -= u64::from(self.cached.remove(&victim).unwrap().1.bytes);
        }
    }
}

impl<F: Fn(&Seen) -> Rank> Twin for Ranked<F> {
    fn request(&mut self, request: &ObjectRequest) -> bool {
        self.now += 1;
        let (now, next, object) = (self.now, request.next, request.object);
        if let Some((old, seen)) = self.cached.get_mut(&object) {
            *seen = Seen { times: seen.times + 1, now, next, evicted: self.evicted, ..*seen };
            let rank = (self.rank)(seen);
            self.order.remove(&(*old, object));
            self.order.insert((rank, object));
            *old = rank;
            return true;
        }
        if u64::from(request.bytes) > self.capacity {
            return false;
        }
        if !self.may_bounce {
            self.make_room(u64::from(request.bytes));
        }
        let seen = Seen { bytes: request.bytes, times: 1, came: now, now, next, evicted: self.evicted };
        self.used += u64::from(seen.bytes);
        let rank = (self.rank)(&seen);
        self.order.insert((rank, object));
        self.cached.insert(object, (rank, seen));
        self.make_room(0);
        false
    }
}
