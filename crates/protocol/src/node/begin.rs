//! Reads before the node begins them: at its rate, if it has one, and who is told how many may be under way. Not what is done
//! with them then.

use std::time::Duration;

use bytes::Bytes;
use wire::message::Window;
use wire::{Message, Peer};

use super::{Effect, Node};
use crate::requests::{self, Arrival, Due, RequestClass, RequestLimits};
use crate::time::Time;

/// What routers may have under way at a node with a rate, as time at that rate: some ticks.
const WINDOW_AT_RATE_MS: u64 = 30;
/// A node that has told a router nothing for as long as this, although its shims have it wait, might be taken for one that
/// hangs.
const SIGN_OF_LIFE: Duration = Duration::from_millis(40);

const OVERLOADED: &[u8] = b"-BUSY DistCache: the cache node is over its request rate\r\n";

impl Node {
    pub(super) fn arrives(&mut self, now: Time, from: Peer, message: Message, effects: &mut Vec<Effect>) {
        if !matches!(message, Message::Read(_)) {
            return self.message(now, from, message, effects);
        }
        self.windows.asked(now, from);
        let waited = requests::waited_before(&message);
        match self.waiting.arrive(now, (from, message), RequestClass::Client, waited, true) {
            Arrival::Serve((from, message)) => self.message(now, from, message, effects),
            Arrival::Queued => self.statistics.waited += 1,
            Arrival::Refuse((from, message)) => self.turn_away(from, &message, effects),
        }
    }

    pub(super) fn begin_waiting(&mut self, now: Time, effects: &mut Vec<Effect>) {
        while let Some(due) = self.waiting.next(now, true) {
            match due {
                Due::Serve((_, (from, message))) => self.message(now, from, message, effects),
                Due::Refuse((_, (from, message))) => self.turn_away(from, &message, effects),
            }
        }
    }

    fn turn_away(&mut self, from: Peer, message: &Message, effects: &mut Vec<Effect>) {
        self.statistics.overflowed += 1;
        if let Some(answer) = requests::refusal(message, Bytes::from_static(OVERLOADED)) {
            self.send(from, answer, effects);
        }
    }

    /// Tells routers how many reads they may have under way, and that it lives while theirs wait.
    pub(super) fn tick_waiting(&mut self, now: Time, effects: &mut Vec<Effect>) {
        for (from, message) in self.waiting.expired(now) {
            self.turn_away(from, &message, effects);
        }
        let limits = self.waiting.limits();
        let total = limits.waits().then(|| match limits.rate_max {
            0 => limits.window_max,
            rate_max => {
                u32::try_from(rate_max * WINDOW_AT_RATE_MS / 1000).unwrap_or(u32::MAX).min(limits.window_max)
            }
        });
        let signs = limits.waits() && self.pending() > 0 && now.since(self.signed) >= SIGN_OF_LIFE;
        if signs {
            self.signed = now;
        }
        self.windows.tell(now, total, signs, |router, requests| {
            let message = Message::Window(Window { requests });
            effects.push(Effect::Send { to: Peer::Router(router), message });
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
