//! Keys with more places than one per layer, at a node: how much of it each takes, and what it does when the shim says how many
//! places there are. Not how many that should be.

use wire::message::{Heat, Read, SetDegree};
use wire::{Degree, Key, Message, Peer, ShimId};

use super::Node;
use super::object::Holding;
use super::reads::Asked;
use super::step::NodeStep;
use crate::time::Time;

/// A key that takes less of a node than an eighth is nobody's business: two places bear four times as much.
const PERMILLE_TOLD: u32 = 125;

/// What became of a key that is hot here, or has more places than one per layer.
#[derive(Debug)]
pub(super) struct LastSecond {
    pub(super) key: Key,
    pub(super) hits: u32,
    pub(super) invalidations: u32,
}

impl Node {
    /// A read of a view that is not here, by a router that takes the key for an elastic one: it is hot, whatever this node has
    /// seen of it so far. True if it is to be fetched.
    pub(super) fn admits_elastic(&mut self, step: &mut NodeStep<'_>, read: &Read) -> bool {
        let heat = (u64::from(self.meter.rate(step.now)) * u64::from(PERMILLE_TOLD) / 1000) as u32;
        let (key, view, degree) = (&read.key, read.view, read.degree);
        self.admit(step, Asked { key, view, heat, degree })
    }

    /// How a key is held here that has so many places, and was held so far as `before` says.
    pub(super) fn holding(&self, key: &Key, degree: Degree, before: Holding) -> Holding {
        match (degree.is_base(), before) {
            (true, Holding::Place) => Holding::Place,
            (true, _) if !self.placement.is_place(key, self.config.id) => Holding::Leaving,
            (false, _) if !self.placement.is_place(key, self.config.id) => Holding::Further,
            _ => Holding::Place,
        }
    }

    /// The shim says how many places the key has. What this node has held as one of them goes when it is none any more.
    pub(super) fn set_degree(&mut self, step: &mut NodeStep<'_>, shim: ShimId, told: &SetDegree) {
        let SetDegree { key, degree } = told;
        let degree = *degree;
        let Some(object) = self.objects.get(key).filter(|object| object.shim == shim) else { return };
        let (before, idle) = (object.holding, object.is_idle());
        if (object.degree, before) == (degree, Holding::Place) && degree.is_base() {
            return;
        }
        let holding = self.holding(key, degree, before);
        if let Some(object) = self.objects.get_mut(key) {
            (object.degree, object.holding) = (degree, holding);
        }
        if holding == Holding::Leaving && idle {
            self.evict(step, key);
        }
    }

    /// Reads in a second from which on a key takes an eighth of this node's time, or of its rate.
    pub(super) fn hot_hits(&mut self, now: Time) -> u32 {
        let part = |whole: u64| u32::try_from(whole * u64::from(PERMILLE_TOLD) / 1000).unwrap_or(u32::MAX);
        let by_rate = match self.waiting.limits().rate_max {
            0 => u32::MAX,
            rate_max => part(rate_max),
        };
        let by_time = match self.busy_permille {
            0 => u32::MAX,
            busy => part(u64::from(self.meter.rate(now)) * 1000 / u64::from(busy)),
        };
        by_rate.min(by_time).max(1)
    }

    pub(super) fn tell_heat(&mut self, step: &mut NodeStep<'_>, last: &LastSecond) {
        let LastSecond { key, hits, invalidations } = last;
        let (hits, invalidations) = (*hits, *invalidations);
        let Some(object) = self.objects.get(key) else { return };
        let (shim, degree) = (object.shim, object.degree);
        let Some(session) = self.links[usize::from(shim.0)].session.id() else { return };
        let share = |of: u64| (u64::from(hits) * 1000).checked_div(of).unwrap_or(0).min(1000);
        let by_time = share(self.meter.rate(step.now).into()) * u64::from(self.busy_permille) / 1000;
        let permille = by_time.max(share(self.waiting.limits().rate_max)) as u32;
        let heat = Heat { session, key: key.clone(), degree, permille, hits, invalidations };
        step.send(Peer::Shim(shim), Message::Heat(heat));
    }
}
