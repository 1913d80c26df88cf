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

    /// For how long it has run without a break.
    pub(crate) fn lasts(&self, now: Time) -> Duration {
        now.since(self.since)
    }
}
