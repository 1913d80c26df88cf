//! A reply's way out: matched with its request, merged, given to the client in order, and what it frees sent on.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::Reply;
use wire::{NodeId, Peer, Status};

use crate::router::dispatch::{Origin, low};
use crate::router::gather::{self, Merge};
use crate::router::pending::Pending;
use crate::router::pipeline::{Order, Part, PartReply, Progress, Touch};
use crate::router::route::{Route, Unroutable};
use crate::router::{ClientId, Effect, Router, Routing, replies};
use crate::time::Time;

/// What an answer may let go on.
pub(crate) enum Freed {
    Nothing,
    Keys(SmallVec<[u64; 4]>),
    All,
}

impl Freed {
    fn of(touch: &Touch) -> Freed {
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
        let asked = self.pending.get(reply.request).is_some_and(|pending| pending.peer == from);
        let Some(pending) = asked.then(|| self.pending.remove(reply.request)).flatten() else {
            self.counters.late_replies += 1;
            return;
        };
        for stamp in &reply.loads {
            if let Some(node) = stamp.node_plus_one.checked_sub(1).and_then(|node| u16::try_from(node).ok()) {
                self.loads.report(now, NodeId(node), stamp.load);
            }
        }
        if let Some(read) = &pending.read
            && self.config.routing == Routing::Learned
        {
            let mut layers = reply.cached;
            if reply.hit {
                // A node knows only of its own copy, so its hit says nothing against the others.
                layers.0 |= self.learned.layers(read.key.digest, read.view).0;
            }
            self.learned.learn(read.key.digest, read.view, layers);
        }
        let reply = match (from, reply.status) {
            (Peer::Node(_), Status::Busy) => match self.ask_the_shim(now, &pending, effects) {
                None => return,
                Some(unavailable) => Reply { status: Status::Error, value: unavailable.value, ..reply },
            },
            _ => reply,
        };
        self.counters.hits += u64::from(reply.hit);
        self.counters.errors += u64::from(reply.status == Status::Error);
        let reply = PartReply { status: reply.status, value: reply.value };
        self.part_answered(now, pending.origin, reply, effects);
    }

    fn part_answered(&mut self, now: Time, origin: Origin, reply: PartReply, effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get_mut(origin.client) else { return };
        let Some(operation) = state.pipeline.get_mut(origin.sequence) else { return };
        let freed = match &mut operation.progress {
            Progress::Sent(_) => {
                let bytes = match reply.status {
                    Status::Nil => Bytes::from_static(replies::nil(operation.resp3)),
                    Status::Ok | Status::Error | Status::Busy => reply.value,
                };
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
                } else {
                    let answers: Vec<PartReply> =
                        fan.parts.drain(..).filter_map(|part: Part| part.reply).collect();
                    let merged = gather::merge(&fan.merge, &answers, operation.resp3);
                    operation.progress = Progress::Done(merged);
                    if matches!(operation.touch, Touch::All) { Freed::All } else { Freed::Keys(digests) }
                }
            }
            Progress::Waiting(_) | Progress::Done(_) => return,
        };
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
            let Some(state) = self.clients.get(client).filter(|state| state.pipeline.any_waiting()) else {
                return;
            };
            let front = state.pipeline.first();
            let alone = |operation: &super::pipeline::Operation| {
                operation.waiting() && matches!(operation.touch, Touch::All)
            };
            if state.pipeline.get(front).is_some_and(alone) {
                self.relaunch(now, client, front, effects);
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
            let others: SmallVec<[u64; 4]> = match &operation.touch {
                Touch::Many(digests) => {
                    digests.iter().copied().filter(|other| Some(*other) != digest).collect()
                }
                _ => SmallVec::new(),
            };
            if self.relaunch(now, client, sequence, effects) {
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
        let pipeline_max = self.config.pipeline_max;
        let Some(state) = self.clients.get_mut(client) else { return };
        let id = ClientId(client);
        while let Some((operation, bytes)) = state.pipeline.pop_answered() {
            self.latencies.record(now.since(operation.received));
            if !operation.silent {
                effects.push(Effect::Reply { client: id, bytes });
            }
            if operation.closes {
                effects.push(Effect::Close { client: id });
            }
        }
        if state.stalled && state.pipeline.len() <= pipeline_max / 2 {
            state.stalled = false;
            if !state.closing {
                effects.push(Effect::Resume { client: id });
            }
        }
    }

    /// Everything in flight to peers that are gone: reads at nodes are asked again, of the shim; what a shim had
    /// is answered with an error.
    pub(crate) fn vanished(&mut self, now: Time, gone: impl Fn(Peer) -> bool, effects: &mut Vec<Effect>) {
        for request in self.pending.waiting_for(gone) {
            let Some(pending) = self.pending.remove(request) else { continue };
            let reply = match pending.peer {
                Peer::Node(_) => match self.ask_the_shim(now, &pending, effects) {
                    None => continue,
                    Some(reply) => reply,
                },
                Peer::Shim(shim) => {
                    self.counters.lost += 1;
                    let name = self.shim_name(shim);
                    lost(&name, pending.writes)
                }
                Peer::Router(_) => continue,
            };
            self.part_answered(now, pending.origin, reply, effects);
        }
    }

    /// `None`: it was sent.
    fn ask_the_shim(&mut self, now: Time, pending: &Pending, effects: &mut Vec<Effect>) -> Option<PartReply> {
        let (origin, read) = (pending.origin, pending.read.as_ref()?);
        let shim = self.placement.as_ref()?.shim(&read.key);
        let state = self.clients.get(origin.client)?;
        // Earlier reads of the key were at the same node and have been asked again by now.
        let follows = state.pipeline.order(origin.sequence, low(&read.key)) != Order::Free;
        if let Err(Unroutable::Unavailable(shim)) = self.route_to_shim(shim, Order::Free) {
            let Progress::Done(value) = self.unavailable(shim) else { return None };
            return Some(PartReply { status: Status::Error, value });
        }
        self.counters.retries += 1;
        let route = Route { peer: Peer::Shim(shim), ordered: follows };
        let sent = self.send_read(now, origin, route, read.clone(), effects);
        let operation = self.clients.get_mut(origin.client)?.pipeline.get_mut(origin.sequence)?;
        match &mut operation.progress {
            Progress::Sent(own) => *own = sent,
            Progress::Fan(fan) => fan.parts.get_mut(origin.part as usize)?.sent = sent,
            Progress::Waiting(_) | Progress::Done(_) => {}
        }
        None
    }
}

fn lost(name: &str, writes: bool) -> PartReply {
    let text = if writes {
        format!("ERR DistCache: shim {name} was lost while the command ran; its outcome is unknown")
    } else {
        format!("ERR DistCache: shim {name} was lost before it answered; the command changed nothing")
    };
    PartReply { status: Status::Error, value: replies::error(&text) }
}

fn is_nil(reply: &PartReply) -> bool {
    reply.status == Status::Nil || matches!(reply.value.as_ref(), b"$-1\r\n" | b"_\r\n" | b"*-1\r\n")
}
