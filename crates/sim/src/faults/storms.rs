//! Faults that last: messages lost, doubled or out of order, delays, silence, evictions. Not what is hit but once.

use wire::Message;

use crate::cluster::{Cluster, SimEvent};
use crate::faults::FaultKind;
use crate::network::{HostId, Place};
use crate::random::SimRandom;

/// Until when, and how many messages of a thousand.
#[derive(Clone, Copy, Debug, Default)]
struct Storm {
    until: u64,
    per_mille: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Storms {
    loss: Storm,
    duplicates: Storm,
    reordering: Storm,
    delay_until: u64,
    delay: u64,
    evicts_until: u64,
    /// Processes whose heartbeats do not arrive.
    silent: Vec<(HostId, u64)>,
}

impl Storms {
    pub(crate) fn control(&mut self, kind: FaultKind, until: u64, random: &mut SimRandom) {
        let storm = Storm { until, per_mille: random.pick(&[50, 300]) };
        match kind {
            FaultKind::Loss => self.loss = storm,
            FaultKind::Duplicate => self.duplicates = storm,
            _ => self.reordering = storm,
        }
    }

    pub(crate) fn delay(&mut self, until: u64, delay: u64) {
        (self.delay_until, self.delay) = (until, delay);
    }

    pub(crate) fn evict(&mut self, until: u64) {
        self.evicts_until = until;
    }

    pub(crate) fn evicts(&self, now: u64) -> bool {
        self.evicts_until > now
    }

    /// Whether a heartbeat comes a second time.
    pub(crate) fn doubles(&self, now: u64, random: &mut SimRandom) -> bool {
        self.duplicates.until > now && random.per_mille(self.duplicates.per_mille)
    }

    pub(crate) fn silence(&mut self, host: HostId, until: u64) {
        self.silent.retain(|(other, _)| *other != host);
        self.silent.push((host, until));
    }

    pub(crate) fn is_silent(&self, now: u64, host: HostId) -> bool {
        self.silent.iter().any(|(other, until)| *other == host && *until > now)
    }
}

impl Cluster {
    pub(crate) fn storm_delay(&mut self) -> u64 {
        if self.storms.delay_until <= self.now { 0 } else { self.random.below(self.storms.delay) }
    }

    /// What befalls a control message before it is on its way; true if it does not leave in its order.
    pub(crate) fn disturb(&mut self, place: Place, life: u32, arrives_at: u64, message: &Message) -> bool {
        let now = self.now;
        let struck =
            |storm: Storm, random: &mut SimRandom| storm.until > now && random.per_mille(storm.per_mille);
        let Place { link, from, .. } = place;
        if struck(self.storms.duplicates, &mut self.random) {
            let due = arrives_at + self.random.below(self.shape.lease * 2);
            self.at(due, SimEvent::Late { link, from, life: None, message: message.clone() });
        }
        if struck(self.storms.loss, &mut self.random) {
            self.watch.messages_lost += 1;
            return true;
        }
        if struck(self.storms.reordering, &mut self.random) {
            let due = arrives_at + self.random.below(self.shape.lease / 2);
            self.at(due, SimEvent::Late { link, from, life: Some(life), message: message.clone() });
            return true;
        }
        false
    }
}
