//! Whether the shim that serves is cut off from the routers while another process that may be it is not: then it hands over, as one that is
//! stopped does, and stands by. Not how it hands over, and never that another one displaces it.
//!
//! One that stands by tells how many routers it is linked to. Routers that are gone for everybody are no reason.

use std::time::Duration;

use wire::message::Tenure;
use wire::{Message, Peer};

use super::step::ShimStep;
use super::{Shim, StorageState};
use crate::time::Time;

/// How often one that stands by tells it, and for how long it counts.
const TELL: Duration = Duration::from_millis(500);
const COUNTS_MAX: Duration = Duration::from_secs(2);
/// Routers that have just started, or lost all their links, may be on their way for so long.
const CUT_OFF_MIN: Duration = Duration::from_secs(3);
/// Who has just become the shim stays it for so many leases, whatever it reaches.
const TENURE_LEASES_MIN: u32 = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct RouterReach {
    /// When this process has told it last.
    told: Time,
    /// The most routers that another process has said to reach lately, and when.
    other: Option<(u32, Time)>,
    /// What this process was linked to since it is the shim.
    met_routers: bool,
    met_others: bool,
    cut_off_since: Option<Time>,
    /// It hands over because it is cut off, and does not end.
    retreats: bool,
}

impl RouterReach {
    /// What another process says of itself.
    pub(super) fn told(&mut self, now: Time, routers: u32) {
        let more = self.other(now).is_none_or(|most| routers >= most);
        if more {
            self.other = Some((routers, now));
        }
    }

    fn other(&self, now: Time) -> Option<u32> {
        self.other.filter(|(_, at)| now.since(*at) < COUNTS_MAX).map(|(routers, _)| routers)
    }

    /// Whether it has handed over, or was about to, because it was cut off.
    pub(super) fn ends_retreat(&mut self) -> bool {
        std::mem::take(&mut self.retreats)
    }

    /// Whether one that is linked to so many routers reaches too few of them for too long.
    fn is_cut_off(&mut self, now: Time, routers: u32, others: u32) -> bool {
        self.met_routers |= routers > 0;
        self.met_others |= others > 0;
        let too_few = match self.other(now) {
            Some(other) => routers.saturating_mul(2) < other,
            // Nobody is left who could tell it: this machine may be alone.
            None => routers == 0 && others == 0 && self.met_routers && self.met_others,
        };
        if !too_few {
            self.cut_off_since = None;
            return false;
        }
        now.since(*self.cut_off_since.get_or_insert(now)) >= CUT_OFF_MIN
    }
}

impl Shim {
    pub(super) fn tick_reach(&mut self, step: &mut ShimStep<'_>) {
        let others = self.others_linked;
        if others == 0 && !self.reach.met_others {
            return;
        }
        let routers = self.linked.iter().filter(|peer| matches!(peer, Peer::Router(_))).count() as u32;
        match self.storage {
            StorageState::Down { .. } => {
                if others > 0 && step.now.since(self.reach.told) >= TELL {
                    self.reach.told = step.now;
                    let tenure = Tenure { age: None, routers: Some(routers) };
                    step.send(Peer::Shim(self.config.id), Message::Tenure(tenure));
                }
            }
            StorageState::Up { .. } => {
                let is_cut_off = self.reach.is_cut_off(step.now, routers, others);
                let has_been_it = step.now.since(self.governs_since);
                if is_cut_off && has_been_it >= self.config.lease.duration * TENURE_LEASES_MIN && self.stays()
                {
                    self.statistics.retreats += 1;
                    self.reach.retreats = true;
                    self.hand_over(step);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTS_MAX, CUT_OFF_MIN, RouterReach};
    use crate::time::Time;

    fn at(ms: u64) -> Time {
        Time(10_000_000 + ms * 1000)
    }

    /// When one that is told `other` all the time, and linked to `routers`, is cut off.
    fn cut_off(reach: &mut RouterReach, other: Option<u32>, routers: u32, others: u32) -> Option<u64> {
        (0..10_000).step_by(100).find(|ms| {
            if let Some(other) = other {
                reach.told(at(*ms), other);
            }
            reach.is_cut_off(at(*ms), routers, others)
        })
    }

    #[test]
    fn it_takes_another_one_that_reaches_more_than_twice_as_many() {
        let least = CUT_OFF_MIN.as_millis() as u64;
        for (other, own, expected) in
            [(1, 0, Some(least)), (5, 2, Some(least)), (4, 2, None), (0, 0, None), (2, 3, None)]
        {
            assert_eq!(
                cut_off(&mut RouterReach::default(), Some(other), own, 1),
                expected,
                "{other} and {own}"
            );
        }
    }

    #[test]
    fn one_that_reaches_nobody_has_met_somebody_before() {
        let mut reach = RouterReach::default();
        assert_eq!(cut_off(&mut reach, None, 0, 0), None);
        reach.is_cut_off(at(0), 1, 0);
        assert_eq!(cut_off(&mut reach, None, 0, 0), None, "nobody stands by");
        reach.is_cut_off(at(0), 1, 1);
        assert_eq!(cut_off(&mut reach, None, 0, 1), None, "somebody would tell it");
        assert!(cut_off(&mut reach, None, 0, 0).is_some());
    }

    #[test]
    fn routers_that_are_on_their_way_are_waited_for() {
        let mut reach = RouterReach::default();
        let late = CUT_OFF_MIN.as_millis() as u64 - 100;
        for ms in (0..20_000).step_by(100) {
            reach.told(at(ms), 2);
            let routers = if ms % 3_000 == late { 1 } else { 0 };
            assert!(!reach.is_cut_off(at(ms), routers, 1), "at {ms} ms");
        }
    }

    #[test]
    fn what_was_told_long_ago_does_not_count_and_the_most_of_several_does() {
        let mut reach = RouterReach::default();
        reach.told(at(0), 5);
        reach.told(at(1), 0);
        assert_eq!(reach.other(at(2)), Some(5));
        let later = COUNTS_MAX.as_millis() as u64;
        reach.told(at(later), 1);
        assert_eq!(reach.other(at(later)), Some(1));
        assert_eq!(reach.other(at(3 * later)), None);
    }
}
