//! What a node would serve and what it still owes, for tests and the model checker. Changes nothing.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use wire::{Digest, Key, ShimId, View};

use super::object::{Object, Waiter};
use super::{Node, SECOND};
use crate::time::Time;

/// What must be empty once nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeBacklog {
    /// Reads passed on and not answered.
    pub forwarded: usize,
    pub fetches: usize,
    /// Readers that wait for fetches.
    pub waiters: usize,
    /// Offers that wait for a session.
    pub offers: usize,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("objects", &self.objects.len()).finish_non_exhaustive()
    }
}

impl Node {
    /// The reply that a read of `view` would get from this node's copy at `now`; empty for the null reply to GET.
    pub fn servable(&self, now: Time, key: &Key, view: View) -> Option<Bytes> {
        let object = self.objects.get(key)?;
        let link = self.links.get(usize::from(object.shim.0))?;
        link.found(now, object, view, &self.config.settings.policies).map(|found| found.value)
    }

    /// The open session with a shim and how long its lease lasts.
    pub fn session(&self, now: Time, shim: ShimId) -> Option<(u64, Duration)> {
        let session = &self.links.get(usize::from(shim.0))?.session;
        Some((session.id()?, session.remaining(now)))
    }

    /// Whether the node has an object for this key, servable or not.
    pub fn knows(&self, key: &Key) -> bool {
        self.objects.contains_key(key)
    }

    /// Every key that it has an object for.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.objects.iter().map(Object::key)
    }

    /// For how long nothing is due if nothing comes: not at all while anybody waits or a session opens.
    pub fn rest(&self, now: Time) -> Duration {
        if self.waiting() > 0 || self.pending() > 0 || !self.offers.is_empty() {
            return Duration::ZERO;
        }
        let links = self.links.iter().enumerate();
        let renewals = links.map(|(index, link)| match self.objects.count_of(ShimId(index as u16)) {
            0 if link.session.is_opening() => Duration::ZERO,
            0 => Duration::MAX,
            _ => link.session.renew_in(now),
        });
        renewals.min().unwrap_or(Duration::MAX).min(self.objects.rest(SECOND))
    }

    pub fn backlog(&self) -> NodeBacklog {
        let fetches = || self.objects.iter().flat_map(Object::fetching);
        NodeBacklog {
            forwarded: self.forwarded.len(),
            fetches: fetches().count(),
            waiters: fetches().map(|fetching| fetching.waiters.len()).sum::<usize>()
                + self.order.held().count(),
            offers: self.offers.len(),
        }
    }

    /// Whether the counts kept beside the objects and the reads passed on agree with them.
    pub fn is_consistent(&self) -> bool {
        let fetching = self.objects.iter().filter(|object| !object.is_idle()).count();
        let known = self.links.iter().map(|link| link.fetching.len()).sum::<usize>();
        let passed_on = self.order.passed_on_count() == self.forwarded.len();
        self.objects.is_consistent() && fetching == known && passed_on
    }

    /// The newest version of a key that this node knows, and the session that it belongs to.
    pub fn version(&self, key: &Key) -> Option<(u64, u64)> {
        let object = self.objects.get(key)?;
        Some((self.links.get(usize::from(object.shim.0))?.session.id()?, object.copy().version()))
    }

    /// The session under whose lease hits of this shim's keys may be answered at `now`.
    pub fn leased(&self, now: Time, shim: ShimId) -> Option<u64> {
        let session = self.links.get(usize::from(shim.0))?.session;
        session.id().filter(|_| session.holds(now))
    }

    /// All that decides what this node will do about one shim's keys, in an order that does not depend on how it came
    /// about and with times relative to `now`. Left out: heat and load, the agent's memory, the random numbers ahead,
    /// how long a copy has yet to live, and when RENEW was sent last, which only tells when it is sent again.
    pub fn fingerprint(&self, now: Time, shim: ShimId, state: &mut impl Hasher) {
        let Some(link) = self.links.get(usize::from(shim.0)) else { return };
        (
            self.placement.epoch(),
            self.draining,
            self.owns,
            (link.linked, link.hands_over),
            link.fill_last,
            link.revoked,
        )
            .hash(state);
        link.session.fingerprint(now, &self.config.lease, state);
        link.welcomed.hash(state);
        let mut objects: Vec<&Object> = self.objects.iter().filter(|object| object.shim == shim).collect();
        objects.sort_unstable_by_key(|object| object.digest());
        let mut arrived: Vec<(Digest, &Waiter)> = Vec::new();
        for object in objects {
            object.key().hash(state);
            object.fingerprint(now, state);
            let waiters = object.fetching().iter().flat_map(|fetching| &fetching.waiters);
            arrived.extend(waiters.map(|waiter| (object.digest(), waiter)));
        }
        let forwarded = self.forwarded.iter().filter(|(_, forwarded)| forwarded.shim == shim);
        let mut forwarded: Vec<_> =
            forwarded.map(|(index, read)| (read.serial, index, read.waiter.request, read.view)).collect();
        forwarded.sort_unstable();
        forwarded.hash(state);
        let passed_on = self.forwarded.iter().map(|(_, forwarded)| (forwarded.key.digest, &forwarded.waiter));
        arrived.extend(passed_on);
        arrived.extend(self.order.held().map(|(waiter, read)| (read.key.digest, waiter)));
        // Whoever came first goes first, in each key and not between keys.
        arrived.sort_unstable_by_key(|(digest, waiter)| (*digest, waiter.arrival));
        for (digest, waiter) in arrived {
            (digest, waiter.from, waiter.request).hash(state);
        }
        for offer in self.offers.iter().filter(|offer| self.placement.shim(&offer.key) == shim) {
            offer.hash(state);
        }
    }
}
