//! Sessions and leases, the node's end and the shim's end. Which copies they cover is not kept here.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use wire::message::{Grant, Hello, Leave, Reject, Welcome};

use crate::time::Time;

/// The clocks' part of the bargain (design, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTerms {
    /// L: a dead node blocks a write at most this long.
    pub duration: Duration,
    /// Taken off by the node for pauses that a guest does not see; 1 % for clock rates comes on top.
    pub guard: Duration,
}

impl Default for LeaseTerms {
    fn default() -> LeaseTerms {
        LeaseTerms { duration: Duration::from_secs(1), guard: Duration::from_millis(10) }
    }
}

impl LeaseTerms {
    /// No shim may be configured for longer leases.
    pub const DURATION_MAX: Duration = Duration::from_secs(60);

    /// The answer to a HELLO, with these terms.
    pub fn welcome(&self, session: u64, nonce: u64) -> Welcome {
        let micros = |duration: Duration| duration.as_micros() as u64;
        Welcome { session, nonce, lease: micros(self.duration), guard: micros(self.guard) }
    }

    /// When a node's lease ends that was asked for at `sent` and granted for `duration`.
    pub fn node_end(&self, sent: Time, duration: Duration) -> Time {
        let usable = duration.mul_f64(0.99).saturating_sub(self.guard);
        sent.after(usable)
    }

    /// How long a shim without a past waits before its first write: the longest lease that any earlier
    /// incarnation can have granted, plus guard.
    pub fn restart_wait(&self) -> Duration {
        self.duration + self.duration / 100 + self.guard
    }

    /// Between renewals: three may be lost before the lease lapses.
    pub fn renew_interval(&self) -> Duration {
        self.duration / 4
    }
}

/// What storage has on record of earlier incarnations of a shim, which may have granted leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EarlierIncarnations {
    /// The leases of those on record end within this time, counted by whoever has fenced them.
    pub recorded: Duration,
    pub unrecorded: Unrecorded,
    /// What they have granted is of the data that storage has now.
    pub same_data: bool,
}

/// Incarnations that storage may have had and knows nothing of, those that say less first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unrecorded {
    /// There were none, or their leases are over.
    #[default]
    Nobody,
    /// All of them together have governed for no longer than this.
    Within(Duration),
    /// Nobody knows for how long they have governed.
    Unknown,
}

impl EarlierIncarnations {
    pub const NONE: EarlierIncarnations =
        EarlierIncarnations { recorded: Duration::ZERO, unrecorded: Unrecorded::Nobody, same_data: true };

    /// Nothing is on record, although there may have been some.
    pub fn unrecorded(unrecorded: Unrecorded) -> EarlierIncarnations {
        EarlierIncarnations { recorded: Duration::ZERO, unrecorded, same_data: false }
    }

    pub fn recorded(wait: Duration) -> EarlierIncarnations {
        EarlierIncarnations { recorded: wait, ..EarlierIncarnations::NONE }
    }
}

/// What holds for the leases of every shim, however it is configured: so that who finds no record of earlier ones knows
/// how long they may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseLimits {
    /// No configuration makes a successor wait longer.
    pub wait_max: Duration,
    /// The longest lease of a shim that has just begun, and of one before storage that keeps no record.
    pub short: Duration,
    /// A shim that has governed its storage for a time grants no lease that is longer than this part of it, or than a
    /// `short` one.
    pub growth: u32,
}

impl Default for LeaseLimits {
    fn default() -> LeaseLimits {
        // What a guard allows for, nodes have taken off their leases.
        let longest = LeaseTerms { duration: LeaseTerms::DURATION_MAX, guard: Duration::ZERO };
        LeaseLimits { wait_max: longest.restart_wait(), short: Duration::from_secs(1), growth: 60 }
    }
}

impl LeaseLimits {
    /// The longest lease of a shim that has governed for so long.
    pub fn lease_max(&self, governed: Duration) -> Duration {
        self.short.max(governed / self.growth)
    }

    /// How long leases of other incarnations may run. `absent`: for how long this process has not been seen to govern the
    /// same storage, if it ever was. Another one may have come since, but governs for no longer than that.
    pub fn wait(&self, earlier: EarlierIncarnations, absent: Option<Duration>) -> Duration {
        let governed = match earlier.unrecorded {
            Unrecorded::Nobody => return earlier.recorded,
            Unrecorded::Within(most) => Some(absent.map_or(most, |absent| absent.min(most))),
            Unrecorded::Unknown => absent,
        };
        let longest = |governed| LeaseTerms { duration: self.lease_max(governed), guard: Duration::ZERO };
        let unrecorded = governed.map_or(self.wait_max, |governed| longest(governed).restart_wait());
        earlier.recorded.max(unrecorded.min(self.wait_max))
    }
}

/// The node's end of its session with one shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeSession {
    /// Nothing is held. `number` is the last one used.
    Closed {
        number: u64,
    },
    Opening {
        number: u64,
        nonce: u64,
        sent: Time,
    },
    Open {
        number: u64,
        id: u64,
        /// As the shim has told them: what this node is configured for does not count.
        terms: LeaseTerms,
        lease_end: Option<Time>,
        leave: Option<StaleLeave>,
        renewed: Option<Time>,
    },
}

/// A shim's leave to serve beyond the lease what rules allow to be stale, because storage is gone: the node's end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StaleLeave {
    end: Time,
    /// It was asked for then, and changes had not been heard of for so long already, or for a moment less.
    sent: Time,
    unheard: Duration,
}

impl StaleLeave {
    /// Whether a copy may be served at `now` of which no change may be missed for longer than `stale_max`.
    pub fn covers(&self, now: Time, stale_max: Duration) -> bool {
        let left = stale_max.mul_f64(0.99).saturating_sub(self.unheard);
        now < self.end && now < self.sent.after(left)
    }
}

impl NodeSession {
    pub fn new() -> NodeSession {
        NodeSession::Closed { number: 0 }
    }

    fn number(&self) -> u64 {
        match *self {
            NodeSession::Closed { number }
            | NodeSession::Opening { number, .. }
            | NodeSession::Open { number, .. } => number,
        }
    }

    /// The open session's id.
    pub fn id(&self) -> Option<u64> {
        match *self {
            NodeSession::Open { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Says HELLO with the next number. The caller has dropped everything that it held before.
    pub fn hello(&mut self, now: Time, nonce: u64, process: u64) -> Hello {
        // A number that nothing exceeds is rejected for ever, which costs the copies and nothing else.
        let number = self.number().saturating_add(1);
        *self = NodeSession::Opening { number, nonce, sent: now };
        Hello { number, nonce, process }
    }

    /// Whether a HELLO has gone unanswered for too long.
    pub fn hello_overdue(&self, now: Time, terms: &LeaseTerms) -> bool {
        matches!(*self, NodeSession::Opening { sent, .. } if now.since(sent) >= terms.duration / 2)
    }

    /// True if the session is open now. Only the answer to the latest HELLO counts.
    pub fn welcome(&mut self, welcome: &Welcome) -> bool {
        match *self {
            NodeSession::Opening { number, nonce, .. } if nonce == welcome.nonce => {
                let terms = LeaseTerms {
                    duration: Duration::from_micros(welcome.lease),
                    guard: Duration::from_micros(welcome.guard),
                };
                *self = NodeSession::Open {
                    number,
                    id: welcome.session,
                    terms,
                    lease_end: None,
                    leave: None,
                    renewed: None,
                };
                true
            }
            _ => false,
        }
    }

    /// True if the number of the latest HELLO was too low: the next one's is higher than all that the shim knows.
    pub fn reject(&mut self, reject: &Reject) -> bool {
        match self {
            NodeSession::Opening { number, nonce, .. } if *nonce == reject.nonce => {
                *number = (*number).max(reject.last);
                true
            }
            _ => false,
        }
    }

    /// In what time `renew_due` is true, if nothing comes.
    pub fn renew_in(&self, now: Time) -> Duration {
        match *self {
            NodeSession::Open { renewed: Some(sent), terms, .. } => {
                terms.renew_interval().saturating_sub(now.since(sent))
            }
            NodeSession::Open { renewed: None, .. } | NodeSession::Opening { .. } => Duration::ZERO,
            NodeSession::Closed { .. } => Duration::MAX,
        }
    }

    pub fn is_opening(&self) -> bool {
        matches!(self, NodeSession::Opening { .. })
    }

    /// Whether it is time to send RENEW; notes that it was sent.
    pub fn renew_due(&mut self, now: Time) -> bool {
        match self {
            NodeSession::Open { renewed, terms, .. }
                if renewed.is_none_or(|sent| now.since(sent) >= terms.renew_interval()) =>
            {
                *renewed = Some(now);
                true
            }
            _ => false,
        }
    }

    /// Extends the lease, unless the grant came after the lease had lapsed.
    pub fn grant(&mut self, now: Time, grant: &Grant) {
        let lapsed = self.lapsed(now);
        let NodeSession::Open { id, terms, lease_end, leave, .. } = self else { return };
        if *id != grant.session || grant.sent > now.0 || lapsed {
            return;
        }
        let duration = Duration::from_micros(grant.duration);
        // Leases grow with the age of the shim's incarnation.
        terms.duration = terms.duration.max(duration);
        let guard = Duration::from_micros(grant.guard);
        let (sent, told) = (Time(grant.sent), LeaseTerms { guard, ..*terms });
        let end = told.node_end(sent, duration);
        if end > now {
            *lease_end = Some(lease_end.map_or(end, |held| held.max(end)));
        }
        // A later GRANT says whether there is leave still; one that was overtaken says nothing.
        if leave.is_none_or(|held| held.sent <= sent) {
            let granted = |leave: Leave| StaleLeave {
                end: told.node_end(sent, Duration::from_micros(leave.duration)),
                sent,
                unheard: Duration::from_micros(leave.unheard),
            };
            *leave = grant.leave.map(granted);
        }
    }

    /// Whether hits may be answered at `now`.
    pub fn holds(&self, now: Time) -> bool {
        matches!(*self, NodeSession::Open { lease_end: Some(end), .. } if now < end)
    }

    /// The leave to serve what may be stale, if the shim has given one.
    pub fn leave(&self) -> Option<StaleLeave> {
        match *self {
            NodeSession::Open { leave, .. } => leave,
            _ => None,
        }
    }

    /// Whether a lease was held and has run out, and no leave goes on: everything must be dropped and the session closed.
    pub fn lapsed(&self, now: Time) -> bool {
        match *self {
            NodeSession::Open { lease_end: Some(end), leave, .. } => {
                now >= leave.map_or(end, |leave| end.max(leave.end))
            }
            _ => false,
        }
    }

    pub fn remaining(&self, now: Time) -> Duration {
        match *self {
            NodeSession::Open { lease_end: Some(end), .. } => end.since(now),
            _ => Duration::ZERO,
        }
    }

    pub fn close(&mut self) {
        *self = NodeSession::Closed { number: self.number() };
    }

    /// What decides its future, with times relative to `now`: two lapsed leases are alike.
    pub fn fingerprint(&self, now: Time, terms: &LeaseTerms, state: &mut impl Hasher) {
        match *self {
            NodeSession::Closed { number } => (0, number).hash(state),
            NodeSession::Opening { number, nonce, .. } => {
                (1, number, nonce, self.hello_overdue(now, terms)).hash(state);
            }
            NodeSession::Open { number, id, terms, lease_end, leave, .. } => {
                let leave = leave.map(|leave| (leave.end.since(now), now.since(leave.sent), leave.unheard));
                (2, number, id, terms, lease_end.map(|end| end.since(now)), leave).hash(state);
            }
        }
    }
}

impl Default for NodeSession {
    fn default() -> Self {
        NodeSession::new()
    }
}

/// The shim's end of its session with one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShimSession {
    /// Highest HELLO number seen in this incarnation.
    number: u64,
    open: Option<OpenSession>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenSession {
    id: u64,
    process: u64,
    /// End of the longest lease granted in it.
    end: Time,
}

/// What a shim says to a HELLO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelloAnswer {
    Open,
    Reject(Reject),
    /// Nothing: another process has a lease.
    Silence,
}

/// What bounds a lease besides its terms.
#[derive(Clone, Copy, Debug)]
pub struct LeaseBounds {
    /// When the oldest message to the node was sent that it has not acknowledged.
    pub invalidate_oldest: Option<Time>,
    /// When storage was seen to obey this shim last.
    pub storage_proof: Time,
    pub duration_max: Duration,
    /// For how long what may be stale may be served, as far as storage is concerned.
    pub leave_max: Duration,
}

/// For how long copies may be served, and those that may be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    pub lease: Duration,
    pub leave: Duration,
}

impl ShimSession {
    /// A number already seen is rejected: the message is late. Of another process than the open session's it says nothing of
    /// what that one holds, which may live on: it waits until the lease is over.
    pub fn hello(&mut self, now: Time, hello: &Hello) -> HelloAnswer {
        if hello.number <= self.number {
            return HelloAnswer::Reject(Reject { last: self.number, nonce: hello.nonce });
        }
        if self.open.is_some_and(|open| open.process != hello.process && now < open.end) {
            return HelloAnswer::Silence;
        }
        self.number = hello.number;
        HelloAnswer::Open
    }

    /// Opens a session of the process whose HELLO was taken: what it held before is gone.
    pub fn open(&mut self, now: Time, id: u64, process: u64, terms: &LeaseTerms) {
        self.open = Some(OpenSession { id, process, end: now.after(terms.duration) });
    }

    /// The open session's id. An open session may have lapsed a moment ago: see `lapsed`.
    pub fn id(&self) -> Option<u64> {
        self.open.map(|open| open.id)
    }

    /// Whether `session` is open and its lease runs.
    pub fn is_live(&self, now: Time, session: u64) -> bool {
        self.open.is_some_and(|open| open.id == session && now < open.end)
    }

    /// The lease may be gone from the node's hands by now: writes need not wait for it any longer.
    pub fn lapsed(&self, now: Time) -> bool {
        self.open.is_some_and(|open| now >= open.end)
    }

    /// How long the lease may be extended, or `None` to refuse. A node that renews for ever but leaves an
    /// INV unacknowledged cannot hold a write longer than L; a shim cut off from its storage stops granting.
    pub fn renew(
        &mut self,
        now: Time,
        session: u64,
        bounds: LeaseBounds,
        terms: &LeaseTerms,
    ) -> Option<Renewed> {
        let LeaseBounds { invalidate_oldest, storage_proof, duration_max, leave_max } = bounds;
        let open = self.open.as_mut().filter(|open| open.id == session && now < open.end)?;
        let unacknowledged = invalidate_oldest.map_or(Duration::ZERO, |sent| now.since(sent));
        let acknowledged = terms.duration.saturating_sub(unacknowledged);
        let proven = terms.duration.saturating_sub(now.since(storage_proof));
        let renewed =
            Renewed { lease: acknowledged.min(proven).min(duration_max), leave: acknowledged.min(leave_max) };
        open.end = open.end.max(now.after(renewed.lease.max(renewed.leave)));
        Some(renewed)
    }

    pub fn close(&mut self) {
        self.open = None;
    }

    /// When the lease of the open session ends, as far as granted.
    pub fn end(&self) -> Option<Time> {
        self.open.map(|open| open.end)
    }

    /// What decides its future, with times relative to `now`: two lapsed leases are alike.
    pub fn fingerprint(&self, now: Time, state: &mut impl Hasher) {
        let open = self.open.map(|open| (open.id, open.process, open.end.since(now)));
        (self.number, open).hash(state);
    }
}

#[cfg(test)]
mod tests;
