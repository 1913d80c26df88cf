//! The answer to one request: a part of its operation's reply, or the whole. Not who gave it.

use bytes::Bytes;
use wire::{Peer, ShimId, Status};

use crate::router::flow::Flow;
use crate::router::flow::event::FlowEvent;
use crate::router::flow::gather::{self, Merge};
use crate::router::flow::keyless::RANDOMKEY;
use crate::router::flow::pipeline::{FanOut, FanPart, OperationProgress};
use crate::router::flow::ran::RequestHeard;
use crate::router::flow::reply::PartReply;
use crate::router::flow::request::{NOBODY, RequestOrigin};
use crate::router::flow::send::Outgoing;
use crate::router::flow::touch::{Freed, Touch};
use crate::router::replies;
use crate::router::step::RouterStep;
use commands::CommandKind;

impl Flow {
    pub(crate) fn part_answered(
        &mut self,
        step: &mut RouterStep<'_>,
        origin: RequestOrigin,
        heard: RequestHeard,
        reply: PartReply,
    ) {
        let RequestOrigin { client, sequence, .. } = origin;
        if client == NOBODY {
            return self.todos.tell(FlowEvent::Told { question: origin.part, reply });
        }
        let Some(caller) = self.callers.get_mut(client) else { return };
        let Some(operation) = caller.pipeline.get_mut(sequence) else { return };
        let alone = matches!(operation.progress, OperationProgress::Sent(_));
        operation.ran.heard(step.now, heard, alone);
        let resp3 = operation.manner.resp3;
        let (freed, bytes) = match &mut operation.progress {
            OperationProgress::Sent(_) => {
                let bytes = match reply.status {
                    Status::Nil => Bytes::from_static(replies::nil(resp3)),
                    _ => reply.value,
                };
                (Freed::of(&operation.touch), bytes)
            }
            OperationProgress::Fan(fan) => {
                let (nil, reply_bytes) = (reply.is_nil(), reply.value.len());
                let Some(part) = fan.parts.get_mut(origin.part as usize) else { return };
                let digests = part.touch.iter().copied().collect();
                part.reply = Some(reply);
                fan.outstanding -= 1;
                if fan.outstanding > 0 {
                    caller.pipeline.hold(sequence, reply_bytes);
                    return self.todos.advance(client, Freed::Keys(digests));
                }
                if let Merge::RandomKey { left } = &mut fan.merge
                    && nil
                    && let Some(next) = left.pop()
                {
                    return self.ask_next_for_a_key(step, origin, next);
                }
                if let Some(event) = told_to_front(origin, fan) {
                    return self.todos.tell(event);
                }
                let answers: Vec<PartReply> =
                    fan.parts.drain(..).filter_map(|part: FanPart| part.reply).collect();
                let merged = gather::merge(&fan.merge, &answers, resp3);
                let all = matches!(operation.touch, Touch::All);
                (if all { Freed::All } else { Freed::Keys(digests) }, merged)
            }
            _ => return,
        };
        let reply_bytes = bytes.len();
        operation.progress = OperationProgress::Done(bytes);
        caller.pipeline.hold(sequence, reply_bytes);
        self.todos.advance(client, freed);
    }

    fn ask_next_for_a_key(&mut self, step: &mut RouterStep<'_>, origin: RequestOrigin, shim: ShimId) {
        let frame = RANDOMKEY;
        let sent =
            self.traffic.send_execute(step, origin, Outgoing::keyless(CommandKind::Keyless, shim, &frame));
        let operation = self.callers.operation(origin.client, origin.sequence);
        if let Some(OperationProgress::Fan(fan)) = operation.map(|operation| &mut operation.progress) {
            fan.outstanding = 1;
            fan.parts[0] = FanPart::alone(sent);
        }
    }
}

/// What the front is told of a command that it answers itself.
fn told_to_front(origin: RequestOrigin, fan: &mut FanOut) -> Option<FlowEvent> {
    match fan.merge {
        Merge::Subscribed => {
            let replies = std::mem::take(&mut fan.parts).into_iter().filter_map(|part| part.reply);
            let error = replies.into_iter().find(PartReply::is_error).map(|part| part.value);
            Some(FlowEvent::Subscribed { origin, error })
        }
        Merge::Users => {
            let parts = fan.parts.drain(..).filter_map(|part| Some((part.sent.peer, part.reply?)));
            let replies = parts.filter_map(|(peer, reply)| match peer {
                Peer::Shim(shim) => Some((shim, reply)),
                Peer::Node(_) | Peer::Router(_) => None,
            });
            Some(FlowEvent::UsersChanged { origin, replies: replies.collect() })
        }
        _ => None,
    }
}
