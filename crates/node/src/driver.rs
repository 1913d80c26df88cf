//! Feeds the node machine from its links and carries its effects out.

use std::sync::Arc;
use std::time::Duration;

use config::Config;
use protocol::node::{Effect, Input, Node, NodeConfig};
use protocol::placement::Placement;
use protocol::time::Time;
use runtime::clock;
use runtime::instance::NewPlacement;
use runtime::member::Role;
use runtime::peers::{PeerEvent, Peers};
use runtime::reactor::{BusyMeter, Event, Io};
use runtime::status::MemberStatus;
use wire::NodeId;

pub(crate) struct NodeDriver {
    pub(crate) config: Arc<Config>,
    pub(crate) id: NodeId,
    pub(crate) node: Node,
    pub(crate) peers: Peers,
    pub(crate) placement: Arc<Placement>,
    busy: BusyMeter,
    draining: bool,
    events: Vec<PeerEvent>,
    effects: Vec<Effect>,
}

impl NodeDriver {
    pub(crate) fn new(
        config: Arc<Config>,
        id: NodeId,
        peers: Peers,
        placement: Arc<Placement>,
    ) -> NodeDriver {
        let node = Node::new(machine_config(&config, id, &placement), Arc::clone(&placement));
        NodeDriver {
            config,
            id,
            node,
            peers,
            placement,
            busy: BusyMeter::default(),
            draining: false,
            events: Vec::new(),
            effects: Vec::new(),
        }
    }

    fn peer_event(&mut self, io: &mut Io, event: PeerEvent) {
        match event {
            PeerEvent::Linked(peer) => self.step(io, clock::now(), Input::Linked(peer)),
            PeerEvent::Unlinked(peer) => self.step(io, clock::now(), Input::Unlinked(peer)),
            PeerEvent::Message { from, now, message } => {
                self.step(io, now, Input::Message { from, message });
            }
        }
    }

    fn step(&mut self, io: &mut Io, now: Time, input: Input) {
        self.node.step(now, input, &mut self.effects);
        for Effect::Send { to, message } in self.effects.drain(..) {
            // What has no link is lost, and `Unlinked` is on its way.
            self.peers.send(io, to, &message);
        }
    }
}

impl Role for NodeDriver {
    const NAME: &'static str = "node";

    fn event(&mut self, io: &mut Io, event: Event) -> Option<Event> {
        let mut events = std::mem::take(&mut self.events);
        let rest = self.peers.event(io, event, &mut events);
        for event in events.drain(..) {
            self.peer_event(io, event);
        }
        self.events = events;
        rest
    }

    fn tick(&mut self, io: &mut Io, now: Time, _shows: bool) {
        if let Some(permille) = self.busy.measure(now, io) {
            self.step(io, now, Input::Busy { permille });
        }
        self.step(io, now, Input::Tick);
    }

    fn rest(&mut self, now: Time) -> Duration {
        self.peers.rest(now, self.node.rest(now))
    }

    fn status(&mut self, now: Time) -> MemberStatus {
        self.make_status(now)
    }

    fn epoch(&self) -> u32 {
        self.placement.epoch()
    }

    fn adopt(&mut self, io: &mut Io, map: NewPlacement) {
        self.placement = Arc::clone(&map.placement);
        self.step(io, clock::now(), Input::Map(map.placement));
    }

    fn set(&mut self, io: &mut Io, config: Arc<Config>) {
        self.config = config;
        let settings = Box::new(self.config.node_settings(self.id));
        self.step(io, clock::now(), Input::Settings(settings));
    }

    /// Every lease is given back first, so that no write waits for this node.
    fn stopping(&mut self, io: &mut Io) -> bool {
        if !self.draining {
            self.draining = true;
            self.step(io, clock::now(), Input::Drain);
        }
        self.node.pending() == 0
    }
}

fn machine_config(config: &Config, node: NodeId, placement: &Placement) -> NodeConfig {
    NodeConfig {
        id: node,
        layer: placement.layer_of(node),
        capacity: config.node(node).capacity_thousandths().max(1),
        lease: config.cluster.lease_terms(),
        seed: rand::random(),
        settings: config.node_settings(node),
    }
}
