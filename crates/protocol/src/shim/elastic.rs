//! How many places each hot key has: as many as bear what nodes say it takes of them, and no more than its writes allow. Where
//! these places are is `placement::elastic`'s; who holds copies is the directory's, and nothing here changes that.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use wire::message::{Heat, SetDegree};
use wire::{Degree, Key, Message, NodeId, Peer};

use super::Shim;
use super::ShimStatistics;
use super::operation::KeyState;
use super::reads::own;
use super::step::ShimStep;
use crate::hash::KeyMap;
use crate::placement::Placement;
use crate::placement::elastic::{COHERENCE_SHARE, Demand, degree_for, places_of};
use crate::time::Time;

/// Keys that are watched at a time. A node tells of eight at most that are not elastic yet.
const KEYS_MAX: usize = 4096;
/// What takes less of a node than this does not begin to be watched.
const PERMILLE_MIN: u32 = 125;
/// Nodes report once a second; what has not been repeated by now does not hold any more.
const REPORT_LIFE: Duration = Duration::from_millis(2_200);
/// A key gets fewer places only after it has needed fewer for this long, so that what comes and goes moves nothing.
const HOLD: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
/// A shim that is less busy than this has time enough, and how much it could do cannot be told.
const BUSY_MIN: u32 = 100;

#[derive(Clone, Debug, Default)]
pub(super) struct ElasticKeys {
    keys: KeyMap<ElasticKey>,
    looked: Time,
    /// The most places that a key may have.
    copies_max: usize,
    /// Requests and invalidations, as of the last measurement.
    work: u64,
    /// How many of them the shim could do in a second.
    able: Option<f64>,
    /// Invalidations of all elastic keys' copies in a second.
    spent: f64,
    /// Invalidations of near copies, all in all and in the last second.
    near: u64,
    near_spent: f64,
}

#[derive(Clone, Debug)]
struct ElasticKey {
    degree: Degree,
    /// All nodes in the key's order of preference, as of a map of this epoch.
    preferences: Vec<NodeId>,
    epoch: u32,
    reports: Vec<Report>,
    /// What it takes of all nodes, in thousandths of one.
    taken: Peak,
    /// Most invalidations of a copy in a second.
    invalidations: Peak,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    node: NodeId,
    permille: u32,
    hits: u32,
    at: Time,
}

/// The greatest value of the last period, or of this one: it is forgotten after one period at the earliest and two at the
/// latest.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    current: u64,
    last: u64,
    since: Time,
}

/// What no key's copies may exceed.
#[derive(Clone, Copy, Debug)]
struct CopyBounds {
    copies_max: usize,
    /// Invalidations in a second for which the shim has time, less those that keys have taken already.
    invalidations_left: f64,
}

/// What has become of a key's places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Raised,
    Lowered,
    /// As many as before, and other nodes.
    Moved,
}

impl Peak {
    fn see(&mut self, now: Time, value: u64) {
        if now.since(self.since) >= HOLD {
            (self.last, self.current, self.since) = (self.current, 0, now);
        }
        self.current = self.current.max(value);
    }

    fn value(&self) -> u64 {
        self.current.max(self.last)
    }
}

impl ElasticKey {
    fn new(now: Time) -> ElasticKey {
        let peak = Peak { since: now, ..Peak::default() };
        ElasticKey {
            degree: Degree::BASE,
            preferences: Vec::new(),
            epoch: 0,
            reports: Vec::new(),
            taken: peak,
            invalidations: peak,
        }
    }

    /// The key's nodes in its order of preference as of this map; true if they may have changed.
    fn follow(&mut self, placement: &Placement, key: &Key) -> bool {
        let moved = self.epoch != placement.epoch() || self.preferences.is_empty();
        if moved {
            (self.preferences, self.epoch) = (placement.preferences(key), placement.epoch());
        }
        moved
    }

    fn places(&self) -> &[NodeId] {
        &self.preferences[..self.preferences.len().min(places_of(self.degree))]
    }

    /// What the key takes of all nodes, in thousandths of one, now that old reports have gone.
    fn taken_now(&mut self, now: Time) -> u64 {
        self.reports.retain(|report| now.since(report.at) < REPORT_LIFE);
        let taken = self.reports.iter().map(|report| u64::from(report.permille)).sum();
        self.taken.see(now, taken);
        self.invalidations.see(now, 0);
        taken
    }

    /// Invalidations of its copies in a second, if it is elastic.
    fn spent(&self) -> f64 {
        if self.degree.is_base() {
            0.0
        } else {
            (self.invalidations.value() * self.places().len() as u64) as f64
        }
    }

    /// Gives it so many places; returns by how much that changes what is spent.
    fn set_degree(&mut self, degree: Degree) -> f64 {
        let before = self.spent();
        self.degree = degree;
        self.spent() - before
    }

    /// The step for a key that takes so much, as far as its writes and the shim's time allow.
    fn wanted(&self, taken: u64, layers: usize, bounds: CopyBounds) -> Degree {
        let hits: u64 = self.reports.iter().map(|report| u64::from(report.hits)).sum();
        let demand = Demand {
            nodes: taken as f64 / 1000.0,
            hits: hits as f64,
            invalidations: self.invalidations.value() as f64,
            invalidations_max: bounds.invalidations_left + self.spent(),
        };
        demand.degree(layers, bounds.copies_max)
    }
}

impl ElasticKeys {
    pub(super) fn new(copies_max: usize) -> ElasticKeys {
        let mut keys = ElasticKeys::default();
        keys.set_copies_max(copies_max);
        keys
    }

    pub(super) fn set_copies_max(&mut self, copies_max: usize) {
        self.copies_max = if copies_max == 0 { usize::MAX } else { copies_max };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Once a second: how much of it the shim was busy, requests and invalidations since it began, and those of near copies.
    fn measured(&mut self, permille: u32, work: u64, near: u64) {
        self.near_spent = near.saturating_sub(std::mem::replace(&mut self.near, near)) as f64;
        let done = work.saturating_sub(std::mem::replace(&mut self.work, work));
        let known = permille >= BUSY_MIN && done > 0;
        self.able = known.then(|| done as f64 * 1000.0 / f64::from(permille.min(1000)));
    }

    fn bounds(&self) -> CopyBounds {
        CopyBounds { copies_max: self.copies_max, invalidations_left: self.invalidations_left() }
    }

    fn invalidations_left(&self) -> f64 {
        let spent = self.spent + self.near_spent;
        self.able.map_or(f64::INFINITY, |able| COHERENCE_SHARE * able - spent)
    }

    /// Whether the shim has time for the invalidations of more copies than there are.
    pub(super) fn affords_more(&self) -> bool {
        self.invalidations_left() > 0.0
    }

    /// All but when reports came, what they said, and when it was looked at keys last, as long as it is again within a second.
    pub(super) fn fingerprint(&self, now: Time, state: &mut impl Hasher) {
        let mut keys: Vec<(&Key, &ElasticKey)> = self.keys.iter().collect();
        keys.sort_unstable_by_key(|(key, _)| key.digest);
        for (key, elastic) in keys {
            (key, elastic.degree, elastic.epoch, now.since(self.looked) >= SECOND).hash(state);
        }
    }

    /// How many keys have more places than one per layer.
    pub(super) fn raised(&self) -> usize {
        self.keys.values().filter(|elastic| !elastic.degree.is_base()).count()
    }

    /// The most places of a key that has more than one per layer.
    pub(super) fn places_most(&self) -> usize {
        self.keys.values().map(|elastic| elastic.places().len()).max().unwrap_or(0)
    }

    /// What a holder is told of a key: the base, too, if it is none of the places.
    pub(super) fn degree_at(&self, key: &Key, holder: Peer) -> Degree {
        let (false, Peer::Node(node)) = (self.keys.is_empty(), holder) else { return Degree::BASE };
        let elastic = self.keys.get(key).filter(|elastic| elastic.places().contains(&node));
        elastic.map_or(Degree::BASE, |elastic| elastic.degree)
    }

    /// A node says how hot a key is there.
    fn heard(&mut self, now: Time, placement: &Placement, node: NodeId, heat: &Heat) -> Change {
        let is_known = self.keys.contains_key(&heat.key);
        if !is_known && (heat.permille < PERMILLE_MIN || self.keys.len() >= KEYS_MAX) {
            return Change::Nothing;
        }
        let bounds = self.bounds();
        let elastic = self.keys.entry(own(&heat.key)).or_insert_with(|| ElasticKey::new(now));
        elastic.reports.retain(|report| report.node != node);
        let Heat { permille, hits, invalidations, .. } = *heat;
        elastic.reports.push(Report { node, permille: permille.min(1000), hits, at: now });
        elastic.invalidations.see(now, invalidations.into());
        let (taken, layers) = (elastic.taken_now(now), placement.layers_count());
        let wanted = elastic.wanted(taken, layers, bounds);
        if wanted <= elastic.degree {
            return Change::Nothing;
        }
        elastic.follow(placement, &heat.key);
        // More than there are nodes means nothing.
        let wanted = wanted.min(degree_for(elastic.preferences.len(), layers));
        if wanted <= elastic.degree {
            return Change::Nothing;
        }
        self.spent += elastic.set_degree(wanted);
        Change::Raised
    }

    /// The key has not needed so many places for long, its writes do not allow them, or it has others in a newer map.
    fn look_at(&mut self, now: Time, placement: &Placement, key: &Key) -> Change {
        let bounds = self.bounds();
        let Some(elastic) = self.keys.get_mut(key) else { return Change::Nothing };
        elastic.taken_now(now);
        let taken = elastic.taken.value();
        if elastic.degree.is_base() {
            if taken == 0 {
                self.keys.remove(key);
            }
            return Change::Nothing;
        }
        let moved = elastic.follow(placement, key);
        // A quarter more than it has taken, so that it does not go up again at once.
        let wanted = elastic.wanted(taken * 5 / 4, placement.layers_count(), bounds);
        if wanted < elastic.degree {
            self.spent += elastic.set_degree(wanted);
            return Change::Lowered;
        }
        if moved { Change::Moved } else { Change::Nothing }
    }
}

impl Shim {
    /// A node says how hot a key is there, and how many places it takes it to have.
    pub(super) fn heated(&mut self, step: &mut ShimStep<'_>, node: NodeId, heat: &Heat) {
        let holder = Peer::Node(node);
        let holds = |state: &KeyState| state.directory.entry(holder).is_some();
        if self.holders[holder].session.id() != Some(heat.session)
            || !self.keys.get(&heat.key).is_some_and(holds)
        {
            return;
        }
        match self.elastic.heard(step.now, &self.placement, node, heat) {
            Change::Nothing => {}
            change => return self.degree_changed(step, &heat.key, change),
        }
        // What it was told has been lost, or is of an earlier incarnation.
        let degree = self.elastic.degree_at(&heat.key, holder);
        if heat.degree != degree {
            let key = heat.key.clone();
            step.send(holder, Message::SetDegree(SetDegree { key, degree }));
        }
    }

    /// How much of the last second the shim had something to do, in thousandths.
    pub(super) fn was_busy(&mut self, permille: u32) {
        let ShimStatistics { requests, invalidated_copies, near_invalidated_copies, .. } = self.statistics;
        self.elastic.measured(permille, requests + invalidated_copies, near_invalidated_copies);
    }

    /// Every node that holds the key is told how many places there are; who comes later learns it from its fill.
    fn degree_changed(&mut self, step: &mut ShimStep<'_>, key: &Key, change: Change) {
        self.statistics.raises += u64::from(change == Change::Raised);
        self.statistics.lowerings += u64::from(change == Change::Lowered);
        let entries = self.keys.get(key).into_iter().flat_map(|state| &state.directory.entries);
        for entry in entries.filter(|entry| matches!(entry.holder, Peer::Node(_))) {
            let degree = self.elastic.degree_at(key, entry.holder);
            step.send(entry.holder, Message::SetDegree(SetDegree { key: key.clone(), degree }));
        }
    }

    pub(super) fn tick_elastic(&mut self, step: &mut ShimStep<'_>) {
        if self.elastic.is_empty() || step.now.since(self.elastic.looked) < SECOND {
            return;
        }
        self.elastic.looked = step.now;
        self.elastic.spent = self.elastic.keys.values().map(ElasticKey::spent).sum();
        let mut keys: Vec<Key> = self.elastic.keys.keys().cloned().collect();
        keys.sort_unstable_by_key(|key| key.digest);
        for key in keys {
            match self.elastic.look_at(step.now, &self.placement, &key) {
                Change::Nothing => {}
                change => self.degree_changed(step, &key, change),
            }
        }
    }
}
