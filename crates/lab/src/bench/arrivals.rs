//! Random times at which the requests of an open loop are due, the same in every round. Not which keys they are about.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// As many users who know nothing of each other: `count` requests at independent times in each round, which is a Poisson
/// process of that many. Every round has the same times, so that two of them can be compared.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    seed: u64,
    count: u64,
    period: Duration,
    random: Xoshiro256PlusPlus,
    round: u64,
    /// Requests drawn in this round, and the share of its time that has passed at the last one.
    drawn: u64,
    passed: f64,
}

impl Arrivals {
    pub(crate) fn new(count: u64, period: Duration, seed: u64) -> Arrivals {
        assert!(count > 0 && !period.is_zero());
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Arrivals { seed, count, period, random, round: 0, drawn: 0, passed: 0.0 }
    }

    /// Per second, over a round.
    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.period.as_secs_f64()
    }

    /// When the next request is due, since the first round began; never before the one drawn last.
    pub(crate) fn next_due(&mut self) -> Duration {
        if self.drawn == self.count {
            (self.round, self.drawn, self.passed) = (self.round + 1, 0, 0.0);
            self.random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        }
        // The earliest of so many independent times in what is left of the round; thus they come sorted.
        let left = (self.count - self.drawn) as f64;
        let share: f64 = self.random.random::<f64>().powf(1.0 / left);
        self.passed = 1.0 - (1.0 - self.passed) * share;
        self.drawn += 1;
        let period_us = self.period.as_micros() as u64;
        Duration::from_micros(self.round * period_us + (self.passed * period_us as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(count: usize) -> Vec<u64> {
        let mut arrivals = Arrivals::new(2_000, Duration::from_secs(1), 7);
        (0..count).map(|_| arrivals.next_due().as_micros() as u64).collect()
    }

    #[test]
    fn rounds_are_alike_and_in_order() {
        let times = times(6_000);
        assert!(times.is_sorted());
        for (first, later) in times.iter().zip(&times[2_000..]) {
            assert_eq!(first + 1_000_000, *later);
        }
    }

    #[test]
    fn times_are_spread_like_those_of_independent_users() {
        let times = times(2_000);
        for tenth in 0..10 {
            let within = |at: &&u64| (tenth * 100_000..(tenth + 1) * 100_000).contains(*at);
            let count = times.iter().filter(within).count();
            assert!(count.abs_diff(200) < 60, "{count} in tenth {tenth}");
        }
        // Gaps of independent users vary as much as they last: 500 us.
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.8..1.2).contains(&(variance.sqrt() / mean)), "{mean} {variance}");
    }
}
