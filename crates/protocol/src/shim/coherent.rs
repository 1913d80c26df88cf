//! Sessions, acknowledgements and barriers at a shim: the rules of `coherence` applied to its directory.

use std::time::Duration;

use wire::message::{Ack, Evict, Grant, Leave, Refuse, Renew, Revoke};
use wire::{Message, Peer};

use super::Shim;
use super::holders::Revoking;
use super::step::ShimStep;
use crate::coherence::lease::{HelloAnswer, LeaseBounds, LeaseTerms, Renewed};
use crate::time::Time;

impl Shim {
    pub(super) fn coherence(&mut self, step: &mut ShimStep<'_>, holder: Peer, message: Message) {
        match message {
            Message::Hello(_) if !self.stays() => {}
            Message::Hello(hello) => {
                let answer = match self.holders[holder].session.hello(step.now, &hello) {
                    HelloAnswer::Open => {
                        // Whatever waits for what the node has held may go on.
                        self.close_session(holder);
                        let (session, terms) = (self.session_id(), self.lease_terms(step.now));
                        let link = &mut self.holders[holder];
                        link.session.open(step.now, session, hello.process, &terms);
                        Message::Welcome(terms.welcome(session, hello.nonce))
                    }
                    HelloAnswer::Reject(reject) => Message::Reject(reject),
                    HelloAnswer::Silence => return,
                };
                step.send(holder, answer);
            }
            // The node leaves and has dropped everything.
            Message::Refuse(refuse) if self.holders[holder].session.id() == Some(refuse.session) => {
                self.close_session(holder);
            }
            Message::Refuse(_) => {}
            Message::Renew(renew) => self.renew(step, holder, &renew),
            Message::Ack(ack) => self.acknowledge(holder, &ack),
            Message::Evict(evict) => self.evict(holder, &evict),
            Message::Revoked(revoked) => self.revoked(holder, revoked.session, revoked.number),
            _ => self.statistics.unexpected += 1,
        }
    }

    /// The terms of what is granted now: a shim that finds no record of this one has to know how long they may be.
    pub(super) fn lease_terms(&self, now: Time) -> LeaseTerms {
        let limits = &self.config.lease_limits;
        let longest = match self.short_leases {
            true => limits.short,
            false => limits.lease_max(now.since(self.governs_since)),
        };
        LeaseTerms { duration: self.config.lease.duration.min(longest), ..self.config.lease }
    }

    fn renew(&mut self, step: &mut ShimStep<'_>, holder: Peer, renew: &Renew) {
        let Renew { session, sent, heat_floor } = *renew;
        let link = &mut self.holders[holder];
        link.heat_floor = heat_floor.max(1);
        let shunned = step.now < link.shunned;
        let leave = self.leave(step.now).filter(|_| matches!(holder, Peer::Node(_)) && !shunned);
        let link = &self.holders[holder];
        let bounds = LeaseBounds {
            leave_max: leave.map_or(Duration::ZERO, |leave| Duration::from_micros(leave.duration)),
            invalidate_oldest: link.owes_since(),
            storage_proof: self.proof,
            duration_max: if shunned || !self.stays() {
                Duration::ZERO
            } else {
                self.feed_lease_max(step.now, holder)
            },
        };
        let terms = self.lease_terms(step.now);
        let link = &mut self.holders[holder];
        match link.session.renew(step.now, session, bounds, &terms) {
            None => {
                if link.session.id() == Some(session) {
                    self.close_session(holder);
                }
                step.send(holder, Message::Refuse(Refuse { session }));
            }
            // Nothing to grant now: the node tries again before its lease ends.
            Some(Renewed { lease: Duration::ZERO, leave: Duration::ZERO }) => {}
            Some(Renewed { lease, leave: stale }) => {
                self.statistics.grants += 1;
                let micros = |duration: Duration| duration.as_micros() as u64;
                let leave = leave.map(|leave| Leave { duration: micros(stale), ..leave });
                if leave.is_some() {
                    self.leave_given();
                }
                let (duration, guard) = (micros(lease), micros(terms.guard));
                step.send(holder, Message::Grant(Grant { session, sent, duration, guard, leave }));
            }
        }
    }

    fn acknowledge(&mut self, holder: Peer, ack: &Ack) {
        let link = &mut self.holders[holder];
        self.statistics.coherence_messages += 1;
        if link.session.id() != Some(ack.session) {
            return;
        }
        // Repeated, or another key's: nothing waits for it.
        if link.outstanding.get(&ack.version).is_none_or(|outstanding| outstanding.message.key != ack.key) {
            return;
        }
        let Some(outstanding) = link.outstanding.remove(&ack.version) else { return };
        if let Some(state) = self.keys.get_mut(&ack.key) {
            let early = outstanding.message.value.is_some();
            self.statistics.copies -= u64::from(state.directory.acknowledge(holder, ack, early));
        }
        self.acknowledge_operation(outstanding.operation);
    }

    /// Also while the key is being written: what the write waits for is in `outstanding`, not in the directory.
    fn evict(&mut self, holder: Peer, evict: &Evict) {
        let Evict { session, key, fill } = evict;
        if self.holders[holder].session.id() != Some(*session) {
            return;
        }
        let Some(state) = self.keys.get_mut(key) else { return };
        if state.directory.evict(holder, *fill) {
            self.statistics.copies -= 1;
            if state.is_idle() {
                self.keys.remove(key);
            }
        }
    }

    /// Sends every INV and REVOKE again that is older than `age` and has not been acknowledged.
    pub(super) fn repeat_to(&mut self, step: &mut ShimStep<'_>, holder: Peer, age: Duration) {
        let Some(link) = self.holders.get_mut(holder) else { return };
        let mut messages = Vec::new();
        for outstanding in link.outstanding.values_mut() {
            if step.now.since(outstanding.repeated) >= age {
                outstanding.repeated = step.now;
                messages.push(outstanding.message.clone());
            }
        }
        let overdue = link.revoking.as_mut().filter(|revoking| step.now.since(revoking.repeated) >= age);
        let revoking = overdue.map(|revoking| {
            revoking.repeated = step.now;
            revoking.number
        });
        let session = link.session.id();
        for message in messages {
            self.statistics.repeats += 1;
            self.send_invalidate(step, holder, message);
        }
        if let (Some(number), Some(session)) = (revoking, session) {
            self.statistics.repeats += 1;
            step.send(holder, Message::Revoke(Revoke { session, number, spares: false }));
        }
    }

    /// Nothing of this node is servable any more: its entries go, and nobody waits for it. Tells whether there were any.
    pub(super) fn close_session(&mut self, holder: Peer) -> bool {
        let link = &mut self.holders[holder];
        link.session.close();
        link.heat_floor = self.config.settings.heat_min;
        let outstanding = std::mem::take(&mut link.outstanding);
        let revoking = link.revoking.take();
        let held = self.remove_entries(holder);
        for outstanding in outstanding.into_values() {
            self.acknowledge_operation(outstanding.operation);
        }
        if let (Some(_), Some(&barrier)) = (revoking, self.barriers.front()) {
            self.acknowledge_operation(barrier);
        }
        held
    }

    fn remove_entries(&mut self, holder: Peer) -> bool {
        let before = self.statistics.copies;
        self.keys.retain(|_, state| {
            self.statistics.copies -= u64::from(state.directory.remove(holder));
            !state.is_idle()
        });
        self.statistics.copies < before
    }

    /// A barrier: every node with a live session drops everything that this shim has granted.
    pub(super) fn revoke_all(&mut self, step: &mut ShimStep<'_>, id: u32) {
        self.observe_barrier();
        self.barrier_number += 1;
        let (number, heard) = (self.barrier_number, self.feed.heard());
        for holder in self.holders.peers() {
            let link = &mut self.holders[holder];
            let Some(session) = link.session.id().filter(|id| link.session.is_live(step.now, *id)) else {
                continue;
            };
            link.revoking = Some(Revoking { number, sent: step.now, repeated: step.now, heard });
            self.operations[id as usize].awaiting += 1;
            self.statistics.revokes += 1;
            step.send(holder, Message::Revoke(Revoke { session, number, spares: false }));
        }
    }

    fn revoked(&mut self, holder: Peer, session: u64, number: u64) {
        let link = &mut self.holders[holder];
        let awaited = link.revoking.is_some_and(|revoking| revoking.number == number);
        if link.session.id() != Some(session) || !awaited {
            return;
        }
        link.revoking = None;
        self.remove_entries(holder);
        if let Some(&barrier) = self.barriers.front() {
            self.acknowledge_operation(barrier);
        }
    }
}
