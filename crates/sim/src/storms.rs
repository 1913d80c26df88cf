//! Faults that last: messages lost, doubled or out of order, delays, silence, evictions. Not what is hit but once.

use crate::fault_kind::FaultKind;
use crate::network::HostId;
use crate::random::SimRandom;

/// Until when, and how many messages of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Storm {
    pub(crate) until: u64,
    pub(crate) per_mille: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Storms {
    pub(crate) loss: Storm,
    pub(crate) duplicates: Storm,
    pub(crate) reordering: Storm,
    pub(crate) delay_until: u64,
    pub(crate) delay: u64,
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
