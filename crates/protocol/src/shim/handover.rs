//! Which of the processes that may be the shim this one is, as everybody is told, and how one that leaves hands over: no write
//! waits for a lease then, and no client hears of it. Not how storage changes hands.
//!
//! ```text
//!          HandOver            all copies gone         nobody sends more       nothing under way        all replies are there
//!  Stays ----------> Revoking ----------------> Asking ----------------> Finishing ------------> Confirming -------------> Leaving
//!          nothing is          HANDOVER to all,        each has acknowledged    HANDOVER once more       the user goes,  |
//!          granted any more    who hold it back        or is gone               behind the last reply    wait of 0       v
//!                                                                                                 storage says so:     Left
//! ```
//!
//! What takes too long is cut off by whoever runs the shim: then its leases are waited for, as after a crash. One that leaves because of
//! `reach` stands by afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use wire::message::{Handover, HandoverAck, Tenure};
use wire::{Message, Peer};

use super::operation::{OperationKind, Phase};
use super::purge::Requester;
use super::step::ShimStep;
use super::{Effect, Purpose, Shim, StorageState, Ticket};
use crate::storage::CommandControl;
use crate::time::Time;

/// Who does not acknowledge a HANDOVER for so long is stopped, or cut off: what it sends later is not executed, and it is told so.
const HEARD_MAX: Duration = Duration::from_millis(200);
/// For so long clients may take the rest of large replies.
const TRANSFERS_MAX: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Departure {
    #[default]
    Stays,
    Revoking,
    Asking {
        unheard: BTreeSet<Peer>,
        until: Time,
    },
    Finishing {
        /// Peers that have said nothing, and are not asked again.
        silent: BTreeSet<Peer>,
        until: Time,
    },
    /// The last replies are on their way: whoever acknowledges this has them.
    Confirming {
        unheard: BTreeSet<Peer>,
        until: Time,
    },
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
        matches!(self.departure, Departure::Confirming { .. } | Departure::Leaving | Departure::Left)
    }

    fn tenure(&self, now: Time) -> Tenure {
        let is_up = matches!(self.storage, StorageState::Up { .. });
        let governs = is_up && self.departure != Departure::Left;
        Tenure { age: governs.then(|| now.since(self.governs_since).as_micros() as u64), routers: None }
    }

    pub(super) fn tell_tenure(&self, step: &mut ShimStep<'_>) {
        let tenure = self.tenure(step.now);
        self.linked.iter().for_each(|peer| step.send(*peer, Message::Tenure(tenure.clone())));
    }

    pub(super) fn linked(&mut self, step: &mut ShimStep<'_>, peer: Peer) {
        self.linked.insert(peer);
        self.others_linked += u32::from(matches!(peer, Peer::Shim(_)));
        step.send(peer, Message::Tenure(self.tenure(step.now)));
        if let Departure::Asking { unheard, .. } = &mut self.departure
            && !matches!(peer, Peer::Shim(_))
        {
            unheard.insert(peer);
            step.send(peer, Message::Handover(Handover { number: self.handover_number() }));
        }
    }

    pub(super) fn unlinked(&mut self, step: &mut ShimStep<'_>, peer: Peer) {
        if matches!(peer, Peer::Shim(_)) {
            self.others_linked = self.others_linked.saturating_sub(1);
            self.vacant(step, true);
        }
        if !matches!(peer, Peer::Shim(_)) || self.others_linked == 0 {
            self.linked.remove(&peer);
        }
        self.heard(peer);
    }

    /// Another process that may be the shim says whether it is.
    pub(super) fn told_tenure(&mut self, step: &mut ShimStep<'_>, tenure: &Tenure) {
        if let Some(routers) = tenure.routers {
            return self.reach.told(step.now, routers);
        }
        if tenure.age.is_none() {
            return self.vacant(step, false);
        }
        if let StorageState::Down { gone, .. } = &mut self.storage {
            // It is there for the other one.
            *gone = false;
            self.drop_what_may_be_stale(step);
        }
    }

    /// The other one may be gone, or is not the shim any more: this one looks at once.
    fn vacant(&self, step: &mut ShimStep<'_>, gone: bool) {
        if matches!(self.storage, StorageState::Down { .. }) {
            step.effects.push(Effect::Vacant { gone });
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

    /// Storage is this process's no more. One that has left and does not end stands by from now on.
    pub(super) fn returns(&mut self, step: &mut ShimStep<'_>) {
        if !self.stays() && self.reach.ends_retreat() {
            self.departure = Departure::Stays;
            step.effects.push(Effect::Renew);
        }
    }

    /// No copy is left, and none can be made.
    pub(super) fn all_revoked(&mut self, step: &mut ShimStep<'_>) {
        let (unheard, until) = self.ask_all(step, self.handover_number(), &BTreeSet::new());
        self.departure = Departure::Asking { unheard, until };
    }

    /// Tells all who may ask it something, and how long their answers are waited for.
    fn ask_all(
        &self,
        step: &mut ShimStep<'_>,
        number: u64,
        silent: &BTreeSet<Peer>,
    ) -> (BTreeSet<Peer>, Time) {
        let asked = self.linked.difference(silent).copied();
        let asked: BTreeSet<Peer> = asked.filter(|peer| !matches!(peer, Peer::Shim(_))).collect();
        asked.iter().for_each(|peer| step.send(*peer, Message::Handover(Handover { number })));
        (asked, step.now.after(HEARD_MAX))
    }

    pub(super) fn handover_acknowledged(&mut self, from: Peer, ack: &HandoverAck) {
        let number = match self.departure {
            Departure::Confirming { .. } => self.confirmation_number(),
            _ => self.handover_number(),
        };
        if ack.number == number {
            self.heard(from);
        }
    }

    fn heard(&mut self, peer: Peer) {
        if let Departure::Asking { unheard, .. } | Departure::Confirming { unheard, .. } = &mut self.departure
        {
            unheard.remove(&peer);
        }
    }

    /// One process hands over once in each of its incarnations.
    fn handover_number(&self) -> u64 {
        self.incarnation.unwrap_or_default()
    }

    /// The second HANDOVER, behind the last reply, has another number: an acknowledgement of the first is none of it.
    fn confirmation_number(&self) -> u64 {
        self.handover_number().wrapping_add(1)
    }

    /// Goes on as far as it can.
    pub(super) fn depart(&mut self, step: &mut ShimStep<'_>) {
        let now = step.now;
        let is_heard = |unheard: &BTreeSet<Peer>, until| unheard.is_empty() || now >= until;
        if let Departure::Asking { unheard, until } = &mut self.departure
            && is_heard(unheard, *until)
        {
            let silent = std::mem::take(unheard);
            self.departure = Departure::Finishing { silent, until: now.after(TRANSFERS_MAX) };
        }
        if let Departure::Finishing { silent, until } = &self.departure {
            let (silent, cuts) = (silent.clone(), now >= *until);
            self.end_what_blocks(step);
            if self.is_finished(cuts) {
                let (unheard, until) = self.ask_all(step, self.confirmation_number(), &silent);
                self.departure = Departure::Confirming { unheard, until };
            }
        }
        if matches!(&self.departure, Departure::Confirming { unheard, until } if is_heard(unheard, *until)) {
            self.departure = Departure::Leaving;
            step.effects.push(Effect::HandOver);
        }
    }

    /// Whether nothing is under way. `cuts`: clients that are slow to take what is large have had their time.
    fn is_finished(&self, cuts: bool) -> bool {
        let is_transfer = |ticket: &Ticket| matches!(ticket.purpose, Purpose::Transfer { .. });
        let transfers = self.tickets.iter().filter(|(_, ticket)| is_transfer(ticket)).count();
        let left = self.pending() - if cuts { transfers } else { 0 };
        left == 0 && self.waiting.is_empty()
    }

    /// Their clients hear that they were not served, as from a Redis that becomes a replica.
    fn end_what_blocks(&mut self, step: &mut ShimStep<'_>) {
        let blocks = |kind| matches!(kind, OperationKind::Blocking | OperationKind::BlockingQuery);
        for (_, operation) in self.operations.iter_mut().filter(|(_, operation)| blocks(operation.kind)) {
            match operation.phase {
                Phase::Sent { .. } if operation.unblocked.is_some() => {}
                Phase::Sent { ticket } => step
                    .effects
                    .push(Effect::Control { ticket, control: CommandControl::Unblock { error: true } }),
                Phase::Queued | Phase::Invalidating => {}
            }
            operation.unblocked = Some(true);
        }
    }

    /// Storage has taken the farewell.
    pub(super) fn left(&mut self, step: &mut ShimStep<'_>) {
        self.departure = Departure::Left;
        self.tell_tenure(step);
    }
}
