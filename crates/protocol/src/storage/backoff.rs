//! Pauses between attempts to reach a server. Not the attempts.

use rand::RngExt as _;
use rand::rngs::SmallRng;

const BACKOFF_MAX_US: u64 = 1_000_000;

/// Delays between attempts: doubled each time, spread so that shims do not come back all at once.
pub(super) struct Backoff {
    least_us: u64,
    delay_us: u64,
    random: SmallRng,
}

impl Backoff {
    /// `least_us`: the first delay.
    pub(super) fn new(least_us: u64, random: SmallRng) -> Backoff {
        Backoff { least_us, delay_us: least_us, random }
    }

    pub(super) fn next_us(&mut self) -> u64 {
        let delay_us = self.delay_us;
        self.delay_us = (delay_us * 2).min(BACKOFF_MAX_US);
        self.random.random_range(delay_us / 2..=delay_us)
    }

    pub(super) fn reset(&mut self) {
        self.delay_us = self.least_us;
    }
}
