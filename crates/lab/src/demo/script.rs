//! When the cache is switched on and off: by the clock, or by hand from the first key press on. Not how that is done.

use super::PhaseKind;

/// How long the caches have, once they are switched on, before their phase counts.
const FILL_US: u64 = 3_000_000;
/// Short phases have to do with this part of themselves; without the cache, all need no more than a fifth.
const FILL_PERCENT: u64 = 40;
const BURN_PERCENT: u64 = 20;

/// Between two looks; longer, nobody was there to look: a machine that slept, or that gave this process no core.
const LOOK_US_MAX: u64 = 1_000_000;

/// Microseconds on one clock.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    phase_us: u64,
    /// Later by all the time in which nobody looked.
    start_us: u64,
    looked_us: u64,
    by_hand: bool,
    windows: Vec<PhaseWindow>,
}

/// A time in which the cache was on, or off, for long enough to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhaseWindow {
    pub(crate) kind: PhaseKind,
    pub(crate) from_us: u64,
    /// For the last one, the end of time.
    pub(crate) to_us: u64,
}

impl PhaseWindow {
    pub(crate) fn has(&self, at_us: u64) -> bool {
        (self.from_us..self.to_us).contains(&at_us)
    }
}

impl Script {
    /// Two phases of this length, the first of them without the cache and from now on.
    pub(crate) fn new(start_us: u64, phase_us: u64) -> Script {
        let (by_hand, windows) = (false, Vec::new());
        let mut script = Script { phase_us, start_us, looked_us: start_us, by_hand, windows };
        script.begin(start_us, PhaseKind::WithoutCache);
        script
    }

    pub(crate) fn kind(&self) -> PhaseKind {
        self.windows.last().map_or(PhaseKind::WithoutCache, |window| window.kind)
    }

    pub(crate) fn is_by_hand(&self) -> bool {
        self.by_hand
    }

    pub(crate) fn windows(&self) -> &[PhaseWindow] {
        &self.windows
    }

    /// From now on nothing happens by itself.
    pub(crate) fn take_over(&mut self) {
        self.by_hand = true;
    }

    pub(crate) fn toggle(&mut self, now_us: u64) {
        self.by_hand = true;
        self.begin(now_us, self.kind().other());
    }

    /// True if the cache is to be switched on now. A phase that nobody has seen is not over.
    pub(crate) fn turn(&mut self, now_us: u64) -> bool {
        let looked_us = std::mem::replace(&mut self.looked_us, now_us);
        let unseen_us = now_us.saturating_sub(looked_us + LOOK_US_MAX);
        self.start_us += unseen_us;
        if let Some(window) = self.windows.last_mut().filter(|window| window.from_us > looked_us) {
            window.from_us += unseen_us;
        }
        let due = !self.by_hand && self.windows.len() == 1 && now_us >= self.start_us + self.phase_us;
        if due {
            self.begin(now_us, PhaseKind::WithCache);
        }
        due
    }

    pub(crate) fn is_over(&self, now_us: u64) -> bool {
        !self.by_hand && now_us >= self.start_us + 2 * self.phase_us
    }

    fn begin(&mut self, now_us: u64, kind: PhaseKind) {
        if let Some(window) = self.windows.last_mut() {
            // It may end before it counts.
            window.to_us = now_us.max(window.from_us);
        }
        let settling_us = match kind {
            PhaseKind::WithoutCache => self.phase_us * BURN_PERCENT / 100,
            PhaseKind::WithCache => (self.phase_us * FILL_PERCENT / 100).min(FILL_US),
        };
        self.windows.push(PhaseWindow { kind, from_us: now_us + settling_us, to_us: u64::MAX });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn by_itself_it_goes_through_two_phases_and_counts_their_steady_parts() {
        let mut script = Script::new(2 * SECOND, 10 * SECOND);
        assert!((2..12).all(|second| !script.turn(second * SECOND)));
        assert!(script.turn(12 * SECOND) && !script.turn(13 * SECOND));
        assert!(!script.is_over(21 * SECOND) && script.is_over(22 * SECOND));
        let expected = [
            PhaseWindow { kind: PhaseKind::WithoutCache, from_us: 4 * SECOND, to_us: 12 * SECOND },
            PhaseWindow { kind: PhaseKind::WithCache, from_us: 15 * SECOND, to_us: u64::MAX },
        ];
        assert_eq!(script.windows(), expected);
        assert!(script.windows()[0].has(4 * SECOND) && !script.windows()[0].has(12 * SECOND));
    }

    #[test]
    fn time_in_which_nobody_looked_belongs_to_no_phase() {
        let mut script = Script::new(0, 10 * SECOND);
        assert!(!script.turn(SECOND) && !script.turn(30 * SECOND), "28 seconds were not seen");
        assert_eq!(script.windows()[0].from_us, 30 * SECOND);
        let looks = |script: &mut Script, from: u64, to: u64| (from..=to).any(|at| script.turn(at * SECOND));
        assert!(!looks(&mut script, 31, 37) && looks(&mut script, 38, 38));
        assert!(!looks(&mut script, 39, 47) && !script.is_over(47 * SECOND) && script.is_over(48 * SECOND));
    }

    #[test]
    fn by_hand_it_goes_on_for_ever_and_windows_that_end_early_are_empty() {
        let mut script = Script::new(0, 10 * SECOND);
        script.toggle(SECOND);
        assert!(!script.turn(2 * SECOND));
        script.toggle(2 * SECOND);
        assert!((3..=60).all(|second| !script.turn(second * SECOND)) && !script.is_over(60 * SECOND));
        assert_eq!(script.kind(), PhaseKind::WithoutCache);
        assert!(
            (0..4 * SECOND).step_by(1_000).all(|at| !script.windows().iter().any(|window| window.has(at)))
        );
        assert!(script.windows()[2].has(4 * SECOND));
    }
}
