//! Large replies on their way to a client: as many bytes as it takes, in its turn, with nothing in between. Not where they
//! come from.

use std::collections::VecDeque;

use bytes::Bytes;
use wire::message::{Cancel, Credit, Follows, Part, Reply};
use wire::{Message, Peer};

use crate::router::flow::answer::Freed;
use crate::router::flow::pipeline::{Operation, Progress};
use crate::router::flow::ran::Heard;
use crate::router::front::client::Client;
use crate::router::{ClientId, Effect, Router, Routing};
use crate::storage::{EARLY_BYTES, WINDOW_BYTES};
use crate::time::Time;

/// A reply of which not everything has come, or not everything has been given to the client.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) request: u64,
    peer: Peer,
    /// They wait for earlier replies of the client.
    parts: VecDeque<Bytes>,
    /// There are no more parts.
    ended: bool,
    /// What may be asked for once the client has taken what it was given: as much, and when its turn comes the rest of the
    /// window.
    unread: u64,
    total: usize,
    /// What else is to be said to the client; a push in the middle of a reply would be a part of it.
    pushes: Vec<Bytes>,
    pushes_bytes: usize,
}

/// The next operation to be told to the client as a whole. A large reply before it is given as far as it has come.
#[inline]
pub(crate) fn next_answered(
    id: ClientId,
    state: &mut Client,
    (pipeline_max, bytes_max): (usize, usize),
    effects: &mut Vec<Effect>,
) -> Option<(Operation, Bytes)> {
    if state.pipeline.streams() {
        pass_on(id, state, (pipeline_max, bytes_max), effects);
    }
    state.pipeline.pop_answered()
}

#[cold]
fn pass_on(
    id: ClientId,
    state: &mut Client,
    (pipeline_max, bytes_max): (usize, usize),
    effects: &mut Vec<Effect>,
) {
    if let Some((operation, held_bytes)) = state.pipeline.streaming()
        && let Progress::Streaming(streaming) = &mut operation.progress
    {
        for bytes in streaming.parts.drain(..) {
            *held_bytes -= bytes.len();
            operation.held_bytes -= bytes.len();
            streaming.total += bytes.len();
            streaming.unread += bytes.len() as u64;
            if !operation.silent {
                effects.push(Effect::Part { client: id, bytes });
            }
        }
        if operation.silent {
            streaming.ask_for_more(effects);
        }
        if streaming.ended {
            let pushes = std::mem::take(&mut streaming.pushes).into_iter();
            let total = streaming.total;
            operation.streamed = true;
            operation.progress = Progress::Done(Bytes::new());
            effects.extend(pushes.map(|bytes| Effect::Push { client: id, bytes }));
            state.replied(total, pipeline_max, bytes_max);
        }
    }
}

impl Streaming {
    fn ask_for_more(&mut self, effects: &mut Vec<Effect>) {
        let bytes = std::mem::take(&mut self.unread);
        if bytes > 0 && !self.ended {
            let message = Message::Credit(Credit { request: self.request, bytes });
            effects.push(Effect::Send { to: self.peer, message });
        }
    }
}

impl Router {
    /// The start of a large reply. Its command has been carried out, so what waits for its keys may go on.
    pub(crate) fn reply_begins(&mut self, now: Time, from: Peer, reply: Reply, effects: &mut Vec<Effect>) {
        let pending = self.pending.get(reply.request).filter(|pending| pending.peer == from);
        let read = pending.and_then(|pending| pending.read.as_ref()).filter(|read| read.streams);
        let (Some(pending), Some(read), false) = (pending, read, reply.status.is_refusal()) else {
            return self.unwanted(now, from, reply.request, effects);
        };
        let (origin, heard) = (pending.origin, Heard::of(pending, false));
        if self.config.routing == Routing::Learned {
            self.learned.learn(read.key.digest, read.view, reply.cached);
        }
        let client = self.clients.get_mut(origin.client);
        let operation = client.and_then(|client| client.pipeline.get_mut(origin.sequence));
        let Some(operation) = operation.filter(|found| matches!(found.progress, Progress::Sent(_))) else {
            return self.unwanted(now, from, reply.request, effects);
        };
        operation.ran.heard(now, heard, true);
        let freed = Freed::of(&operation.touch);
        operation.progress = Progress::Streaming(Box::new(Streaming {
            request: reply.request,
            peer: from,
            parts: VecDeque::new(),
            ended: false,
            unread: WINDOW_BYTES - EARLY_BYTES,
            total: 0,
            pushes: Vec::new(),
            pushes_bytes: 0,
        }));
        self.counters.streamed += 1;
        self.pending.set_streams(reply.request);
        self.keep(origin.client, origin.sequence, reply.value, false);
        self.advance(now, origin.client, freed, effects);
    }

    pub(crate) fn part(&mut self, now: Time, from: Peer, part: Part, effects: &mut Vec<Effect>) {
        let Part { request, follows, value } = part;
        let known = self.pending.get(request).filter(|pending| pending.peer == from && pending.streams);
        let Some(origin) = known.map(|pending| pending.origin) else {
            return match follows {
                Follows::More => self.unwanted(now, from, request, effects),
                Follows::Nothing | Follows::Lost => self.late(now, from),
            };
        };
        if follows != Follows::More {
            self.pending.remove(request);
        }
        if follows == Follows::Lost {
            return self.break_off(origin.client);
        }
        self.keep(origin.client, origin.sequence, value, follows == Follows::Nothing);
        self.advance(now, origin.client, Freed::Nothing, effects);
    }

    fn keep(&mut self, client: u32, sequence: u64, value: Bytes, last: bool) {
        let Some(state) = self.clients.get_mut(client) else { return };
        state.pipeline.hold(sequence, value.len());
        let operation = state.pipeline.get_mut(sequence);
        if let Some(Progress::Streaming(streaming)) = operation.map(|operation| &mut operation.progress) {
            streaming.parts.push_back(value);
            streaming.ended = last;
        }
    }

    /// Nobody waits for this reply any more: whoever sends it had better stop.
    fn unwanted(&mut self, now: Time, from: Peer, request: u64, effects: &mut Vec<Effect>) {
        self.late(now, from);
        effects.push(Effect::Send { to: from, message: Message::Cancel(Cancel { request }) });
    }

    /// The client has taken all that it was given.
    pub(crate) fn drained(&mut self, client: u32, effects: &mut Vec<Effect>) {
        let state = self.clients.get_mut(client);
        let streaming = state.and_then(|state| state.pipeline.streaming());
        if let Some((Operation { progress: Progress::Streaming(streaming), .. }, _)) = streaming {
            streaming.ask_for_more(effects);
        }
    }

    /// The rest of a reply cannot be had. The client has its start, and there is no way to take that back.
    pub(crate) fn break_off(&mut self, client: u32) {
        self.counters.broken_off += 1;
        self.killed.push(ClientId(client));
    }

    /// Something that the client has not asked for now, behind a reply that it is being given.
    pub(crate) fn push_behind(&mut self, client: u32, bytes: Bytes, effects: &mut Vec<Effect>) {
        let bytes_max = self.config.pipeline_bytes_max;
        let state = self.clients.get_mut(client);
        let streaming = state.and_then(|state| state.pipeline.streaming());
        let Some((Operation { progress: Progress::Streaming(streaming), .. }, _)) = streaming else {
            return effects.push(Effect::Push { client: ClientId(client), bytes });
        };
        streaming.pushes_bytes += bytes.len();
        streaming.pushes.push(bytes);
        if streaming.pushes_bytes > bytes_max {
            self.break_off(client);
        }
    }
}
