//! When the cache is switched on and off: by the clock, or by hand from the first key press on. Not how that is done.

use std::time::Duration;

use protocol::time::Time;

use super::PhaseKind;

/// How long the caches have, once they are switched on, before their phase counts.
const FILL: Duration = Duration::from_secs(3);
/// Short phases have to do with this part of themselves; without the cache, all need no more than a fifth.
const FILL_PERCENT: u32 = 40;
const BURN_PERCENT: u32 = 20;

/// Between two looks; longer, nobody was there to look: a machine that slept, or that gave this process no core.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// All its times are of one clock.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    phase: Duration,
    /// Later by all the time in which nobody looked.
    start: Time,
    looked: Time,
    by_hand: bool,
    windows: Vec<PhaseWindow>,
}

/// A time in which the cache was on, or off, for long enough to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhaseWindow {
    pub(crate) kind: PhaseKind,
    pub(crate) from: Time,
    /// For the last one, the end of time.
    pub(crate) to: Time,
}

impl PhaseWindow {
    pub(crate) fn has(&self, at: Time) -> bool {
        (self.from..self.to).contains(&at)
    }
}

impl Script {
    /// Two phases of this length, the first of them without the cache and from now on.
    pub(crate) fn new(start: Time, phase: Duration) -> Script {
        let (by_hand, windows) = (false, Vec::new());
        let mut script = Script { phase, start, looked: start, by_hand, windows };
        script.begin(start, PhaseKind::WithoutCache);
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

    pub(crate) fn toggle(&mut self, now: Time) {
        self.by_hand = true;
        self.begin(now, self.kind().other());
    }

    /// True if the cache is to be switched on now. A phase that nobody has seen is not over.
    pub(crate) fn turn(&mut self, now: Time) -> bool {
        let looked = std::mem::replace(&mut self.looked, now);
        let unseen = now.since(looked.after(LOOK_MAX));
        self.start = self.start.after(unseen);
        if let Some(window) = self.windows.last_mut().filter(|window| window.from > looked) {
            window.from = window.from.after(unseen);
        }
        let due = !self.by_hand && self.windows.len() == 1 && now >= self.start.after(self.phase);
        if due {
            self.begin(now, PhaseKind::WithCache);
        }
        due
    }

    pub(crate) fn is_over(&self, now: Time) -> bool {
        !self.by_hand && now >= self.start.after(2 * self.phase)
    }

    fn begin(&mut self, now: Time, kind: PhaseKind) {
        if let Some(window) = self.windows.last_mut() {
            // It may end before it counts.
            window.to = now.max(window.from);
        }
        let settling = match kind {
            PhaseKind::WithoutCache => self.phase * BURN_PERCENT / 100,
            PhaseKind::WithCache => (self.phase * FILL_PERCENT / 100).min(FILL),
        };
        self.windows.push(PhaseWindow { kind, from: now.after(settling), to: Time(u64::MAX) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASE: Duration = Duration::from_secs(10);

    fn second(number: u64) -> Time {
        Time(number * 1_000_000)
    }

    #[test]
    fn by_itself_it_goes_through_two_phases_and_counts_their_steady_parts() {
        let mut script = Script::new(second(2), PHASE);
        assert!((2..12).all(|at| !script.turn(second(at))));
        assert!(script.turn(second(12)) && !script.turn(second(13)));
        assert!(!script.is_over(second(21)) && script.is_over(second(22)));
        let expected = [
            PhaseWindow { kind: PhaseKind::WithoutCache, from: second(4), to: second(12) },
            PhaseWindow { kind: PhaseKind::WithCache, from: second(15), to: Time(u64::MAX) },
        ];
        assert_eq!(script.windows(), expected);
        assert!(script.windows()[0].has(second(4)) && !script.windows()[0].has(second(12)));
    }

    #[test]
    fn time_in_which_nobody_looked_belongs_to_no_phase() {
        let mut script = Script::new(second(0), PHASE);
        assert!(!script.turn(second(1)) && !script.turn(second(30)), "28 seconds were not seen");
        assert_eq!(script.windows()[0].from, second(30));
        let looks = |script: &mut Script, from: u64, to: u64| (from..=to).any(|at| script.turn(second(at)));
        assert!(!looks(&mut script, 31, 37) && looks(&mut script, 38, 38));
        assert!(!looks(&mut script, 39, 47) && !script.is_over(second(47)) && script.is_over(second(48)));
    }

    #[test]
    fn by_hand_it_goes_on_for_ever_and_windows_that_end_early_are_empty() {
        let mut script = Script::new(second(0), PHASE);
        script.toggle(second(1));
        assert!(!script.turn(second(2)));
        script.toggle(second(2));
        assert!((3..=60).all(|at| !script.turn(second(at))) && !script.is_over(second(60)));
        assert_eq!(script.kind(), PhaseKind::WithoutCache);
        assert!(
            (0..second(4).0)
                .step_by(1_000)
                .all(|at| !script.windows().iter().any(|window| window.has(Time(at))))
        );
        assert!(script.windows()[2].has(second(4)));
    }
}
