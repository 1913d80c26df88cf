//! What a shim knows of a key and what it still owes, for tests and the model checker. Changes nothing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use wire::{Key, Peer};

use super::handover::Departure;
use super::holders::HolderLink;
use super::operation::{KeyState, Operation, Phase};
use super::{PROOFS_PER_LEASE, Purpose, ReshardingPhase, Shim, StorageState};
use crate::time::Time;

/// What must be empty once nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShimBacklog {
    pub operations: usize,
    /// Commands at storage, the shim's own PING and TOUCH among them.
    pub tickets: usize,
    /// Keys with reads under way.
    pub readings: usize,
    /// Requests that have not begun.
    pub waiting: usize,
    /// INVs and REVOKEs without an acknowledgement.
    pub outstanding: usize,
    pub ready: usize,
    pub held: usize,
    pub barriers: usize,
    pub quarantined: usize,
    /// States of keys that nobody holds, writes or waits for.
    pub idle_keys: usize,
}

impl Shim {
    /// For how long nothing is due if nothing comes: not at all while anybody waits, keys leave, or storage is away.
    pub fn rest(&self, now: Time) -> Duration {
        let answers = |link: &HolderLink| !link.owes();
        let is_quiet = matches!(self.storage, StorageState::Up { .. })
            && self.waiting() == 0
            && self.operations.is_empty()
            && self.joined == 0
            && matches!(self.resharding(), ReshardingPhase::Settled | ReshardingPhase::Ended)
            && self.purges.is_empty()
            && self.touching.is_empty()
            && !self.is_read_feed_due()
            && !self.tracking.awaits_many()
            && self.holders.iter().all(answers);
        if !is_quiet {
            return Duration::ZERO;
        }
        let proven = now.since(self.proof.max(self.proof_sent));
        let proof = (self.lease_terms(now).duration / PROOFS_PER_LEASE).saturating_sub(proven);
        proof.min(self.feed_rest(now))
    }

    pub fn backlog(&self) -> ShimBacklog {
        let unacknowledged = self.holders.iter();
        let unacknowledged =
            unacknowledged.map(|link| link.outstanding.len() + usize::from(link.revoking.is_some()));
        ShimBacklog {
            operations: self.operations.len(),
            tickets: self.tickets.len(),
            readings: self.readings.len(),
            waiting: self.waiting.len(),
            outstanding: unacknowledged.sum(),
            ready: self.ready.len(),
            held: self.held.len(),
            barriers: self.barriers.len(),
            quarantined: self.quarantined.len() + usize::from(self.quarantined_whole),
            idle_keys: self.keys.values().filter(|state| state.is_idle()).count(),
        }
    }

    /// Whether the count of copies agrees with the directory.
    pub fn is_consistent(&self) -> bool {
        let copies: usize = self.keys.values().map(|state| state.directory.entries.len()).sum();
        copies == self.copies()
    }

    /// Who holds this key as far as the directory knows.
    pub fn holders(&self, key: &Key) -> impl Iterator<Item = Peer> + '_ {
        let entries = self.keys.get(key).into_iter().flat_map(|state| &state.directory.entries);
        entries.map(|entry| entry.holder)
    }

    /// Whether this shim would invalidate a holder's copy before it writes the key.
    pub fn would_invalidate(&self, key: &Key, holder: Peer) -> bool {
        let entries = self.keys.get(key).into_iter().flat_map(|state| &state.directory.entries);
        entries.filter(|entry| entry.holder == holder).any(|entry| entry.servable)
    }

    /// Whether this shim takes the holder's lease of this session to run at `now`.
    pub fn grants_run(&self, now: Time, holder: Peer, session: u64) -> bool {
        self.holders.get(holder).is_some_and(|link| link.session.is_live(now, session))
    }

    /// The open session of a holder and how long its lease still counts here.
    pub fn session(&self, now: Time, holder: Peer) -> Option<(u64, Duration)> {
        let session = &self.holders.get(holder)?.session;
        Some((session.id()?, session.end()?.since(now)))
    }

    /// Whether leases of earlier incarnations may still run, so that no write leaves.
    pub fn holds_writes(&self, now: Time) -> bool {
        now < self.hold_until
    }

    /// How long writes are still held, once storage is there.
    pub(super) fn hold(&self, now: Time) -> Duration {
        if self.hold_until.0 == u64::MAX { Duration::ZERO } else { self.hold_until.since(now) }
    }

    /// Whether copies may still show what storage has lost, so that nothing is read there.
    pub fn holds_reads(&self, now: Time) -> bool {
        now < self.reads_hold_until || self.drops_what_may_be_stale()
    }

    /// The longest that any INV may yet be waited for, from when it was sent.
    pub fn longest_wait(&self) -> Duration {
        let waits = self.holders.iter().filter_map(|link| {
            let sent = link.outstanding.values().map(|outstanding| outstanding.sent).min()?;
            Some(link.session.end()?.since(sent))
        });
        waits.max().unwrap_or_default()
    }

    /// Whether storage lets earlier incarnations write.
    pub(super) fn is_unfenced(&self) -> bool {
        matches!(&self.storage, StorageState::Up { traits } if traits.unfenced)
    }

    /// All that decides what this shim will do, in an order that does not depend on how it came about and with times
    /// relative to `now`. Left out: heat, hints, the limit of storage, the read feed, what storage has been asked (see `ticket_fingerprint`), and when an
    /// INV or a proof was sent last, which only tells when it is sent again.
    pub fn fingerprint(&self, now: Time, state: &mut impl Hasher) {
        let up = matches!(self.storage, StorageState::Up { .. });
        let hold = (self.hold_until.0 != u64::MAX).then(|| self.hold_until.since(now));
        (self.placement.epoch(), up, self.incarnation, hold, self.proof_age(now, self.proof)).hash(state);
        self.reads_hold_until.since(now).hash(state);
        if !self.short_leases {
            let grown = self.config.lease_limits.wait_max * self.config.lease_limits.growth;
            let age = |since| now.since(since).min(grown);
            (age(self.governs_since), age(self.governed.max(self.proof))).hash(state);
        }
        self.waiting.iter().for_each(|waiting| waiting.hash(state));
        (self.sequence, self.barrier_number, self.quarantined_whole).hash(state);
        for link in self.holders.iter() {
            self.fingerprint_link(now, link, state);
        }
        let mut keys: Vec<(&Key, &KeyState)> = self.keys.iter().collect();
        keys.sort_unstable_by_key(|(key, _)| key.digest);
        for (key, key_state) in keys {
            key.hash(state);
            self.fingerprint_key(key_state, state);
        }
        let patience = self.waiting.limits().patience().unwrap_or_default();
        let waited = |each: &Operation| each.since.map(|since| now.since(since).min(patience));
        let mut operations: Vec<(u64, Option<Duration>)> =
            self.operations.iter().map(|(_, each)| (operation_digest(each), waited(each))).collect();
        operations.sort_unstable();
        let mut held: Vec<u64> = self.held.iter().map(|id| self.operation_digest(*id)).collect();
        held.sort_unstable();
        held.dedup();
        let barriers: Vec<u64> = self.barriers.iter().map(|id| self.operation_digest(*id)).collect();
        (operations, held, barriers).hash(state);
        (&self.watchers, self.watching, self.watches).hash(state);
        self.elastic.fingerprint(now, state);
        self.fingerprint_departure(now, state);
        self.resharding.fingerprint(now, state);
        let mut readings: Vec<_> = self.readings.iter().collect();
        readings.sort_unstable_by_key(|(key, _)| key.digest);
        for (key, readings) in readings {
            key.hash(state);
            readings.iter().for_each(|reading| reading.hash(state));
        }
    }

    fn fingerprint_link(&self, now: Time, link: &HolderLink, state: &mut impl Hasher) {
        let lease = self.config.lease.duration;
        link.session.fingerprint(now, state);
        link.shunned.since(now).hash(state);
        for (version, outstanding) in &link.outstanding {
            let operation = self.operation_digest(outstanding.operation);
            (version, operation, now.since(outstanding.sent).min(lease)).hash(state);
        }
        link.revoking.map(|revoking| (revoking.number, now.since(revoking.sent).min(lease))).hash(state);
    }

    fn fingerprint_key(&self, key: &KeyState, state: &mut impl Hasher) {
        key.directory.version.hash(state);
        let mut entries: Vec<_> = key.directory.entries.iter().collect();
        entries.sort_unstable_by_key(|entry| entry.holder);
        for entry in entries {
            (entry.holder, entry.fill, entry.servable, entry.pending).hash(state);
        }
        for id in &key.queue {
            self.operation_digest(*id).hash(state);
        }
        let lane = key.sent_lane;
        ((key.sent > 0).then_some(lane), key.sent, key.writes_sent, key.blocked, key.quarantined).hash(state);
    }

    fn fingerprint_departure(&self, now: Time, state: &mut impl Hasher) {
        std::mem::discriminant(&self.departure).hash(state);
        match &self.departure {
            Departure::Asking { unheard: peers, until }
            | Departure::Finishing { silent: peers, until }
            | Departure::Confirming { unheard: peers, until } => (peers, until.since(now)).hash(state),
            Departure::Stays | Departure::Revoking | Departure::Leaving | Departure::Left => {}
        }
    }

    /// What the answer to a command at storage would be used for.
    pub fn ticket_fingerprint(&self, now: Time, ticket: u64, state: &mut impl Hasher) {
        let Some(ticket) = self.tickets.get(ticket as usize) else { return };
        self.proof_age(now, ticket.issued.max(self.proof)).hash(state);
        match &ticket.purpose {
            Purpose::Read { origins, asked } => (0, &origins[..], asked.view, asked.resp3).hash(state),
            Purpose::Plain { origin, keys } => (1, origin, &keys[..]).hash(state),
            Purpose::Fill(fetch) => {
                (2, fetch.holder, fetch.session, fetch.fill, fetch.view, fetch.version).hash(state);
            }
            Purpose::Operation(id) => (3, self.operation_digest(*id)).hash(state),
            Purpose::Proof => 4.hash(state),
            Purpose::Touch { .. } | Purpose::Probe | Purpose::Feed { .. } => 5.hash(state),
            Purpose::ReadFeed { .. } | Purpose::Examination => 5.hash(state),
            Purpose::Topic(change) => (6, change).hash(state),
            Purpose::Publish { origin, channel, shard } => (7, origin, channel, shard).hash(state),
            Purpose::CountSubscribers { origin, kind } => (8, origin, kind).hash(state),
            Purpose::Watch { origin, request, .. } => (9, origin, request).hash(state),
            Purpose::WatchedRead { origin, number } => (10, origin, number).hash(state),
            Purpose::Transfer { origin } => (11, origin).hash(state),
        }
    }

    fn proof_age(&self, now: Time, proof: Time) -> Duration {
        now.since(proof).min(self.config.lease.duration)
    }

    /// Names an operation by what it is: its number depends on which were there before.
    fn operation_digest(&self, id: u32) -> u64 {
        self.operations.get(id as usize).map_or(0, operation_digest)
    }
}

fn operation_digest(operation: &Operation) -> u64 {
    let mut digest = DefaultHasher::new();
    let phase = match operation.phase {
        Phase::Queued => 0,
        Phase::Invalidating => 1,
        Phase::Sent { .. } => 2,
    };
    (operation.origin, phase, operation.awaiting, operation.cancelled, operation.lane).hash(&mut digest);
    (&operation.keys[..], &operation.versions[..], &operation.commands, &operation.early).hash(&mut digest);
    digest.finish()
}
