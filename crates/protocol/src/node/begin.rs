//! Reads before the node begins them: at its rate, if it has one, and who is told how many may be under way. Not what is done
//! with them then.

use std::time::Duration;

use bytes::Bytes;
use wire::message::Window;
use wire::{Message, Peer};

use super::Node;
use super::step::NodeStep;
use crate::requests::{self, Arrival, Due, RequestClass, RequestLimits};

/// What routers may have under way at a node with a rate, as time at that rate: some ticks.
const WINDOW_AT_RATE_MS: u64 = 30;
/// A node that has told a router nothing for as long as this, although its shims have it wait, might be taken for one that
/// hangs.
const SIGN_OF_LIFE: Duration = Duration::from_millis(40);

const OVERLOADED: &[u8] = b"-BUSY DistCache: the cache node is over its request rate\r\n";

impl Node {
    pub(super) fn arrives(&mut self, step: &mut NodeStep<'_>, from: Peer, message: Message) {
        if !matches!(message, Message::Read(_)) {
            return self.message(step, from, message);
        }
        self.windows.asked(step.now, from);
        let waited = requests::waited_before(&message);
        match self.waiting.arrive(step.now, (from, message), RequestClass::Client, waited, true) {
            Arrival::Serve((from, message)) => self.message(step, from, message),
            Arrival::Queued => self.statistics.waited += 1,
            Arrival::Refuse((from, message)) => self.turn_away(step, from, &message),
        }
    }

    pub(super) fn begin_waiting(&mut self, step: &mut NodeStep<'_>) {
        while let Some(due) = self.waiting.next(step.now, true) {
            match due {
                Due::Serve((_, (from, message))) => self.message(step, from, message),
                Due::Refuse((_, (from, message))) => self.turn_away(step, from, &message),
            }
        }
    }

    fn turn_away(&mut self, step: &mut NodeStep<'_>, from: Peer, message: &Message) {
        self.statistics.overflowed += 1;
        if let Some(answer) = requests::refusal(message, Bytes::from_static(OVERLOADED)) {
            step.send(from, answer);
        }
    }

    /// Tells routers how many reads they may have under way, and that it lives while theirs wait.
    pub(super) fn tick_waiting(&mut self, step: &mut NodeStep<'_>) {
        for (from, message) in self.waiting.expired(step.now) {
            self.turn_away(step, from, &message);
        }
        let limits = self.waiting.limits();
        let total = limits.waits().then(|| match limits.rate_max {
            0 => limits.window_max,
            rate_max => {
                u32::try_from(rate_max * WINDOW_AT_RATE_MS / 1000).unwrap_or(u32::MAX).min(limits.window_max)
            }
        });
        let signs = limits.waits() && self.pending() > 0 && step.now.since(self.signed) >= SIGN_OF_LIFE;
        if signs {
            self.signed = step.now;
        }
        self.windows.tell(step.now, total, signs, |router, requests| {
            let message = Message::Window(Window { requests });
            step.send(Peer::Router(router), message);
        });
    }

    /// Takes no more than `limits` from now on.
    pub fn limit(&mut self, limits: RequestLimits) {
        self.waiting.set_limits(limits);
    }

    /// Reads that wait to be begun.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
