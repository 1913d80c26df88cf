//! Reads asked a second time, because somebody was busy, hung or vanished: which, where, and for how long. Writes never
//! are.
//!
//! - A read whose node is lost or hangs is asked again whatever the budget says: a loss is one event, it ends with the
//!   breaker, and what was in flight bounds it. A read that met a busy member is asked again within the budget.
//! - No place is asked twice: first another layer that is believed to hold a copy, then the shim.
//! - Reads of one key that a client has sent to one node stay together: asked again all at once, in their order.

use std::time::Duration;

use rand::Rng;
use smallvec::SmallVec;
use wire::message::LAYERS_MAX;
use wire::{LayerSet, NodeId, Peer, Status};

use crate::placement::Placement;
use crate::router::flow::dispatch::low;
use crate::router::flow::pending::{Pending, PendingRead};
use crate::router::flow::pipeline::{PartReply, Progress};
use crate::router::flow::ran::Heard;
use crate::router::flow::route::Route;
use crate::router::{Effect, Router, Routing, replies};
use crate::time::Time;

/// A shim that was busy a moment ago would only say so again.
const SHIM_BUSY: Duration = Duration::from_millis(50);
/// A router that did not tick for this long was itself stopped.
const STOPPED: Duration = Duration::from_millis(100);
const EXHAUSTED: &str = "BUSY DistCache: every place that could answer this read is over its load; try again later, \
                         with a growing pause";

/// Why a read is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Busy,
    Lost,
    /// No node has it, whichever layer: the shim is asked, and that is no retry.
    Large,
}

impl Router {
    /// A request that nobody waits for any more.
    pub(crate) fn forget(&mut self, request: u64) -> Option<Pending> {
        let pending = self.pending.remove(request)?;
        if let Peer::Node(node) = pending.peer
            && let Some(breaker) = self.breakers.get_mut(usize::from(node.0))
        {
            breaker.forgotten();
        }
        Some(pending)
    }

    pub(crate) fn late(&mut self, now: Time, from: Peer) {
        self.counters.late_replies += 1;
        if let Peer::Node(node) = from
            && let Some(breaker) = self.breakers.get_mut(usize::from(node.0))
        {
            breaker.heard_late(now);
        }
    }

    /// What a reply says about who gave it.
    pub(crate) fn judge(&mut self, now: Time, pending: &Pending, status: Status) {
        match pending.peer {
            Peer::Node(node) => {
                let Some(breaker) = self.breakers.get_mut(usize::from(node.0)) else { return };
                if status != Status::Busy {
                    breaker.answered(now, now.since(pending.sent));
                } else if breaker.refused(now) {
                    self.counters.breakers_opened += 1;
                }
            }
            Peer::Shim(shim) if status == Status::Busy => {
                if let Some(until) = self.shims_busy.get_mut(usize::from(shim.0)) {
                    *until = now.after(SHIM_BUSY);
                }
            }
            Peer::Shim(_) | Peer::Router(_) => {}
        }
    }

    /// Nodes that leave reads unanswered for too long are left alone, and their reads are asked elsewhere.
    pub(crate) fn look_for_hanging_nodes(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if now.since(std::mem::replace(&mut self.ticked, now)) >= STOPPED {
            return self.breakers.iter_mut().for_each(|breaker| breaker.excuse(now));
        }
        for index in 0..self.breakers.len() {
            if self.breakers[index].hangs(now) {
                self.counters.breakers_opened += 1;
                self.vanished(now, |asked| asked == Peer::Node(NodeId(index as u16)), effects);
            }
        }
    }

    /// Everything in flight to peers that are gone: reads at nodes are asked elsewhere; what a shim had is answered
    /// with an error.
    pub(crate) fn vanished(&mut self, now: Time, gone: impl Fn(Peer) -> bool, effects: &mut Vec<Effect>) {
        for request in self.pending.waiting_for(gone) {
            let Some(pending) = self.forget(request) else { continue };
            match pending.peer {
                _ if pending.streams => self.break_off(pending.origin.client),
                Peer::Node(_) => self.ask_again(now, pending, Cause::Lost, None, effects),
                Peer::Shim(shim) => {
                    self.counters.lost += 1;
                    let reply = lost(&self.shim_name(shim), pending.writes);
                    self.part_answered(now, pending.origin, Heard::of(&pending, false), reply, effects);
                }
                Peer::Router(_) => {}
            }
        }
    }

    /// Asks a read again, with those of its key that its client has sent to the same peer. If nobody else can be asked,
    /// the client is told so, or `busy`.
    pub(crate) fn ask_again(
        &mut self,
        now: Time,
        pending: Pending,
        cause: Cause,
        busy: Option<PartReply>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(state) = self.clients.get(pending.origin.client) else { return };
        let Some(read) = &pending.read else {
            // Only reads are told so; nobody who says it of something else makes its client wait for ever.
            return self.part_answered(now, pending.origin, Heard::of(&pending, false), exhausted(), effects);
        };
        let sequence = pending.origin.sequence;
        let (requests, late) = state.pipeline.reads_at(pending.peer, sequence, low(&read.key));
        let to = match late && cause != Cause::Lost {
            // Elsewhere it might see what its client has sent after it.
            true => Err(None),
            false => self.destination(now, read, cause, requests.len()),
        };
        let to = match to {
            Ok(to) => to,
            Err(refusal) => {
                let reply = refusal.or(busy).unwrap_or_else(exhausted);
                self.counters.errors += 1;
                let heard = Heard::of(&pending, false);
                return self.part_answered(now, pending.origin, heard, reply, effects);
            }
        };
        let mut group: SmallVec<[Pending; 2]> = SmallVec::new();
        group.extend(requests.into_iter().filter_map(|request| self.forget(request)));
        let place = |pending: &Pending| (pending.origin.sequence, pending.origin.part);
        let at = group.partition_point(|other| place(other) < place(&pending));
        group.insert(at, pending);
        for (index, pending) in group.into_iter().enumerate() {
            match cause {
                Cause::Busy => self.counters.retries += 1,
                Cause::Lost => self.counters.reads_lost += 1,
                Cause::Large => {}
            }
            self.send_again(now, pending, Route { peer: to, ordered: index > 0 }, effects);
        }
    }

    /// Another layer that may hold a copy, or the shim. The error is what to tell the client instead of what the
    /// busy member said.
    fn destination(
        &mut self,
        now: Time,
        read: &PendingRead,
        cause: Cause,
        reads: usize,
    ) -> Result<Peer, Option<PartReply>> {
        let Some(placement) = self.placement.clone() else { return Err(None) };
        let shim = placement.shim(&read.key);
        let node = match cause {
            Cause::Large => None,
            Cause::Busy | Cause::Lost => self.other_node(now, &placement, read),
        };
        let to = match node {
            Some(node) => Peer::Node(node),
            None if read.tried.shim => {
                self.counters.exhausted += 1;
                return Err(None);
            }
            None if !self.shim_linked(shim) => {
                let Progress::Done(value) = self.unavailable(shim) else { return Err(None) };
                return Err(Some(PartReply { status: Status::Error, value }));
            }
            None if cause == Cause::Busy && self.shims_busy[usize::from(shim.0)] > now => {
                self.counters.exhausted += 1;
                return Err(Some(exhausted()));
            }
            None => Peer::Shim(shim),
        };
        if cause == Cause::Busy && !self.budget.spend(reads) {
            self.counters.retries_denied += 1;
            return Err(Some(exhausted()));
        }
        Ok(to)
    }

    /// The less loaded of the nodes that may hold the key and have not been asked.
    fn other_node(&mut self, now: Time, placement: &Placement, read: &PendingRead) -> Option<NodeId> {
        let layers = match self.config.routing {
            Routing::OnPath => LayerSet(u8::MAX),
            Routing::Learned => self.learned.layers(read.key.digest, read.view),
        };
        let may_hold = |layer| layers.contains(layer) && !read.tried.layers.contains(layer);
        let places = placement.places(&read.key);
        let nodes: SmallVec<[NodeId; LAYERS_MAX]> = (places.iter().enumerate())
            .filter(|(layer, _)| may_hold(*layer))
            .filter_map(|(_, place)| *place)
            .filter(|node| self.node_admits(now, *node))
            .collect();
        let random = self.random.next_u64();
        self.loads.choose(now, &nodes, random)
    }

    fn send_again(&mut self, now: Time, pending: Pending, route: Route, effects: &mut Vec<Effect>) {
        let (origin, heard) = (pending.origin, Heard::of(&pending, false));
        let Some(read) = pending.read else { return };
        let sent = self.send_read(now, origin, route, read, effects);
        let client = self.clients.get_mut(origin.client);
        let operation = client.and_then(|client| client.pipeline.get_mut(origin.sequence));
        let Some(operation) = operation else { return };
        let alone = matches!(operation.progress, Progress::Sent(_));
        operation.ran.retried(now, heard, alone);
        match &mut operation.progress {
            Progress::Sent(own) => *own = sent,
            Progress::Fan(fan) => {
                if let Some(part) = fan.parts.get_mut(origin.part as usize) {
                    part.sent = sent;
                }
            }
            Progress::Waiting(_) | Progress::Streaming(_) | Progress::Done(_) => {}
        }
    }
}

fn exhausted() -> PartReply {
    PartReply { status: Status::Busy, value: replies::error(EXHAUSTED) }
}

fn lost(name: &str, writes: bool) -> PartReply {
    let text = if writes {
        format!("ERR DistCache: shim {name} was lost while the command ran; its outcome is unknown")
    } else {
        format!("ERR DistCache: shim {name} was lost before it answered; the command changed nothing")
    };
    PartReply { status: Status::Error, value: replies::error(&text) }
}
