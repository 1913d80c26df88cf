//! Sessions, invalidations and commits at a node: the rules of `coherence` applied to its table.

use wire::message::{Ack, Commit, EarlyValue, Handover, HandoverAck, Invalidate, Renew, Revoke, Revoked};
use wire::{Key, Message, Peer, ShimId, View};

use super::Node;
use super::object::{Fetching, Object, Waiter};
use super::step::NodeStep;
use crate::coherence::copy::Invalidated;
use crate::coherence::lease::NodeSession;
use crate::time::Time;
use rand::RngExt;

impl Node {
    pub(super) fn linked(&mut self, step: &mut NodeStep<'_>, shim: ShimId) {
        let Some(link) = self.links.get_mut(usize::from(shim.0)) else { return };
        (link.linked, link.hands_over) = (true, false);
        if link.session.is_opening() {
            self.hello(step, shim);
        }
    }

    pub(super) fn hello(&mut self, step: &mut NodeStep<'_>, shim: ShimId) {
        let nonce = self.random.random();
        let hello = self.links[usize::from(shim.0)].session.hello(step.now, nonce, self.process);
        step.send(Peer::Shim(shim), Message::Hello(hello));
    }

    /// Copies stay: the lease alone governs them. What waits for an answer over the link will not get one.
    pub(super) fn unlinked(&mut self, step: &mut NodeStep<'_>, shim: ShimId) {
        let Some(link) = self.links.get_mut(usize::from(shim.0)) else { return };
        (link.linked, link.hands_over) = (false, false);
        // Hot now is not hot for ever.
        let placement = &self.placement;
        self.offers.retain(|offer| placement.shim(&offer.key) != shim);
        let mut lost = Vec::new();
        let mut fetching: Vec<Key> = link.fetching.drain().collect();
        fetching.sort_unstable_by_key(|key| key.digest);
        for key in fetching {
            let Some(object) = self.objects.get_mut(&key) else { continue };
            let waiters = object.give_up_fetches().into_iter().flat_map(|fetching| fetching.waiters);
            lost.extend(waiters.map(|waiter| (key.clone(), waiter)));
        }
        let passed_on: Vec<usize> = (self.forwarded.iter())
            .filter(|(_, forwarded)| forwarded.shim == shim)
            .map(|(index, _)| index)
            .collect();
        lost.extend(passed_on.into_iter().map(|index| {
            let forwarded = self.take_forwarded(index);
            (forwarded.key, forwarded.waiter)
        }));
        for (_, waiter) in &lost {
            self.fail_unlinked(step, *waiter);
        }
        // Those behind them would be answered before them.
        for (key, Waiter { from, .. }) in lost {
            while let Some((behind, _)) = self.order.next(&key, from) {
                self.fail_unlinked(step, behind);
            }
        }
    }

    /// The shim leaves: routers keep what is for it until another process is the shim.
    pub(super) fn hands_over(&mut self, step: &mut NodeStep<'_>, shim: ShimId, handover: &Handover) {
        self.links[usize::from(shim.0)].hands_over = true;
        step.send(Peer::Shim(shim), Message::HandoverAck(HandoverAck { number: handover.number }));
    }

    pub(super) fn open_session(&mut self, step: &mut NodeStep<'_>, shim: ShimId) {
        let link = &self.links[usize::from(shim.0)];
        if matches!(link.session, NodeSession::Closed { .. }) && link.is_asked() {
            debug_assert_eq!(self.objects.count_of(shim), 0, "HELLO says that nothing is held");
            self.hello(step, shim);
        }
    }

    pub(super) fn coherence(&mut self, step: &mut NodeStep<'_>, shim: ShimId, message: Message) {
        let index = usize::from(shim.0);
        match message {
            Message::Welcome(welcome) if self.links[index].session.welcome(&welcome) => {
                let link = &mut self.links[index];
                (link.revoked, link.spared, link.welcomed) = (0, 0, Some(welcome.session));
                self.renew_first(step, shim);
            }
            Message::Welcome(_) => {}
            Message::Reject(reject) => {
                if self.links[index].session.reject(&reject) {
                    self.hello(step, shim);
                }
            }
            Message::Grant(grant) => self.links[index].session.grant(step.now, &grant),
            Message::Refuse(refuse) if self.links[index].session.id() == Some(refuse.session) => {
                self.close_session(step, shim);
            }
            Message::Refuse(_) => {}
            Message::Invalidate(invalidate) => self.invalidate(step, shim, invalidate),
            Message::Commit(commit) => self.commit(shim, &commit),
            Message::Revoke(revoke) => self.revoke(step, shim, &revoke),
            Message::SetDegree(told) => self.set_degree(step, shim, &told),
            _ => self.statistics.unexpected += 1,
        }
    }

    /// A barrier. What was granted after it has ended stays, should its REVOKE come once more. Of a session of another process
    /// with this id nothing can be said: its lease ends.
    fn revoke(&mut self, step: &mut NodeStep<'_>, shim: ShimId, revoke: &Revoke) {
        let Revoke { session, number, spares } = *revoke;
        let link = &mut self.links[usize::from(shim.0)];
        if link.welcomed != Some(session) {
            return;
        }
        let is_new = link.session.id() == Some(session) && number > link.revoked;
        if spares {
            link.spared = if is_new { link.spared.max(number) } else { link.spared };
            return;
        }
        if is_new {
            link.revoked = number;
            link.spared = if link.spared < number { 0 } else { link.spared };
            self.drop_objects(step, shim);
        }
        step.send(Peer::Shim(shim), Message::Revoked(Revoked { session, number }));
    }

    /// The session is open: ask for the lease at once, and take up the offers that waited for it.
    fn renew_first(&mut self, step: &mut NodeStep<'_>, shim: ShimId) {
        let floor = self.heat_floor();
        if self.links[usize::from(shim.0)].session.renew_due(step.now) {
            self.renew(step, shim, floor);
        }
        let (ready, waiting) = std::mem::take(&mut self.offers)
            .into_iter()
            .partition(|offer| self.placement.shim(&offer.key) == shim);
        self.offers = waiting;
        let ready: Vec<_> = ready;
        for offer in ready {
            self.offer(step, offer);
        }
    }

    pub(super) fn renew(&mut self, step: &mut NodeStep<'_>, shim: ShimId, heat_floor: u32) {
        if let Some(session) = self.links[usize::from(shim.0)].session.id() {
            step.send(Peer::Shim(shim), Message::Renew(Renew { session, sent: step.now.0, heat_floor }));
        }
    }

    /// First phase of a write: nothing older than `version` is served from here on. Acknowledged, unless another process with
    /// this id was told: it may live on, and hold what its session has given it until its lease ends.
    fn invalidate(&mut self, step: &mut NodeStep<'_>, shim: ShimId, invalidate: Invalidate) {
        let Invalidate { session, key, version, value } = invalidate;
        let link = &self.links[usize::from(shim.0)];
        if link.welcomed != Some(session) {
            return;
        }
        let mut nothing_held = None;
        if link.session.id() != Some(session) {
            // That session's copies are gone for good, and its fills are ignored.
            nothing_held = Some(u64::MAX);
        } else if self.objects.get(&key).is_some_and(|object| object.shim == shim) {
            self.objects.change(&key, |object| drop_older(object, step.now, version, value));
        } else {
            nothing_held = Some(link.fill_last);
        }
        self.statistics.invalidations += 1;
        let ack = Ack { session, key, version, nothing_held };
        step.send(Peer::Shim(shim), Message::Ack(ack));
    }

    /// Second phase: the pending value of exactly this version becomes servable.
    fn commit(&mut self, shim: ShimId, commit: &Commit) {
        let Commit { session, key, version } = commit;
        if self.links[usize::from(shim.0)].session.id() != Some(*session) {
            return;
        }
        if self.objects.get(key).is_none_or(|object| object.shim != shim) {
            return;
        }
        let confirm = |object: &mut Object| {
            let confirmed = object.change(|copy| copy.commit(*version));
            if confirmed {
                object.confirm();
            }
            confirmed
        };
        self.statistics.commits += u64::from(self.objects.change(key, confirm) == Some(true));
    }

    pub(super) fn close_if_lapsed(&mut self, step: &mut NodeStep<'_>, shim: ShimId) {
        if self.links[usize::from(shim.0)].session.lapsed(step.now) {
            if self.objects.count_of(shim) > 0 {
                self.statistics.leases_lost += 1;
            }
            self.close_session(step, shim);
        }
    }

    pub(super) fn close_session(&mut self, step: &mut NodeStep<'_>, shim: ShimId) {
        self.links[usize::from(shim.0)].session.close();
        self.drop_objects(step, shim);
    }

    /// Drops everything of one shim. Those who wait for fills are served by storage instead.
    pub(super) fn drop_objects(&mut self, step: &mut NodeStep<'_>, shim: ShimId) {
        let fetching: Vec<Key> = self.links[usize::from(shim.0)].fetching.drain().collect();
        let held = self.order.held().map(|(_, read)| &read.key);
        let is_its = |key: &&Key| self.objects.get(key).is_some_and(|object| object.shim == shim);
        let mut keys: Vec<Key> = held.filter(is_its).cloned().chain(fetching).collect();
        keys.sort_unstable_by_key(|key| key.digest);
        keys.dedup();
        let given_up = |key: Key| {
            let fetches = self.objects.get_mut(&key).map(Object::give_up_fetches);
            (key, fetches.unwrap_or_default())
        };
        let given_up: Vec<(Key, Vec<Fetching>)> = keys.into_iter().map(given_up).collect();
        self.objects.remove_all(shim);
        for (key, fetches) in given_up {
            for Fetching { view, command, waiters, .. } in fetches {
                for waiter in waiters {
                    self.forward(step, waiter, waiter.read(key.clone(), view, command.clone()));
                }
            }
            for from in self.order.held_of(&key) {
                while let Some((waiter, read)) = self.order.next(&key, from) {
                    self.forward(step, waiter, read);
                }
            }
        }
    }
}

/// What an INV does to an object.
fn drop_older(object: &mut Object, now: Time, version: u64, value: Option<EarlyValue>) {
    for fetching in object.fetching_mut() {
        fetching.filling.poison(version);
    }
    // A view that nobody asked for here would be served before reads of it that were passed on.
    let value = value.filter(|_| object.admits(View::GET));
    let outcome = object.change(|copy| copy.invalidate(version, value.is_some()));
    if outcome != Invalidated::Stale {
        object.invalidations = object.invalidations.saturating_add(1);
        object.drop_replies();
    }
    if let (Invalidated::Held, Some(value)) = (outcome, value) {
        object.hold(value, now);
    }
}
