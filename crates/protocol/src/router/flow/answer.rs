//! A reply's way back: matched with its request, learned from, and asked for elsewhere if it is none. Not how it becomes
//! one with others.

use wire::message::Reply;
use wire::{Peer, Status};

use crate::router::config::Routing;
use crate::router::flow::Flow;
use crate::router::flow::ran::RequestHeard;
use crate::router::flow::reply::PartReply;
use crate::router::flow::retry::Cause;
use crate::router::step::RouterStep;

impl Flow {
    pub(crate) fn reply(&mut self, step: &mut RouterStep<'_>, from: Peer, reply: Reply) {
        let traffic = &mut self.traffic;
        traffic.interests.confirm(from, reply.request);
        if reply.more {
            return self.reply_begins(step, from, reply);
        }
        let asked = traffic.pending.get(reply.request).is_some_and(|pending| pending.peer == from);
        let Some(pending) = asked.then(|| traffic.pending.remove(reply.request)).flatten() else {
            return traffic.members.late(step, from);
        };
        traffic.members.judge(step, &pending, &reply);
        if let Some(read) = &pending.read
            && reply.status != Status::Busy
            && step.config.routing == Routing::Learned
        {
            let mut layers = reply.cached;
            if reply.hit {
                // A node knows only of its own copy, so its hit says nothing against the others.
                layers.0 |= traffic.learned.layers(read.key.digest, read.view).0;
            }
            traffic.learned.learn(read.key.digest, read.view, layers);
        }
        let answer = PartReply { status: reply.status, value: reply.value };
        match answer.status {
            Status::Busy if pending.read.is_some() => {
                let last = matches!(from, Peer::Shim(_)).then_some(answer);
                self.ask_again(step, pending, Cause::Busy(last));
            }
            Status::Large => self.ask_again(step, pending, Cause::Large),
            _ => {
                step.counters.hits += u64::from(reply.hit);
                step.counters.error_replies += u64::from(answer.status.is_refusal());
                self.part_answered(step, pending.origin, RequestHeard::of(&pending, reply.hit), answer);
            }
        }
    }
}
