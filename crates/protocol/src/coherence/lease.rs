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
mod tests {
    use super::{
        EarlierIncarnations, HelloAnswer, LeaseBounds, LeaseLimits, LeaseTerms, NodeSession, Renewed,
        ShimSession, Unrecorded,
    };
    use crate::time::Time;
    use std::time::Duration;
    use wire::message::{Grant, Hello, Leave, Reject, Welcome};

    const TERMS: LeaseTerms =
        LeaseTerms { duration: Duration::from_secs(1), guard: Duration::from_millis(10) };

    const L: Duration = TERMS.duration;
    const PROCESS: u64 = 5;

    /// A process says HELLO without knowing what another one of the same id holds.
    #[test]
    fn another_process_waits_until_the_lease_is_over() {
        let (_, mut shim) = open(1);
        let end = shim.end().expect("it is open");
        let hello = |number, process| Hello { number, nonce: 3, process };
        let rejected = HelloAnswer::Reject(Reject { last: 1, nonce: 3 });
        assert_eq!(shim.hello(Time(0), &hello(1, 6)), rejected);
        assert_eq!(shim.hello(Time(end.0 - 1), &hello(2, 6)), HelloAnswer::Silence);
        assert_eq!(shim.clone().hello(end, &hello(2, 6)), HelloAnswer::Open);
        assert_eq!(shim.hello(Time(0), &hello(2, PROCESS)), HelloAnswer::Open, "it has dropped what it held");
        shim.close();
        assert_eq!(shim.hello(Time(0), &hello(3, 6)), HelloAnswer::Open);
    }

    fn open(number: u64) -> (NodeSession, ShimSession) {
        let (mut node, mut shim) = (NodeSession::new(), ShimSession::default());
        let hello = node.hello(Time(0), 7, PROCESS);
        assert_eq!(hello, Hello { number, nonce: 7, process: PROCESS });
        assert_eq!(shim.hello(Time(0), &hello), HelloAnswer::Open);
        assert!(node.welcome(&welcome(99, 7)));
        shim.open(Time(0), 99, PROCESS, &TERMS);
        (node, shim)
    }

    fn bounds(invalidate_oldest: Option<Time>, storage_proof: Time) -> LeaseBounds {
        LeaseBounds { invalidate_oldest, storage_proof, duration_max: L, leave_max: Duration::ZERO }
    }

    fn grant(session: u64, sent: u64, duration: Duration) -> Grant {
        Grant { session, sent, duration: micros(duration), guard: micros(TERMS.guard), leave: None }
    }

    fn welcome(session: u64, nonce: u64) -> Welcome {
        Welcome { session, nonce, lease: micros(TERMS.duration), guard: micros(TERMS.guard) }
    }

    fn micros(duration: Duration) -> u64 {
        duration.as_micros() as u64
    }

    /// Real time runs as `ticks`; the two clocks differ by up to 1 % in rate, and messages take up to 200 ms.
    #[test]
    fn the_node_stops_before_the_shim_thinks_so_at_any_clock_rate() {
        for (node_rate, shim_rate) in [(100u64, 100u64), (99, 100), (100, 101), (101, 100), (100, 99)] {
            let (mut node, mut shim) = open(1);
            let clock = |real_us: u64, rate: u64| Time(real_us * rate / 100);
            let mut random = 12_345u64;
            let mut real_us = 0;
            let mut grants = 0;
            for _ in 0..200 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let sent = clock(real_us, node_rate);
                real_us += random % 100_000;
                if let Some(Renewed { lease: duration, .. }) =
                    shim.renew(clock(real_us, shim_rate), 99, bounds(None, clock(real_us, shim_rate)), &TERMS)
                {
                    real_us += random % 90_000;
                    node.grant(clock(real_us, node_rate), &grant(99, sent.0, duration));
                    grants += 1;
                }
                real_us += random % 400_000;
                for ahead_us in (0..2_000_000).step_by(1_000) {
                    let at = real_us + ahead_us;
                    if node.holds(clock(at, node_rate)) {
                        assert!(!shim.lapsed(clock(at, shim_rate)), "rates {node_rate}:{shim_rate}, {at} us");
                    }
                }
            }
            assert!(grants > 100, "the lease must have been renewed for this to say anything");
        }
    }

    #[test]
    fn an_unacknowledged_inv_bounds_the_lease_however_often_it_is_renewed() {
        let (_, mut shim) = open(1);
        let invalidate = Time(400_000);
        let mut now = Time(0);
        while !shim.lapsed(now) {
            let oldest = (now >= invalidate).then_some(invalidate);
            shim.renew(now, 99, bounds(oldest, now), &TERMS);
            now = now.after(Duration::from_millis(10));
        }
        assert!(now <= invalidate.after(TERMS.duration + Duration::from_millis(10)), "{now:?}");
    }

    #[test]
    fn without_storage_proof_nothing_is_granted_beyond_a_lease_after_the_last_one() {
        let (_, mut shim) = open(1);
        let proof = Time(300_000);
        let renewed = |ms| Some(Renewed { lease: Duration::from_millis(ms), leave: Duration::ZERO });
        assert_eq!(shim.renew(Time(800_000), 99, bounds(None, proof), &TERMS), renewed(500));
        assert_eq!(shim.renew(Time(1_290_000), 99, bounds(None, proof), &TERMS), renewed(10));
        assert!(shim.lapsed(Time(1_300_000)));
        assert_eq!(shim.renew(Time(1_300_000), 99, bounds(None, proof), &TERMS), None);
    }

    #[test]
    fn a_grant_after_the_lapse_and_one_for_another_session_are_ignored() {
        let (mut node, _) = open(1);
        node.grant(Time(10), &grant(98, 0, TERMS.duration));
        assert!(!node.holds(Time(10)));
        node.grant(Time(10), &grant(99, 0, TERMS.duration));
        assert!(node.holds(Time(979_999)));
        assert!(node.lapsed(Time(980_000)), "1 s less 1 % less 10 ms");
        node.grant(Time(980_000), &grant(99, 970_000, TERMS.duration));
        assert!(node.lapsed(Time(980_000)));
    }

    /// Leave goes on where the lease ends, for as long as rules allow, and not a moment longer on either side.
    #[test]
    fn leave_outlives_the_lease_and_is_bounded_like_it() {
        let (mut node, mut shim) = open(1);
        node.grant(Time(0), &grant(99, 0, L));
        let silent = LeaseBounds { leave_max: L, duration_max: Duration::ZERO, ..bounds(None, Time(0)) };
        let renewed = shim.renew(Time(900_000), 99, silent, &TERMS);
        assert_eq!(renewed, Some(Renewed { lease: Duration::ZERO, leave: L }));
        assert_eq!(shim.end(), Some(Time(1_900_000)));
        let leave = Leave { duration: micros(L), unheard: 700_000 };
        node.grant(Time(950_000), &Grant { leave: Some(leave), ..grant(99, 900_000, Duration::ZERO) });
        assert!(node.holds(Time(979_999)) && !node.holds(Time(980_000)), "the lease is what it was");
        let given = node.leave().expect("it was given");
        let stale_max = Duration::from_secs(30);
        assert!(given.covers(Time(1_879_999), stale_max) && !given.covers(Time(1_880_000), stale_max));
        // Of the second that a rule allows 700 ms were over when it was asked for.
        assert!(given.covers(Time(1_189_999), L) && !given.covers(Time(1_190_000), L));
        assert!(!given.covers(Time(900_000), Duration::from_millis(700)));
        assert!(!node.lapsed(Time(1_879_999)) && node.lapsed(Time(1_880_000)));
        // Who owes an answer gets less of it.
        let owing = LeaseBounds { invalidate_oldest: Some(Time(1_400_000)), ..silent };
        let renewed = shim.renew(Time(1_800_000), 99, owing, &TERMS).expect("it is live");
        assert_eq!(renewed.leave, Duration::from_millis(600));
        // A GRANT without it ends it, one that was sent before it does not.
        node.grant(Time(1_000_000), &grant(99, 800_000, Duration::ZERO));
        assert_eq!(node.leave(), Some(given));
        node.grant(Time(1_000_000), &grant(99, 950_000, L));
        assert!(node.leave().is_none() && node.holds(Time(1_929_999)));
    }

    /// A successor waits for whatever may be granted before it, whoever has granted it.
    #[test]
    fn no_lease_outlives_the_wait_of_any_successor() {
        let limits = LeaseLimits::default();
        let ms = Duration::from_millis;
        let check = |earlier, absent: Option<u64>, expected: u64| {
            assert_eq!(limits.wait(earlier, absent.map(ms)), ms(expected));
        };
        let after = |wait, unrecorded| EarlierIncarnations {
            recorded: ms(wait),
            ..EarlierIncarnations::unrecorded(unrecorded)
        };
        let unrecorded = |wait| after(wait, Unrecorded::Unknown);
        let within = |governed| after(203, Unrecorded::Within(ms(governed)));
        check(EarlierIncarnations::NONE, None, 0);
        check(EarlierIncarnations::recorded(ms(5051)), None, 5051);
        check(unrecorded(0), None, 60_600);
        // It was there until a moment ago: no other can have granted more than a short one since.
        check(unrecorded(0), Some(300), 1010);
        check(unrecorded(7000), Some(300), 7000);
        // Somebody else may have governed for ten minutes, or for longer; but no lease is longer than one.
        check(unrecorded(0), Some(600_000), 10_100);
        check(unrecorded(0), Some(36_000_000), 60_600);
        // The record is so old.
        check(within(0), None, 1010);
        check(within(600_000), None, 10_100);
        check(within(600_000), Some(120_000), 2020);
        check(within(600_000), Some(36_000_000), 10_100);
        check(after(7000, Unrecorded::Within(ms(60_000))), None, 7000);
        for governed in [0, 1, 59_999, 60_000, 90_000, 3_599_999, 3_600_000, 1 << 40] {
            let lease = limits.lease_max(ms(governed)).min(LeaseTerms::DURATION_MAX);
            let wait = limits.wait(unrecorded(0), Some(ms(governed + 1)));
            assert!(wait >= lease + lease / 100, "{governed}: {lease:?}, {wait:?}");
        }
    }

    #[test]
    fn terms_hold_as_the_shim_has_told_them() {
        let mut node = NodeSession::new();
        node.hello(Time(0), 7, PROCESS);
        let told = Welcome { session: 99, nonce: 7, lease: 40_000, guard: 5_000 };
        assert!(node.welcome(&told));
        assert!(node.renew_due(Time(0)) && !node.renew_due(Time(9_999)) && node.renew_due(Time(10_000)));
        node.grant(Time(10), &Grant { session: 99, sent: 0, duration: 40_000, guard: 5_000, leave: None });
        assert!(node.holds(Time(34_599)) && !node.holds(Time(34_600)), "40 ms less 1 % less 5 ms");
        // The shim has governed for longer, so its leases have grown, and need not be renewed as often.
        node.grant(
            Time(20_000),
            &Grant { session: 99, sent: 10_000, duration: 80_000, guard: 5_000, leave: None },
        );
        assert!(node.holds(Time(84_199)) && !node.holds(Time(84_200)), "80 ms less 1 % less 5 ms");
        assert!(!node.renew_due(Time(29_999)) && node.renew_due(Time(30_000)));
    }

    #[test]
    fn only_the_answer_to_the_latest_hello_opens_a_session() {
        let mut node = NodeSession::new();
        node.hello(Time(0), 1, PROCESS);
        node.hello(Time(5), 2, PROCESS);
        assert!(!node.welcome(&welcome(50, 1)));
        assert!(node.welcome(&welcome(51, 2)));
        assert!(!node.welcome(&welcome(52, 2)));
        assert_eq!(node.id(), Some(51));
    }
}
