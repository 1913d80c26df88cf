//! The node's agent: which keys come in, which go out (paper, section 4.3, "Cache update"). Nobody coordinates it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use wire::{Digest, Key};

use super::Admission;
use super::object::{HEAT_ONE, Object};
use super::table::{ObjectTable, half_of};
use crate::hash::DigestHasher;
use crate::time::Time;

/// Evictions for hotter keys per second, as a share of the objects: bounds the churn of a noisy second.
const CHURN_DIVISOR: usize = 16;
/// Objects that are known as the hottest, for people to see.
const HOTTEST_MAX: usize = 32;
/// Objects that are looked at for a victim where there is no candidate.
const SEARCHED_MAX: usize = 64;
/// Keys held off at once: the longest held make room.
const HELD_OFF_MAX: usize = 4096;

/// The agent's memory: today's eviction candidates and the keys held off.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    objects_max: usize,
    bytes_max: u64,
    admission: Admission,
    /// The coldest of all as of the last pass, the coldest first.
    coldest: BinaryHeap<Reverse<Candidate>>,
    /// What this slice of the pass has seen, and the coldest of those before it.
    slice: Vec<Candidate>,
    forming: Vec<Candidate>,
    /// The hottest as of the last pass, and of this one: at most `HOTTEST_MAX`, hottest first.
    hottest: Vec<(u32, Key)>,
    forming_hottest: Vec<(u32, Key)>,
    /// Turns of the search for a victim where there is no candidate.
    searches: u64,
    /// Until when each key is held off, and all that were, by when.
    held_off: HashMap<Digest, Time, BuildHasherDefault<DigestHasher>>,
    held_off_turns: VecDeque<(Time, Digest)>,
}

/// An object's heat, and the half of its digest.
type Candidate = (u32, u64);

/// A key that may come in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer<'a> {
    pub(super) key: &'a Key,
    pub(super) heat: u32,
    /// No minimum holds, and as hot as the coldest is hot enough.
    pub(super) always: bool,
}

/// What admission needs to happen first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Decline,
    Insert,
    Replace(Key),
}

impl Agent {
    pub(super) fn new(objects_max: usize, bytes_max: u64, admission: Admission) -> Agent {
        Agent {
            objects_max,
            bytes_max,
            admission,
            coldest: BinaryHeap::new(),
            slice: Vec::new(),
            forming: Vec::new(),
            hottest: Vec::new(),
            forming_hottest: Vec::new(),
            searches: 0,
            held_off: HashMap::default(),
            held_off_turns: VecDeque::new(),
        }
    }

    pub(super) fn set_limits(&mut self, objects_max: usize, bytes_max: u64, admission: Admission) {
        (self.objects_max, self.bytes_max, self.admission) = (objects_max, bytes_max, admission);
        self.coldest.clear();
    }

    /// The least heat, in requests per second, that an insertion takes now.
    pub(super) fn heat_floor(&self, objects: usize, bytes: u64) -> u32 {
        if objects < self.objects_max && bytes < self.bytes_max {
            return self.admission.heat_min;
        }
        match self.coldest.peek() {
            Some(Reverse((heat, _))) => self.admission.heat_min.max(self.bar(*heat) / HEAT_ONE + 1),
            None => u32::MAX,
        }
    }

    /// Whether a key comes in, and for whom. Candidates that are gone or in use are passed over.
    pub(super) fn judge(&mut self, newcomer: Newcomer<'_>, bytes: u64, objects: &ObjectTable) -> Verdict {
        let Newcomer { key, heat, always } = newcomer;
        if self.objects_max == 0 || (heat < self.admission.heat_min && !always) || self.is_held_off(key) {
            return Verdict::Decline;
        }
        if objects.len() < self.objects_max && bytes < self.bytes_max {
            return Verdict::Insert;
        }
        while let Some(&Reverse((cold, candidate))) = self.coldest.peek() {
            if let Some(victim) = evictable(objects, candidate) {
                let heat = heat.saturating_mul(HEAT_ONE);
                let enough = if always { heat >= cold } else { heat > self.bar(cold) };
                if !enough {
                    return Verdict::Decline;
                }
                self.coldest.pop();
                return Verdict::Replace(victim);
            }
            self.coldest.pop();
        }
        Verdict::Decline
    }

    /// The coldest object that can go, while the node holds more bytes than it may; without candidates, the coldest of a few.
    pub(super) fn next_victim(&mut self, bytes: u64, objects: &ObjectTable) -> Option<Key> {
        if !self.is_over(objects.len(), bytes) {
            return None;
        }
        while let Some(Reverse((_, candidate))) = self.coldest.pop() {
            if let Some(victim) = evictable(objects, candidate) {
                return Some(victim);
            }
        }
        self.searches += 1;
        let few = objects.sample(self.searches.wrapping_mul(SEARCHED_MAX as u64), SEARCHED_MAX);
        let coldest_of = |objects: &mut dyn Iterator<Item = &Object>| {
            let idle = objects.filter(|object| object.is_idle());
            idle.min_by_key(|object| (object.heat, object.digest())).map(Object::key)
        };
        // Hardly ever is nothing of so many idle.
        coldest_of(&mut { few }).or_else(|| coldest_of(&mut objects.iter()))
    }

    /// The pass has come to an object, whose heat has decayed.
    pub(super) fn rank(&mut self, object: &Object) {
        let (heat, digest) = (object.heat, object.digest());
        self.slice.push((heat, half_of(digest)));
        let is_after =
            |(other, known): &(u32, Key)| (*other, Reverse(known.digest)) > (heat, Reverse(digest));
        let place = self.forming_hottest.partition_point(is_after);
        if place < HOTTEST_MAX {
            self.forming_hottest.truncate(HOTTEST_MAX - 1);
            self.forming_hottest.insert(place, (heat, object.key()));
        }
    }

    /// The pass rests. A slice is as good as any other, so that its coldest are the coldest of all, nearly.
    pub(super) fn end_slice(&mut self) {
        let take = (self.slice.len() / CHURN_DIVISOR).max(1).min(self.slice.len());
        if take < self.slice.len() {
            self.slice.select_nth_unstable(take);
        }
        self.forming.extend(self.slice.drain(..).take(take));
    }

    /// What the pass has found counts from now on.
    pub(super) fn end_pass(&mut self) {
        let found: Vec<_> = self.forming.drain(..).map(Reverse).collect();
        self.coldest = found.into();
        std::mem::swap(&mut self.hottest, &mut self.forming_hottest);
        self.forming_hottest.clear();
    }

    /// As of the last pass, hottest first; some may be gone.
    pub(super) fn hottest(&self) -> &[(u32, Key)] {
        &self.hottest
    }

    /// Lets keys come in again whose time is over.
    pub(super) fn release(&mut self, now: Time) {
        while self.held_off_turns.front().is_some_and(|(until, _)| *until <= now) {
            self.release_first();
        }
    }

    pub(super) fn is_over(&self, objects: usize, bytes: u64) -> bool {
        objects > self.objects_max || bytes > self.bytes_max
    }

    /// What goes first when the limits have fallen, the coldest first; nothing that is being fetched.
    pub(super) fn coldest_sixteenth(&self, objects: &ObjectTable) -> Vec<Key> {
        let idle = objects.iter().filter(|object| object.is_idle());
        coldest(idle, objects.len() / CHURN_DIVISOR).into_iter().rev().map(|(_, key)| key).collect()
    }

    pub(super) fn hold_off(&mut self, now: Time, key: &Key) {
        if self.held_off_turns.len() == HELD_OFF_MAX {
            self.release_first();
        }
        let until = now.after(self.admission.hold_off);
        self.held_off.insert(key.digest, until);
        self.held_off_turns.push_back((until, key.digest));
    }

    /// Lets the key go that was held off first, unless it has been held off once more.
    fn release_first(&mut self) {
        let Some((until, digest)) = self.held_off_turns.pop_front() else { return };
        if self.held_off.get(&digest) == Some(&until) {
            self.held_off.remove(&digest);
        }
    }

    /// What a newcomer must exceed, in sixteenths: the coldest, a share of it, and one request per second.
    fn bar(&self, cold: u32) -> u32 {
        let share = u64::from(cold) * u64::from(self.admission.hysteresis) / 1000;
        cold.saturating_add(share as u32).saturating_add(HEAT_ONE)
    }

    /// Keys held off now.
    pub(super) fn held_off(&self) -> usize {
        self.held_off.len()
    }

    fn is_held_off(&self, key: &Key) -> bool {
        self.held_off.contains_key(&key.digest)
    }
}

/// The key of a candidate that is still there and not being fetched.
fn evictable(objects: &ObjectTable, candidate: u64) -> Option<Key> {
    let object = objects.with_half(candidate)?;
    object.is_idle().then(|| object.key())
}

/// So many of the coldest, at least one, coldest last.
fn coldest<'a>(objects: impl Iterator<Item = &'a Object>, take: usize) -> Vec<(u32, Key)> {
    let mut ranked: Vec<(u32, &Object)> = objects.map(|object| (object.heat, object)).collect();
    let take = take.max(1).min(ranked.len());
    if take < ranked.len() {
        ranked.select_nth_unstable_by_key(take, |(heat, object)| (*heat, object.digest()));
    }
    ranked.truncate(take);
    ranked.sort_unstable_by_key(|(heat, object)| Reverse((*heat, object.digest())));
    ranked.into_iter().map(|(heat, object)| (heat, object.key())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use wire::{Digest, Key};

    use super::{Agent, HELD_OFF_MAX};
    use crate::node::NodeSettings;
    use crate::time::Time;

    #[test]
    fn a_key_is_held_off_until_the_last_time_is_over() {
        let mut admission = NodeSettings::default().admission;
        admission.hold_off = Duration::from_secs(10);
        let mut agent = Agent::new(10, 10, admission);
        let key = |number| Key { digest: Digest(number), database: 0, bytes: Bytes::new() };
        let second = |number: u64| Time(number * 1_000_000);
        agent.hold_off(second(0), &key(1));
        agent.hold_off(second(4), &key(1));
        agent.hold_off(second(5), &key(2));
        let held = |agent: &Agent| [1, 2, 3].map(|number| agent.is_held_off(&key(number)));
        let mut at = |now| {
            agent.release(second(now));
            held(&agent)
        };
        assert_eq!([9, 10, 13].map(&mut at), [[true, true, false]; 3], "held off twice");
        assert_eq!([14, 15].map(&mut at), [[false, true, false], [false; 3]]);
        agent.hold_off(second(20), &key(1));
        assert_eq!(held(&agent), [true, false, false]);
        (10..10 + HELD_OFF_MAX as u128).for_each(|number| agent.hold_off(second(21), &key(number)));
        assert_eq!((held(&agent), agent.held_off()), ([false, false, false], HELD_OFF_MAX));
    }
}
