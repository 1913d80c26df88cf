//! Since when a process runs without a break. One that was stopped, or whose machine was, finds old questions and has yet to
//! read their answers: it blames nobody for a silence that it slept through.

use std::time::Duration;

use crate::time::Time;

/// The breaks of a process, as its ticks show them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Awake {
    ticked: Time,
    since: Time,
}

impl Awake {
    /// Whether the process has ticked within this long before.
    pub(crate) fn tick(&mut self, now: Time, break_min: Duration) -> bool {
        let runs = now.since(std::mem::replace(&mut self.ticked, now)) <= break_min;
        if !runs {
            self.since = now;
        }
        runs
    }

    /// For how long others may be silent, at every tick: any time unless it has run itself for as long as they may be. When its
    /// machine goes on after a sleep, theirs may do so, too, with nothing answered yet.
    pub(crate) fn patience(&mut self, now: Time, silence_max: Duration) -> Duration {
        self.tick(now, silence_max / 2);
        if now.since(self.since) > silence_max { silence_max } else { Duration::MAX }
    }
}
