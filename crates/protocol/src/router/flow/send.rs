//! Requests leave: each with its number, counted where it goes. Not where that is.

use bytes::Bytes;
use wire::message::{Execute, Read};
use wire::{Key, Message, Peer, ShimId};

use crate::router::flow::pending::{Pending, PendingRead};
use crate::router::flow::pipeline::SentRequest;
use crate::router::flow::request::RequestOrigin;
use crate::router::flow::route::Route;
use crate::router::flow::traffic::RequestTraffic;
use crate::router::step::RouterStep;
use commands::CommandKind;

/// A command as it leaves for a shim.
pub(crate) struct Outgoing<'a> {
    pub(crate) kind: CommandKind,
    pub(crate) route: Route,
    pub(crate) key: Key,
    pub(crate) frame: &'a Bytes,
}

impl<'a> Outgoing<'a> {
    /// One that no key orders.
    pub(crate) fn keyless(kind: CommandKind, shim: ShimId, frame: &'a Bytes) -> Outgoing<'a> {
        Outgoing { kind, route: Route { peer: Peer::Shim(shim), ordered: false }, key: Key::default(), frame }
    }
}

pub(crate) fn writes(kind: CommandKind) -> bool {
    matches!(
        kind,
        CommandKind::Write | CommandKind::BlockingWrite | CommandKind::Barrier | CommandKind::Publish
    )
}

pub(crate) fn blocks(kind: CommandKind) -> bool {
    matches!(kind, CommandKind::BlockingWrite | CommandKind::BlockingQuery)
}

impl RequestTraffic {
    pub(crate) fn send_read(
        &mut self,
        step: &mut RouterStep<'_>,
        origin: RequestOrigin,
        route: Route,
        mut read: PendingRead,
    ) -> SentRequest {
        match route.peer {
            Peer::Node(node) => {
                self.members.read_sent(step.now, node);
                let layer = self.placement.as_ref().map_or(0, |placement| placement.layer_of(node));
                read.tried.layers = read.tried.layers.with(layer);
                step.counters.reads_to_nodes += 1;
            }
            Peer::Shim(_) | Peer::Router(_) => {
                read.tried.shim = true;
                step.counters.reads_to_shims += 1;
            }
        }
        let PendingRead { key, view, command, streams, .. } = read.clone();
        let degree = self.elastic.degree(step.now, &key, view);
        let (peer, resp3, ordered, waited_ms) = (route.peer, origin.resp3, route.ordered, origin.waited_ms);
        let streams = streams && matches!(peer, Peer::Shim(_));
        let pending =
            Pending { sent: step.now, read: Some(read), counted: true, ..Pending::new(origin, peer) };
        let request = self.pending.insert(pending);
        let message =
            Message::Read(Read { request, key, view, resp3, ordered, streams, waited_ms, degree, command });
        step.send(peer, message);
        SentRequest { request, peer, read: true }
    }

    pub(crate) fn send_execute(
        &mut self,
        step: &mut RouterStep<'_>,
        origin: RequestOrigin,
        outgoing: Outgoing<'_>,
    ) -> SentRequest {
        step.counters.writes += 1;
        let Outgoing { kind, route: Route { peer, ordered }, key, frame } = outgoing;
        let (writes, blocking) = (writes(kind), blocks(kind));
        let pending = Pending { writes, blocking, counted: !blocking, ..Pending::new(origin, peer) };
        let request = self.pending.insert(pending);
        let (watch, resp3, waited_ms) = (None, origin.resp3, origin.waited_ms);
        let execute = Execute { request, key, resp3, ordered, watch, waited_ms, command: frame.clone() };
        step.send(peer, Message::Execute(execute));
        SentRequest { request, peer, read: false }
    }
}
