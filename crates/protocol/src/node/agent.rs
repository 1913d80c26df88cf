//! The node's agent: which keys come in, which go out (paper, section 4.3, "Cache update"). Nobody coordinates it.

use crate::hash::KeyMap;
use crate::node::Admission;
use crate::node::object::{HEAT_ONE, Object};
use crate::time::Time;
use wire::{Digest, Key};

/// Evictions for hotter keys per second, as a share of the objects: bounds the churn of a noisy second.
const CHURN_DIVISOR: usize = 16;
/// Keys held off at once: the longest held make room.
const HELD_OFF_MAX: usize = 4096;

/// The agent's memory: today's eviction candidates and the keys held off.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    objects_max: usize,
    bytes_max: u64,
    admission: Admission,
    /// Coldest last. Made anew every second.
    coldest: Vec<(u32, Key)>,
    held_off: std::collections::VecDeque<(Time, Digest)>,
}

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
        Agent { objects_max, bytes_max, admission, coldest: Vec::new(), held_off: Default::default() }
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
        match self.coldest.last() {
            Some((heat, _)) => self.admission.heat_min.max(self.bar(*heat) / HEAT_ONE + 1),
            None => u32::MAX,
        }
    }

    /// Whether a key comes in, and for whom. Candidates that are gone or in use are passed over.
    pub(super) fn judge(&mut self, newcomer: Newcomer<'_>, bytes: u64, objects: &KeyMap<Object>) -> Verdict {
        let Newcomer { key, heat, always } = newcomer;
        if self.objects_max == 0 || (heat < self.admission.heat_min && !always) || self.is_held_off(key) {
            return Verdict::Decline;
        }
        if objects.len() < self.objects_max && bytes < self.bytes_max {
            return Verdict::Insert;
        }
        while let Some((cold, candidate)) = self.coldest.last() {
            let evictable = objects.get(candidate).is_some_and(|object| object.fetching.is_empty());
            if !evictable {
                self.coldest.pop();
                continue;
            }
            let heat = heat.saturating_mul(HEAT_ONE);
            let enough = if always { heat >= *cold } else { heat > self.bar(*cold) };
            if !enough {
                return Verdict::Decline;
            }
            return self.coldest.pop().map_or(Verdict::Decline, |(_, candidate)| Verdict::Replace(candidate));
        }
        Verdict::Decline
    }

    /// The coldest object that can go, while the node holds more bytes than it may.
    pub(super) fn next_victim(&mut self, bytes: u64, objects: &KeyMap<Object>) -> Option<Key> {
        if !self.is_over(objects.len(), bytes) {
            return None;
        }
        while let Some((_, candidate)) = self.coldest.pop() {
            if objects.get(&candidate).is_some_and(|object| object.fetching.is_empty()) {
                return Some(candidate);
            }
        }
        let idle = objects.iter().filter(|(_, object)| object.fetching.is_empty());
        idle.min_by_key(|(key, object)| (object.heat, key.digest)).map(|(key, _)| key.clone())
    }

    /// Once a second, after the heats have decayed.
    pub(super) fn rank(&mut self, now: Time, objects: &KeyMap<Object>) {
        while self.held_off.front().is_some_and(|(until, _)| *until <= now) {
            self.held_off.pop_front();
        }
        self.coldest.clear();
        if objects.len() < self.objects_max {
            return;
        }
        self.coldest = coldest(objects.iter(), objects.len() / CHURN_DIVISOR);
    }

    pub(super) fn is_over(&self, objects: usize, bytes: u64) -> bool {
        objects > self.objects_max || bytes > self.bytes_max
    }

    /// What goes first when the limits have fallen, the coldest first; nothing that is being fetched.
    pub(super) fn coldest_sixteenth(&self, objects: &KeyMap<Object>) -> Vec<Key> {
        let idle = objects.iter().filter(|(_, object)| object.fetching.is_empty());
        coldest(idle, objects.len() / CHURN_DIVISOR).into_iter().rev().map(|(_, key)| key).collect()
    }

    pub(super) fn hold_off(&mut self, now: Time, key: &Key) {
        if self.held_off.len() == HELD_OFF_MAX {
            self.held_off.pop_front();
        }
        self.held_off.push_back((now.after(self.admission.hold_off), key.digest));
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
        self.held_off.iter().any(|(_, digest)| *digest == key.digest)
    }
}

/// So many of the coldest, at least one, coldest last.
fn coldest<'a>(objects: impl Iterator<Item = (&'a Key, &'a Object)>, take: usize) -> Vec<(u32, Key)> {
    let mut ranked: Vec<(u32, &Key)> = objects.map(|(key, object)| (object.heat, key)).collect();
    let take = take.max(1).min(ranked.len());
    if take < ranked.len() {
        ranked.select_nth_unstable_by_key(take, |(heat, key)| (*heat, key.digest));
    }
    ranked.truncate(take);
    ranked.sort_unstable_by_key(|(heat, key)| std::cmp::Reverse((*heat, key.digest)));
    ranked.into_iter().map(|(heat, key)| (heat, key.clone())).collect()
}
