//! Sessions, invalidations and commits at a node: the rules of `coherence` applied to its table.

use wire::message::{Ack, Invalidate, Read, Renew, Revoke, Revoked};
use wire::{Key, Message, Peer, ShimId, Status, View};

use super::object::Fetching;
use super::{Effect, Node};
use crate::coherence::copy::Invalidated;
use crate::time::Time;
use rand::RngExt;

impl Node {
    pub(super) fn linked(&mut self, now: Time, shim: ShimId, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get_mut(usize::from(shim.0)) else { return };
        link.linked = true;
        if matches!(link.session, crate::coherence::lease::NodeSession::Opening { .. }) {
            let nonce = self.random.random();
            let hello = link.session.hello(now, nonce);
            self.send(Peer::Shim(shim), Message::Hello(hello), effects);
        }
    }

    /// Copies stay: the lease alone governs them. What waits for an answer over the link will not get one.
    pub(super) fn unlinked(&mut self, shim: ShimId, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get_mut(usize::from(shim.0)) else { return };
        link.linked = false;
        // Hot now is not hot for ever.
        let placement = &self.placement;
        self.offers.retain(|offer| placement.shim(&offer.key) != shim);
        let (mut waiters, mut followers) = (Vec::new(), Vec::new());
        for object in self.objects.values_mut().filter(|object| object.shim == shim) {
            waiters.extend(object.fetching.drain(..).flat_map(|fetching| fetching.waiters));
            followers.extend(object.followers.drain(..).map(|(waiter, _)| waiter));
        }
        let lost: Vec<usize> = (self.forwarded.iter())
            .filter(|(_, forwarded)| forwarded.shim == shim)
            .map(|(index, _)| index)
            .collect();
        waiters.extend(lost.into_iter().map(|index| self.take_forwarded(index).waiter));
        for waiter in waiters.into_iter().chain(followers) {
            self.fail(waiter, effects);
        }
    }

    pub(super) fn open_session(&mut self, now: Time, shim: ShimId, effects: &mut Vec<Effect>) {
        let nonce = self.random.random();
        let link = &mut self.links[usize::from(shim.0)];
        if matches!(link.session, crate::coherence::lease::NodeSession::Closed { .. }) && link.linked {
            debug_assert_eq!(link.objects, 0, "HELLO says that nothing is held");
            let hello = link.session.hello(now, nonce);
            self.send(Peer::Shim(shim), Message::Hello(hello), effects);
        }
    }

    pub(super) fn coherence(&mut self, now: Time, shim: ShimId, message: Message, effects: &mut Vec<Effect>) {
        let index = usize::from(shim.0);
        let terms = self.config.lease;
        match message {
            Message::Welcome(welcome) if self.links[index].session.welcome(&welcome) => {
                self.links[index].revoked = 0;
                self.renew_first(now, shim, effects);
            }
            Message::Welcome(_) => {}
            Message::Reject(reject) => {
                let nonce = self.random.random();
                if let Some(hello) = self.links[index].session.reject(now, &reject, nonce) {
                    self.send(Peer::Shim(shim), Message::Hello(hello), effects);
                }
            }
            Message::Grant(grant) => self.links[index].session.grant(now, &grant, &terms),
            Message::Refuse(refuse) if self.links[index].session.id() == Some(refuse.session) => {
                self.close_session(shim, effects);
            }
            Message::Refuse(_) => {}
            Message::Invalidate(invalidate) => self.invalidate(now, shim, invalidate, effects),
            Message::Commit(commit) => self.commit(shim, commit.session, &commit.key, commit.version),
            Message::Revoke(revoke) => self.revoke(shim, &revoke, effects),
            _ => self.statistics.unexpected += 1,
        }
    }

    /// A barrier. What was granted after it has ended stays, should its REVOKE come once more.
    fn revoke(&mut self, shim: ShimId, revoke: &Revoke, effects: &mut Vec<Effect>) {
        let Revoke { session, number } = *revoke;
        let link = &mut self.links[usize::from(shim.0)];
        if link.session.id() == Some(session) && number > link.revoked {
            link.revoked = number;
            self.drop_objects(shim, effects);
        }
        self.send(Peer::Shim(shim), Message::Revoked(Revoked { session, number }), effects);
    }

    /// The session is open: ask for the lease at once, and take up the offers that waited for it.
    fn renew_first(&mut self, now: Time, shim: ShimId, effects: &mut Vec<Effect>) {
        let floor = self.agent.heat_floor(self.objects.len(), self.bytes);
        if self.links[usize::from(shim.0)].session.renew_due(now, &self.config.lease) {
            self.renew(now, shim, floor, effects);
        }
        let (ready, waiting) = std::mem::take(&mut self.offers)
            .into_iter()
            .partition(|offer| self.placement.shim(&offer.key) == shim);
        self.offers = waiting;
        let ready: Vec<_> = ready;
        for offer in ready {
            self.offer(now, offer, effects);
        }
    }

    pub(super) fn renew(&mut self, now: Time, shim: ShimId, heat_floor: u32, effects: &mut Vec<Effect>) {
        if let Some(session) = self.links[usize::from(shim.0)].session.id() {
            self.send(Peer::Shim(shim), Message::Renew(Renew { session, sent: now.0, heat_floor }), effects);
        }
    }

    /// First phase of a write: nothing older than `version` is served from here on. Always acknowledged.
    fn invalidate(&mut self, now: Time, shim: ShimId, invalidate: Invalidate, effects: &mut Vec<Effect>) {
        let Invalidate { session, key, version, value } = invalidate;
        let link = &self.links[usize::from(shim.0)];
        let mut nothing_held = None;
        if link.session.id() != Some(session) {
            // That session's copies are gone for good, and its fills are ignored.
            nothing_held = Some(u64::MAX);
        } else if let Some(object) = self.objects.get_mut(&key).filter(|object| object.shim == shim) {
            for fetching in &mut object.fetching {
                fetching.filling.poison(version);
            }
            // A view that nobody asked for here would be served before reads of it that were passed on.
            let value = value.filter(|_| object.admits(View::GET));
            let outcome = object.copy.invalidate(version, value.is_some());
            if outcome != Invalidated::Stale {
                object.invalidations = object.invalidations.saturating_add(1);
                self.bytes -= object.drop_replies();
            }
            if outcome == Invalidated::Held {
                object.pending = value.map(|value| (value, now));
            }
        } else {
            nothing_held = Some(link.fill_last);
        }
        self.statistics.invalidations += 1;
        let ack = Ack { session, key, version, nothing_held };
        self.send(Peer::Shim(shim), Message::Ack(ack), effects);
    }

    /// Second phase: the pending value of exactly this version becomes servable.
    fn commit(&mut self, shim: ShimId, session: u64, key: &Key, version: u64) {
        if self.links[usize::from(shim.0)].session.id() != Some(session) {
            return;
        }
        let Some(object) = self.objects.get_mut(key).filter(|object| object.shim == shim) else { return };
        if !object.copy.commit(version) {
            return;
        }
        self.statistics.commits += 1;
        if let Some((early, received)) = object.pending.take() {
            let change = object.keep(View::GET, Status::Ok, &early.value, received, early.ttl_ms);
            self.bytes = self.bytes.saturating_add_signed(change);
        }
    }

    pub(super) fn close_if_lapsed(&mut self, now: Time, shim: ShimId, effects: &mut Vec<Effect>) {
        if self.links[usize::from(shim.0)].session.lapsed(now) {
            if self.links[usize::from(shim.0)].objects > 0 {
                self.statistics.lease_losses += 1;
            }
            self.close_session(shim, effects);
        }
    }

    pub(super) fn close_session(&mut self, shim: ShimId, effects: &mut Vec<Effect>) {
        self.links[usize::from(shim.0)].session.close();
        self.drop_objects(shim, effects);
    }

    /// Drops everything of one shim. Those who wait for fills are served by storage instead.
    pub(super) fn drop_objects(&mut self, shim: ShimId, effects: &mut Vec<Effect>) {
        let mut keys: Vec<Key> = (self.objects.iter())
            .filter(|(_, object)| object.shim == shim)
            .map(|(key, _)| key.clone())
            .collect();
        keys.sort_unstable_by_key(|key| key.digest);
        for key in keys {
            let Some(object) = self.remove(&key) else { continue };
            for Fetching { view, command, waiters, .. } in object.fetching {
                for waiter in waiters {
                    let (resp3, command) = (waiter.resp3, command.clone());
                    let key = key.clone();
                    let read = Read {
                        request: 0,
                        key,
                        view,
                        resp3,
                        ordered: false,
                        streams: false,
                        waited_ms: 0,
                        command,
                    };
                    self.forward(waiter, read, effects);
                }
            }
            for (waiter, read) in object.followers {
                self.forward(waiter, read, effects);
            }
        }
    }
}
