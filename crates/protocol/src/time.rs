//! Time as the machines see it: microseconds of one monotonic clock that also counts suspension.

use std::time::Duration;

/// Microseconds of CLOCK_BOOTTIME, or of the simulator's clock. Times of two machines never meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    #[must_use]
    pub fn after(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(duration.as_micros() as u64))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}
