//! How an operation went: when it was sent, whom it met, how long each took. Kept with it, read only if it is shown.

use bytes::Bytes;
use wire::Peer;
use wire::resp::Command;

use crate::router::flow::pending::Pending;
use crate::time::Time;
use commands::{Classified, CommandKind, CommandSpec};

/// Requests of one command that have a span each: an MGET of thousands of keys would drown the rest.
const REQUESTS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// The command of an operation that others have a part in.
    pub(crate) spec: Option<&'static CommandSpec>,
    /// Moved here from the command, whose keys hold the same buffer anyway. Empty while the command waits.
    pub(crate) frame: Bytes,
    pub(crate) launched: Time,
    /// Zero if nobody was asked.
    pub(crate) answered: Time,
    /// Who answered, if nobody else was asked at the same time.
    pub(crate) last: Option<RequestHeard>,
    /// Only of one that asked several, or is in the sample that is traced: most have none, and are moved about.
    more: Option<Box<More>>,
    /// It may take as long as its client wants.
    pub(crate) blocks: bool,
}

#[derive(Debug, Default)]
struct More {
    /// Times of all the others that were asked.
    others: RequestTally,
    retries: u16,
    followed: Option<Followed>,
}

/// What the members have done for an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestTally {
    /// At nodes and at shims, what those asked of others included. Of several at once the longest; of one after the other
    /// the sum.
    pub(crate) node_us: u32,
    pub(crate) shim_us: u32,
    /// Cacheable reads that were answered, and those of them that a copy has answered.
    pub(crate) reads: u16,
    pub(crate) hits: u16,
}

/// A request of it that has ended, in few words: the whole one would be copied for this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHeard {
    pub(crate) peer: Peer,
    /// Zero for what is sent but once, with its operation.
    pub(crate) sent: Time,
    /// It is a cacheable read.
    pub(crate) read: bool,
    pub(crate) hit: bool,
}

impl RequestHeard {
    pub(crate) fn of(pending: &Pending, hit: bool) -> RequestHeard {
        RequestHeard { peer: pending.peer, sent: pending.sent, read: pending.read.is_some(), hit }
    }
}

impl Ran {
    pub(crate) fn new(now: Time, classified: &Classified) -> Ran {
        let blocks = matches!(
            classified.kind,
            CommandKind::BlockingWrite | CommandKind::BlockingQuery | CommandKind::Subscription
        );
        Ran { spec: Some(classified.spec), blocks, launched: now, ..Ran::default() }
    }

    /// It was sent, maybe after it had to wait.
    pub(crate) fn launched(&mut self, now: Time, command: Command) {
        (self.launched, self.frame) = (now, command.into_frame());
    }

    /// A request of it has ended with an answer. `alone`: no other ran beside it.
    #[inline]
    pub(crate) fn heard(&mut self, now: Time, heard: RequestHeard, alone: bool) {
        self.answered = now;
        if self.more.is_some() {
            self.trace(now, heard, false);
        }
        match alone {
            true => self.last = Some(heard),
            false => {
                let us = self.us(now, heard);
                self.more.get_or_insert_default().others.add(heard, us, false);
            }
        }
    }

    /// A request of it has ended without; it is sent again.
    pub(crate) fn retried(&mut self, now: Time, heard: RequestHeard, alone: bool) {
        self.trace(now, heard, true);
        let us = self.us(now, heard);
        let more = self.more.get_or_insert_default();
        more.others.add(RequestHeard { read: false, ..heard }, us, alone);
        more.retries = more.retries.saturating_add(1);
    }

    #[cold]
    fn trace(&mut self, now: Time, heard: RequestHeard, retried: bool) {
        let sent = self.sent(heard);
        if let Some(followed) = self.more.as_mut().and_then(|more| more.followed.as_mut()) {
            followed.heard(sent, now, heard, retried);
        }
    }

    pub(crate) fn follow(&mut self, followed: Followed) {
        self.more.get_or_insert_default().followed = Some(followed);
    }

    #[inline]
    pub(crate) fn followed(&self) -> Option<&Followed> {
        self.more.as_ref()?.followed.as_ref()
    }

    pub(crate) fn retries(&self) -> u16 {
        self.more.as_ref().map_or(0, |more| more.retries)
    }

    /// What is sent but once is sent with the operation.
    fn sent(&self, heard: RequestHeard) -> Time {
        if heard.sent == Time(0) { self.launched } else { heard.sent }
    }

    fn us(&self, now: Time, heard: RequestHeard) -> u32 {
        u32::try_from(now.0.saturating_sub(self.sent(heard).0)).unwrap_or(u32::MAX)
    }

    pub(crate) fn tally(&self) -> RequestTally {
        let mut tally = self.more.as_ref().map_or(RequestTally::default(), |more| more.others);
        if let Some(last) = self.last {
            tally.add(last, self.us(self.answered, last), true);
        }
        tally
    }

    /// What neither nodes nor shims took of the time since it was sent.
    pub(crate) fn router_us(&self) -> u32 {
        let RequestTally { node_us, shim_us, .. } = self.tally();
        let others = if self.last.is_some() { node_us.saturating_add(shim_us) } else { node_us.max(shim_us) };
        let took = u32::try_from(self.answered.0.saturating_sub(self.launched.0)).unwrap_or(u32::MAX);
        took.saturating_sub(others)
    }
}

impl RequestTally {
    fn add(&mut self, heard: RequestHeard, us: u32, alone: bool) {
        let spent = if matches!(heard.peer, Peer::Node(_)) { &mut self.node_us } else { &mut self.shim_us };
        *spent = if alone { spent.saturating_add(us) } else { us.max(*spent) };
        self.reads = self.reads.saturating_add(u16::from(heard.read));
        self.hits = self.hits.saturating_add(u16::from(heard.hit));
    }
}

/// One request of a command, to a node or a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSpan {
    pub peer: Peer,
    pub sent: Time,
    pub ended: Time,
    /// `None` for what copies never answer, and if there was no answer.
    pub hit: Option<bool>,
    /// Whether who was asked was busy or vanished, and somebody else was asked.
    pub retried: bool,
}

/// What is kept of an operation that is in the sample.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) name: String,
    pub(crate) requests: Vec<RequestSpan>,
    pub(crate) left_out: u32,
}

impl Followed {
    pub(crate) fn heard(&mut self, sent: Time, ended: Time, heard: RequestHeard, retried: bool) {
        if self.requests.len() == REQUESTS_MAX {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let hit = (heard.read && !retried).then_some(heard.hit);
        self.requests.push(RequestSpan { peer: heard.peer, sent, ended, hit, retried });
    }
}
