//! One step of a router: when it is taken, by which settings, what it counts and what it does. Not what it decides.

use bytes::Bytes;
use wire::{Message, Peer};

use crate::router::config::RouterConfig;
use crate::router::effect::{ClientId, CloseReason, Effect};
use crate::router::siblings::SiblingMessage;
use crate::router::statistics::RouterStatistics;
use crate::time::Time;

#[derive(Debug)]
pub(crate) struct RouterStep<'a> {
    pub(crate) now: Time,
    pub(crate) config: &'a RouterConfig,
    pub(crate) counters: &'a mut RouterStatistics,
    pub(crate) effects: &'a mut Vec<Effect>,
}

impl RouterStep<'_> {
    pub(crate) fn send(&mut self, to: Peer, message: Message) {
        self.effects.push(Effect::Send { to, message });
    }

    pub(crate) fn reply(&mut self, client: u32, bytes: Bytes) {
        self.effects.push(Effect::Reply { client: ClientId(client), bytes });
    }

    pub(crate) fn push(&mut self, client: u32, bytes: Bytes) {
        self.effects.push(Effect::Push { client: ClientId(client), bytes });
    }

    pub(crate) fn tell(&mut self, thread: u16, message: SiblingMessage) {
        self.effects.push(Effect::Tell { thread, message: Box::new(message) });
    }

    /// Once the client has what it was told so far.
    pub(crate) fn close(&mut self, client: u32) {
        self.effects.push(Effect::Close { client: ClientId(client), reason: CloseReason::Answered });
    }
}
