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
//! Nothing leaves before those to which it goes have said that they can have it:
//!
//! ```text
//!            map: keys come          storage: nothing is left of earlier ones
//!  Settled -----------------> Preparing -------------------------------------> Prepared
//! ```
//!
//! What comes to it is asked of it earlier than it has it, and waits.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use wire::{Key, Message, Peer, Relocation, ShimId, ShimMember};

use super::begin::number;
use super::purge::Requester;
use super::step::ShimStep;
use super::{Effect, Shim, StorageState};
use crate::migration::Departures;
use crate::placement::{Custody, Placement};
use crate::time::Time;

/// How often it is looked whether anything is under way.
const LOOK: Duration = Duration::from_millis(20);
/// For so long a request waits for its key where overload is refused and nothing else waits: maps follow each other in a second.
const EARLY_MAX: Duration = Duration::from_secs(5);

/// How far a shim is with the keys that leave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReshardingPhase {
    /// Nothing leaves.
    #[default]
    Settled,
    /// Keys come, and what their storage has left of them from before goes first.
    Preparing,
    /// The same, and nothing is left of them.
    Prepared,
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

    fn arrives(&self, key: &[u8]) -> bool {
        self.placement.arrives(self.shim, key)
    }

    fn is_first(&self) -> bool {
        !self.placement.map().shims[usize::from(self.shim.0)].is_owner()
    }

    fn givers(&self) -> usize {
        let map = self.placement.map();
        map.givers().count().div_ceil(map.takers().count().max(1)).max(1)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Resharding {
    phase: ReshardingPhase,
    looked: Time,
    /// The storage's incarnation when the controllers said last that nothing is divided anew.
    settled_in: Option<u64>,
    /// Which shims have keys in the map that the process has begun with.
    owners_first: Vec<bool>,
    /// Requests for keys that are still another shim's.
    early: VecDeque<(Time, Peer, Message)>,
}

impl Resharding {
    pub(super) fn new(placement: &Placement) -> Resharding {
        let owners_first = placement.map().shims.iter().map(ShimMember::is_owner).collect();
        Resharding { owners_first, ..Resharding::default() }
    }

    pub(super) fn fingerprint(&self, now: Time, state: &mut impl Hasher) {
        let Resharding { phase, looked, settled_in, owners_first, early } = self;
        (phase, now.since(*looked).min(LOOK), settled_in, owners_first).hash(state);
        for (since, from, message) in early {
            (now.since(*since).min(EARLY_MAX), from, message).hash(state);
        }
    }
}

impl Shim {
    /// How far it is with the keys that leave it.
    pub fn resharding(&self) -> ReshardingPhase {
        self.resharding.phase
    }

    /// Whether its storage knows of a map that it has not heard of: it may not have keys any more that it would serve.
    pub(super) fn is_behind(&self) -> bool {
        let StorageState::Up { traits } = &self.storage else { return false };
        if !traits.divided {
            return false;
        }
        let own = &self.placement.map().shims[usize::from(self.config.id.0)];
        let owners = || self.placement.map().shims.iter().map(ShimMember::is_owner);
        let changes = self.placement.is_changing();
        let begun = changes || !owners().eq(self.resharding.owners_first.iter().copied());
        !begun || traits.keys_left && changes && own.relocation < Relocation::Closing
    }

    /// Acts on a new map.
    pub(super) fn reshard(&mut self, step: &mut ShimStep<'_>) {
        let shim = self.config.id;
        let destinations = self.placement.destinations(shim);
        let relocation = self.placement.map().shims[usize::from(shim.0)].relocation;
        let is_unprepared = self.placement.is_unprepared(shim);
        let prepares =
            matches!(self.resharding.phase, ReshardingPhase::Preparing | ReshardingPhase::Prepared);
        if prepares && !is_unprepared {
            // Perhaps on the word of another process.
            step.effects.push(Effect::Prepare { keys: None, again: false });
        }
        match self.resharding.phase {
            ReshardingPhase::Settled if is_unprepared => {
                self.resharding.phase = ReshardingPhase::Preparing;
                let (keys, again) = (Some(self.departing()), self.may_have_begun());
                step.effects.push(Effect::Prepare { keys, again });
            }
            _ if prepares && is_unprepared => {}
            _ if destinations.is_empty() => {
                self.resharding.phase = ReshardingPhase::Settled;
                match self.placement.is_changing() {
                    true => self.migrate(step, destinations),
                    false => self.resharding.settled_in = self.incarnation,
                }
            }
            // What they have left from before would be taken for what has come.
            ReshardingPhase::Settled if !destinations.iter().all(|to| self.placement.is_prepared(*to)) => {}
            ReshardingPhase::Settled if relocation == Relocation::Gone => {
                self.resharding.phase = ReshardingPhase::Ended;
            }
            ReshardingPhase::Settled => {
                self.resharding.phase = ReshardingPhase::Moving;
                self.untrack_what_leaves(step);
                self.migrate(step, destinations);
            }
            ReshardingPhase::Moved => self.recall_moved(step),
            _ => {}
        }
        for (_, from, message) in std::mem::take(&mut self.resharding.early) {
            self.arrives(step, from, message);
        }
    }

    fn departing(&self) -> DepartingKeys {
        DepartingKeys { placement: Arc::clone(&self.placement), shim: self.config.id }
    }

    /// Nobody has begun with it before, if nothing was divided anew once this incarnation had the storage.
    fn may_have_begun(&self) -> bool {
        let settled_in = self.resharding.settled_in;
        settled_in.is_none() || settled_in != self.incarnation
    }

    fn migrate(&self, step: &mut ShimStep<'_>, destinations: Vec<ShimId>) {
        let (keys, again) = (self.departing(), self.may_have_begun());
        step.effects.push(Effect::Migrate { keys, destinations, again });
    }

    /// Nothing that leaves is at its old server any more; or nothing that comes is at its new one yet.
    pub(super) fn migrated(&mut self, step: &mut ShimStep<'_>) {
        match self.resharding.phase {
            ReshardingPhase::Moving => {
                self.resharding.phase = ReshardingPhase::Moved;
                self.recall_moved(step);
            }
            ReshardingPhase::Preparing => self.resharding.phase = ReshardingPhase::Prepared,
            _ => {}
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
            self.forget_moved();
        }
    }

    /// What nodes still have of them was called back, and they ask for it elsewhere.
    fn forget_moved(&mut self) {
        let (placement, shim) = (&self.placement, self.config.id);
        let copies = &mut self.statistics.copies;
        self.keys.retain(|key, state| {
            let is_moved = placement.departure(shim, &key.bytes).is_some();
            *copies -= if is_moved { state.directory.entries.len() as u64 } else { 0 };
            !is_moved
        });
    }

    pub(super) fn tick_resharding(&mut self, step: &mut ShimStep<'_>) {
        if self.resharding.phase == ReshardingPhase::Ending && step.now.since(self.resharding.looked) >= LOOK
        {
            self.resharding.looked = step.now;
            let leaves = |key: &Key| self.placement.departure(self.config.id, &key.bytes).is_some();
            // What was begun before may have written since.
            if !self.keys.iter().any(|(key, state)| state.is_busy() && leaves(key)) {
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
