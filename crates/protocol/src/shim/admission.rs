//! How many commands storage may have at a time, learned from how long it takes, and who is turned away beyond that.
//! Not where commands wait for their keys.
//!
//! Every 100 ms the *least* time that storage took to answer is compared with what it takes when it has nothing to do.
//! A burst makes most commands slow; only a standing queue makes the fastest one slow. Then the limit falls by a
//! quarter; otherwise, if it was in the way, it grows by an eighth. What is refused costs storage nothing, so storage
//! goes on at full speed with a short queue however much is asked of it.

use std::time::Duration;

use crate::time::Time;

/// Fewer would leave a server idle between two of its replies; from a slow one, more would come too late.
const LIMIT_MIN: u32 = 4;
/// Also what holds before anything is known: the first standing queue brings it down within two windows, and a client
/// with a deep pipeline is no overload.
const LIMIT_MAX: u32 = 1 << 16;
/// Long enough for a slow server to answer something in it, short against the patience of clients.
const WINDOW: Duration = Duration::from_millis(100);
/// How long commands may queue at storage beyond what it takes when idle. Shorter, and clients that send ahead, or a
/// pause of the server, are taken for overload; longer, and every command of an overloaded server is late by as much.
const QUEUEING_MAX: Duration = Duration::from_millis(100);

/// What a command is, for the order in which commands are turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A read that ends at storage. The first to go: the client may find it elsewhere, and loses nothing.
    Read,
    /// A fill of a hot key takes many reads off storage, and a write has nowhere else to go: a quarter more room.
    FillOrWrite,
}

#[derive(Clone, Debug)]
pub(super) struct Admission {
    limit: u32,
    in_flight: u32,
    window: Time,
    /// Most in flight and least time taken in this window.
    peak: u32,
    least: Option<Duration>,
    /// Least time taken when next to nothing was in flight.
    idle: Option<Duration>,
}

impl Admission {
    pub(super) fn new() -> Admission {
        Admission { limit: LIMIT_MAX, in_flight: 0, window: Time(0), peak: 0, least: None, idle: None }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn admits(&self, class: Class) -> bool {
        let room = match class {
            Class::Read => self.limit,
            Class::FillOrWrite => self.limit + self.limit / 4,
        };
        self.in_flight < room
    }

    /// Storage gets a command. What has been admitted is never held back here, whatever the limit says by then.
    pub(super) fn sent(&mut self) {
        self.in_flight += 1;
        self.peak = self.peak.max(self.in_flight);
    }

    pub(super) fn answered(&mut self, taken: Duration) {
        self.ended();
        self.least = Some(self.least.map_or(taken, |least| least.min(taken)));
    }

    /// Without an answer.
    pub(super) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Of the commands that are not counted, such as the shim's own PING: a sample all the same.
    pub(super) fn sample(&mut self, taken: Duration) {
        self.least = Some(self.least.map_or(taken, |least| least.min(taken)));
    }

    /// Moves the limit once per window.
    pub(super) fn tick(&mut self, now: Time) {
        if now.since(self.window) < WINDOW {
            return;
        }
        self.window = now;
        let peak = std::mem::replace(&mut self.peak, self.in_flight);
        let Some(least) = self.least.take() else { return };
        if peak <= LIMIT_MIN {
            // Nobody queued behind anybody: this is what storage takes. It falls at once and rises slowly.
            self.idle =
                Some(self.idle.map_or(least, |idle| least.min(idle + (least.saturating_sub(idle)) / 8)));
        }
        let target = self.idle.unwrap_or(Duration::ZERO) * 2 + QUEUEING_MAX;
        if least > target {
            self.limit = (self.limit.min(peak) * 3 / 4).max(LIMIT_MIN);
        } else if peak >= self.limit {
            self.limit = (self.limit + (self.limit / 8).max(1)).min(LIMIT_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Storage that serves one command after the other, `service_us` each, first in, first out.
    struct Server {
        service_us: u64,
        free_us: u64,
        busy: VecDeque<(u64, u64)>,
    }

    /// What clients get within a patience of 300 ms, per second, in the last half of a run.
    struct Outcome {
        good: u64,
        refused: u64,
        limit: u32,
    }

    /// Offers `rates` commands per second for as many seconds each. Without `admission` everything is let in.
    fn run(service_us: u64, rates: &[(u64, u64)], mut admission: Option<&mut Admission>) -> Outcome {
        let mut server = Server { service_us, free_us: 0, busy: VecDeque::new() };
        let (mut now_us, mut debt) = (1_000_000, 0);
        let mut outcome = Outcome { good: 0, refused: 0, limit: 0 };
        let total_us: u64 = rates.iter().map(|(_, seconds)| seconds * 1_000_000).sum();
        let left =
            rates.iter().flat_map(|&(rate, seconds)| std::iter::repeat_n(rate, seconds as usize * 1000));
        for rate in left {
            now_us += 1000;
            let counts = now_us > 1_000_000 + total_us / 2;
            while let Some(&(sent_us, done_us)) =
                server.busy.front().filter(|(_, done_us)| *done_us <= now_us)
            {
                server.busy.pop_front();
                let taken = Duration::from_micros(done_us - sent_us);
                outcome.good += u64::from(counts && taken < Duration::from_millis(300));
                if let Some(admission) = &mut admission {
                    admission.answered(taken);
                }
            }
            debt += rate;
            for _ in 0..debt / 1000 {
                let admitted = admission.as_ref().is_none_or(|admission| admission.admits(Class::Read));
                outcome.refused += u64::from(counts && !admitted);
                if admitted {
                    server.free_us = server.free_us.max(now_us) + server.service_us;
                    server.busy.push_back((now_us, server.free_us));
                    admission.iter_mut().for_each(|admission| admission.sent());
                }
            }
            debt %= 1000;
            admission.iter_mut().for_each(|admission| admission.tick(Time(now_us)));
        }
        outcome.good = outcome.good * 2_000_000 / total_us;
        outcome.limit = admission.map_or(0, |admission| admission.limit());
        outcome
    }

    /// Servers of 100 to 50,000 commands per second.
    const SERVICES_US: [u64; 4] = [20, 100, 1000, 10_000];

    #[test]
    fn goodput_stays_at_its_peak_at_two_and_five_times_the_load() {
        for service_us in SERVICES_US {
            let peak = 1_000_000 / service_us;
            for factor in [2, 5, 20] {
                let found = run(service_us, &[(peak * factor, 20)], Some(&mut Admission::new()));
                assert!(found.good * 10 >= peak * 9, "{} of {peak} at {factor} times", found.good);
            }
        }
    }

    #[test]
    fn the_naive_twin_that_lets_everything_in_collapses() {
        for service_us in SERVICES_US {
            let peak = 1_000_000 / service_us;
            let found = run(service_us, &[(peak * 2, 20)], None);
            assert!(found.good * 10 < peak, "{} of {peak}: the test must reach what it tests", found.good);
        }
    }

    #[test]
    fn below_capacity_nothing_is_refused() {
        for service_us in SERVICES_US {
            let peak = 1_000_000 / service_us;
            let found = run(service_us, &[(peak * 8 / 10, 20)], Some(&mut Admission::new()));
            assert_eq!(found.refused, 0, "service {service_us} us, limit {}", found.limit);
        }
    }

    #[test]
    fn a_second_after_overload_nothing_is_refused() {
        for service_us in SERVICES_US {
            let peak = 1_000_000 / service_us;
            let rates = [(peak * 5, 9), (peak * 8 / 10, 11)];
            let found = run(service_us, &rates, Some(&mut Admission::new()));
            assert_eq!(found.refused, 0, "service {service_us} us, limit {}", found.limit);
        }
    }

    #[test]
    fn storage_that_is_far_away_is_no_storage_that_is_overloaded() {
        let mut admission = Admission::new();
        let mut now = Time(1_000_000);
        for round in 0..200 {
            // 60 ms to the server and back, 100 commands side by side after a quiet start.
            let commands = if round < 20 { 1 } else { 1000 };
            (0..commands).for_each(|_| admission.sent());
            now = now.after(Duration::from_millis(60));
            (0..commands).for_each(|_| admission.answered(Duration::from_millis(60)));
            admission.tick(now);
        }
        assert!(admission.limit() >= LIMIT_MAX, "{}", admission.limit());
    }

    #[test]
    fn what_is_far_away_and_was_never_seen_idle_is_found_out() {
        let mut admission = Admission::new();
        let mut now = Time(1_000_000);
        for _ in 0..600 {
            let mut commands = 0;
            while commands < 100 && admission.admits(Class::Read) {
                admission.sent();
                commands += 1;
            }
            now = now.after(Duration::from_millis(60));
            (0..commands).for_each(|_| admission.answered(Duration::from_millis(60)));
            admission.tick(now);
        }
        assert!(admission.limit() >= 100, "{}", admission.limit());
    }

    #[test]
    fn storage_that_hangs_is_not_asked_for_more_than_the_limit() {
        let mut admission = Admission::new();
        let mut admitted = 0;
        for second in 0..100u64 {
            while admission.admits(Class::Read) {
                admission.sent();
                admitted += 1;
            }
            admission.tick(Time(second * 1_000_000));
        }
        assert_eq!(admitted, LIMIT_MAX);
        assert!(admission.admits(Class::FillOrWrite), "there is room left for what relieves storage");
    }
}
