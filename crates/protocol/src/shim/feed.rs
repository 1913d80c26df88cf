//! The feed: what storage reports of changes, whoever made them, and how long copies may be trusted because of it.
//! Not how copies are invalidated.
//!
//! Storage answers in order on one connection, and reports a change before it looks at what is sent to it later. So
//! the answer to a PING proves that whatever had changed before the PING was sent has been heard of. With one PING
//! under way at a time that holds for reports that storage gathers before it sends them, too.
//!
//! The echo of a write of our own looks like a change by somebody else: storage names keys, gathers the changes of a
//! moment, and remembers no writer that one could rely on. So each report counts, and nothing is committed early.

use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::{Command, Value};
use wire::{Key, Peer};

use super::operation::{Operation, OperationKind, Phase, blank};
use super::operations::status_of;
use super::step::ShimStep;
use super::{Purpose, Shim};
use crate::policy::Rule;
use crate::storage::{Lane, PING, Reach};
use crate::time::Time;

/// PINGs in the time after which copies are not trusted without one.
const PINGS_PER_STALENESS: u32 = 8;
/// How long after it was lost or refused the feed is asked for again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What holds where others write to storage, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// No copy is served for longer after somebody else has changed its key.
    pub staleness: Duration,
    /// No copy is served for longer after it was read from storage.
    pub age: Duration,
}

/// Whether storage reports changes on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FeedPhase {
    #[default]
    Closed,
    Opening,
    Open,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Feed {
    state: FeedPhase,
    /// All that had changed until then has been heard of.
    heard: Option<Time>,
    /// A PING, or what opens the feed, is not answered yet.
    asked: bool,
    sent: Time,
    /// So many have been sent.
    pings: u64,
    /// The round trip of the newest PING.
    delay: Duration,
    staleness_longest: Duration,
    /// Why storage does not report changes.
    refusal: Option<String>,
}

/// What is known of the feed, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedState<'a> {
    pub open: bool,
    /// How long ago a change may have been made that has not been heard of.
    pub staleness: Duration,
    /// The longest so far while the feed was open.
    pub staleness_longest: Duration,
    pub delay: Duration,
    pub refusal: Option<&'a str>,
}

impl Feed {
    pub(super) fn heard(&self) -> Time {
        self.heard.unwrap_or(Time(0))
    }

    pub(super) fn is_open(&self) -> bool {
        self.heard.is_some()
    }

    /// Whether an answer to what was sent then is one to what was sent last, and not from before the feed was lost.
    pub(super) fn awaits(&self, sent: Time, opens: bool) -> bool {
        self.sent == sent && self.state == if opens { FeedPhase::Opening } else { FeedPhase::Open }
    }

    pub(super) fn pings(&self) -> u64 {
        self.pings
    }
}

impl Shim {
    pub fn feed(&self, now: Time) -> FeedState<'_> {
        let Feed { heard, staleness_longest, delay, ref refusal, .. } = self.feed;
        let staleness = heard.map_or(Duration::ZERO, |heard| now.since(heard));
        let staleness_longest = staleness_longest.max(staleness);
        FeedState { open: heard.is_some(), staleness, staleness_longest, delay, refusal: refusal.as_deref() }
    }

    /// Whether changes by others are heard of, where there may be any.
    pub(super) fn hears(&self) -> bool {
        self.config.bounded.is_none() || self.feed.heard.is_some()
    }

    /// The longest lease for this holder: it ends before a change that has not been heard of, or that the holder has not
    /// acknowledged, is older than the bound.
    pub(super) fn feed_lease_max(&self, now: Time, holder: Peer) -> Duration {
        let Some(bounded) = self.config.bounded else { return Duration::MAX };
        let link = &self.holders[holder];
        let told = link.outstanding.values().next().map(|outstanding| outstanding.heard);
        let revoked = link.revoking.map(|revoking| revoking.heard);
        let oldest = [told, revoked].into_iter().flatten().fold(self.feed.heard(), Time::min);
        bounded.staleness.saturating_sub(now.since(oldest))
    }

    /// The time that a copy may live.
    pub(super) fn aged(&self, ttl_ms: Option<u64>) -> Option<u64> {
        let Some(bounded) = self.config.bounded else { return ttl_ms };
        let age_ms = bounded.age.as_millis() as u64;
        Some(ttl_ms.map_or(age_ms, |ttl| ttl.min(age_ms)))
    }

    /// For how much longer than `ttl_ms` a copy may answer if storage is gone: as long as its key lives, and as its rule allows.
    pub(super) fn stale_ms(&self, rule: Rule, key_ttl_ms: Option<u64>, ttl_ms: Option<u64>) -> u64 {
        let stale_ms = rule.stale_if_error.as_millis() as u64;
        match (self.config.bounded, ttl_ms) {
            (Some(_), Some(ttl_ms)) => {
                key_ttl_ms.map_or(stale_ms, |key_ttl_ms| stale_ms.min(key_ttl_ms.saturating_sub(ttl_ms)))
            }
            _ => 0,
        }
    }

    fn is_feed_wanted(&self) -> bool {
        self.config.bounded.is_some() || self.tracking.is_wanted()
    }

    /// Between two signs that changes are heard of.
    fn feed_interval(&self, now: Time) -> Duration {
        let lease = self.lease_terms(now).duration;
        let interval = self.config.bounded.map_or(lease, |bounded| bounded.staleness.min(lease));
        interval / PINGS_PER_STALENESS
    }

    /// In what time storage is asked for such a sign, if nothing comes.
    pub(super) fn feed_rest(&self, now: Time) -> Duration {
        let Feed { state, asked, ref refusal, sent, .. } = self.feed;
        match self.is_feed_wanted() {
            true if state != FeedPhase::Open && refusal.is_none() => Duration::ZERO,
            true if !asked => self.feed_interval(now).saturating_sub(now.since(sent)),
            _ => Duration::MAX,
        }
    }

    pub(super) fn tick_feed(&mut self, step: &mut ShimStep<'_>) {
        let (interval, wanted) = (self.feed_interval(step.now), self.is_feed_wanted());
        let since = step.now.since(self.feed.sent);
        match self.feed.state {
            FeedPhase::Open if !wanted => {
                (self.feed.state, self.feed.heard, self.feed.asked) = (FeedPhase::Closed, None, false);
                let command = Command::from_args(&["CLIENT", "TRACKING", "OFF"]).frame().clone();
                let commands = SmallVec::from_elem(command, 1);
                self.store(step, Purpose::Probe, Lane::Feed, Reach::Whole, commands);
            }
            FeedPhase::Closed if !wanted => {}
            FeedPhase::Closed if since >= RETRY_INTERVAL => {
                self.feed.state = FeedPhase::Opening;
                let command = Command::from_args(&["CLIENT", "TRACKING", "ON", "BCAST"]);
                self.ask_feed(step, command.frame().clone());
            }
            FeedPhase::Open if !self.feed.asked && (since >= interval || self.tracking.awaits_many()) => {
                self.ask_feed(step, PING);
            }
            _ => {}
        }
    }

    fn ask_feed(&mut self, step: &mut ShimStep<'_>, command: Bytes) {
        self.feed.sent = step.now;
        self.feed.asked = true;
        self.feed.pings += 1;
        let purpose = Purpose::Feed { opens: self.feed.state == FeedPhase::Opening };
        self.store(step, purpose, Lane::Feed, Reach::Whole, SmallVec::from_elem(command, 1));
    }

    /// What opens the feed is as good as a PING: nothing has been granted before it was answered.
    pub(super) fn feed_answered(&mut self, step: &mut ShimStep<'_>, opens: bool, replies: &[Bytes]) {
        let issued = self.feed.sent;
        self.feed.asked = false;
        let reply = replies.first().map_or(&[][..], |reply| reply);
        if status_of(reply) == wire::Status::Error {
            // A server that is busy for long answers PING so: it proves nothing.
            if opens {
                self.feed.state = FeedPhase::Closed;
                let refusal = String::from_utf8_lossy(reply).trim().to_owned();
                self.follow_settled(step, Some(&refusal));
                self.feed.refusal = Some(refusal);
            }
            return;
        }
        if let Some(heard) = self.feed.heard {
            self.feed.staleness_longest = self.feed.staleness_longest.max(step.now.since(heard));
        }
        self.feed.state = FeedPhase::Open;
        self.feed.refusal = None;
        self.feed.heard = Some(issued);
        self.feed.delay = step.now.since(issued);
        self.reports_came(self.feed.pings);
        if opens {
            // What was read until now may have changed without a report.
            self.tell_of_all(step);
        }
        self.follow_settled(step, None);
    }

    /// The connection is gone, or was not to be had.
    pub(super) fn feed_lost(&mut self, step: &mut ShimStep<'_>) {
        self.feed_down(step);
    }

    /// Nobody knows what changes from here on: copies go, and nothing is granted until the feed is there again.
    pub(super) fn feed_down(&mut self, step: &mut ShimStep<'_>) {
        let was_open = self.feed.state == FeedPhase::Open;
        let heard = self.feed.heard();
        self.feed.state = FeedPhase::Closed;
        self.feed.heard = None;
        self.feed.asked = false;
        self.feed.sent = step.now;
        if was_open {
            self.statistics.feed_losses += 1;
            if !self.keep_what_may_be_stale(step, heard) {
                self.flush_bounded();
            }
            self.tell_of_all(step);
        }
        self.follow_settled(step, Some("the connection to it broke"));
    }

    /// Storage reports keys, or that all of them may have changed.
    pub(super) fn changed(&mut self, step: &mut ShimStep<'_>, push: &Bytes) {
        if self.feed.state == FeedPhase::Closed {
            return;
        }
        match changed_keys(push) {
            None => self.statistics.unexpected += 1,
            Some(None) => {
                self.statistics.feed_flushes += 1;
                self.flush_bounded();
                self.tell_of_all(step);
            }
            Some(Some(names)) => {
                if self.tracking.is_wanted() {
                    self.tell_of(step, &names);
                }
                for name in names {
                    self.statistics.feed_changes += 1;
                    // Routers use no other database.
                    self.change(self.placement.key(0, name));
                }
            }
        }
    }

    /// Unless its copies are being invalidated already, and so nothing has been granted since.
    fn change(&mut self, key: Key) {
        if self.config.bounded.is_none() {
            return;
        }
        let Some(state) = self.keys.get(&key) else { return };
        if !state.directory.has_copies() {
            return;
        }
        let invalidates = |id: &u32| {
            let operation: &Operation = &self.operations[*id as usize];
            let index = operation.keys.iter().position(|own| *own == key);
            operation.phase == Phase::Invalidating
                && (operation.kind.is_silent() || index.is_some_and(|index| operation.writes_key(index)))
        };
        if !state.queue.iter().any(invalidates) {
            self.admit_operation(blank(OperationKind::Change, SmallVec::from_elem(key, 1)));
        }
    }

    /// Strict copies need no feed.
    fn flush_bounded(&mut self) {
        if self.config.bounded.is_some() {
            self.flush();
        }
    }

    /// Drops every copy. A barrier that has begun has revoked them all, and nothing is granted until it ends; one that
    /// waits shall not be waited for.
    pub(super) fn flush(&mut self) {
        let first = self.barriers.front().and_then(|id| self.operations.get(*id as usize));
        if first.is_some_and(|operation| {
            operation.phase != Phase::Queued || operation.kind == OperationKind::Flush
        }) {
            return;
        }
        let id = self.operations.insert(blank(OperationKind::Flush, SmallVec::new())) as u32;
        self.barriers.push_front(id);
        self.ready.push_back(id);
    }
}

/// The keys of an `invalidate` push; the inner `None` stands for all.
pub(crate) fn changed_keys(push: &Bytes) -> Option<Option<Vec<Bytes>>> {
    let Ok(Value::Push(values)) = Value::parse(push) else { return None };
    match &values[..] {
        [Value::Bulk(word), Value::Null] if word.as_ref() == b"invalidate" => Some(None),
        [Value::Bulk(word), Value::Array(keys)] if word.as_ref() == b"invalidate" => {
            Some(Some(keys.iter().filter_map(|key| key.bytes().cloned()).collect()))
        }
        _ => None,
    }
}
