//! Routers that hold near copies: what a shim asks of them beside what it asks of nodes, and what it spends on them.

use std::time::Duration;

use wire::{Message, Peer, RouterId};

use super::Shim;
use super::step::ShimStep;
use crate::time::Time;

/// Who leaves an INV or a REVOKE unanswered for this long holds writes up: a router does more than a node, and anybody's
/// application may be around it.
const ANSWER_MAX: Duration = Duration::from_millis(50);
/// For how long nothing is granted to it then.
const SHUNNED: Duration = Duration::from_secs(10);

impl Shim {
    /// What a router says about its near copies.
    pub(super) fn near(&mut self, step: &mut ShimStep<'_>, router: RouterId, message: Message) {
        self.holders.admit(router);
        let holder = Peer::Router(router);
        match message {
            Message::Fetch(fetch) => self.fetch(step, holder, fetch),
            control => self.coherence(step, holder, control),
        }
    }

    pub(super) fn tick_near(&mut self, now: Time) {
        self.holders.forget_absent();
        // One that did not run itself has not heard what was answered meanwhile.
        if !self.awake.tick(now, ANSWER_MAX) {
            return;
        }
        let is_late = |since: Time| now.since(since) > ANSWER_MAX;
        for link in self.holders.routers_mut() {
            if link.owes_since().is_some_and(is_late) {
                self.statistics.near_shunned += u64::from(link.shunned <= now);
                link.shunned = now.after(SHUNNED);
            }
        }
    }

    /// Whether anything may be granted to this holder. Near copies are taken from the time that elastic keys' copies have.
    pub(super) fn grants_to(&self, now: Time, holder: Peer) -> bool {
        match holder {
            Peer::Router(_) => {
                let is_shunned = self.holders.get(holder).is_none_or(|link| now < link.shunned);
                !is_shunned && self.elastic.affords_more()
            }
            Peer::Node(_) | Peer::Shim(_) => true,
        }
    }
}
