//! Requests leave: each with its number, counted where it goes. Not where that is.

use bytes::Bytes;
use wire::message::{Execute, Read};
use wire::{Key, Message, Peer};

use crate::router::flow::dispatch::Origin;
use crate::router::flow::pending::{Pending, PendingRead};
use crate::router::flow::pipeline::Sent;
use crate::router::flow::route::Route;
use crate::router::{Effect, Router};
use crate::time::Time;
use commands::CommandKind;

impl Router {
    pub(crate) fn send_read(
        &mut self,
        now: Time,
        origin: Origin,
        route: Route,
        mut read: PendingRead,
        effects: &mut Vec<Effect>,
    ) -> Sent {
        match route.peer {
            Peer::Node(node) => {
                self.loads.sent(now, node);
                if let Some(breaker) = self.breakers.get_mut(usize::from(node.0)) {
                    breaker.sent(now);
                }
                let layer = self.placement.as_ref().map_or(0, |placement| placement.layer_of(node));
                read.tried.layers = read.tried.layers.with(layer);
                self.counters.reads_to_nodes += 1;
            }
            Peer::Shim(_) | Peer::Router(_) => {
                read.tried.shim = true;
                self.counters.reads_to_shims += 1;
            }
        }
        let PendingRead { key, view, command, streams, .. } = read.clone();
        let (peer, resp3, ordered, waited_ms) = (route.peer, origin.resp3, route.ordered, origin.waited_ms);
        let streams = streams && matches!(peer, Peer::Shim(_));
        let pending = Pending { sent: now, read: Some(read), counted: true, ..Pending::new(origin, peer) };
        let request = self.pending.insert(pending);
        let message = Message::Read(Read { request, key, view, resp3, ordered, streams, waited_ms, command });
        effects.push(Effect::Send { to: peer, message });
        Sent { request, peer, read: true }
    }

    pub(crate) fn send_execute(
        &mut self,
        origin: Origin,
        kind: CommandKind,
        route: Route,
        key: Key,
        frame: &Bytes,
        effects: &mut Vec<Effect>,
    ) -> Sent {
        self.counters.executes += 1;
        let Route { peer, ordered } = route;
        let writes = matches!(
            kind,
            CommandKind::Write | CommandKind::BlockingWrite | CommandKind::Barrier | CommandKind::Publish
        );
        let blocking = matches!(kind, CommandKind::BlockingWrite | CommandKind::BlockingQuery);
        let counted = !blocking;
        let request =
            self.pending.insert(Pending { writes, blocking, counted, ..Pending::new(origin, peer) });
        if writes && self.knows_writers() {
            self.note_write(origin.client, request);
        }
        let (watch, resp3, waited_ms) = (None, origin.resp3, origin.waited_ms);
        let execute = Execute { request, key, resp3, ordered, watch, waited_ms, command: frame.clone() };
        effects.push(Effect::Send { to: peer, message: Message::Execute(execute) });
        Sent { request, peer, read: false }
    }
}
