//! How many commands storage may have at a time, learned from how long it takes. Not what becomes of those beyond that,
//! which are turned away or wait.
//!
//! Storage answers first in, first out. So while a command waited behind `ahead` others for `taken`, storage answered
//! that many in that time: what it can do in `QUEUEING_MAX` follows from every command that had to queue, within some
//! milliseconds of an overload's beginning. As long as nothing queues there is no limit, and once nothing has queued for
//! a window there is none again. What is refused costs storage nothing, so storage goes on at full speed behind a short
//! queue, however much is asked of it.
//!
//! Where commands wait for their turn there always is a limit, and the queue behind it is somebody else's: so it may be
//! shorter. It doubles in every window in which it was reached and nothing queued, and never falls below what storage did in a
//! part of the last one, because a pause of a busy machine says nothing about storage.

use std::time::Duration;

use crate::requests::RequestClass;
use crate::time::Time;

/// So few are never refused: they say more about a pause of storage than about what it can do.
const LIMIT_MIN: u32 = 64;
/// No limit, but for the bounds of queues.
const LIMIT_MAX: u32 = 1 << 16;
/// What storage that answers nothing may have. More would be late, all of them, when it goes on.
const LIMIT_STALLED: u32 = 1024;
/// Long enough for a slow server to answer something in it, short against the patience of clients.
const WINDOW: Duration = Duration::from_millis(100);
/// A command that takes this much longer than idle storage does has queued. Less may be the scheduler's doing.
const QUEUEING_MIN: Duration = Duration::from_millis(20);
/// How long commands may queue at storage. Shorter, and clients that send ahead, or a pause of the server, are taken for
/// overload; longer, and every command of an overloaded server is late by as much, and leases wait for their proof.
const QUEUEING_MAX: Duration = Duration::from_millis(100);
/// Where commands wait: how long they may queue at storage. Clients are dealt their turns fairly before that queue, so it is
/// what every one of them waits at most.
const QUEUEING_WAITED: Duration = Duration::from_millis(30);
/// Where commands wait: the limit before anything is known. Some milliseconds of a fast server's work.
const LIMIT_START: u32 = 1024;
/// With so few in flight nobody queues behind anybody: what a command takes then is what storage takes when idle.
const IDLE_MAX: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct StorageLimit {
    /// Commands wait for their turn.
    waits: bool,
    limit: u32,
    in_flight: u32,
    /// The last answer, or when the first of those in flight was sent.
    progress: Time,
    window: Time,
    /// Most in flight in this window, least time taken, and whether anything queued.
    peak: u32,
    least: Option<Duration>,
    queued: bool,
    answered: u32,
    /// Where commands wait: the limit does not fall below it.
    floor: u32,
    /// What storage takes when idle.
    idle: Option<Duration>,
}

impl StorageLimit {
    pub(super) fn new(waits: bool) -> StorageLimit {
        StorageLimit {
            waits,
            limit: if waits { LIMIT_START } else { LIMIT_MAX },
            in_flight: 0,
            progress: Time(0),
            window: Time(0),
            peak: 0,
            least: None,
            queued: false,
            answered: 0,
            floor: LIMIT_MIN,
            idle: None,
        }
    }

    /// Whether commands wait for their turn from now on, or are turned away.
    pub(super) fn set_waits(&mut self, waits: bool) {
        if self.waits != waits {
            self.waits = waits;
            self.limit = if waits { LIMIT_START } else { LIMIT_MAX };
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether commands queue at storage, or would without a limit.
    pub(super) fn is_limited(&self) -> bool {
        self.limit < LIMIT_MAX && (!self.waits || self.in_flight >= self.limit)
    }

    /// Commands at storage that count.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn admits(&self, class: RequestClass) -> bool {
        let room = match class {
            RequestClass::Client => self.limit,
            RequestClass::Fill => self.limit + self.limit / 4,
        };
        self.in_flight < room
    }

    /// Storage gets a command: how many it has now. What has been admitted is never held back here, whatever the limit
    /// says by then.
    pub(super) fn sent(&mut self, now: Time) -> u32 {
        if self.in_flight == 0 {
            self.progress = now;
        }
        self.in_flight += 1;
        self.peak = self.peak.max(self.in_flight);
        self.in_flight
    }

    /// The answer to a command that took so long and was the `place`-th of those in flight when it was sent.
    pub(super) fn answered(&mut self, now: Time, taken: Duration, place: u32) {
        self.ended();
        self.progress = now;
        self.answered += 1;
        self.sample(taken);
        let idle = self.idle.unwrap_or(Duration::ZERO);
        // With few before it a command has not queued here, whatever it took.
        let behind_others = !self.waits || place >= LIMIT_MIN / 2;
        if taken >= idle + QUEUEING_MIN && behind_others {
            self.queued = true;
            let queueing_max = if self.waits { QUEUEING_WAITED } else { QUEUEING_MAX };
            let (most, taken) = ((idle + queueing_max).as_micros() as u64, taken.as_micros() as u64);
            let limit = u64::from(place) * most / taken;
            let limit_min = if self.waits { self.floor } else { LIMIT_MIN };
            self.limit = limit.clamp(limit_min.into(), LIMIT_MAX.into()) as u32;
        }
    }

    /// Without an answer.
    pub(super) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Takes the time of a command that is not counted, such as the shim's own PING.
    pub(super) fn sample(&mut self, taken: Duration) {
        self.least = Some(self.least.map_or(taken, |least| least.min(taken)));
    }

    pub(super) fn tick(&mut self, now: Time) {
        if !self.waits
            && self.in_flight > 0
            && now.since(self.progress) >= QUEUEING_MAX + self.idle.unwrap_or(Duration::ZERO)
        {
            self.limit = self.limit.min(self.in_flight.max(LIMIT_STALLED));
            self.queued = true;
        }
        if now.since(self.window) < WINDOW {
            return;
        }
        self.window = now;
        let peak = std::mem::replace(&mut self.peak, self.in_flight);
        let answered = std::mem::take(&mut self.answered);
        // What storage does in the time that commands may queue there.
        let share = QUEUEING_WAITED.as_micros() * u128::from(answered) / WINDOW.as_micros();
        self.floor = (share as u32).clamp(LIMIT_MIN, LIMIT_MAX);
        let queued = std::mem::take(&mut self.queued);
        if !queued && !self.waits {
            self.limit = LIMIT_MAX;
        } else if !queued && peak >= self.limit {
            self.limit = (self.limit * 2).min(LIMIT_MAX);
        }
        if let Some(least) = self.least.take().filter(|_| peak <= IDLE_MAX) {
            // It falls at once and rises slowly: a pause is no distance.
            self.idle =
                Some(self.idle.map_or(least, |idle| least.min(idle + least.saturating_sub(idle) / 8)));
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
        busy: VecDeque<(u64, u64, u32)>,
    }

    /// What clients get within a patience of 300 ms, per second, in the last half of a run.
    struct Outcome {
        good: u64,
        refused: u64,
        limit: u32,
    }

    /// Offers `rates` commands per second for as many seconds each. Without `storage_limit` everything is let in.
    fn run(service_us: u64, rates: &[(u64, u64)], mut storage_limit: Option<&mut StorageLimit>) -> Outcome {
        let mut server = Server { service_us, free_us: 0, busy: VecDeque::new() };
        let (mut now_us, mut debt) = (1_000_000, 0);
        let mut outcome = Outcome { good: 0, refused: 0, limit: 0 };
        let total_us: u64 = rates.iter().map(|(_, seconds)| seconds * 1_000_000).sum();
        let left =
            rates.iter().flat_map(|&(rate, seconds)| std::iter::repeat_n(rate, seconds as usize * 1000));
        for rate in left {
            now_us += 1000;
            let counts = now_us > 1_000_000 + total_us / 2;
            while let Some(&(sent_us, done_us, place)) =
                server.busy.front().filter(|(_, done_us, _)| *done_us <= now_us)
            {
                server.busy.pop_front();
                let taken = Duration::from_micros(done_us - sent_us);
                outcome.good += u64::from(counts && taken < Duration::from_millis(300));
                if let Some(storage_limit) = &mut storage_limit {
                    storage_limit.answered(Time(now_us), taken, place);
                }
            }
            debt += rate;
            for _ in 0..debt / 1000 {
                let admitted = storage_limit
                    .as_ref()
                    .is_none_or(|storage_limit| storage_limit.admits(RequestClass::Client));
                outcome.refused += u64::from(counts && !admitted);
                if admitted {
                    server.free_us = server.free_us.max(now_us) + server.service_us;
                    let place =
                        storage_limit.as_mut().map_or(0, |storage_limit| storage_limit.sent(Time(now_us)));
                    server.busy.push_back((now_us, server.free_us, place));
                }
            }
            debt %= 1000;
            storage_limit.iter_mut().for_each(|storage_limit| storage_limit.tick(Time(now_us)));
        }
        outcome.good = outcome.good * 2_000_000 / total_us;
        outcome.limit = storage_limit.map_or(0, |storage_limit| storage_limit.limit());
        outcome
    }

    /// Servers of 500 to 50,000 commands per second.
    const SERVICES_US: [u64; 4] = [20, 100, 1000, 2000];

    #[test]
    fn goodput_stays_at_its_peak_at_two_and_five_times_the_load() {
        for service_us in SERVICES_US {
            let peak = 1_000_000 / service_us;
            for factor in [2, 5, 20] {
                let found = run(service_us, &[(peak * factor, 20)], Some(&mut StorageLimit::new(false)));
                assert!(found.good * 10 >= peak * 9, "{} of {peak} at {factor} times", found.good);
            }
        }
    }

    #[test]
    fn the_first_second_of_a_surge_is_no_worse() {
        for service_us in SERVICES_US {
            let peak = 1_000_000 / service_us;
            for factor in [2, 5, 20] {
                // What is counted begins with the surge; a tenth of it is still at storage in the end.
                let found = run(
                    service_us,
                    &[(peak / 2, 1), (peak * factor, 1)],
                    Some(&mut StorageLimit::new(false)),
                );
                assert!(found.good * 10 >= peak * 8, "{} of {peak} at {factor} times", found.good);
            }
        }
    }

    #[test]
    fn a_burst_of_a_tenth_of_a_second_is_served_whole() {
        for service_us in SERVICES_US {
            let (mut storage_limit, peak) = (StorageLimit::new(false), 1_000_000 / service_us);
            let found = run(service_us, &[(peak / 2, 1), (0, 1)], Some(&mut storage_limit));
            assert_eq!(found.refused, 0);
            let burst = (0..peak / 10).all(|_| {
                let admitted = storage_limit.admits(RequestClass::Client);
                storage_limit.sent(Time(9_000_000));
                admitted
            });
            assert!(burst, "service {service_us} us, limit {}", storage_limit.limit());
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
            let found = run(service_us, &[(peak * 8 / 10, 20)], Some(&mut StorageLimit::new(false)));
            assert_eq!(found.refused, 0, "service {service_us} us, limit {}", found.limit);
        }
    }

    #[test]
    fn a_second_after_overload_nothing_is_refused() {
        for service_us in SERVICES_US {
            let peak = 1_000_000 / service_us;
            let rates = [(peak * 5, 9), (peak * 8 / 10, 11)];
            let found = run(service_us, &rates, Some(&mut StorageLimit::new(false)));
            assert_eq!(found.refused, 0, "service {service_us} us, limit {}", found.limit);
        }
    }

    /// Storage 60 ms away that takes any number at once, with `commands(round)` in flight.
    fn far_away(commands: impl Fn(u32) -> u32) -> u32 {
        let (mut storage_limit, mut now, mut refused) = (StorageLimit::new(false), Time(1_000_000), 0);
        for round in 0..200 {
            let mut places = Vec::new();
            for _ in 0..commands(round) {
                match storage_limit.admits(RequestClass::Client) {
                    true => places.push(storage_limit.sent(now)),
                    false => refused += 1,
                }
            }
            now = now.after(Duration::from_millis(60));
            places
                .into_iter()
                .for_each(|place| storage_limit.answered(now, Duration::from_millis(60), place));
            storage_limit.tick(now);
        }
        refused
    }

    #[test]
    fn storage_that_is_far_away_is_no_storage_that_is_overloaded() {
        assert_eq!(far_away(|round| if round < 20 { 1 } else { 1000 }), 0, "it was seen idle");
        assert_eq!(far_away(|round| 50 + round * 5), 0, "what is in flight grows, and the limit with it");
    }

    #[test]
    fn storage_that_hangs_is_not_asked_for_much_more() {
        let mut storage_limit = StorageLimit::new(false);
        let mut admitted = 0;
        for ms in 0..10_000u64 {
            if storage_limit.admits(RequestClass::Client) {
                storage_limit.sent(Time(1_000_000 + ms * 1000));
                admitted += 1;
            }
            storage_limit.tick(Time(1_000_000 + ms * 1000));
        }
        assert_eq!(admitted, LIMIT_STALLED);
        assert!(storage_limit.admits(RequestClass::Fill), "there is room left for what relieves storage");
    }

    /// Closed loops with `clients` commands in flight, before storage of one command at a time: the rate in the last half of
    /// a run, and the longest that a command was at storage.
    fn closed(service_us: u64, clients: usize) -> (u64, Duration, u32) {
        let mut limit = StorageLimit::new(true);
        let (mut free_us, mut now_us, mut waiting) = (0, 1_000_000u64, clients);
        let mut busy: VecDeque<(u64, u64, u32)> = VecDeque::new();
        let (mut done, mut longest) = (0, Duration::ZERO);
        for ms in 0..10_000u64 {
            now_us += 1000;
            while let Some(&(sent_us, done_us, place)) =
                busy.front().filter(|(_, done_us, _)| *done_us <= now_us)
            {
                busy.pop_front();
                limit.answered(Time(now_us), Duration::from_micros(done_us - sent_us), place);
                waiting += 1;
                if ms >= 5000 {
                    done += 1;
                    longest = longest.max(Duration::from_micros(done_us - sent_us));
                }
            }
            while waiting > 0 && limit.admits(RequestClass::Client) {
                waiting -= 1;
                free_us = free_us.max(now_us) + service_us;
                busy.push_back((now_us, free_us, limit.sent(Time(now_us))));
            }
            limit.tick(Time(now_us));
        }
        (done / 5, longest, limit.limit())
    }

    #[test]
    fn commands_that_wait_keep_storage_busy_behind_a_short_queue() {
        for service_us in SERVICES_US {
            for clients in [100, 1000, 100_000] {
                let (rate, longest, limit) = closed(service_us, clients);
                let peak = 1_000_000 / service_us;
                assert!(rate * 100 >= peak * 97, "{rate} of {peak} with {clients}, limit {limit}");
                let queueing_max = Duration::from_micros(u64::from(LIMIT_MIN) * service_us)
                    .max(QUEUEING_WAITED + Duration::from_millis(15));
                assert!(longest <= queueing_max, "{longest:?} with {clients} at {peak}/s, limit {limit}");
            }
        }
    }

    #[test]
    fn a_limit_that_is_reached_without_a_queue_grows() {
        let (mut limit, mut now) = (StorageLimit::new(true), Time(1_000_000));
        for _ in 0..20 {
            let places: Vec<u32> =
                std::iter::from_fn(|| limit.admits(RequestClass::Client).then(|| limit.sent(now))).collect();
            now = now.after(Duration::from_millis(10));
            places.into_iter().for_each(|place| limit.answered(now, Duration::from_millis(10), place));
            for _ in 0..10 {
                now = now.after(Duration::from_millis(10));
                limit.tick(now);
            }
        }
        assert_eq!(limit.limit(), LIMIT_MAX);
    }
}
