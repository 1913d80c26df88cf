//! Feeds the node machine from its links and carries its effects out.

use std::sync::Arc;

use config::Config;
use protocol::node::{Effect, Input, Node};
use protocol::placement::{Placement, Secret};
use protocol::time::Time;
use runtime::clock;
use runtime::instance::MapCell;
use runtime::orders::{Order, Orders};
use runtime::peers::{PeerEvent, Peers};
use runtime::reactor::{self, Event, Io};
use runtime::status::StatusCell;
use wire::NodeId;

/// Ticks between two statuses: about 100 ms.
const TICKS_PER_STATUS: u32 = 10;

pub(crate) struct NodeDriver {
    pub(crate) config: Arc<Config>,
    pub(crate) id: NodeId,
    pub(crate) node: Node,
    pub(crate) peers: Peers,
    pub(crate) placement: Arc<Placement>,
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) linked: u64,
    status: StatusCell,
    maps: MapCell,
    orders: Orders,
    ticks: u32,
    draining: bool,
    events: Vec<PeerEvent>,
    effects: Vec<Effect>,
}

impl NodeDriver {
    pub(crate) fn new(
        config: Arc<Config>,
        id: NodeId,
        node: Node,
        peers: Peers,
        placement: Arc<Placement>,
        (status, maps, orders): (StatusCell, MapCell, Orders),
    ) -> NodeDriver {
        NodeDriver {
            config,
            id,
            node,
            peers,
            placement,
            messages_in: 0,
            messages_out: 0,
            linked: 0,
            status,
            maps,
            orders,
            ticks: 0,
            draining: false,
            events: Vec::new(),
            effects: Vec::new(),
        }
    }

    fn peer_event(&mut self, io: &mut Io, event: PeerEvent) {
        match event {
            PeerEvent::Linked(peer) => {
                self.linked += 1;
                self.step(io, clock::now_us(), Input::Linked(peer));
            }
            PeerEvent::Unlinked(peer) => {
                self.linked -= 1;
                self.step(io, clock::now_us(), Input::Unlinked(peer));
            }
            PeerEvent::Message { from, now_us, message } => {
                self.messages_in += 1;
                self.step(io, now_us, Input::Message { from, message });
            }
        }
    }

    fn step(&mut self, io: &mut Io, now_us: u64, input: Input) {
        self.node.step(Time(now_us), input, &mut self.effects);
        for Effect::Send { to, message } in self.effects.drain(..) {
            self.messages_out += u64::from(self.peers.send(io, to, &message));
        }
    }

    fn tick(&mut self, io: &mut Io) {
        let now_us = clock::now_us();
        self.step(io, now_us, Input::Tick);
        self.ticks += 1;
        if self.ticks >= TICKS_PER_STATUS {
            self.ticks = 0;
            let status = self.make_status(Time(now_us));
            self.status.set(status);
        }
    }

    fn take_orders(&mut self, io: &mut Io) {
        for order in self.orders.take() {
            match order {
                Order::Settings(config) => self.set(io, config),
                // Shims know who has copies of what.
                Order::Purge { .. } | Order::HotKeys(_) => {}
            }
        }
    }

    fn set(&mut self, io: &mut Io, config: Arc<Config>) {
        self.config = config;
        let settings = Box::new(self.config.node_settings(self.id));
        self.step(io, clock::now_us(), Input::Settings(settings));
    }

    fn adopt_map(&mut self, io: &mut Io) {
        let Some(map) = self.maps.newer_than(self.placement.epoch()) else { return };
        match Placement::new(Secret(self.config.secret().0), (*map).clone()) {
            Ok(placement) => {
                self.placement = Arc::new(placement);
                let placement = Arc::clone(&self.placement);
                self.step(io, clock::now_us(), Input::Map(placement));
            }
            Err(error) => {
                tracing::error!(%error, epoch = map.epoch, "a cluster map that cannot be used is ignored")
            }
        }
    }
}

impl reactor::Driver for NodeDriver {
    fn event(&mut self, io: &mut Io, event: Event) {
        let mut events = std::mem::take(&mut self.events);
        let rest = self.peers.event(io, event, &mut events);
        for event in events.drain(..) {
            self.peer_event(io, event);
        }
        self.events = events;
        match rest {
            Some(Event::Tick) => self.tick(io),
            Some(Event::Woken) => {
                self.adopt_map(io);
                self.take_orders(io);
            }
            _ => {}
        }
    }

    /// Every lease is given back first, so that no write waits for this node.
    fn stopping(&mut self, io: &mut Io) -> bool {
        if !self.draining {
            self.draining = true;
            self.step(io, clock::now_us(), Input::Drain);
        }
        self.node.pending() == 0
    }
}
