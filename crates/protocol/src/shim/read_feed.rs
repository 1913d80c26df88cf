//! The read feed: what storage reports of keys that have copies, where nobody but DistCache is to write. Not how copies are
//! invalidated.
//!
//! Storage remembers which keys were read for a copy, and reports the next change of each on a connection of its own, but
//! for changes by commands on the connection that has read. A write of DistCache's own leaves nothing servable before storage
//! sees it. So what is reported of a key with copies is a change by somebody else, or a report that comes late: of what had
//! happened before the copy was registered. As in mode `bounded`, the answer to a PING that was sent after that tells which.
//! Whichever it is, the copies are invalidated.

use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::Key;

use super::feed::{FeedPhase, RETRY_INTERVAL, changed_keys};
use super::foreign_writers::ALL_KEYS;
use super::operation::{Operation, OperationKind, Phase, blank};
use super::operations::status_of;
use super::replies::is_passing;
use super::step::ShimStep;
use super::{FillTicket, PING, Purpose, Shim, StorageState};
use crate::storage::{Lane, Reach};
use crate::time::Time;

/// A PING goes out this often, and at the next tick after something was registered.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// A clock that runs so much faster than the shim's ends a key's life so much earlier: one in a hundred, and it counts whole
/// milliseconds.
const CLOCKS_DIFFER: u64 = 100;
const CLOCK_STEPS_MS: u64 = 2;

/// Says that the read behind it is tracked.
pub(crate) const TRACKED: Bytes = Bytes::from_static(b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n");

#[derive(Clone, Debug, Default)]
pub(super) struct ReadFeed {
    state: FeedPhase,
    /// The newest PING is not answered yet.
    asked: bool,
    sent: Time,
    pings: u64,
    /// The number of the newest PING that was answered.
    answered: u64,
    /// Tracked reads sent.
    reads: u32,
    /// Reports are told from late ones by the answer to the next PING.
    due: bool,
    /// How many had been sent when a barrier ended last.
    barrier: u64,
    /// Why reads are not tracked.
    refusal: Option<String>,
}

/// What tells reports about a key apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadMark {
    /// How many PINGs had been sent when its newest copy was registered, read or committed, and when its last write ended.
    registered: u64,
    written: u64,
    /// From then on storage may drop it by itself.
    expires: Option<Time>,
    /// By RESP version: a read on that connection is tracked.
    tracked: [bool; 2],
    /// By RESP version: the number of the newest tracked read that was sent, and of the newest that was answered.
    asked: [u32; 2],
    came: [u32; 2],
    /// Reports that are still to come of the write whose value copies hold pending or have committed.
    echoes: u8,
}

/// A read for a copy whose next change storage reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrackedRead {
    lane: usize,
    number: u32,
}

impl ReadMark {
    /// Whether a report is one of a write of our own, which is under way or ended before a PING that is not answered yet.
    fn takes_echo(&mut self, under_way: bool, answered: u64) -> bool {
        let own = self.echoes > 0 && (under_way || answered <= self.written);
        self.echoes = self.echoes.saturating_sub(u8::from(own));
        own
    }

    /// Connections other than `own` on which storage certainly remembers a read of the key, or has reported its change.
    fn readers_beside(&self, own: usize) -> u8 {
        let reads =
            |lane: &usize| *lane != own && self.tracked[*lane] && self.asked[*lane] == self.came[*lane];
        (0..self.tracked.len()).filter(reads).count() as u8
    }

    /// The key expires so long after `read`; at the earliest, if clocks differ.
    fn expires_after(&mut self, read: Time, ttl_ms: Option<u64>) {
        let Some(ttl_ms) = ttl_ms else { return };
        let earliest_ms = (ttl_ms - ttl_ms / CLOCKS_DIFFER).saturating_sub(CLOCK_STEPS_MS);
        let earliest = read.after(Duration::from_millis(earliest_ms));
        self.expires = Some(self.expires.map_or(earliest, |known| known.min(earliest)));
    }
}

impl Shim {
    /// Why changes by others would not be noticed, if they would not.
    pub fn tracking_refusal(&self) -> Option<&str> {
        self.read_feed.refusal.as_deref()
    }

    /// Whether reads for copies are tracked.
    pub(super) fn tracks_reads(&self) -> bool {
        let able = matches!(&self.storage, StorageState::Up { traits } if traits.tracks_reads);
        able && self.config.bounded.is_none() && !self.observes()
    }

    /// Whether nothing stands against copies here: their changes are heard of, and others have not written of late.
    pub(super) fn is_alone(&self) -> bool {
        let hears = !self.tracks_reads() || self.read_feed.state == FeedPhase::Open;
        hears && !self.foreign_writers().refused
    }

    /// Whether it is being opened, or is to be asked for a sign of life. What storage refuses is asked for seldom.
    pub(super) fn is_read_feed_due(&self) -> bool {
        let feed = &self.read_feed;
        let opens = feed.state != FeedPhase::Open && feed.refusal.is_none();
        self.tracks_reads() && (opens || feed.due && !feed.asked)
    }

    pub(super) fn tick_read_feed(&mut self, step: &mut ShimStep<'_>) {
        if !self.tracks_reads() {
            return self.forget_foreign_writers(step.now);
        }
        let since = step.now.since(self.read_feed.sent);
        let feed = &mut self.read_feed;
        match feed.state {
            FeedPhase::Closed if since >= RETRY_INTERVAL => {
                feed.state = FeedPhase::Opening;
                self.ping_read_feed(step);
            }
            FeedPhase::Open if !feed.asked && (feed.due || since >= PING_INTERVAL) => {
                self.ping_read_feed(step);
            }
            _ => {}
        }
        self.examine(step);
    }

    fn ping_read_feed(&mut self, step: &mut ShimStep<'_>) {
        let feed = &mut self.read_feed;
        feed.sent = step.now;
        (feed.asked, feed.due) = (true, false);
        feed.pings += 1;
        let purpose = Purpose::ReadFeed { ping: feed.pings };
        self.store(step, purpose, Lane::ReadFeed, Reach::Whole, SmallVec::from_elem(PING, 1));
    }

    pub(super) fn read_feed_answered(&mut self, ping: u64, reply: &[u8]) {
        let feed = &mut self.read_feed;
        if ping != feed.pings || feed.state == FeedPhase::Closed {
            return;
        }
        feed.asked = false;
        // A server that is busy for long answers PING so: it proves nothing.
        if status_of(reply) != wire::Status::Error {
            feed.answered = ping;
            if std::mem::replace(&mut feed.state, FeedPhase::Open) == FeedPhase::Opening {
                self.examine_again();
            }
        } else if feed.state == FeedPhase::Opening {
            feed.state = FeedPhase::Closed;
        }
    }

    /// Nobody knows who changes what from here on: copies go, and nothing is granted until changes are reported again.
    pub(super) fn read_feed_down(&mut self, step: &mut ShimStep<'_>) {
        let was_open = self.read_feed.state == FeedPhase::Open;
        self.read_feed.state = FeedPhase::Closed;
        self.read_feed.asked = false;
        self.read_feed.sent = step.now;
        self.forget_reads();
        if was_open {
            self.statistics.read_feed_losses += 1;
            self.flush();
        }
    }

    /// Storage remembers no read of before.
    fn forget_reads(&mut self) {
        self.keys.values_mut().for_each(|state| state.mark.tracked = [false; 2]);
    }

    /// A copy is registered: the number of the read that it needs, if that is to be tracked.
    pub(super) fn track_read(&mut self, key: &Key, resp3: bool) -> Option<TrackedRead> {
        if !self.tracks_reads() {
            return None;
        }
        let Shim { keys, read_feed, .. } = self;
        let state = keys.get_mut(key)?;
        read_feed.due = true;
        read_feed.reads = read_feed.reads.wrapping_add(1);
        state.mark.registered = read_feed.pings;
        let lane = usize::from(resp3);
        (state.mark.tracked[lane], state.mark.asked[lane]) = (true, read_feed.reads);
        Some(TrackedRead { lane, number: read_feed.reads })
    }

    /// A tracked read has ended. It may itself have found that a value had expired, which is reported as well.
    pub(super) fn read_ended(&mut self, key: &Key, read: TrackedRead) {
        let Shim { keys, read_feed, .. } = self;
        if let Some(state) = keys.get_mut(key) {
            state.mark.came[read.lane] = read.number;
            (state.mark.registered, read_feed.due) = (read_feed.pings, true);
        }
    }

    /// Whether a read was tracked, by the answer to its announcement, and how long its key was to live when it was asked.
    pub(super) fn read_announced(
        &mut self,
        fetch: &mut FillTicket,
        announced: &[u8],
        asked: Time,
        ttl_ms: Option<u64>,
    ) {
        let failed = status_of(announced) == wire::Status::Error;
        if let Some(state) = self.keys.get_mut(&fetch.key) {
            state.mark.expires_after(asked, ttl_ms);
            if let Some(read) = fetch.tracked.filter(|_| failed) {
                state.mark.tracked[read.lane] = false;
            }
        }
        if failed && is_passing(announced) {
            // The next one will be: of a copy of this one nobody would hear.
            fetch.version = None;
        } else {
            self.read_feed.refusal = failed.then(|| String::from_utf8_lossy(announced).trim().to_owned());
        }
    }

    /// A write of our own goes to storage. Some: the key whose value is to be read back behind it and tracked, because copies
    /// hold it pending. Of others no copy is left that a report could be about.
    pub(super) fn write_tracked(&mut self, now: Time, id: u32) -> Option<Key> {
        if !self.tracks_reads() {
            return None;
        }
        let operation: &mut Operation = &mut self.operations[id as usize];
        let own = match operation.lane {
            Lane::Shared { resp3 } => Some(usize::from(resp3)),
            _ => None,
        };
        for (index, key) in operation.keys.iter().enumerate() {
            let Some(state) = self.keys.get_mut(key).filter(|_| operation.writes_key(index)) else {
                continue;
            };
            // An unconditional write changes its key, so that each of these reports it once.
            let reads_back = operation.early.is_some();
            state.mark.echoes = own.filter(|_| reads_back).map_or(0, |own| state.mark.readers_beside(own));
            state.mark.tracked = [false; 2];
            // What the last value said of its life says nothing of the next.
            state.mark.expires = None;
        }
        let (Some(early), Some(own), [key]) = (&operation.early, own, &operation.keys[..]) else {
            return None;
        };
        let state = self.keys.get_mut(key)?;
        if state.directory.entries.iter().all(|entry| entry.pending.is_none()) {
            return None;
        }
        state.mark.tracked[own] = true;
        state.mark.expires_after(now, early.ttl_ms);
        let key = key.clone();
        operation.reads_back = true;
        Some(key)
    }

    /// What storage has behind a write, whose value is committed only if it is that one: a change in between is reported to
    /// nobody.
    pub(super) fn read_back(&mut self, id: u32, replies: &[Bytes]) {
        let operation: &mut Operation = &mut self.operations[id as usize];
        let is_tracked = replies.iter().rev().nth(1).is_some_and(|announced| !is_passing(announced));
        operation.early.take_if(|early| !is_tracked || replies.last() != Some(&early.value));
    }

    /// A write has ended: what is reported from now on is not of it, once a PING that is sent now is answered.
    pub(super) fn write_ended(&mut self, operation: &Operation) {
        if !operation.kind.writes() {
            return;
        }
        let Shim { keys, read_feed, .. } = self;
        if operation.kind == OperationKind::Barrier {
            (read_feed.barrier, read_feed.due) = (read_feed.pings, true);
        }
        for key in &operation.keys {
            if let Some(state) = keys.get_mut(key) {
                // Entries of nodes without a lease are still there, and a read of before they came may still be tracked.
                (state.mark.registered, state.mark.written) = (read_feed.pings, read_feed.pings);
                read_feed.due |= state.mark.echoes > 0 || !state.directory.entries.is_empty();
            }
        }
    }

    /// A value that was pending is servable now.
    pub(super) fn copies_tracked(&mut self, key: &Key) {
        let Shim { keys, read_feed, .. } = self;
        if let Some(state) = keys.get_mut(key) {
            (state.mark.registered, read_feed.due) = (read_feed.pings, true);
        }
    }

    /// Storage reports keys that were read, or that all may have changed.
    pub(super) fn read_changed(&mut self, step: &mut ShimStep<'_>, push: &Bytes) {
        if self.read_feed.state == FeedPhase::Closed {
            return;
        }
        match changed_keys(push) {
            None => self.statistics.unexpected += 1,
            // A barrier of our own is reported, too: it has revoked every copy before.
            Some(None) => {
                let own = !self.barriers.is_empty() || self.read_feed.answered <= self.read_feed.barrier;
                if !own && self.keys.values().any(|state| !state.directory.entries.is_empty()) {
                    self.suspect(Bytes::from_static(ALL_KEYS));
                }
                self.forget_reads();
                self.flush();
                self.examine(step);
            }
            Some(Some(names)) => {
                for name in names {
                    let key = self.placement.key(0, name);
                    self.read_key_changed(step.now, key);
                }
                self.examine(step);
            }
        }
    }

    fn read_key_changed(&mut self, now: Time, key: Key) {
        let Shim { keys, operations, read_feed, .. } = self;
        let Some(state) = keys.get_mut(&key) else { return };
        state.mark.tracked = [false; 2];
        let writes = state.writes_sent > 0 || state.blocked > 0;
        if state.mark.takes_echo(writes, read_feed.answered) || !state.directory.has_copies() {
            return;
        }
        let is_late = read_feed.answered <= state.mark.registered;
        let is_read = state.mark.asked != state.mark.came;
        let has_expired = state.mark.expires.is_some_and(|expires| now >= expires);
        let invalidates = |id: &u32| {
            let operation: &Operation = &operations[*id as usize];
            let index = operation.keys.iter().position(|own| *own == key);
            let write = index.is_some_and(|index| operation.writes_key(index)) && operation.early.is_none();
            operation.kind.is_silent() || operation.phase == Phase::Invalidating && write
        };
        let is_invalidated = state.queue.iter().any(invalidates);
        if !(writes || is_late || is_read || has_expired || is_invalidated) {
            self.suspect(key.bytes.clone());
        }
        if !is_invalidated {
            self.admit_operation(blank(OperationKind::Purge, SmallVec::from_elem(key, 1)));
        }
    }
}
