//! Reads asked a second time, because somebody was busy, hung or vanished: which, where, and for how long. Writes never
//! are.
//!
//! - A read whose node is lost or hangs is asked again whatever the budget says: a loss is one event, it ends with the
//!   breaker, and what was in flight bounds it. So is one whose node has no link to the shim: nobody has worked for it,
//!   and the next ones go past that node. A read that met a busy member is asked again within the budget.
//! - No place is asked twice: first another layer that is believed to hold a copy, then the shim.
//! - Reads of one key that a client has sent to one node stay together: asked again all at once, in their order.

use smallvec::SmallVec;
use wire::{Peer, ShimId, Status};

use crate::router::flow::Flow;
use crate::router::flow::event::FlowEvent;
use crate::router::flow::pending::{Pending, PendingRead};
use crate::router::flow::pipeline::OperationProgress;
use crate::router::flow::ran::RequestHeard;
use crate::router::flow::refusal::{shim_name, unavailable};
use crate::router::flow::reply::PartReply;
use crate::router::flow::request::low;
use crate::router::flow::route::Route;
use crate::router::replies;
use crate::router::step::RouterStep;

const EXHAUSTED: &str = "BUSY DistCache: every place that could answer this read is over its load; try again later, \
                         with a growing pause";

/// Why a read is asked again.
#[derive(Debug)]
pub(crate) enum Cause {
    /// Somebody was busy. What a shim said then, to its node or to this router, is what the client is told if nobody else can
    /// be asked: what a node says about itself is no advice for a client.
    Busy(Option<PartReply>),
    Lost,
    /// Its node has no link to the shim of the key.
    Unlinked,
    /// No node has it, whichever layer: the shim is asked, and that is no retry.
    Large,
}

impl Flow {
    /// A request whose member is gone: a read at a node is asked elsewhere; what a shim had is answered with an error.
    pub(crate) fn lost(&mut self, step: &mut RouterStep<'_>, request: u64) {
        let Some(pending) = self.traffic.forget(request) else { return };
        match pending.peer {
            _ if pending.streams => self.break_off(step, pending.origin.client),
            Peer::Node(_) => self.ask_again(step, pending, Cause::Lost),
            Peer::Shim(shim) => {
                step.counters.commands_lost += 1;
                let reply = lost(&shim_name(step.config, shim), pending.writes);
                self.part_answered(step, pending.origin, RequestHeard::of(&pending, false), reply);
            }
            Peer::Router(_) => {}
        }
    }

    /// The rest of a reply cannot be had.
    pub(crate) fn break_off(&mut self, step: &mut RouterStep<'_>, client: u32) {
        step.counters.large_replies_broken += 1;
        self.todos.tell(FlowEvent::BrokenOff { client });
    }

    /// Asks a read again, with those of its key that its client has sent to the same peer. If nobody else can be asked,
    /// the client is told so.
    pub(crate) fn ask_again(&mut self, step: &mut RouterStep<'_>, pending: Pending, cause: Cause) {
        let Some(caller) = self.callers.get(pending.origin.client) else { return };
        let heard = RequestHeard::of(&pending, false);
        let Some(read) = &pending.read else {
            // Only reads are told so; nobody who says it of something else makes its client wait for ever.
            return self.part_answered(step, pending.origin, heard, exhausted());
        };
        let shim = self.traffic.placement.as_ref().map(|placement| placement.shim(&read.key));
        let sequence = pending.origin.sequence;
        let (requests, late) = caller.pipeline.reads_at(pending.peer, sequence, low(&read.key));
        let to = match late && !matches!(cause, Cause::Lost) {
            // Elsewhere it might see what its client has sent after it.
            true => None,
            false => self.destination(step, read, &cause, requests.len()),
        };
        let to = match to {
            Some(to) => to,
            None => {
                let said = if let Cause::Busy(said) = cause { said } else { None };
                let reply = said.unwrap_or_else(|| self.nobody_left(step, shim));
                step.counters.error_replies += 1;
                return self.part_answered(step, pending.origin, heard, reply);
            }
        };
        let mut group: SmallVec<[Pending; 2]> = SmallVec::new();
        group.extend(requests.into_iter().filter_map(|request| self.traffic.forget(request)));
        let place = |pending: &Pending| (pending.origin.sequence, pending.origin.part);
        let at = group.partition_point(|other| place(other) < place(&pending));
        group.insert(at, pending);
        for (index, pending) in group.into_iter().enumerate() {
            match cause {
                Cause::Busy(_) => step.counters.retries += 1,
                Cause::Lost | Cause::Unlinked => step.counters.reads_lost += 1,
                Cause::Large => {}
            }
            self.send_again(step, pending, Route { peer: to, ordered: index > 0 });
        }
    }

    /// Another layer that may hold a copy, or the shim; `None` if neither can be asked.
    fn destination(
        &mut self,
        step: &mut RouterStep<'_>,
        read: &PendingRead,
        cause: &Cause,
        reads: usize,
    ) -> Option<Peer> {
        let placement = self.traffic.placement.clone()?;
        let (shim, busy) = (placement.shim(&read.key), matches!(cause, Cause::Busy(_)));
        // The shim has said so just now.
        let told = matches!(cause, Cause::Busy(Some(_)));
        let node = match cause {
            Cause::Large => None,
            Cause::Busy(_) | Cause::Lost | Cause::Unlinked => self.traffic.other_node(step, &placement, read),
        };
        let to = match node {
            Some(node) => Peer::Node(node),
            None if told || read.tried.shim || busy && self.traffic.members.shim_busy(step.now, shim) => {
                step.counters.exhausted += 1;
                return None;
            }
            None if !self.traffic.members.shim_linked(shim) => return None,
            None => Peer::Shim(shim),
        };
        if busy && !self.traffic.budget.spend(reads) {
            step.counters.retries_denied += 1;
            return None;
        }
        Some(to)
    }

    /// What a client is told if nobody can be asked on its behalf. A shim that is gone is named: that is no overload.
    fn nobody_left(&self, step: &mut RouterStep<'_>, shim: Option<ShimId>) -> PartReply {
        match shim.filter(|shim| !self.traffic.members.shim_linked(*shim)) {
            Some(shim) => PartReply { status: Status::Error, value: unavailable(step, shim) },
            None => exhausted(),
        }
    }

    fn send_again(&mut self, step: &mut RouterStep<'_>, pending: Pending, route: Route) {
        let (origin, heard) = (pending.origin, RequestHeard::of(&pending, false));
        let Some(read) = pending.read else { return };
        let sent = self.traffic.send_read(step, origin, route, read);
        let Some(operation) = self.callers.operation(origin.client, origin.sequence) else { return };
        let alone = matches!(operation.progress, OperationProgress::Sent(_));
        operation.ran.retried(step.now, heard, alone);
        match &mut operation.progress {
            OperationProgress::Sent(own) => *own = sent,
            OperationProgress::Fan(fan) => {
                if let Some(part) = fan.parts.get_mut(origin.part as usize) {
                    part.sent = sent;
                }
            }
            _ => {}
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
