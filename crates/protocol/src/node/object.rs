//! One cached key of a node: its replies by view, the fills under way and how hot it is.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{EarlyValue, Read};
use wire::{Degree, Digest, Key, Peer, ShimId, Status, View};

use super::body::joined;
use super::lifetime::{Lifetime, Spare};
use crate::coherence::copy::{Copy, Filling};
use crate::time::Time;

/// What one object takes beside the bytes of its key and of its first reply: its slot, its share of the index over them, and what the
/// allocator and the count of references take.
pub const OVERHEAD_BYTES: u64 = 152;
/// The same for each further view.
const VIEW_OVERHEAD_BYTES: u64 = 128;
/// Heat is kept in sixteenths of a request per second.
pub(super) const HEAT_ONE: u32 = 16;
/// Between two fetches that nobody waits for, if the first brings no copy; and for how long a COMMIT is awaited instead of one.
const PUT_OFF: Duration = Duration::from_millis(10);
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

/// A further view; without a reply after an INV, to be filled again on demand.
#[derive(Clone, Debug)]
struct Cached {
    view: View,
    reply: Option<(Status, Bytes)>,
    life: Lifetime,
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

/// What of `Copy` is not its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    Invalid,
    Pending,
    Valid,
}

/// What few objects have, and none for long but further views.
#[derive(Clone, Debug)]
struct Extra {
    fetching: Vec<Fetching>,
    /// A value that waits for its COMMIT, and when it came.
    pending: Option<(EarlyValue, Time)>,
    /// Views beside the first.
    views: Vec<Cached>,
    /// Fills refused in a row, and when the first of them was.
    refused: u8,
    refused_since: Time,
}

/// One cached key. It is small: a node holds millions, most of them with one view and nothing under way.
#[derive(Clone, Debug)]
pub(super) struct Object {
    digest: Digest,
    /// The key's bytes, and behind them the reply of the first view if there is one.
    body: Bytes,
    extra: Option<Box<Extra>>,
    version: u64,
    /// The first view, and when its reply ends.
    view: View,
    expiry: Time,
    /// Sixteenths of a hit per second, averaged over about eight seconds.
    pub(super) heat: u32,
    pub(super) hits: u32,
    /// Sixteenths of an invalidation per second, averaged like heat.
    invalidation_heat: u32,
    pub(super) invalidations: u32,
    key_len: u32,
    pub(super) shim: ShimId,
    database: u16,
    state: CopyState,
    /// That of the first view's reply, if there is one.
    status: Option<Status>,
    /// For how much longer that reply may be served if storage is gone.
    spare: Spare,
    /// How many places the key has, as the shim has said.
    pub(super) degree: Degree,
    pub(super) holding: Holding,
    /// The last pass over all objects that has looked at this one.
    pub(super) seen: u8,
    /// Which life of its shim's objects it belongs to.
    pub(super) life: u16,
}

const _: () = assert!(size_of::<Object>() <= 112, "a node holds millions of objects");

impl Object {
    /// An object without a reply. `heat`: requests per second.
    pub(super) fn new(shim: ShimId, key: &Key, view: View, heat: u32) -> Object {
        Object {
            digest: key.digest,
            body: joined(&key.bytes, &[]),
            extra: None,
            version: 0,
            view,
            expiry: Time(0),
            heat: heat.saturating_mul(HEAT_ONE),
            hits: 0,
            invalidation_heat: 0,
            invalidations: 0,
            key_len: key.bytes.len() as u32,
            shim,
            database: key.database,
            state: CopyState::Invalid,
            status: None,
            spare: Spare::default(),
            degree: Degree::BASE,
            holding: Holding::Place,
            seen: 0,
            life: 0,
        }
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    pub(super) fn key_bytes(&self) -> &[u8] {
        &self.body[..self.key_len as usize]
    }

    /// The key, in memory of its own: it may be kept for longer than the object.
    pub(super) fn key(&self) -> Key {
        let bytes = Bytes::copy_from_slice(self.key_bytes());
        Key { digest: self.digest, database: self.database, bytes }
    }

    pub(super) fn is_of(&self, key: &Key) -> bool {
        self.digest == key.digest && self.database == key.database && self.key_bytes() == key.bytes
    }

    /// What the object takes of a node's `bytes_max`.
    pub(super) fn bytes(&self) -> u64 {
        let views = self.extra.as_ref().map_or(&[][..], |extra| &extra.views);
        let of_view = |cached: &Cached| {
            VIEW_OVERHEAD_BYTES + cached.reply.as_ref().map_or(0, |(_, value)| value.len() as u64)
        };
        OVERHEAD_BYTES + self.body.len() as u64 + views.iter().map(of_view).sum::<u64>()
    }

    pub(super) fn copy(&self) -> Copy {
        let version = self.version;
        match self.state {
            CopyState::Invalid => Copy::Invalid { version },
            CopyState::Pending => Copy::Pending { version },
            CopyState::Valid => Copy::Valid { version },
        }
    }

    /// Changes what is known of the key.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut Copy) -> T) -> T {
        let mut copy = self.copy();
        let outcome = change(&mut copy);
        self.version = copy.version();
        self.state = match copy {
            Copy::Invalid { .. } => CopyState::Invalid,
            Copy::Pending { .. } => CopyState::Pending,
            Copy::Valid { .. } => CopyState::Valid,
        };
        outcome
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_with(|| {
            let (fetching, pending, views) = (Vec::new(), None, Vec::new());
            Box::new(Extra { fetching, pending, views, refused: 0, refused_since: Time(0) })
        })
    }

    /// Gives the memory back of what is not there any more.
    fn shrink(&mut self) {
        let is_nothing = |extra: &mut Box<Extra>| {
            let Extra { fetching, pending, views, refused, .. } = &**extra;
            fetching.is_empty() && pending.is_none() && views.is_empty() && *refused == 0
        };
        self.extra.take_if(is_nothing);
    }

    pub(super) fn admits(&self, view: View) -> bool {
        self.view == view || self.further(view).is_some()
    }

    fn further(&self, view: View) -> Option<&Cached> {
        self.extra.as_ref()?.views.iter().find(|cached| cached.view == view)
    }

    /// Fetches under way.
    pub(super) fn fetching(&self) -> &[Fetching] {
        self.extra.as_ref().map_or(&[], |extra| &extra.fetching)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.fetching().is_empty()
    }

    pub(super) fn fetching_mut(&mut self) -> &mut [Fetching] {
        self.extra.as_mut().map_or(&mut [], |extra| &mut extra.fetching)
    }

    pub(super) fn begin_fetch(&mut self, fetching: Fetching) {
        self.extra().fetching.push(fetching);
    }

    /// The fetch that a fill ends.
    pub(super) fn end_fetch(&mut self, fill: u64) -> Option<Fetching> {
        let fetching = &mut self.extra.as_mut()?.fetching;
        let place = fetching.iter().position(|fetching| fetching.filling.fill == fill)?;
        let ended = fetching.swap_remove(place);
        self.shrink();
        Some(ended)
    }

    /// All fetches, of which none will be answered.
    pub(super) fn give_up_fetches(&mut self) -> Vec<Fetching> {
        let given_up = self.extra.as_mut().map(|extra| std::mem::take(&mut extra.fetching));
        self.shrink();
        given_up.unwrap_or_default()
    }

    /// Whether a read of the same router that came before `waiter` waits for a fetch.
    pub(super) fn is_awaited_before(&self, waiter: &Waiter) -> bool {
        let mut waiters = self.fetching().iter().flat_map(|fetching| &fetching.waiters);
        waiters.any(|other| other.from == waiter.from && other.arrival < waiter.arrival)
    }

    /// The reply that may be served at `now`, as far as this object knows: the lease is the caller's to check.
    pub(super) fn reply(&self, now: Time, view: View) -> Option<(Status, Bytes)> {
        self.reply_if(view, |life| now < life.end)
    }

    /// The same if storage is gone, so that nobody can say more of the key than that it has not ended.
    pub(super) fn stale_reply(&self, now: Time, view: View) -> Option<(Status, Bytes)> {
        self.reply_if(view, |life| now < life.stale_end())
    }

    fn reply_if(&self, view: View, lives: impl Fn(&Lifetime) -> bool) -> Option<(Status, Bytes)> {
        if self.state != CopyState::Valid {
            return None;
        }
        if self.view == view {
            let life = Lifetime { end: self.expiry, spare: self.spare };
            let status = self.status.filter(|_| lives(&life))?;
            return Some((status, self.body.slice(self.key_len as usize..)));
        }
        self.further(view).filter(|cached| lives(&cached.life))?.reply.clone()
    }

    /// Whether there is neither a reply to serve nor a fetch that brings one.
    pub(super) fn is_hollow(&self, now: Time, view: View) -> bool {
        self.reply(now, view).is_none() && !self.fetching().iter().any(|fetching| fetching.view == view)
    }

    /// Makes room for a view; false when the key has too many.
    pub(super) fn admit(&mut self, view: View, views_max: usize) -> bool {
        if self.admits(view) {
            return true;
        }
        let views = 1 + self.extra.as_ref().map_or(0, |extra| extra.views.len());
        if views < views_max {
            self.extra().views.push(Cached { view, reply: None, life: Lifetime::OVER });
        }
        views < views_max
    }

    /// Keeps a reply, in memory of its own: a slice would keep the whole read buffer alive.
    pub(super) fn keep(&mut self, view: View, status: Status, value: &Bytes, life: Lifetime) {
        if self.view == view {
            self.body = joined(self.key_bytes(), value);
            (self.status, self.expiry, self.spare) = (Some(status), life.end, life.spare);
            return;
        }
        let views = &mut self.extra().views;
        let place = views.iter().position(|cached| cached.view == view);
        let reply = Some((status, Bytes::copy_from_slice(value)));
        let cached = Cached { view, reply, life };
        match place {
            Some(place) => views[place] = cached,
            // Fetched when it was admitted.
            None => views.push(cached),
        }
    }

    /// Drops every reply but remembers the views.
    pub(super) fn drop_replies(&mut self) {
        if self.status.take().is_some() {
            self.body = joined(self.key_bytes(), &[]);
        }
        if let Some(extra) = &mut self.extra {
            extra.pending = None;
            extra.views.iter_mut().for_each(|cached| cached.reply = None);
        }
        self.shrink();
    }

    /// A value that came before its COMMIT.
    pub(super) fn hold(&mut self, value: EarlyValue, now: Time) {
        self.extra().pending = Some((value, now));
    }

    pub(super) fn held(&self) -> Option<&EarlyValue> {
        self.extra.as_ref()?.pending.as_ref().map(|(value, _)| value)
    }

    /// Its COMMIT has come: the value is the reply to GET from now on.
    pub(super) fn confirm(&mut self) {
        let pending = self.extra.as_mut().and_then(|extra| extra.pending.take());
        self.shrink();
        if let Some((early, received)) = pending {
            self.keep(View::GET, Status::Ok, &early.value, Lifetime::new(received, early.ttl_ms, 0));
        }
    }

    /// Counts fills that brought no copy, and tells how many there were in a row and for how long.
    pub(super) fn refused(&mut self, now: Time, kept: bool) -> (u8, Duration) {
        if kept && self.extra.is_none() {
            return (0, Duration::ZERO);
        }
        let extra = self.extra();
        if extra.refused == 0 {
            extra.refused_since = now;
        }
        extra.refused = if kept { 0 } else { extra.refused.saturating_add(1) };
        let refused = (extra.refused, now.since(extra.refused_since));
        self.shrink();
        refused
    }

    /// Once a second: the average moves an eighth of the way to the last second's hits.
    pub(super) fn decay(&mut self) {
        let average = |old: u32, new: u32| old - old.div_ceil(8) + new.saturating_mul(HEAT_ONE) / 8;
        self.heat = average(self.heat, self.hits);
        self.invalidation_heat = average(self.invalidation_heat, self.invalidations);
        self.hits = 0;
        self.invalidations = 0;
    }

    /// Whether there are fewer than so many hits to an invalidation: such a copy costs more than it serves.
    pub(super) fn is_write_hot(&self, hits_min: u32) -> bool {
        self.invalidation_heat > WRITE_HOT_MIN && self.invalidation_heat.saturating_mul(hits_min) > self.heat
    }

    /// Whether the key is being written, so that a fill would bring no copy: the last ones have not, or a value waits for its COMMIT.
    pub(super) fn is_put_off(&self, now: Time) -> bool {
        let Some(extra) = &self.extra else { return false };
        let refused =
            extra.refused > 0 && now < extra.refused_since.after(PUT_OFF * u32::from(extra.refused));
        refused || extra.pending.as_ref().is_some_and(|(_, received)| now < received.after(PUT_OFF))
    }

    /// All that decides what becomes of it, but for its heat and how long its replies have yet to live.
    pub(super) fn fingerprint(&self, now: Time, state: &mut impl Hasher) {
        (self.copy(), self.degree, self.holding).hash(state);
        let first = self.status.map(|status| (status, &self.body[self.key_len as usize..]));
        let further = self.extra.iter().flat_map(|extra| &extra.views);
        let mut cached = vec![(self.view, first, now < self.expiry, self.spare)];
        for Cached { view, reply, life } in further {
            let reply = reply.as_ref().map(|(status, value)| (*status, &value[..]));
            cached.push((*view, reply, now < life.end, life.spare));
        }
        cached.sort_unstable_by_key(|(view, ..)| *view);
        cached.hash(state);
        self.held().hash(state);
        let mut fetching: Vec<_> = self.fetching().iter().collect();
        fetching.sort_unstable_by_key(|fetching| fetching.filling.fill);
        for fetching in fetching {
            let filling = &fetching.filling;
            (filling.fill, filling.version_min, filling.poisoned, fetching.view, fetching.covered)
                .hash(state);
            fetching.waiters.iter().for_each(|waiter| (waiter.from, waiter.request).hash(state));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::{Key, ShimId, Status, View};

    use super::{Lifetime, Object};
    use crate::coherence::copy::Copy;
    use crate::time::Time;

    /// Storage sets a key at 0.999 ms to live for 20 ms. It calls that 0 ms, and so the key is gone at 20.000.
    #[test]
    fn a_copy_is_gone_before_storage_s_whole_milliseconds_are_over() {
        let mut object = Object::new(ShimId(0), &Key::default(), View::GET, 1);
        object.change(|copy| *copy = Copy::Valid { version: 1 });
        object.keep(
            View::GET,
            Status::Ok,
            &Bytes::from_static(b"$1\r\nv\r\n"),
            Lifetime::new(Time(999), Some(20), 0),
        );
        assert!(object.reply(Time(19_000), View::GET).is_some());
        assert!(object.reply(Time(20_000), View::GET).is_none());
    }
}
