//! One host's clock: an offset, a rate that is wrong by up to half a percent, how often it ticks. Not virtual time itself.

use std::time::Duration;

use protocol::time::Time;

use crate::random::SimRandom;

/// Two clocks that are wrong by this much in opposite directions differ by less than the 1 % that leases allow for.
const RATE_ERROR_PPM: u64 = 4_900;

/// As in production: a router that ticks much more seldom takes itself for stopped, and nobody else for hanging.
pub(crate) const ROUTER_TICK_US: u64 = 10_000;
/// The longest rest between two ticks of one that has links.
pub(crate) const REST_MAX: Duration = Duration::from_millis(125);

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClock {
    offset: u64,
    rate_ppm: u64,
}

impl HostClock {
    pub(crate) fn draw(random: &mut SimRandom, wrong: bool) -> HostClock {
        let offset = random.between(1_000_000_000, 2_000_000_000);
        let rate = random.between(1_000_000 - RATE_ERROR_PPM, 1_000_000 + RATE_ERROR_PPM);
        HostClock { offset, rate_ppm: if wrong { rate } else { 1_000_000 } }
    }

    /// Runs at another rate from `now` on.
    pub(crate) fn change_rate(&mut self, now: u64, random: &mut SimRandom) {
        let shown = self.at(now).0;
        *self = HostClock::draw(random, true);
        self.offset = 0;
        self.offset = shown - self.at(now).0;
    }

    /// What it shows at `now` of virtual time, in microseconds.
    pub(crate) fn at(&self, now: u64) -> Time {
        Time(self.offset + now / 1_000_000 * self.rate_ppm + now % 1_000_000 * self.rate_ppm / 1_000_000)
    }

    /// When it shows this, in virtual time to a few microseconds.
    pub(crate) fn when(&self, shown: u64) -> u64 {
        self.virtual_us(shown.saturating_sub(self.offset))
    }

    /// How much virtual time passes while it shows `microseconds`.
    pub(crate) fn virtual_us(&self, microseconds: u64) -> u64 {
        microseconds * 1_000_000 / self.rate_ppm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_never_goes_back_and_keeps_its_rate() {
        let clock = HostClock::draw(&mut SimRandom::new(3), true);
        let mut last = clock.at(0);
        for now in (0..5_000_000).step_by(997) {
            assert!(clock.at(now) >= last);
            last = clock.at(now);
        }
        let shown = clock.at(60_000_000).0 - clock.at(0).0;
        assert!(clock.virtual_us(shown).abs_diff(60_000_000) < 100);
        assert!(clock.when(clock.at(12_345_678).0).abs_diff(12_345_678) < 3);
    }
}
