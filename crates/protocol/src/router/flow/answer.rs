//! A reply's way back: matched with its request, learned from, and asked for elsewhere if it is none. Not how it becomes
//! one with others.

use wire::message::Reply;
use wire::{LayerSet, Peer, Status};

use crate::router::config::Routing;
use crate::router::flow::Flow;
use crate::router::flow::learned::fingerprint;
use crate::router::flow::pending::Pending;
use crate::router::flow::ran::RequestHeard;
use crate::router::flow::reply::PartReply;
use crate::router::flow::retry::Cause;
use crate::router::flow::traffic::RequestTraffic;
use crate::router::step::RouterStep;

impl Flow {
    pub(crate) fn reply(&mut self, step: &mut RouterStep<'_>, from: Peer, reply: Reply) {
        let traffic = &mut self.traffic;
        traffic.interests.confirm(from, reply.request);
        if reply.more {
            return self.reply_begins(step, from, reply);
        }
        let asked = traffic.pending.get(reply.request).filter(|pending| pending.peer == from);
        let Some(pending) = asked else { return traffic.members.late(step, from) };
        traffic.members.judge(step, pending, &reply);
        if let Some(read) = &pending.read
            && (!matches!(reply.status, Status::Busy | Status::Unlinked | Status::Refused)
                || is_directed(from, &reply))
            && step.config.routing == Routing::Learned
        {
            let mut layers = reply.cached;
            if reply.hit {
                // A node knows only of its own copy, so its hit says nothing against the others.
                layers.0 |= traffic.learned.layers(read.key.digest, read.view).0;
            }
            traffic.learned.learn(read.key.digest, read.view, layers);
        }
        if let Some(read) = &pending.read
            && reply.hit
            && (!reply.degree.is_base() || !traffic.elastic.is_empty())
            && let Some(placement) = &traffic.placement
        {
            let told = (reply.degree, placement.epoch());
            let fingerprint = fingerprint(read.key.digest, read.view);
            traffic.elastic.learn(step.now, fingerprint, told, || placement.preferences(&read.key));
        }
        let (origin, heard) = (pending.origin, RequestHeard::of(pending, reply.hit));
        let elsewhere = match reply.status {
            Status::Large | Status::Unlinked | Status::Refused => true,
            Status::Busy => pending.read.is_some(),
            Status::Ok | Status::Nil | Status::Error => false,
        };
        let answer = PartReply { status: reply.status, value: reply.value };
        if elsewhere {
            return self.ask_elsewhere(step, from, reply.request, answer);
        }
        traffic.pending.end(reply.request);
        step.counters.hits += u64::from(reply.hit);
        step.counters.error_replies += u64::from(answer.status.is_refusal());
        self.part_answered(step, origin, heard, answer);
    }

    #[cold]
    fn ask_elsewhere(&mut self, step: &mut RouterStep<'_>, from: Peer, request: u64, answer: PartReply) {
        let Some(pending) = self.traffic.pending.remove(request) else { return };
        let cause = match answer.status {
            Status::Large => Cause::Large,
            Status::Unlinked => {
                self.traffic.forget_copy(&pending);
                Cause::Unlinked
            }
            Status::Refused => Cause::Busy(Some(answer)),
            _ => Cause::Busy(matches!(from, Peer::Shim(_)).then_some(answer)),
        };
        self.ask_again(step, pending, cause);
    }
}

/// Whether a shim that cannot answer has named nodes that can: its storage is gone, and their copies may be stale.
fn is_directed(from: Peer, reply: &Reply) -> bool {
    matches!(from, Peer::Shim(_)) && reply.status == Status::Refused && reply.cached != LayerSet::EMPTY
}

impl RequestTraffic {
    /// What a node has no link for it has no copy of, or not for long.
    fn forget_copy(&mut self, pending: &Pending) {
        let (Some(read), Peer::Node(node), Some(placement)) = (&pending.read, pending.peer, &self.placement)
        else {
            return;
        };
        let layers = self.learned.layers(read.key.digest, read.view);
        self.learned.learn(read.key.digest, read.view, layers.without(placement.layer_of(node)));
    }
}
