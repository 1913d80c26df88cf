//! How many reads a router may ask a second time because somebody was busy. Not which, or where.
//!
//! A retry adds load where there is too much of it. Bounded by a tenth of the reads, it adds at most a tenth.

use std::time::Duration;

use crate::time::Time;

/// In thousandths of a retry.
const EARNED_PER_READ: u32 = 100;
/// A router with few reads may retry this many per second all the same.
const EARNED_PER_SECOND: u64 = 10_000;
/// What is saved up for a burst: more would be felt by members that have just become busy.
const SAVED_MAX: u32 = 200_000;

#[derive(Clone, Debug)]
pub(crate) struct Budget {
    saved: u32,
    ticked: Time,
}

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget { saved: SAVED_MAX, ticked: Time(0) }
    }

    /// A read was sent for the first time.
    pub(crate) fn earn(&mut self) {
        self.saved = (self.saved + EARNED_PER_READ).min(SAVED_MAX);
    }

    pub(crate) fn tick(&mut self, now: Time) {
        let passed = now.since(self.ticked).min(Duration::from_secs(1)).as_micros() as u64;
        let earned = (passed * EARNED_PER_SECOND / 1_000_000) as u32;
        self.saved = (self.saved + earned).min(SAVED_MAX);
        self.ticked = now;
    }

    /// Whether `reads` may be asked again; they are paid for if so.
    pub(crate) fn spend(&mut self, reads: usize) -> bool {
        let price = (reads as u64).saturating_mul(1000);
        let affordable = u64::from(self.saved) >= price;
        if affordable {
            self.saved -= price as u32;
        }
        affordable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_reads_may_be_retried_in_the_long_run() {
        let mut budget = Budget::new();
        let mut retried = 0;
        for _ in 0..100_000 {
            budget.earn();
            retried += u32::from(budget.spend(1));
        }
        assert!((10_000..=10_200).contains(&retried), "{retried}");
    }

    #[test]
    fn a_quiet_router_has_its_few_and_never_saves_up_many() {
        let mut budget = Budget::new();
        assert!(budget.spend(200) && !budget.spend(1));
        let mut retried = 0;
        for tick in 1..=1000u64 {
            budget.tick(Time(tick * 10_000));
            retried += u32::from(budget.spend(1));
        }
        assert!((95..=101).contains(&retried), "{retried} in ten seconds");
        budget.tick(Time(1 << 50));
        assert!(!budget.spend(201));
    }
}
