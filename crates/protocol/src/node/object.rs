//! One cached key of a node: its replies by view, the fills under way and how hot it is.

use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{EarlyValue, Read};
use wire::{Degree, Key, Peer, ShimId, Status, View};

use crate::coherence::copy::{Copy, Filling};
use crate::time::Time;

/// A copy lives no longer than this without being asked for again.
const LIFE_MAX: Duration = Duration::from_secs(60);
/// What one object costs beside its bytes: table slot, reply slots, reference counts.
pub const OVERHEAD_BYTES: u64 = 256;
/// Heat is kept in sixteenths of a request per second.
pub(super) const HEAT_ONE: u32 = 16;
/// Below four invalidations per second a copy costs nothing worth a decision, and chance decides.
const WRITE_HOT_MIN: u32 = 4 * HEAT_ONE;

/// Who asked, to be answered later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) from: Peer,
    pub(super) request: u64,
    /// Passed on it goes the way of its client's other reads, whoever's fetch it has joined.
    pub(super) resp3: bool,
    /// As how many-th read it came.
    pub(super) arrival: u64,
}

impl Waiter {
    /// Its read once more, to be passed on.
    pub(super) fn read(&self, key: Key, view: View, command: Bytes) -> Read {
        let (resp3, degree) = (self.resp3, Degree::BASE);
        Read { request: 0, key, view, resp3, ordered: false, streams: false, waited_ms: 0, degree, command }
    }
}

/// A fetch under way and those who wait for it. The first `covered` asked before it was sent.
#[derive(Clone, Debug)]
pub(super) struct Fetching {
    pub(super) filling: Filling,
    pub(super) view: View,
    pub(super) resp3: bool,
    pub(super) command: Bytes,
    pub(super) waiters: SmallVec<[Waiter; 2]>,
    pub(super) covered: usize,
}

/// One view; without a reply after an INV, to be filled again on demand.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    pub(super) view: View,
    pub(super) reply: Option<(Status, Bytes)>,
    pub(super) expiry: Time,
}

/// Why the key is held here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Holding {
    /// As the key's place in this layer, or as what was asked for here when it was.
    #[default]
    Place,
    /// As one of the further places of an elastic key.
    Further,
    /// It was that, and goes when nobody waits for a fetch any more.
    Leaving,
}

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) shim: ShimId,
    /// How many places the key has, as the shim has said.
    pub(super) degree: Degree,
    pub(super) holding: Holding,
    pub(super) copy: Copy,
    pub(super) fill_highest: u64,
    pub(super) cached: SmallVec<[Cached; 1]>,
    pub(super) pending: Option<(EarlyValue, Time)>,
    pub(super) fetching: Vec<Fetching>,
    /// Fills refused in a row, and when the first of them was.
    pub(super) refused: u8,
    pub(super) refused_since: Time,
    /// Sixteenths of a hit per second, averaged over about eight seconds.
    pub(super) heat: u32,
    pub(super) hits: u32,
    /// Sixteenths of an invalidation per second, averaged like heat.
    pub(super) invalidation_heat: u32,
    pub(super) invalidations: u32,
    pub(super) bytes: u64,
}

impl Object {
    pub(super) fn new(shim: ShimId, key_bytes: usize, heat: u32) -> Object {
        Object {
            shim,
            degree: Degree::BASE,
            holding: Holding::Place,
            copy: Copy::Invalid { version: 0 },
            fill_highest: 0,
            cached: SmallVec::new(),
            pending: None,
            fetching: Vec::new(),
            refused: 0,
            refused_since: Time(0),
            heat: heat.saturating_mul(HEAT_ONE),
            hits: 0,
            invalidation_heat: 0,
            invalidations: 0,
            bytes: OVERHEAD_BYTES + key_bytes as u64,
        }
    }

    pub(super) fn admits(&self, view: View) -> bool {
        self.cached.iter().any(|cached| cached.view == view)
    }

    /// Whether a read of the same router that came before `waiter` waits for a fetch.
    pub(super) fn is_awaited_before(&self, waiter: &Waiter) -> bool {
        let mut waiters = self.fetching.iter().flat_map(|fetching| &fetching.waiters);
        waiters.any(|other| other.from == waiter.from && other.arrival < waiter.arrival)
    }

    /// The reply that may be served at `now`, as far as this object knows: the lease is the caller's to check.
    pub(super) fn reply(&self, now: Time, view: View) -> Option<&(Status, Bytes)> {
        if !self.copy.is_valid() {
            return None;
        }
        let cached = self.cached.iter().find(|cached| cached.view == view && now < cached.expiry)?;
        cached.reply.as_ref()
    }

    /// Whether there is neither a reply to serve nor a fetch that brings one.
    pub(super) fn is_hollow(&self, now: Time, view: View) -> bool {
        self.reply(now, view).is_none() && !self.fetching.iter().any(|fetching| fetching.view == view)
    }

    /// Makes room for a view; false when the key has too many.
    pub(super) fn admit(&mut self, view: View, views_max: usize) -> bool {
        if self.admits(view) {
            return true;
        }
        let room = self.cached.len() < views_max;
        if room {
            self.cached.push(Cached { view, reply: None, expiry: Time(0) });
        }
        room
    }

    /// Keeps a reply; returns the change in bytes.
    pub(super) fn keep(&mut self, view: View, status: Status, value: &Bytes, expiry: Time) -> i64 {
        if !self.admits(view) {
            // Fetched when it was admitted.
            self.cached.push(Cached { view, reply: None, expiry: Time(0) });
        }
        let Some(cached) = self.cached.iter_mut().find(|cached| cached.view == view) else { return 0 };
        let before = cached.reply.as_ref().map_or(0, |(_, value)| value.len());
        // A copy of its own: a slice would keep the whole read buffer alive.
        cached.reply = Some((status, Bytes::copy_from_slice(value)));
        cached.expiry = expiry;
        let change = value.len() as i64 - before as i64;
        self.bytes = self.bytes.saturating_add_signed(change);
        change
    }

    /// Drops every reply but remembers the views; returns the bytes freed.
    pub(super) fn drop_replies(&mut self) -> u64 {
        let mut freed = 0;
        for cached in &mut self.cached {
            freed += cached.reply.take().map_or(0, |(_, value)| value.len() as u64);
        }
        self.pending = None;
        self.bytes -= freed;
        freed
    }

    /// Once a second: the average moves an eighth of the way to the last second's hits.
    pub(super) fn decay(&mut self) {
        let average = |old: u32, new: u32| old - old.div_ceil(8) + new.saturating_mul(HEAT_ONE) / 8;
        self.heat = average(self.heat, self.hits);
        self.invalidation_heat = average(self.invalidation_heat, self.invalidations);
        self.hits = 0;
        self.invalidations = 0;
    }

    /// Whether invalidations outnumber hits: such a copy costs more than it serves.
    pub(super) fn is_write_hot(&self) -> bool {
        self.invalidation_heat > WRITE_HOT_MIN && self.invalidation_heat > self.heat
    }
}

/// When a copy ends that was read from storage after `since`. Its time to live is shortened by 1 % for the clocks' rates
/// and by a millisecond because storage counts whole ones: a key may go that much before its time.
pub(super) fn expiry(since: Time, ttl_ms: Option<u64>) -> Time {
    let life = |ttl: u64| Duration::from_micros(ttl.saturating_sub(1).saturating_mul(990));
    since.after(ttl_ms.map_or(LIFE_MAX, |ttl| life(ttl).min(LIFE_MAX)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::{ShimId, Status, View};

    use super::{Object, expiry};
    use crate::coherence::copy::Copy;
    use crate::time::Time;

    /// Storage sets a key at 0.999 ms to live for 20 ms. It calls that 0 ms, and so the key is gone at 20.000.
    #[test]
    fn a_copy_is_gone_before_storage_s_whole_milliseconds_are_over() {
        let mut object = Object::new(ShimId(0), 1, 1);
        object.copy = Copy::Valid { version: 1 };
        object.keep(View::GET, Status::Ok, &Bytes::from_static(b"$1\r\nv\r\n"), expiry(Time(999), Some(20)));
        assert!(object.reply(Time(19_000), View::GET).is_some());
        assert!(object.reply(Time(20_000), View::GET).is_none());
    }
}
