//! How an operation went: when it was sent, whom it met, how long each took. Kept with it, read only if it is shown.

use bytes::Bytes;
use wire::Peer;
use wire::resp::Command;

use crate::command::{Classified, Kind, Spec};
use crate::router::pending::Pending;
use crate::time::Time;

#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Of an operation that others have a part in.
    pub(crate) spec: Option<&'static Spec>,
    /// Moved here from the command, whose keys hold the same buffer anyway. Empty while the command waits.
    pub(crate) frame: Bytes,
    pub(crate) launched: Time,
    /// Zero if nobody was asked.
    pub(crate) answered: Time,
    /// Who answered, if nobody else was asked at the same time.
    pub(crate) last: Option<Heard>,
    /// Of all the others that were asked.
    others: Tally,
    pub(crate) retries: u16,
    /// It may take as long as its client wants.
    pub(crate) blocks: bool,
}

/// What the members have done for an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
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
pub(crate) struct Heard {
    pub(crate) peer: Peer,
    /// Zero for what is sent but once, with its operation.
    pub(crate) sent: Time,
    /// It is a cacheable read.
    pub(crate) read: bool,
    pub(crate) hit: bool,
}

impl Heard {
    pub(crate) fn of(pending: &Pending, hit: bool) -> Heard {
        Heard { peer: pending.peer, sent: pending.sent, read: pending.read.is_some(), hit }
    }
}

impl Ran {
    pub(crate) fn new(now: Time, classified: &Classified) -> Ran {
        let blocks =
            matches!(classified.kind, Kind::BlockingWrite | Kind::BlockingQuery | Kind::Subscription);
        Ran { spec: Some(classified.spec), blocks, launched: now, ..Ran::default() }
    }

    /// It was sent, maybe after it had to wait.
    pub(crate) fn launched(&mut self, now: Time, command: Command) {
        (self.launched, self.frame) = (now, command.into_frame());
    }

    /// A request of it has ended with an answer. `alone`: no other ran beside it.
    #[inline]
    pub(crate) fn heard(&mut self, now: Time, heard: Heard, alone: bool) {
        self.answered = now;
        match alone {
            true => self.last = Some(heard),
            false => self.others.add(heard, self.us(now, heard), false),
        }
    }

    /// A request of it has ended without; it is sent again.
    pub(crate) fn retried(&mut self, now: Time, heard: Heard, alone: bool) {
        let heard = Heard { read: false, ..heard };
        self.others.add(heard, self.us(now, heard), alone);
        self.retries = self.retries.saturating_add(1);
    }

    /// How long that took, for what is sent but once since the operation was.
    fn us(&self, now: Time, heard: Heard) -> u32 {
        let sent = if heard.sent == Time(0) { self.launched } else { heard.sent };
        u32::try_from(now.0.saturating_sub(sent.0)).unwrap_or(u32::MAX)
    }

    pub(crate) fn tally(&self) -> Tally {
        let mut tally = self.others;
        if let Some(last) = self.last {
            tally.add(last, self.us(self.answered, last), true);
        }
        tally
    }

    /// What neither nodes nor shims took of the time since it was sent.
    pub(crate) fn router_us(&self) -> u32 {
        let Tally { node_us, shim_us, .. } = self.tally();
        let others = if self.last.is_some() { node_us.saturating_add(shim_us) } else { node_us.max(shim_us) };
        let took = u32::try_from(self.answered.0.saturating_sub(self.launched.0)).unwrap_or(u32::MAX);
        took.saturating_sub(others)
    }
}

impl Tally {
    fn add(&mut self, heard: Heard, us: u32, alone: bool) {
        let spent = if matches!(heard.peer, Peer::Node(_)) { &mut self.node_us } else { &mut self.shim_us };
        *spent = if alone { spent.saturating_add(us) } else { us.max(*spent) };
        self.reads = self.reads.saturating_add(u16::from(heard.read));
        self.hits = self.hits.saturating_add(u16::from(heard.hit));
    }
}
