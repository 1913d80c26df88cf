//! A node's own load: its requests in the sliding last second. Not the last *completed* second, which makes
//! routers follow each other (see the simulation in this crate's tests).

use std::time::Duration;

use super::LOAD_MAX;
use crate::time::Time;

/// Slots per window: what has left the window is known to a slot, and within the oldest slot by proportion.
const SLOTS: usize = 20;
/// The current, unfinished slot and those behind it.
const RING: usize = SLOTS + 1;

/// Counts requests over a sliding window. `record` and `rate` take constant time.
#[derive(Clone, Debug)]
pub struct LoadMeter {
    slot_us: u64,
    window_us: u64,
    counts: [u32; RING],
    /// Sum of `counts`.
    total: u64,
    /// The number of the current slot, counted from time zero.
    slot: u64,
    /// When the current slot ends, so that most calls need no division.
    slot_end: u64,
}

impl LoadMeter {
    /// A meter over `window`, which is one second in every role.
    pub fn new(window: Duration) -> LoadMeter {
        let slot_us = (window.as_micros() as u64 / SLOTS as u64).max(1);
        let window_us = slot_us * SLOTS as u64;
        LoadMeter { slot_us, window_us, counts: [0; RING], total: 0, slot: 0, slot_end: slot_us }
    }

    /// Counts one request. A clock that steps back counts it in the current slot.
    pub fn record(&mut self, now: Time) {
        if now.0 >= self.slot_end {
            self.advance(now);
        }
        self.counts[(self.slot % RING as u64) as usize] += 1;
        self.total += 1;
    }

    /// Requests per second over the last window; zero at the start, and it takes one window to fill.
    pub fn rate(&mut self, now: Time) -> u32 {
        if now.0 >= self.slot_end {
            self.advance(now);
        }
        // The ring covers one window and the part of the current slot that has passed. The same part of the
        // oldest slot has left the window.
        let passed = (now.0 + self.slot_us).saturating_sub(self.slot_end).min(self.slot_us);
        let oldest = u64::from(self.counts[((self.slot + 1) % RING as u64) as usize]);
        let requests = self.total - oldest * passed / self.slot_us;
        let per_second = u128::from(requests) * 1_000_000 / u128::from(self.window_us);
        per_second.min(u128::from(LOAD_MAX)) as u32
    }

    /// The rate divided by the node's relative capacity (in thousandths): what the node stamps into replies, so
    /// that a node of twice the capacity is offered twice the requests.
    pub fn load(&mut self, now: Time, capacity: u32) -> u32 {
        let load = u64::from(self.rate(now)) * 1000 / u64::from(capacity.max(1));
        load.min(u64::from(LOAD_MAX)) as u32
    }

    fn advance(&mut self, now: Time) {
        let slot = now.0 / self.slot_us;
        for passed in self.slot + 1..=slot.min(self.slot + RING as u64) {
            let count = &mut self.counts[(passed % RING as u64) as usize];
            self.total -= u64::from(*count);
            *count = 0;
        }
        self.slot = slot;
        self.slot_end = (slot + 1) * self.slot_us;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn meter() -> LoadMeter {
        LoadMeter::new(Duration::from_secs(1))
    }

    #[test]
    fn a_steady_rate_is_exact_at_any_moment() {
        let mut meter = meter();
        for n in 0..50_000u64 {
            let now = Time(3_000_000 + n * 100);
            meter.record(now);
            if n > 10_000 {
                assert!(meter.rate(now).abs_diff(10_000) <= 1, "at {now:?}: {}", meter.rate(now));
            }
        }
    }

    #[test]
    fn agrees_with_every_request_remembered_to_within_one_slot() {
        let mut rng = SmallRng::seed_from_u64(5);
        let (mut meter, mut exact, mut now) = (meter(), VecDeque::new(), 17u64);
        for _ in 0..200_000 {
            now += match rng.random_range(0..1000) {
                0 => rng.random_range(0..300_000),
                1..40 => rng.random_range(0..9_000),
                _ => rng.random_range(0..200),
            };
            meter.record(Time(now));
            exact.push_back(now);
            while exact.front().is_some_and(|&at| at + 1_050_000 < now) {
                exact.pop_front();
            }
            let within = |us: u64| exact.iter().filter(|&&at| at + us > now).count() as u32;
            if rng.random_range(0..500) == 0 {
                let rate = meter.rate(Time(now));
                assert!(rate >= within(950_000) && rate <= within(1_050_000), "{rate} at {now}");
            }
        }
    }

    #[test]
    fn falls_to_zero_one_window_after_the_last_request_and_survives_long_silence() {
        let mut meter = meter();
        for n in 0..1000 {
            meter.record(Time(n));
        }
        assert_eq!(meter.rate(Time(1000)), 1000);
        assert_eq!(meter.rate(Time(999_999)), 1000);
        assert_eq!(meter.rate(Time(1_050_000)), 0);
        assert_eq!(meter.rate(Time(u64::MAX / 2)), 0);
        meter.record(Time(u64::MAX / 2));
        assert_eq!(meter.rate(Time(u64::MAX / 2)), 1);
    }

    #[test]
    fn a_clock_that_steps_back_loses_no_request() {
        let mut meter = meter();
        meter.record(Time(10_000_000));
        meter.record(Time(5_000_000));
        assert_eq!(meter.rate(Time(10_000_000)), 2);
        assert_eq!(meter.rate(Time(5_000_000)), 2);
    }

    #[test]
    fn load_is_rate_per_capacity() {
        let mut meter = meter();
        for n in 0..900 {
            meter.record(Time(n));
        }
        assert_eq!(meter.load(Time(1000), 1000), 900);
        assert_eq!(meter.load(Time(1000), 2000), 450);
        assert_eq!(meter.load(Time(1000), 500), 1800);
        assert_eq!(meter.load(Time(1000), 0), 900_000);
    }
}
