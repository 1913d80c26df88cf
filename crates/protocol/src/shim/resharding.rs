//! Keys that are divided anew while they are served: what leaves this shim, and what comes to it. Not how keys get from one server to
//! another (`crate::migration`), nor who decides it.
//!
//! ```text
//!            map: keys leave       storage: none is left       map: Closing         copies are gone,        storage: Ended
//!  Settled ------------------> Moving ------------------> Moved ------------> Purging ------------> Ending ------------> Ended
//!                       storage moves them            nothing of them is     nothing under way
//!                                                     taken any more
//! ```
//!
//! What comes to it is asked of it earlier than it has it, and waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use wire::{Key, Message, Peer, Relocation, ShimId};

use super::begin::number;
use super::purge::Requester;
use super::step::ShimStep;
use super::{Effect, Shim};
use crate::migration::Departures;
use crate::placement::{Custody, Placement};
use crate::time::Time;

/// How often it is looked whether anything is under way.
const LOOK: Duration = Duration::from_millis(20);
/// For so long a request waits for its key where overload is refused and nothing else waits: maps follow each other in a second.
const EARLY_MAX: Duration = Duration::from_secs(5);

/// How far a shim is with the keys that leave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReshardingPhase {
    /// Nothing leaves.
    #[default]
    Settled,
    Moving,
    Moved,
    Purging,
    Ending,
    /// It has nothing to do with them any more.
    Ended,
}

/// The keys of one shim that leave it.
#[derive(Clone, Debug)]
pub struct DepartingKeys {
    placement: Arc<Placement>,
    shim: ShimId,
}

impl PartialEq for DepartingKeys {
    fn eq(&self, other: &DepartingKeys) -> bool {
        (self.placement.epoch(), self.shim) == (other.placement.epoch(), other.shim)
    }
}

impl Eq for DepartingKeys {}

impl Departures for DepartingKeys {
    fn destination(&self, key: &[u8]) -> Option<ShimId> {
        self.placement.departure(self.shim, key)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Resharding {
    phase: ReshardingPhase,
    looked: Time,
    /// Requests for keys that are still another shim's.
    early: VecDeque<(Time, Peer, Message)>,
}

impl Shim {
    /// How far it is with the keys that leave it.
    pub fn resharding(&self) -> ReshardingPhase {
        self.resharding.phase
    }

    /// Acts on a new map.
    pub(super) fn reshard(&mut self, step: &mut ShimStep<'_>) {
        let shim = self.config.id;
        let destinations = self.placement.destinations(shim);
        let relocation = self.placement.map().shims[usize::from(shim.0)].relocation;
        match self.resharding.phase {
            _ if destinations.is_empty() => self.resharding.phase = ReshardingPhase::Settled,
            ReshardingPhase::Settled if relocation == Relocation::Gone => {
                self.resharding.phase = ReshardingPhase::Ended;
            }
            ReshardingPhase::Settled => {
                self.resharding.phase = ReshardingPhase::Moving;
                let keys = DepartingKeys { placement: Arc::clone(&self.placement), shim };
                step.effects.push(Effect::Migrate { keys, destinations });
            }
            ReshardingPhase::Moved => self.recall_moved(step),
            _ => {}
        }
        for (_, from, message) in std::mem::take(&mut self.resharding.early) {
            self.arrives(step, from, message);
        }
    }

    /// Nothing that leaves is at its old server any more.
    pub(super) fn migrated(&mut self, step: &mut ShimStep<'_>) {
        if self.resharding.phase == ReshardingPhase::Moving {
            self.resharding.phase = ReshardingPhase::Moved;
            self.recall_moved(step);
        }
    }

    /// Once nobody asks for them here any more, nobody may have a copy that was granted here.
    fn recall_moved(&mut self, step: &mut ShimStep<'_>) {
        let shim = self.config.id;
        if self.placement.map().shims[usize::from(shim.0)].relocation < Relocation::Closing {
            return;
        }
        self.resharding.phase = ReshardingPhase::Purging;
        let placement = Arc::clone(&self.placement);
        let leaves = |key: &Key| placement.departure(shim, &key.bytes).is_some();
        self.purge_where(step, Requester::Resharding, leaves);
    }

    /// No copy of them is left.
    pub(super) fn recalled(&mut self) {
        if self.resharding.phase == ReshardingPhase::Purging {
            self.resharding.phase = ReshardingPhase::Ending;
        }
    }

    pub(super) fn migration_ended(&mut self) {
        if self.resharding.phase == ReshardingPhase::Ending {
            self.resharding.phase = ReshardingPhase::Ended;
        }
    }

    pub(super) fn tick_resharding(&mut self, step: &mut ShimStep<'_>) {
        if self.resharding.phase == ReshardingPhase::Ending && step.now.since(self.resharding.looked) >= LOOK
        {
            self.resharding.looked = step.now;
            let leaves = |key: &Key| self.placement.departure(self.config.id, &key.bytes).is_some();
            // What was begun before may have written since.
            if !self.keys.keys().any(leaves) {
                step.effects.push(Effect::EndMigration);
            }
        }
        let patience = self.waiting.limits().patience().unwrap_or(EARLY_MAX);
        while let Some((since, ..)) = self.resharding.early.front()
            && step.now.since(*since) >= patience
        {
            let Some((_, from, message)) = self.resharding.early.pop_front() else { return };
            self.expired(step, from, &message);
        }
    }

    /// Keeps a request that has come before its key; gives others back.
    pub(super) fn await_key(&mut self, now: Time, from: Peer, message: Message) -> Option<Message> {
        let key = match &message {
            Message::Read(read) => &read.key,
            Message::Execute(execute) => &execute.key,
            Message::Fetch(fetch) => &fetch.key,
            _ => return Some(message),
        };
        let is_early =
            !key.bytes.is_empty() && self.placement.custody(self.config.id, key) == Custody::Awaited;
        if !is_early || self.resharding.early.len() >= self.config.settings.operations_max {
            return Some(message);
        }
        self.resharding.early.push_back((now, from, message));
        None
    }

    pub(super) fn forget_early(&mut self, of: Peer, request: Option<u64>) {
        let is_meant = |message: &Message| request.is_none() || number(message) == request;
        self.resharding.early.retain(|(_, from, message)| *from != of || !is_meant(message));
    }
}
