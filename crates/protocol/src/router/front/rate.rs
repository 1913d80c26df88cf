//! How many commands a second come. Not how many there have been.

use std::time::Duration;

use crate::time::Time;

const RATE_OVER: Duration = Duration::from_secs(1);

/// Commands per second over the last whole second, and the start of the clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    started: Option<Time>,
    since: Time,
    requests: u64,
    per_second: u64,
}

impl Rate {
    pub(crate) fn per_second(&self) -> u64 {
        self.per_second
    }

    pub(crate) fn tick(&mut self, now: Time, requests: u64) {
        if self.started.is_none() {
            (self.started, self.since) = (Some(now), now);
        }
        let elapsed = now.since(self.since);
        if elapsed >= RATE_OVER {
            let more = requests - self.requests;
            self.per_second = (more as f64 / elapsed.as_secs_f64()).round() as u64;
            (self.since, self.requests) = (now, requests);
        }
    }

    /// Since the first tick.
    pub(crate) fn uptime(&self, now: Time) -> Duration {
        now.since(self.started.unwrap_or(now))
    }
}
