//! Every message ever sent, each of which may arrive now, again, late, or never. Nothing is taken out.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use wire::message::{Fill, Grant, Renew, Reply};
use wire::{LayerSet, Message, Peer};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) from: Peer,
    pub(crate) to: Peer,
    pub(crate) message: Message,
    /// Digest of everything but the time in it.
    digest: u64,
    /// The node whose clock stamped it, and the stamp: RENEW, and the GRANT that answers it.
    stamp: Option<(usize, u64)>,
}

impl Envelope {
    pub(crate) fn new(from: Peer, to: Peer, message: Message) -> Envelope {
        let message = without_hints(message);
        let node = [from, to].into_iter().find_map(|peer| match peer {
            Peer::Node(node) => Some(usize::from(node.0)),
            _ => None,
        });
        let (timeless, sent) = match &message {
            Message::Renew(renew) => (Message::Renew(Renew { sent: 0, ..renew.clone() }), Some(renew.sent)),
            Message::Grant(grant) => (Message::Grant(Grant { sent: 0, ..grant.clone() }), Some(grant.sent)),
            other => (other.clone(), None),
        };
        let mut digest = DefaultHasher::new();
        (from, to, timeless).hash(&mut digest);
        Envelope { from, to, message, digest: digest.finish(), stamp: node.zip(sent) }
    }

    /// The same for messages that are alike to a receiver whose sender's or own node's clock shows `now`.
    pub(crate) fn likeness(&self, clocks: impl Fn(usize) -> u64) -> (u64, Option<u64>) {
        (self.digest, self.stamp.map(|(node, sent)| clocks(node) - sent))
    }

    pub(crate) fn is_stamped(&self) -> bool {
        self.stamp.is_some()
    }

    fn fingerprint(&self, clocks: &impl Fn(usize) -> u64, age_max: u64) -> u64 {
        let Some((node, sent)) = self.stamp else { return self.digest };
        let age = clocks(node).saturating_sub(sent).min(age_max);
        let mut digest = DefaultHasher::new();
        (self.digest, age).hash(&mut digest);
        digest.finish()
    }
}

/// Hints steer reads and promise nothing; two messages that differ in them only are one.
fn without_hints(message: Message) -> Message {
    match message {
        Message::Fill(fill) => Message::Fill(Fill { cached: LayerSet::EMPTY, ..fill }),
        Message::Reply(reply) => Message::Reply(Reply { cached: LayerSet::EMPTY, ..reply }),
        other => other,
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// In the order in which they were sent first.
    envelopes: Vec<Arc<Envelope>>,
}

impl Network {
    pub(crate) fn add(&mut self, envelope: &Arc<Envelope>) {
        if !self.has(envelope) {
            self.envelopes.push(Arc::clone(envelope));
        }
    }

    pub(crate) fn has(&self, envelope: &Envelope) -> bool {
        let same = |old: &Arc<Envelope>| old.digest == envelope.digest && old.stamp == envelope.stamp;
        self.envelopes.iter().any(same)
    }

    pub(crate) fn len(&self) -> usize {
        self.envelopes.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Envelope>> {
        self.envelopes.iter()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Arc<Envelope>> {
        self.envelopes.get(index)
    }

    pub(crate) fn clear(&mut self) {
        self.envelopes.clear();
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&Message) -> bool) {
        self.envelopes.retain(|envelope| stays(&envelope.message));
    }

    /// Leaves one of stamped messages that are alike.
    pub(crate) fn merge_old(&mut self, clocks: impl Fn(usize) -> u64, age_max: u64) {
        if self.envelopes.iter().all(|envelope| envelope.stamp.is_none()) {
            return;
        }
        let mut seen: Vec<u64> = Vec::with_capacity(self.envelopes.len());
        self.envelopes.retain(|envelope| {
            let fingerprint = envelope.fingerprint(&clocks, age_max);
            let new = !seen.contains(&fingerprint);
            seen.push(fingerprint);
            new
        });
    }

    /// The same for the same set, in whatever order it came about. `age_max` in microseconds.
    pub(crate) fn fingerprint(&self, clocks: impl Fn(usize) -> u64, age_max: u64) -> u64 {
        let each = self.envelopes.iter().map(|envelope| envelope.fingerprint(&clocks, age_max));
        each.fold(self.envelopes.len() as u64, u64::wrapping_add)
    }
}
