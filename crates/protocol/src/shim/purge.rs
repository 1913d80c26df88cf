//! Purges: copies are invalidated although nobody writes. The data stays, and the next read fills them again.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::Reply;
use wire::{Key, Message, Status};

use super::operation::{Operation, OperationKind, Origin, blank};
use super::step::ShimStep;
use super::{Effect, Shim};
use commands::PurgeTarget;

/// Keys of one purge whose invalidations are under way at a time: nodes have reads to serve meanwhile.
const KEYS_AT_ONCE: usize = 256;
/// Purges under way; one more is refused.
const PURGES_MAX: usize = 64;

/// Who wants to know when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    Client(Origin),
    Process(u64),
    /// This process, which leaves.
    Departure,
    /// Keys leave.
    Resharding,
    Nobody,
}

#[derive(Clone, Debug)]
pub(super) struct Purging {
    requester: Requester,
    left: Vec<Key>,
    under_way: usize,
    copies: u64,
}

impl Shim {
    pub(super) fn purge(&mut self, step: &mut ShimStep<'_>, requester: Requester, scope: &PurgeTarget) {
        match scope {
            PurgeTarget::Key(name) => self.purge_where(step, requester, |key| key.bytes == *name),
            PurgeTarget::Prefix(prefix) => {
                self.purge_where(step, requester, |key| key.bytes.starts_with(prefix));
            }
            PurgeTarget::All => self.purge_all(step, requester),
        }
    }

    pub(super) fn purge_where(
        &mut self,
        step: &mut ShimStep<'_>,
        requester: Requester,
        concerns: impl Fn(&Key) -> bool,
    ) {
        let cached = self.keys.iter().filter(|(_, state)| !state.directory.entries.is_empty());
        let mut left: Vec<Key> = cached.map(|(key, _)| key).filter(|key| concerns(key)).cloned().collect();
        left.sort_unstable_by_key(|key| key.digest);
        let Some(purge) = self.begin_purge(step, requester, left) else { return };
        if self.holds_writes(step.now) {
            // Copies of earlier incarnations are in no directory; they end with their leases.
            self.purges[purge as usize].under_way = 1;
            let end = step.now.after(self.config.lease_limits.wait_max).min(self.hold_until);
            return self.purges_held.push((end, purge));
        }
        self.purge_goes_on(step, purge);
    }

    /// The directory was forgotten: copies of before end with their leases, and no purge is done earlier.
    pub(super) fn hold_purges(&mut self) {
        for (index, purging) in &mut self.purges {
            purging.under_way += 1;
            self.purges_held.push((self.hold_until, index as u32));
        }
    }

    /// Lets go of the purges for which no lease of an earlier incarnation runs any more.
    pub(super) fn release_purges(&mut self, step: &mut ShimStep<'_>) {
        while let Some(index) = self.purges_held.iter().position(|(end, _)| step.now >= *end) {
            let (_, purge) = self.purges_held.remove(index);
            self.purge_goes_on(step, purge);
        }
    }

    /// A barrier without a command: each node drops all that it has of this shim.
    pub(super) fn purge_all(&mut self, step: &mut ShimStep<'_>, requester: Requester) {
        let copies = self.keys.values().map(|state| servable(state.directory.entries.iter())).sum();
        let Some(purge) = self.begin_purge(step, requester, Vec::new()) else { return };
        let purging = &mut self.purges[purge as usize];
        (purging.under_way, purging.copies) = (1, copies);
        let barrier = part_of(purge, OperationKind::Barrier, SmallVec::new());
        self.admit_barrier(barrier);
    }

    fn begin_purge(&mut self, step: &mut ShimStep<'_>, requester: Requester, left: Vec<Key>) -> Option<u32> {
        // What the configuration demands is not refused.
        let must_be = !matches!(requester, Requester::Client(_) | Requester::Process(_));
        if self.purges.len() >= PURGES_MAX && !must_be {
            self.statistics.sheds += 1;
            self.purged(step, requester, None);
            return None;
        }
        let purging = Purging { requester, left, under_way: 0, copies: 0 };
        Some(self.purges.insert(purging) as u32)
    }

    /// Invalidates the next keys, or tells that there are none left.
    pub(super) fn purge_goes_on(&mut self, step: &mut ShimStep<'_>, purge: u32) {
        let Some(purging) = self.purges.get_mut(purge as usize) else { return };
        purging.under_way = purging.under_way.saturating_sub(1);
        loop {
            let purging = &mut self.purges[purge as usize];
            if purging.under_way >= KEYS_AT_ONCE {
                return;
            }
            let Some(key) = purging.left.pop() else { break };
            let Some(state) = self.keys.get(&key) else { continue };
            purging.copies += servable(state.directory.entries.iter());
            purging.under_way += 1;
            let part = part_of(purge, OperationKind::Purge, SmallVec::from_elem(key, 1));
            self.admit_operation(part);
        }
        if self.purges[purge as usize].under_way == 0 {
            let Purging { requester, copies, .. } = self.purges.remove(purge as usize);
            self.statistics.purged_copies += copies;
            self.purged(step, requester, Some(copies));
        }
    }

    /// `None`: too many purges are under way.
    fn purged(&mut self, step: &mut ShimStep<'_>, requester: Requester, copies: Option<u64>) {
        match (requester, copies) {
            (Requester::Nobody, _) => {}
            (Requester::Departure, _) => self.all_revoked(step),
            (Requester::Resharding, _) => self.recalled(),
            (Requester::Process(number), copies) => {
                step.effects.push(Effect::Purged { number, copies: copies.unwrap_or_default() });
            }
            (Requester::Client(Origin { from, request, .. }), Some(copies)) => {
                let value = Bytes::from(format!(":{copies}\r\n"));
                step.send(from, Message::Reply(Reply { request, value, ..Reply::default() }));
            }
            (Requester::Client(Origin { from, request, .. }), None) => {
                let value = Bytes::from_static(
                    b"-BUSY DistCache: too many purges are under way; try again later\r\n",
                );
                let reply = Reply { request, status: Status::Busy, value, ..Reply::default() };
                step.send(from, Message::Reply(reply));
            }
        }
    }
}

fn part_of(purge: u32, kind: OperationKind, keys: SmallVec<[Key; 1]>) -> Operation {
    Operation { purge: Some(purge), ..blank(kind, keys) }
}

/// How many of a key's copies a node might serve.
fn servable<'a>(entries: impl Iterator<Item = &'a crate::coherence::directory::Entry>) -> u64 {
    entries.filter(|entry| entry.servable).count() as u64
}
