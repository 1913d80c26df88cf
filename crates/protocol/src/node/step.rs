//! One step of a node: when it is taken and what it does. Not what it decides.

use wire::{Message, Peer};

use super::Effect;
use crate::time::Time;

#[derive(Debug)]
pub(super) struct NodeStep<'a> {
    pub(super) now: Time,
    pub(super) effects: &'a mut Vec<Effect>,
}

impl NodeStep<'_> {
    pub(super) fn send(&mut self, to: Peer, message: Message) {
        self.effects.push(Effect::Send { to, message });
    }
}
