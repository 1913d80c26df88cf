//! The clock of a simulated cluster, what will happen, chance, and what a run shows of itself. Not what happens to whom.

use crate::event::SimEvent;
use crate::queue::EventQueue;
use crate::random::SimRandom;
use crate::trace::Trace;

/// What follows from more violations than these says nothing.
const VIOLATIONS_MAX: usize = 8;

pub(crate) struct World {
    /// Virtual time in microseconds.
    now: u64,
    queue: EventQueue<SimEvent>,
    pub(crate) random: SimRandom,
    pub(crate) trace: Trace,
    violations: Vec<String>,
}

impl World {
    pub(crate) fn new(random: SimRandom, trace: Trace) -> World {
        World { now: 0, queue: EventQueue::new(), random, trace, violations: Vec::new() }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn at(&mut self, time: u64, event: SimEvent) {
        self.queue.push(time, event);
    }

    /// Up to `most` microseconds from now.
    pub(crate) fn soon(&mut self, most: u64) -> u64 {
        self.now + self.random.below(most + 1)
    }

    /// Lets time pass until the next event, or until `end` if none comes before. The first violation ends it: what
    /// follows from it says nothing.
    pub(crate) fn next(&mut self, end: u64) -> Option<SimEvent> {
        if self.has_failed() {
            return None;
        }
        let next = self.queue.pop(end);
        self.now = next.as_ref().map_or(end, |(time, _)| *time);
        next.map(|(_, event)| event)
    }

    pub(crate) fn fail(&mut self, violation: String) {
        self.note(|| format!("VIOLATION {violation}"));
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(format!("at {:.6} s: {violation}", self.now as f64 / 1e6));
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.violations.is_empty()
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Something has happened to a host, or to a client.
    pub(crate) fn event(&mut self, kind: u8, host: usize) {
        self.trace.event(self.now, kind, host);
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        self.trace.note(self.now, what);
    }
}
