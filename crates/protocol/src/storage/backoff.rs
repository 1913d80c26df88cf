//! Pauses between attempts to reach a server. Not the attempts.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::SmallRng;

const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Delays between attempts: doubled each time, spread so that shims do not come back all at once.
pub(super) struct Backoff {
    least: Duration,
    delay: Duration,
    random: SmallRng,
}

impl Backoff {
    /// `least`: the first delay.
    pub(super) fn new(least: Duration, random: SmallRng) -> Backoff {
        Backoff { least, delay: least, random }
    }

    pub(super) fn next(&mut self) -> Duration {
        let delay_us = self.delay.as_micros() as u64;
        self.delay = (self.delay * 2).min(BACKOFF_MAX);
        Duration::from_micros(self.random.random_range(delay_us / 2..=delay_us))
    }

    pub(super) fn reset(&mut self) {
        self.delay = self.least;
    }
}
