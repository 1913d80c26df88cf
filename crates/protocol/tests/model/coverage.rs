//! What has happened anywhere in an exploration, so that one in which nothing happens fails. Not a property of states.

use std::sync::atomic::{AtomicU32, Ordering};

use protocol::node::NodeStatistics;
use protocol::shim::ShimStatistics;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Hit,
    Joined,
    Poisoned,
    EarlyCommit,
    Evicted,
    LeaseLost,
    LeaseLapsed,
    Repeated,
    Revoked,
    Ungranted,
    CommandLost,
    LateWrite,
    WriteHeld,
    ReadHeld,
    SessionRefused,
    NumberRejected,
    ReplacedShimGranted,
    CopyServable,
    WriteWaits,
    Expired,
    Raised,
    FurtherServable,
    ToldToLeave,
    Held,
    HandedOver,
    /// The shim to which the key has gone writes it.
    NextWrites,
    Divided,
}

impl Event {
    const ALL: [Event; 27] = [
        Event::Hit,
        Event::Joined,
        Event::Poisoned,
        Event::EarlyCommit,
        Event::Evicted,
        Event::LeaseLost,
        Event::LeaseLapsed,
        Event::Repeated,
        Event::Revoked,
        Event::Ungranted,
        Event::CommandLost,
        Event::LateWrite,
        Event::WriteHeld,
        Event::ReadHeld,
        Event::SessionRefused,
        Event::NumberRejected,
        Event::ReplacedShimGranted,
        Event::CopyServable,
        Event::WriteWaits,
        Event::Expired,
        Event::Raised,
        Event::FurtherServable,
        Event::ToldToLeave,
        Event::Held,
        Event::HandedOver,
        Event::NextWrites,
        Event::Divided,
    ];
}

/// Which of up to 32 events have happened, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    events: AtomicU32,
}

impl Seen {
    pub(crate) fn note(&self, event: u32) {
        let bit = 1 << event;
        // Read first: all threads share this word, and nearly always the bit is set.
        if self.events.load(Ordering::Relaxed) & bit == 0 {
            self.events.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn has(&self, event: u32) -> bool {
        self.events.load(Ordering::Relaxed) & (1 << event) != 0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Coverage {
    seen: Seen,
}

impl Coverage {
    pub(crate) fn note(&self, event: Event) {
        self.seen.note(event as u32);
    }

    fn note_if(&self, happened: bool, event: Event) {
        if happened {
            self.note(event);
        }
    }

    pub(crate) fn has(&self, event: Event) -> bool {
        self.seen.has(event as u32)
    }

    pub(crate) fn seen(&self) -> Vec<Event> {
        Event::ALL.into_iter().filter(|event| self.has(*event)).collect()
    }

    pub(crate) fn node(&self, before: &NodeStatistics, after: &NodeStatistics) {
        self.note_if(after.hits > before.hits, Event::Hit);
        self.note_if(after.reads_joined > before.reads_joined, Event::Joined);
        self.note_if(after.reads_held > before.reads_held, Event::Held);
        self.note_if(after.fills_poisoned > before.fills_poisoned, Event::Poisoned);
        self.note_if(after.commits > before.commits, Event::EarlyCommit);
        self.note_if(after.leases_lost > before.leases_lost, Event::LeaseLost);
    }

    pub(crate) fn shim(&self, before: &ShimStatistics, after: &ShimStatistics) {
        self.note_if(after.leases_lost > before.leases_lost, Event::LeaseLapsed);
        self.note_if(after.repeats > before.repeats, Event::Repeated);
        self.note_if(after.revokes > before.revokes, Event::Revoked);
        self.note_if(after.fills_ungranted > before.fills_ungranted, Event::Ungranted);
        self.note_if(after.expired > before.expired, Event::Expired);
        self.note_if(after.raises > before.raises, Event::Raised);
        self.note_if(after.storage_errors > before.storage_errors, Event::CommandLost);
    }
}
