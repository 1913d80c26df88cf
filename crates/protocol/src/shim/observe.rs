//! Observing only: what would be cached, and how many reads it would have served. Nothing is cached by it.

use std::time::Duration;

use smallvec::SmallVec;
use wire::message::Read;
use wire::{Key, View};

use super::Shim;
use super::reads::own;
use super::step::ShimStep;
use crate::hash::KeyMap;
use crate::node::heat_item;
use crate::shim::purge::Requester;
use crate::time::Time;

/// A key that nobody has read for so long would have made room for others.
const LIFE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(1);

/// The keys that nodes would hold of this shim, each once whatever the number of layers.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    keys_max: usize,
    keys: KeyMap<Observed>,
    looked: Time,
}

#[derive(Clone, Debug)]
struct Observed {
    seen: Time,
    /// Views that a read since the last write would have filled.
    filled: SmallVec<[View; 1]>,
}

impl Observer {
    pub(super) fn new(keys_max: usize) -> Observer {
        Observer { keys_max, keys: KeyMap::default(), looked: Time(0) }
    }

    /// Whether a copy would have answered this read. `hot`: it is hot enough to be cached from now on.
    fn read(&mut self, now: Time, read: &Read, hot: impl FnOnce() -> bool) -> bool {
        if let Some(known) = self.keys.get_mut(&read.key) {
            known.seen = now;
            let hit = known.filled.contains(&read.view);
            if !hit {
                known.filled.push(read.view);
            }
            return hit;
        }
        if hot() && self.keys.len() < self.keys_max {
            let filled = SmallVec::from_slice(&[read.view]);
            self.keys.insert(own(&read.key), Observed { seen: now, filled });
        }
        false
    }

    fn tick(&mut self, now: Time) {
        if now.since(self.looked) >= LOOK {
            self.looked = now;
            self.keys.retain(|_, observed| now.since(observed.seen) < LIFE);
        }
    }
}

impl Shim {
    /// `keys_max`: so many keys would have room in the nodes; none to end it.
    pub(super) fn observe(&mut self, step: &mut ShimStep<'_>, keys_max: Option<usize>) {
        match (&mut self.observer, keys_max) {
            (Some(observer), Some(keys_max)) => observer.keys_max = keys_max,
            (None, Some(keys_max)) => {
                self.observer = Some(Observer::new(keys_max));
                self.purge(step, Requester::Nobody, &commands::PurgeTarget::All);
            }
            (_, None) => self.observer = None,
        }
    }

    pub(super) fn observes(&self) -> bool {
        self.observer.is_some()
    }

    /// Counts a read in place of `count_heat`, whichever way it came.
    pub(super) fn observe_read(&mut self, now: Time, read: &Read) {
        let always = self.config.settings.policies.is_always(&read.key.bytes);
        let floor = if always { 1 } else { self.heat_floor };
        let heat = self.heat.record(now, heat_item(&read.key, read.view), floor);
        if let Some(heat) = heat {
            self.hottest.report(now, &read.key, heat);
        }
        let Some(observer) = &mut self.observer else { return };
        let policies = &self.config.settings.policies;
        let hit = observer.read(now, read, || heat.is_some() && !policies.of(&read.key.bytes).is_never());
        self.statistics.observed_reads += 1;
        self.statistics.observed_hits += u64::from(hit);
    }

    pub(super) fn observe_write(&mut self, key: &Key) {
        let observer = self.observer.as_mut();
        if let Some(observed) = observer.and_then(|observer| observer.keys.get_mut(key)) {
            observed.filled.clear();
        }
    }

    pub(super) fn observe_barrier(&mut self) {
        if let Some(observer) = &mut self.observer {
            observer.keys.clear();
        }
    }

    pub(super) fn tick_observer(&mut self, now: Time) {
        if let Some(observer) = &mut self.observer {
            observer.tick(now);
        }
    }

    /// Keys that would be cached now.
    pub(super) fn observed(&self) -> usize {
        self.observer.as_ref().map_or(0, |observer| observer.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::message::Read;
    use wire::{Digest, Key, View};

    use super::Observer;
    use crate::hash::KeyMap;
    use crate::time::Time;

    fn read(key: u8) -> Read {
        let key = Key { digest: Digest(u128::from(key)), database: 0, bytes: Bytes::from(vec![key]) };
        let command = Bytes::new();
        Read {
            request: 0,
            key,
            view: View::GET,
            resp3: false,
            ordered: false,
            streams: false,
            waited_ms: 0,
            degree: wire::Degree::BASE,
            command,
        }
    }

    #[test]
    fn hot_keys_would_be_hit_until_they_are_cold_and_as_many_as_find_room() {
        let mut observer = Observer { keys_max: 1, keys: KeyMap::default(), looked: Time(0) };
        assert!(!observer.read(Time(0), &read(1), || false), "cold");
        assert!(!observer.read(Time(0), &read(1), || true), "filled by this read");
        assert!(observer.read(Time(0), &read(1), || false));
        assert!(
            !observer.read(Time(0), &read(2), || true) && !observer.read(Time(0), &read(2), || true),
            "no room"
        );
        observer.tick(Time(9_000_000));
        assert!(observer.read(Time(9_000_000), &read(1), || false));
        observer.tick(Time(19_500_000));
        assert!(!observer.read(Time(19_500_000), &read(1), || false), "nobody has read it for ten seconds");
    }
}
