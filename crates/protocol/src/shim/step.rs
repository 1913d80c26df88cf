//! One step of a shim: when it is taken and what it does. Not what it decides.

use bytes::Bytes;
use wire::message::Reply;
use wire::{Message, Peer};

use super::Effect;
use super::operation::Origin;
use super::operations::status_of;
use super::refusal::Refusal;
use crate::time::Time;

#[derive(Debug)]
pub(super) struct ShimStep<'a> {
    pub(super) now: Time,
    pub(super) effects: &'a mut Vec<Effect>,
}

impl ShimStep<'_> {
    pub(super) fn send(&mut self, to: Peer, message: Message) {
        self.effects.push(Effect::Send { to, message });
    }

    /// `value` is a complete RESP reply.
    pub(super) fn reply(&mut self, origin: Origin, value: Bytes) {
        self.answer(origin, Reply { status: status_of(&value), value, ..Reply::default() });
    }

    /// `text` is a complete RESP error.
    pub(super) fn reply_error(&mut self, origin: Origin, text: &str) {
        self.reply(origin, Bytes::copy_from_slice(text.as_bytes()));
    }

    pub(super) fn refuse(&mut self, origin: Origin, refusal: &Refusal) {
        let Refusal { status, value } = refusal.clone();
        self.answer(origin, Reply { status, value, ..Reply::default() });
    }

    /// Whatever `reply` says of whose it is.
    pub(super) fn answer(&mut self, origin: Origin, reply: Reply) {
        self.send(origin.from, Message::Reply(Reply { request: origin.request, ..reply }));
    }
}
