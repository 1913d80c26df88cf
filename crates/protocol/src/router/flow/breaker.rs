//! Whether a node is worth asking: one that does not answer, or only says that it is busy, is left alone for a while.
//! Not whether it is linked, nor how busy it is.
//!
//! ```text
//!           silent for too long, or refuses for too long             pause over: one read may try
//!   Closed ----------------------------------------------> Open --------------------------------> Probing
//!     ^                                                     ^  (a late reply ends the pause)          |
//!     |                                                     +------- refused, silent or lost ---------+
//!     +------------------------------------------------------------- answered ------------------------+
//! ```

use std::time::Duration;

use crate::time::Time;

/// Silence, while reads are unanswered, that is taken for a node that hangs: this many times what it usually takes,
const PATIENCE_FACTOR: u32 = 8;
/// at least this, because a busy machine may keep a thread from running for tens of milliseconds,
const PATIENCE_MIN: Duration = Duration::from_millis(100);
/// and at most this, because clients wait.
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// A node over its rate refuses most reads and answers the others. Only one that has answered nothing for as many
/// reads and as long is left alone.
const REFUSALS_MIN: u32 = 32;
const REFUSING_MIN: Duration = Duration::from_millis(200);
/// The first pause; doubled up to the last one, which a node that is back has to wait for at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerState {
    Closed,
    Open { until: Time },
    Probing,
}

/// What a router knows of one node's answers.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    state: BreakerState,
    pause: Duration,
    outstanding: u32,
    /// The last answer of any kind, or when the first of those outstanding was sent.
    silent_since: Time,
    /// Moving average.
    usual: Duration,
    refusals: u32,
    refusing_since: Time,
}

impl Breaker {
    pub(crate) fn new() -> Breaker {
        Breaker {
            state: BreakerState::Closed,
            pause: PAUSE_MIN,
            outstanding: 0,
            silent_since: Time(0),
            usual: Duration::ZERO,
            refusals: 0,
            refusing_since: Time(0),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state != BreakerState::Closed
    }

    /// Whether a read may be sent now.
    pub(crate) fn admits(&self, now: Time) -> bool {
        match self.state {
            BreakerState::Closed => true,
            BreakerState::Open { until } => now >= until,
            BreakerState::Probing => false,
        }
    }

    pub(crate) fn sent(&mut self, now: Time) {
        if self.outstanding == 0 {
            self.silent_since = now;
        }
        self.outstanding += 1;
        if matches!(self.state, BreakerState::Open { .. }) {
            self.state = BreakerState::Probing;
        }
    }

    /// A reply to a read that took so long.
    pub(crate) fn answered(&mut self, now: Time, taken: Duration) {
        self.heard(now);
        self.usual = if self.usual.is_zero() { taken } else { (self.usual * 7 + taken) / 8 };
        self.state = BreakerState::Closed;
        self.pause = PAUSE_MIN;
        self.refusals = 0;
    }

    /// "Busy". True if the node is left alone from now on.
    pub(crate) fn refused(&mut self, now: Time) -> bool {
        self.heard(now);
        if self.refusals == 0 {
            self.refusing_since = now;
        }
        self.refusals = self.refusals.saturating_add(1);
        let steady = self.refusals >= REFUSALS_MIN && now.since(self.refusing_since) >= REFUSING_MIN;
        let opens = self.state == BreakerState::Probing || (self.state == BreakerState::Closed && steady);
        if opens {
            self.open(now);
        }
        opens
    }

    fn heard(&mut self, now: Time) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.silent_since = now;
    }

    /// A reply to a read that is no longer waited for: the node is there again.
    pub(crate) fn heard_late(&mut self, now: Time) {
        if let BreakerState::Open { until } = &mut self.state {
            *until = now;
        }
    }

    /// It has said that it lives, though its reads have to wait.
    pub(crate) fn alive(&mut self, now: Time) {
        self.silent_since = now;
    }

    /// A read to it is no longer waited for.
    pub(crate) fn forgotten(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
        if self.state == BreakerState::Probing && self.outstanding == 0 {
            self.state = BreakerState::Open { until: Time(0) };
        }
    }

    /// True if the node hangs: what is outstanding there should be asked elsewhere.
    pub(crate) fn hangs(&mut self, now: Time) -> bool {
        let patience = (self.usual * PATIENCE_FACTOR).clamp(PATIENCE_MIN, PATIENCE_MAX);
        let hangs = self.outstanding > 0 && now.since(self.silent_since) >= patience;
        if hangs {
            self.open(now);
        }
        hangs
    }

    /// The link is lost. Once there is another, nobody knows yet how the node does, so one read tries.
    pub(crate) fn lost(&mut self) {
        *self = Breaker { state: BreakerState::Open { until: Time(0) }, usual: self.usual, ..Breaker::new() };
    }

    /// The router itself did not run: silence until now says nothing.
    pub(crate) fn excuse(&mut self, now: Time) {
        self.silent_since = now;
    }

    fn open(&mut self, now: Time) {
        self.state = BreakerState::Open { until: now.after(self.pause) };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.refusals = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(10_000_000 + ms * 1000)
    }

    #[test]
    fn silence_opens_it_and_one_probe_after_the_other_closes_it() {
        let mut breaker = Breaker::new();
        breaker.sent(at(0));
        breaker.sent(at(50));
        assert!(!breaker.hangs(at(99)));
        assert!(breaker.hangs(at(100)) && breaker.is_open() && !breaker.admits(at(199)));
        breaker.forgotten();
        breaker.forgotten();
        assert!(breaker.admits(at(200)));
        breaker.sent(at(200));
        assert!(!breaker.admits(at(201)), "one at a time");
        assert!(breaker.hangs(at(300)), "the probe is not answered");
        breaker.forgotten();
        assert!(!breaker.admits(at(499)) && breaker.admits(at(500)), "the pause has doubled");
        breaker.sent(at(500));
        breaker.answered(at(501), Duration::from_millis(1));
        assert!(breaker.admits(at(501)) && !breaker.is_open());
    }

    #[test]
    fn patience_follows_what_the_node_usually_takes() {
        let mut breaker = Breaker::new();
        for n in 0..50 {
            breaker.sent(at(n * 100));
            breaker.answered(at(n * 100 + 50), Duration::from_millis(50));
        }
        breaker.sent(at(10_000));
        assert!(!breaker.hangs(at(10_399)) && breaker.hangs(at(10_400)));
        let mut slow = Breaker::new();
        slow.sent(at(0));
        slow.answered(at(5000), Duration::from_secs(5));
        slow.sent(at(6000));
        assert!(slow.hangs(at(7000)), "a second at most");
    }

    #[test]
    fn any_answer_is_a_sign_of_life() {
        let mut breaker = Breaker::new();
        (0..10).for_each(|_| breaker.sent(at(0)));
        for n in 1..10 {
            assert!(!breaker.hangs(at(n * 90 + 5)));
            breaker.answered(at(n * 90 + 5), Duration::from_millis(1));
        }
    }

    #[test]
    fn a_node_over_its_rate_stays_and_one_that_only_refuses_does_not() {
        let mut breaker = Breaker::new();
        for n in 0..10_000 {
            breaker.sent(at(n));
            match n % 100 {
                99 => breaker.answered(at(n), Duration::from_millis(1)),
                _ => assert!(!breaker.refused(at(n)), "one in a hundred is answered"),
            }
        }
        let opened = (0..1000).find(|&n| {
            breaker.sent(at(20_000 + n));
            breaker.refused(at(20_000 + n))
        });
        assert_eq!(opened, Some(200));
        breaker.sent(at(20_300));
        assert!(breaker.refused(at(20_301)), "the probe is refused, too");
        assert!(!breaker.admits(at(20_500)) && breaker.admits(at(20_501)));
    }

    #[test]
    fn a_late_reply_ends_the_pause() {
        let mut breaker = Breaker::new();
        breaker.sent(at(0));
        assert!(breaker.hangs(at(100)));
        breaker.forgotten();
        breaker.heard_late(at(120));
        assert!(breaker.admits(at(120)) && breaker.is_open());
    }

    #[test]
    fn a_probe_whose_client_has_gone_is_followed_by_another() {
        let mut breaker = Breaker::new();
        breaker.lost();
        breaker.sent(at(0));
        breaker.forgotten();
        assert!(breaker.admits(at(1)));
    }

    #[test]
    fn a_router_that_was_stopped_blames_nobody() {
        let mut breaker = Breaker::new();
        breaker.sent(at(0));
        breaker.excuse(at(60_000));
        assert!(!breaker.hangs(at(60_000)));
    }

    #[test]
    fn a_node_that_is_linked_anew_is_tried_with_one_read() {
        let mut breaker = Breaker::new();
        breaker.lost();
        assert!(breaker.admits(at(0)));
        breaker.sent(at(0));
        assert!(!breaker.admits(at(0)));
        breaker.answered(at(1), Duration::from_millis(1));
        assert!(breaker.admits(at(1)));
    }
}
