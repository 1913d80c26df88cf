//! Which of the processes that may be the shim this one is, as everybody is told, and how one that leaves hands over: no write
//! waits for a lease then, and no client hears of it. Not how storage changes hands.
//!
//! ```text
//!          HandOver            all copies gone         nobody sends more       nothing under way      storage says so
//!  Stays ----------> Revoking ----------------> Asking ----------------> Finishing ------------> Leaving --------------> Left
//!          nothing is          HANDOVER to all,        each has acknowledged    the user goes,        everybody is told
//!          granted any more    who hold it back        or is gone               with a wait of 0
//! ```
//!
//! What takes too long is cut off by whoever runs the shim: then its leases are waited for, as after a crash.

use std::collections::BTreeSet;
use std::time::Duration;

use wire::message::{Handover, HandoverAck, Tenure};
use wire::{Message, Peer};

use super::operation::{OperationKind, Phase};
use super::purge::Requester;
use super::step::ShimStep;
use super::{Effect, Shim, StorageState};
use crate::storage::CommandControl;
use crate::time::Time;

/// Who does not acknowledge a HANDOVER for so long is stopped, or cut off: what it sends later is not executed, and it is told so.
const HEARD_MAX: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Departure {
    #[default]
    Stays,
    Revoking,
    Asking {
        unheard: BTreeSet<Peer>,
        until: Time,
    },
    Finishing,
    Leaving,
    Left,
}

impl Shim {
    /// Whether nothing is left to do for a process that hands over.
    pub fn has_left(&self) -> bool {
        self.departure == Departure::Left
    }

    /// Whether it is, or would be, the shim for longer than a moment.
    pub(super) fn stays(&self) -> bool {
        self.departure == Departure::Stays
    }

    /// Whether what comes now comes too late.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.departure, Departure::Leaving | Departure::Left)
    }

    fn tenure(&self, now: Time) -> Tenure {
        let is_up = matches!(self.storage, StorageState::Up { .. });
        let governs = is_up && self.departure != Departure::Left;
        Tenure { age: governs.then(|| now.since(self.governs_since).as_micros() as u64) }
    }

    pub(super) fn tell_tenure(&self, step: &mut ShimStep<'_>) {
        let tenure = self.tenure(step.now);
        self.linked.iter().for_each(|peer| step.send(*peer, Message::Tenure(tenure.clone())));
    }

    pub(super) fn linked(&mut self, step: &mut ShimStep<'_>, peer: Peer) {
        self.linked.insert(peer);
        step.send(peer, Message::Tenure(self.tenure(step.now)));
        if let Departure::Asking { unheard, .. } = &mut self.departure
            && !matches!(peer, Peer::Shim(_))
        {
            unheard.insert(peer);
            step.send(peer, Message::Handover(Handover { number: self.handover_number() }));
        }
    }

    pub(super) fn unlinked(&mut self, step: &mut ShimStep<'_>, peer: Peer) {
        self.linked.remove(&peer);
        self.heard(peer);
        if matches!(peer, Peer::Shim(_)) {
            self.vacant(step);
        }
    }

    /// Another process that may be the shim says whether it is.
    pub(super) fn told_tenure(&self, step: &mut ShimStep<'_>, tenure: &Tenure) {
        if tenure.age.is_none() {
            self.vacant(step);
        }
    }

    /// The other one may be gone: this one looks at once.
    fn vacant(&self, step: &mut ShimStep<'_>) {
        if matches!(self.storage, StorageState::Down { .. }) {
            step.effects.push(Effect::Vacant);
        }
    }

    /// Begins to leave. A shim whose storage is away has nothing that it could hand over.
    pub(super) fn hand_over(&mut self, step: &mut ShimStep<'_>) {
        if !self.stays() {
            return;
        }
        match self.storage {
            StorageState::Down { .. } => self.departure = Departure::Left,
            StorageState::Up { .. } => {
                self.departure = Departure::Revoking;
                self.purge_all(step, Requester::Departure);
            }
        }
    }

    /// No copy is left, and none can be made.
    pub(super) fn all_revoked(&mut self, step: &mut ShimStep<'_>) {
        let asked: BTreeSet<Peer> =
            self.linked.iter().copied().filter(|peer| !matches!(peer, Peer::Shim(_))).collect();
        let number = self.handover_number();
        asked.iter().for_each(|peer| step.send(*peer, Message::Handover(Handover { number })));
        self.departure = Departure::Asking { unheard: asked, until: step.now.after(HEARD_MAX) };
    }

    pub(super) fn handover_acknowledged(&mut self, from: Peer, ack: &HandoverAck) {
        if ack.number == self.handover_number() {
            self.heard(from);
        }
    }

    fn heard(&mut self, peer: Peer) {
        if let Departure::Asking { unheard, .. } = &mut self.departure {
            unheard.remove(&peer);
        }
    }

    /// One process hands over once in each of its incarnations.
    fn handover_number(&self) -> u64 {
        self.incarnation.unwrap_or_default()
    }

    /// Goes on as far as it can.
    pub(super) fn depart(&mut self, step: &mut ShimStep<'_>) {
        let is_heard = |unheard: &BTreeSet<Peer>, until| unheard.is_empty() || step.now >= until;
        if matches!(&self.departure, Departure::Asking { unheard, until } if is_heard(unheard, *until)) {
            self.departure = Departure::Finishing;
            self.end_what_blocks(step);
        }
        if self.departure == Departure::Finishing && self.pending() == 0 && self.waiting.is_empty() {
            self.departure = Departure::Leaving;
            step.effects.push(Effect::HandOver);
        }
    }

    /// Their clients hear that they were not served, as from a Redis that becomes a replica.
    fn end_what_blocks(&mut self, step: &mut ShimStep<'_>) {
        let blocks = |kind| matches!(kind, OperationKind::Blocking | OperationKind::BlockingQuery);
        for (_, operation) in self.operations.iter_mut().filter(|(_, operation)| blocks(operation.kind)) {
            match operation.phase {
                Phase::Sent { ticket } => step
                    .effects
                    .push(Effect::Control { ticket, control: CommandControl::Unblock { error: true } }),
                Phase::Queued | Phase::Invalidating => operation.unblocked = Some(true),
            }
        }
    }

    /// Storage has taken the farewell.
    pub(super) fn left(&mut self, step: &mut ShimStep<'_>) {
        self.departure = Departure::Left;
        self.tell_tenure(step);
    }
}
