//! What may be stale while storage is gone: which copies stay, for how long nodes may serve them, and when they go. Not what a
//! lease is, nor how copies are dropped.
//!
//! ```text
//!             the feed is lost: REVOKE, which spares what rules allow to be stale
//!   Nothing --------------------------------------------------------------------> Kept
//!      ^                                                                           |  storage answers what was sent since,
//!      |   every session is revoked, or its lease over: reads are held until then  |  comes up, is another one's, or no rule
//!      +-------------------------------- Dropping <--------------------------------+  allows more
//! ```
//!
//! While nothing answers, GRANTs carry *leave*: a lease for the copies that may be stale, counted from when changes were heard
//! of last. Also while the feed is open: a server that hangs may go on, and has reported all changes when it answers a PING.

use std::time::Duration;

use wire::message::{Leave, Revoke};
use wire::{Key, LayerSet, Message, Peer, View};

use super::operation::OperationKind;
use super::step::ShimStep;
use super::{Shim, StorageState};
use crate::shim::replies::is_passing;
use crate::time::Time;
use commands::CommandKind;

/// A server that has answered nothing for this part of a lease may be gone: leave comes before the lease ends.
const SILENCES_PER_LEASE: u32 = 2;

/// What became of the copies that were there when the feed was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keeping {
    #[default]
    Nothing,
    Kept {
        /// All that had changed until then had been heard of.
        heard: Time,
        lost: Time,
    },
    Dropping,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stale {
    keeping: Keeping,
    /// Leave was given since all were dropped last.
    given: bool,
    /// Since when copies are served that may be stale.
    since: Option<Time>,
}

impl Shim {
    /// For how long copies have been served because storage is gone, if they are.
    pub fn stale_for(&self, now: Time) -> Option<Duration> {
        self.stale.since.map(|since| now.since(since))
    }

    /// The longest that any rule allows; strict copies are never stale.
    fn stale_longest(&self) -> Duration {
        match self.config.bounded {
            Some(_) => self.config.settings.policies.stale_if_error_longest(),
            None => Duration::ZERO,
        }
    }

    /// Whether nothing answers, as far as is known here, or has for so long.
    fn is_gone(&self, now: Time, silence: Duration) -> bool {
        match self.storage {
            StorageState::Down { gone, .. } => gone,
            StorageState::Up { .. } => self.feed.is_open() && now.since(self.proof) >= silence,
        }
    }

    /// Leave for copies that may be stale, if there is any now.
    pub(super) fn leave(&self, now: Time) -> Option<Leave> {
        let longest = self.stale_longest();
        let heard = match self.stale.keeping {
            Keeping::Kept { heard, .. } => Some(heard),
            Keeping::Nothing => Some(self.feed.heard()).filter(|_| self.feed.is_open()),
            Keeping::Dropping => None,
        };
        let unheard = now.since(heard?);
        let left = longest.checked_sub(unheard).filter(|left| !left.is_zero())?;
        let micros = |duration: Duration| duration.as_micros() as u64;
        let leave = Leave { duration: micros(left), unheard: micros(unheard) };
        let silence = self.lease_terms(now).duration / SILENCES_PER_LEASE;
        (self.is_gone(now, silence) && self.stays()).then_some(leave)
    }

    /// Nodes get leave.
    pub(super) fn leave_given(&mut self) {
        self.stale.given = true;
    }

    /// The feed is lost that had heard of all changes until `heard`. Tells whether copies are kept that may be stale.
    pub(super) fn keep_what_may_be_stale(&mut self, step: &mut ShimStep<'_>, heard: Time) -> bool {
        let allowed = step.now.since(heard) < self.stale_longest() && self.stays();
        if !allowed || self.stale.keeping != Keeping::Nothing {
            return false;
        }
        self.stale.keeping = Keeping::Kept { heard, lost: step.now };
        // Nothing waits for these: without the feed nothing is granted, and leases end in any case.
        self.barrier_number += 1;
        let number = self.barrier_number;
        for holder in self.holders.peers() {
            let session = &self.holders[holder].session;
            let Some(session) = session.id().filter(|id| session.is_live(step.now, *id)) else { continue };
            self.statistics.revokes += 1;
            // Near copies are never stale.
            let spares = matches!(holder, Peer::Node(_));
            step.send(holder, Message::Revoke(Revoke { session, number, spares }));
        }
        true
    }

    /// Storage has answered what was sent at `issued`: if the feed was lost by then, changes have been missed.
    pub(super) fn storage_lives(&mut self, step: &mut ShimStep<'_>, issued: Time, reply: &[u8]) {
        if matches!(self.stale.keeping, Keeping::Kept { lost, .. } if issued > lost) && !is_passing(reply) {
            self.drop_what_may_be_stale(step);
        }
    }

    /// What was kept goes. Whoever reads meanwhile would see what is new, and then in a copy what is old.
    pub(super) fn drop_what_may_be_stale(&mut self, step: &mut ShimStep<'_>) {
        if matches!(self.stale.keeping, Keeping::Kept { .. }) {
            self.stale.keeping = Keeping::Dropping;
            self.flush();
            self.all_dropped();
        }
        self.tick_stale(step);
    }

    /// A barrier has ended: whether it was what drops the copies.
    pub(super) fn all_dropped(&mut self) {
        let flushes = self.barriers.front().and_then(|id| self.operations.get(*id as usize));
        let flushes = flushes.is_some_and(|operation| operation.kind == OperationKind::Flush);
        if self.stale.keeping == Keeping::Dropping && !flushes {
            (self.stale.keeping, self.stale.given) = (Keeping::Nothing, false);
        }
    }

    /// Another incarnation: the sessions are over, and reads wait for their leases.
    pub(super) fn forget_what_may_be_stale(&mut self) {
        self.stale = Stale::default();
    }

    /// Whether a copy might still show what is older than what storage answers.
    pub(super) fn drops_what_may_be_stale(&self) -> bool {
        self.stale.keeping == Keeping::Dropping && self.stale.given
    }

    pub(super) fn tick_stale(&mut self, step: &mut ShimStep<'_>) {
        let over = matches!(self.stale.keeping, Keeping::Kept { heard, .. }
            if step.now.since(heard) >= self.stale_longest());
        if over {
            return self.drop_what_may_be_stale(step);
        }
        let since = self.stale.since.take();
        // As long as leases of before may run, nobody needs it.
        let needed = self.is_gone(step.now, self.lease_terms(step.now).duration);
        self.stale.since = self.leave(step.now).filter(|_| needed).and(since.or(Some(step.now)));
        self.statistics.stale_periods += u64::from(since.is_none() && self.stale.since.is_some());
    }

    /// Layers whose nodes may answer a read that is refused here.
    pub(super) fn stale_layers(&self, now: Time, key: &Key, view: View) -> LayerSet {
        let Some(leave) = self.leave(now) else { return LayerSet::EMPTY };
        let allowed = self.config.settings.policies.of(&key.bytes).stale_if_error;
        let held = self.keys.get(key).is_some_and(|state| state.directory.has_copies());
        match held && Duration::from_micros(leave.unheard) < allowed {
            true => self.hints(key, view),
            false => LayerSet::EMPTY,
        }
    }

    /// Whether a command that storage cannot carry out has to be taken all the same, so that its keys' copies go before its client
    /// is told.
    pub(super) fn fails_behind_its_invalidation(&self, keys: &[Key], kind: CommandKind) -> bool {
        let writes = matches!(kind, CommandKind::Write | CommandKind::BlockingWrite | CommandKind::Barrier);
        let held = |key: &Key| self.keys.get(key).is_some_and(|state| state.directory.has_copies());
        let down = matches!(self.storage, StorageState::Down { .. });
        down && writes && !self.stale_longest().is_zero() && (keys.is_empty() || keys.iter().any(held))
    }
}
