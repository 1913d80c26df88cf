//! A reply's way out: matched with its request, merged, given to the client in order, and what it frees sent on.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::Reply;
use wire::{NodeId, Peer, Status};

use crate::router::flow::dispatch::Origin;
use crate::router::flow::gather::{self, Merge};
use crate::router::flow::pipeline::{Part, PartReply, Progress, Touch};
use crate::router::flow::ran::Heard;
use crate::router::flow::retry::Cause;
use crate::router::flow::stream;
use crate::router::front::memcached;
use crate::router::front::storage_users::NOBODY;
use crate::router::{ClientId, CloseReason, Effect, Router, Routing, replies};
use crate::time::Time;

/// What an answer may let go on.
pub(crate) enum Freed {
    Nothing,
    Keys(SmallVec<[u64; 4]>),
    All,
}

impl Freed {
    pub(crate) fn of(touch: &Touch) -> Freed {
        match touch {
            Touch::Nothing => Freed::Nothing,
            Touch::One(digest) => Freed::Keys(SmallVec::from_slice(&[*digest])),
            Touch::Many(digests) => Freed::Keys(SmallVec::from_slice(digests)),
            Touch::All => Freed::All,
        }
    }
}

impl Router {
    pub(crate) fn reply(&mut self, now: Time, from: Peer, reply: Reply, effects: &mut Vec<Effect>) {
        self.confirm_tracked(from, reply.request);
        if reply.more {
            return self.reply_begins(now, from, reply, effects);
        }
        let asked = self.pending.get(reply.request).is_some_and(|pending| pending.peer == from);
        let Some(pending) = asked.then(|| self.pending.remove(reply.request)).flatten() else {
            return self.late(now, from);
        };
        self.judge(now, &pending, reply.status);
        for stamp in &reply.loads {
            if let Some(node) = stamp.node_plus_one.checked_sub(1).and_then(|node| u16::try_from(node).ok()) {
                self.loads.report(now, NodeId(node), stamp.load);
            }
        }
        if let Some(read) = &pending.read
            && reply.status != Status::Busy
            && self.config.routing == Routing::Learned
        {
            let mut layers = reply.cached;
            if reply.hit {
                // A node knows only of its own copy, so its hit says nothing against the others.
                layers.0 |= self.learned.layers(read.key.digest, read.view).0;
            }
            self.learned.learn(read.key.digest, read.view, layers);
        }
        let answer = PartReply { status: reply.status, value: reply.value };
        if answer.status == Status::Busy && pending.read.is_some() {
            // What a node says about itself is no advice for a client.
            let last = matches!(from, Peer::Shim(_)).then_some(answer);
            return self.ask_again(now, pending, Cause::Busy, last, effects);
        }
        if answer.status == Status::Large {
            return self.ask_again(now, pending, Cause::Large, None, effects);
        }
        self.counters.hits += u64::from(reply.hit);
        self.counters.errors += u64::from(answer.status.is_refusal());
        self.part_answered(now, pending.origin, Heard::of(&pending, reply.hit), answer, effects);
    }

    pub(crate) fn part_answered(
        &mut self,
        now: Time,
        origin: Origin,
        heard: Heard,
        reply: PartReply,
        effects: &mut Vec<Effect>,
    ) {
        if origin.client == NOBODY {
            return self.told_users(origin, &reply, effects);
        }
        let Some(state) = self.clients.get_mut(origin.client) else { return };
        let Some(operation) = state.pipeline.get_mut(origin.sequence) else { return };
        let mut reply_bytes = reply.value.len();
        let alone = matches!(operation.progress, Progress::Sent(_));
        operation.ran.heard(now, heard, alone);
        let freed = match &mut operation.progress {
            Progress::Sent(_) => {
                let bytes = match reply.status {
                    Status::Nil => Bytes::from_static(replies::nil(operation.resp3)),
                    Status::Ok | Status::Error | Status::Busy | Status::Large => reply.value,
                };
                reply_bytes = bytes.len();
                operation.progress = Progress::Done(bytes);
                Freed::of(&operation.touch)
            }
            Progress::Fan(fan) => {
                let nil = is_nil(&reply);
                let Some(part) = fan.parts.get_mut(origin.part as usize) else { return };
                let digests = part.touch.iter().copied().collect();
                part.reply = Some(reply);
                fan.outstanding -= 1;
                if fan.outstanding > 0 {
                    Freed::Keys(digests)
                } else if let Merge::RandomKey { left } = &mut fan.merge
                    && nil
                    && let Some(next) = left.pop()
                {
                    return self.ask_next_for_a_key(origin, next, effects);
                } else if matches!(fan.merge, Merge::Users { .. }) {
                    return self.users_changed(now, origin, effects);
                } else if matches!(fan.merge, Merge::Subscribed { .. }) {
                    return self.subscribed(now, origin, effects);
                } else {
                    let answers: Vec<PartReply> =
                        fan.parts.drain(..).filter_map(|part: Part| part.reply).collect();
                    let merged = gather::merge(&fan.merge, &answers, operation.resp3);
                    reply_bytes = merged.len();
                    operation.progress = Progress::Done(merged);
                    if matches!(operation.touch, Touch::All) { Freed::All } else { Freed::Keys(digests) }
                }
            }
            Progress::Waiting(_) | Progress::Streaming(_) | Progress::Done(_) => return,
        };
        state.pipeline.hold(origin.sequence, reply_bytes);
        self.advance(now, origin.client, freed, effects);
    }

    fn ask_next_for_a_key(&mut self, origin: Origin, shim: wire::ShimId, effects: &mut Vec<Effect>) {
        let sent = self.send_random_key(origin, shim, effects);
        let client = self.clients.get_mut(origin.client);
        let operation = client.and_then(|client| client.pipeline.get_mut(origin.sequence));
        if let Some(Progress::Fan(fan)) = operation.map(|operation| &mut operation.progress) {
            fan.outstanding = 1;
            fan.parts[0] = Part { sent, touch: SmallVec::new(), reply: None };
        }
    }

    /// Gives the client what is due and sends what the answer has freed, until nothing moves.
    pub(crate) fn advance(&mut self, now: Time, client: u32, mut freed: Freed, effects: &mut Vec<Effect>) {
        loop {
            self.deliver(now, client, effects);
            let Some(state) = self.clients.get(client).filter(|state| state.pipeline.any_held_back()) else {
                return;
            };
            let front = state.pipeline.first();
            let alone = |operation: &super::pipeline::Operation| {
                operation.waiting() && matches!(operation.touch, Touch::All)
            };
            if state.pipeline.get(front).is_some_and(alone) {
                if !state.pipeline.has_turn(front) {
                    self.relaunch(now, client, front, None, effects);
                }
                if !self.is_answered(client, front) {
                    return;
                }
                freed = Freed::All;
                continue;
            }
            let moved = match &mut freed {
                Freed::Nothing => false,
                Freed::All => self.release(now, client, None, &mut SmallVec::new(), effects),
                Freed::Keys(digests) => {
                    let mut moved = false;
                    while let Some(digest) = digests.pop() {
                        moved |= self.release(now, client, Some(digest), digests, effects);
                    }
                    moved
                }
            };
            freed = Freed::Nothing;
            if !moved {
                return;
            }
        }
    }

    /// Tries the waiting operations on `digest` (or all) in order. An operation on several keys that leaves may
    /// let others follow it: their keys are added to `more`. Returns whether any was answered at once.
    fn release(
        &mut self,
        now: Time,
        client: u32,
        digest: Option<u64>,
        more: &mut SmallVec<[u64; 4]>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let mut any_answered = false;
        let Some(state) = self.clients.get(client) else { return false };
        for sequence in state.pipeline.first()..state.pipeline.next() {
            let Some(operation) = self.clients.get(client).and_then(|state| state.pipeline.get(sequence))
            else {
                break;
            };
            if matches!(operation.touch, Touch::All) && !operation.answered() {
                break;
            }
            if !operation.waiting() || digest.is_some_and(|digest| !operation.touch.contains(digest)) {
                continue;
            }
            let has_turn = self.clients.get(client).is_some_and(|state| state.pipeline.has_turn(sequence));
            let others: SmallVec<[u64; 4]> = match &operation.touch {
                Touch::Many(digests) => {
                    digests.iter().copied().filter(|other| Some(*other) != digest).collect()
                }
                _ => SmallVec::new(),
            };
            if has_turn || self.relaunch(now, client, sequence, None, effects) {
                // Whatever touches the same key later waits behind this one.
                if digest.is_some() {
                    break;
                }
                continue;
            }
            any_answered |= self.is_answered(client, sequence);
            if digest.is_some() {
                more.extend(others.into_iter().filter(|other| !more.contains(other)).collect::<Vec<_>>());
            }
        }
        any_answered
    }

    fn is_answered(&self, client: u32, sequence: u64) -> bool {
        let operation = self.clients.get(client).and_then(|state| state.pipeline.get(sequence));
        operation.is_some_and(|operation| operation.answered())
    }

    fn deliver(&mut self, now: Time, client: u32, effects: &mut Vec<Effect>) {
        let (pipeline_max, bytes_max) = (self.config.pipeline_max, self.config.pipeline_bytes_max);
        let Some(state) = self.clients.get_mut(client) else { return };
        let id = ClientId(client);
        while let Some((operation, bytes)) =
            stream::next_answered(id, state, (pipeline_max, bytes_max), effects)
        {
            // How long a large reply takes is up to its client.
            let ended = if operation.streamed { operation.ran.answered } else { now };
            self.latencies.record(ended.since(operation.received));
            self.slow_log.ended(&operation.ran, operation.received, state);
            if operation.ran.followed().is_some() {
                self.sampler.ended(now, operation.received, &operation.ran, &bytes, state);
            }
            state.replied(bytes.len(), pipeline_max, bytes_max);
            match (operation.shape, &mut state.memcached) {
                (Some(shape), Some(front)) => {
                    memcached::tell(id, *shape, &bytes, front, &mut self.tallies, effects);
                }
                _ if !operation.silent && !bytes.is_empty() => {
                    effects.push(Effect::Reply { client: id, bytes });
                }
                _ => {}
            }
            if operation.closes {
                effects.push(Effect::Close { client: id, reason: CloseReason::Answered });
            }
        }
        let holds = state.tracking.as_ref().is_some_and(|tracking| !tracking.held.is_empty());
        let drained = state.stalled && state.has_drained(pipeline_max, bytes_max);
        if drained && state.subscribing.is_none() {
            state.stalled = false;
            if !state.closing {
                effects.push(Effect::Resume { client: id });
            }
        }
        if holds {
            self.release_notices(client, effects);
        }
    }
}

fn is_nil(reply: &PartReply) -> bool {
    reply.status == Status::Nil || matches!(reply.value.as_ref(), b"$-1\r\n" | b"_\r\n" | b"*-1\r\n")
}
