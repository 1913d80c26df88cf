//! Large replies on their way to a client: as many bytes as it takes, in its turn, with nothing in between. Not where they
//! come from.

use bytes::Bytes;
use wire::message::{Cancel, Follows, Part, Reply};
use wire::{Message, Peer};

use crate::router::config::Routing;
use crate::router::flow::Flow;
use crate::router::flow::pipeline::{ClientOperation, OperationProgress};
use crate::router::flow::ran::RequestHeard;
use crate::router::flow::request::RequestOrigin;
use crate::router::flow::streaming::Streaming;
use crate::router::flow::touch::Freed;
use crate::router::step::RouterStep;

impl Flow {
    /// The start of a large reply. Its command has been carried out, so what waits for its keys may go on.
    pub(crate) fn reply_begins(&mut self, step: &mut RouterStep<'_>, from: Peer, reply: Reply) {
        let pending = self.traffic.pending.get(reply.request).filter(|pending| pending.peer == from);
        let read = pending.and_then(|pending| pending.read.as_ref()).filter(|read| read.streams);
        let (Some(pending), Some(read), false) = (pending, read, reply.status.is_refusal()) else {
            return self.unwanted(step, from, reply.request);
        };
        let (origin, heard) = (pending.origin, RequestHeard::of(pending, false));
        if step.config.routing == Routing::Learned {
            self.traffic.learned.learn(read.key.digest, read.view, reply.cached);
        }
        let operation = self.callers.operation(origin.client, origin.sequence);
        let Some(operation) = operation.filter(|found| matches!(found.progress, OperationProgress::Sent(_)))
        else {
            return self.unwanted(step, from, reply.request);
        };
        operation.ran.heard(step.now, heard, true);
        let freed = Freed::of(&operation.touch);
        operation.progress = OperationProgress::Streaming(Box::new(Streaming::new(reply.request, from)));
        step.counters.large_replies += 1;
        self.traffic.pending.set_streams(reply.request);
        self.keep(origin, reply.value, false);
        self.todos.advance(origin.client, freed);
    }

    pub(crate) fn part(&mut self, step: &mut RouterStep<'_>, from: Peer, part: Part) {
        let Part { request, follows, value } = part;
        let pending = &mut self.traffic.pending;
        let known = pending.get(request).filter(|pending| pending.peer == from && pending.streams);
        let Some(origin) = known.map(|pending| pending.origin) else {
            return match follows {
                Follows::More => self.unwanted(step, from, request),
                Follows::Nothing | Follows::Lost => self.traffic.members.late(step, from),
            };
        };
        if follows != Follows::More {
            pending.remove(request);
        }
        if follows == Follows::Lost {
            return self.break_off(step, origin.client);
        }
        self.keep(origin, value, follows == Follows::Nothing);
        self.todos.advance(origin.client, Freed::Nothing);
    }

    fn keep(&mut self, origin: RequestOrigin, value: Bytes, last: bool) {
        let RequestOrigin { client, sequence, .. } = origin;
        let Some(caller) = self.callers.get_mut(client) else { return };
        caller.pipeline.hold(sequence, value.len());
        let operation = caller.pipeline.get_mut(sequence);
        if let Some(OperationProgress::Streaming(streaming)) =
            operation.map(|operation| &mut operation.progress)
        {
            streaming.keep(value, last);
        }
    }

    /// Nobody waits for this reply any more: whoever sends it had better stop.
    fn unwanted(&mut self, step: &mut RouterStep<'_>, from: Peer, request: u64) {
        self.traffic.members.late(step, from);
        step.send(from, Message::Cancel(Cancel { request }));
    }

    fn streaming(&mut self, client: u32) -> Option<&mut Streaming> {
        match self.callers.get_mut(client)?.pipeline.streaming()? {
            (ClientOperation { progress: OperationProgress::Streaming(streaming), .. }, _) => Some(streaming),
            _ => None,
        }
    }

    /// The client has taken all that it was given.
    pub(crate) fn drained(&mut self, step: &mut RouterStep<'_>, client: u32) {
        if let Some(streaming) = self.streaming(client) {
            streaming.ask_for_more(step);
        }
    }

    /// Says something to the client that it has not asked for now, behind a reply that it is being given.
    pub(crate) fn push(&mut self, step: &mut RouterStep<'_>, client: u32, bytes: Bytes) {
        let Some(streaming) = self.streaming(client) else { return step.push(client, bytes) };
        if streaming.push(bytes) > step.config.settings.pipeline_bytes_max {
            self.break_off(step, client);
        }
    }
}
