//! The event loop: messages travel, members step, clients ask at a steady rate. Decides nothing that a machine decides.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use protocol::coherence::lease::EarlierIncarnations;
use protocol::placement::Placement;
use protocol::requests::{Overload, RequestLimits};
use protocol::storage::{StorageEvent, StorageTraits};
use protocol::time::Time;
use protocol::{node, router, shim};
use wire::resp::Command;
use wire::{Message, NodeId, Peer, RouterId, ShimId};

use super::control::Control;
use super::layout::{LEASE, terms};
use super::members::{CacheNode, ScaleFront, ScaleServer};
use super::workload::ScaleWorkload;
use super::{Layers, Scenario, storage};
use crate::clock::ROUTER_TICK_US;
use crate::queue::EventQueue;
use crate::random::SimRandom;

/// Every message takes as long, and so does storage: a hundredth of what a server takes for one request or less, as in a
/// rack, and one queue keeps all of them in order.
pub(super) const HOP_US: u64 = 20;
const TICK_US: u64 = LEASE.as_micros() as u64 / 20;
/// Longer than anything waits: a request that is refused would only be asked again.
const PATIENCE: Duration = Duration::from_secs(60);
const START_US: u64 = 1_000_000;

enum Flying {
    Message {
        from: Peer,
        to: Peer,
        message: Message,
    },
    Storage {
        shim: ShimId,
        event: StorageEvent,
    },
    /// A client that has its answer asks for the next.
    Client {
        front: usize,
    },
}

/// What has become of requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) offered: u64,
    pub(super) served: u64,
    /// Answered with an error.
    pub(super) refused: u64,
}

pub(super) struct ScaleCluster {
    pub(super) scenario: Scenario,
    pub(super) now: u64,
    pub(super) placement: Arc<Placement>,
    pub(super) nodes: Vec<CacheNode>,
    pub(super) servers: Vec<ScaleServer>,
    pub(super) fronts: Vec<ScaleFront>,
    pub(super) workload: ScaleWorkload,
    pub(super) totals: Totals,
    pub(super) control: Control,
    random: SimRandom,
    flying: VecDeque<(u64, Flying)>,
    ticks: VecDeque<(u64, Peer)>,
    router_ticks: VecDeque<(u64, usize)>,
    /// Members at which requests wait, when they may begin the next.
    due: EventQueue<Peer>,
    pub(super) limited: bool,
    /// Clients ask for one thing after the other, and requests wait; otherwise what comes too fast is refused.
    pub(super) closed: bool,
    /// Thousandths of a request per second.
    offered: u64,
    /// Since when, and how many have come since.
    offered_since: (u64, u64),
    arrival: u64,
    node_effects: Vec<node::Effect>,
    shim_effects: Vec<shim::Effect>,
    router_effects: Vec<router::Effect>,
}

impl ScaleCluster {
    /// All members are up and linked, no write is held back any more, and nobody has asked for anything.
    pub(super) fn new(scenario: &Scenario) -> ScaleCluster {
        let mut scenario = scenario.clone();
        if scenario.layers == Layers::None {
            // A map has at least one layer; this one takes nothing in, and no router hears of it.
            (scenario.slots, scenario.routing) = (0, router::Routing::Learned);
        }
        let control = Control::new(&scenario, START_US);
        let placement = Arc::new(scenario.placement(scenario.map()));
        let mut random = SimRandom::new(scenario.seed);
        let nodes = (0..placement.nodes_count() as u16)
            .map(|id| CacheNode::new(&scenario, NodeId(id), &placement, random.number()));
        let nodes: Vec<CacheNode> = nodes.collect();
        let servers = (0..scenario.servers() as u16)
            .map(|id| ScaleServer::new(&scenario, ShimId(id), &placement, random.number()));
        let servers: Vec<ScaleServer> = servers.collect();
        let fronts = (0..scenario.routers).map(|_| ScaleFront::new(&scenario, random.number())).collect();
        let workload =
            ScaleWorkload::new(&scenario.popularity, scenario.write_ratio, &placement, scenario.seed);
        let mut cluster = ScaleCluster {
            now: START_US,
            nodes,
            servers,
            fronts,
            workload,
            totals: Totals::default(),
            control,
            random,
            flying: VecDeque::new(),
            ticks: VecDeque::new(),
            router_ticks: VecDeque::new(),
            due: EventQueue::new(),
            limited: false,
            closed: false,
            offered: 0,
            offered_since: (START_US, 0),
            arrival: u64::MAX,
            node_effects: Vec::new(),
            shim_effects: Vec::new(),
            router_effects: Vec::new(),
            placement,
            scenario,
        };
        cluster.begin();
        cluster
    }

    fn begin(&mut self) {
        for server in 0..self.servers.len() {
            let (incarnation, traits) = (self.random.number() | 1, StorageTraits::default());
            let event = StorageEvent::Up {
                incarnation,
                traits,
                earlier: EarlierIncarnations::recorded(terms().restart_wait()),
            };
            self.step_shim(server, shim::Input::Storage(event));
        }
        (0..self.nodes.len()).for_each(|node| self.link(node));
        for front in 0..self.fronts.len() {
            self.step_router(front, router::Input::Map(Arc::clone(&self.placement)));
            for shim in 0..self.servers.len() as u16 {
                self.step_router(front, router::Input::Linked(Peer::Shim(ShimId(shim))));
            }
            for node in 0..self.nodes.len() as u16 {
                self.step_router(front, router::Input::Linked(Peer::Node(NodeId(node))));
            }
        }
        let members = (0..self.nodes.len() as u16).map(|id| Peer::Node(NodeId(id)));
        let members: Vec<Peer> =
            members.chain((0..self.servers.len() as u16).map(|id| Peer::Shim(ShimId(id)))).collect();
        let spread = |index: usize, of: usize, period: u64| index as u64 * period / of as u64;
        for (index, peer) in members.iter().enumerate() {
            self.ticks.push_back((self.now + spread(index, members.len(), TICK_US), *peer));
        }
        for front in 0..self.fronts.len() {
            let due = self.now + spread(front, self.fronts.len(), ROUTER_TICK_US);
            self.router_ticks.push_back((due, front));
        }
        self.run_for(terms().restart_wait().as_micros() as u64 + 2 * TICK_US);
    }

    /// A node that is new hears of the shims.
    pub(super) fn link(&mut self, node: usize) {
        for shim in 0..self.servers.len() as u16 {
            self.step_node(node, node::Input::Linked(Peer::Shim(ShimId(shim))));
        }
    }

    /// From now on members serve no more than they can, or as much as they are asked for.
    pub(super) fn limit(&mut self, limited: bool) {
        self.limited = limited;
        // 0 is no limit.
        let rate = |units: f64| (units * f64::from(u8::from(limited)) * self.server_rate()).round() as u64;
        let Scenario { leaf_rate, spine_rate, .. } = self.scenario;
        let (leaf, spine, server) = (rate(leaf_rate), rate(spine_rate), rate(1.0));
        for index in 0..self.nodes.len() {
            let rate_max = if self.scenario.is_leaf(index) { leaf } else { spine };
            let limits = self.limits(rate_max);
            self.nodes[index].node.limit(limits);
        }
        let limits = self.limits(server);
        self.servers.iter_mut().for_each(|own| own.shim.limit(limits));
    }

    fn limits(&self, rate_max: u64) -> RequestLimits {
        let limits = RequestLimits { rate_max, ..RequestLimits::default() };
        match self.closed {
            true => RequestLimits { overload: Overload::Wait { patience: PATIENCE }, ..limits },
            false => limits,
        }
    }

    /// So many clients ask for one thing after the other from now on.
    pub(super) fn begin_clients(&mut self, clients: u32) {
        for front in 0..self.fronts.len() as u16 {
            let router = Peer::Router(RouterId(front));
            (0..self.nodes.len()).for_each(|node| self.step_node(node, node::Input::Linked(router)));
            (0..self.servers.len()).for_each(|server| self.step_shim(server, shim::Input::Linked(router)));
        }
        for client in 0..clients as usize {
            let front = client % self.fronts.len();
            let due = self.now + HOP_US;
            self.flying.push_back((due, Flying::Client { front }));
        }
    }

    pub(super) fn server_rate(&self) -> f64 {
        f64::from(self.scenario.server_rate)
    }

    /// Clients ask for so much from now on, in units of one server's rate.
    pub(super) fn offer(&mut self, rate: f64) {
        self.offered = (rate * self.server_rate() * 1000.0).round() as u64;
        self.offered_since = (self.now, 0);
        self.plan_arrival();
    }

    fn plan_arrival(&mut self) {
        let (since, count) = self.offered_since;
        self.arrival = match self.offered {
            0 => u64::MAX,
            offered => since + (u128::from(count + 1) * 1_000_000_000 / u128::from(offered)) as u64,
        };
    }

    pub(super) fn run_for(&mut self, us: u64) {
        let end = self.now + us;
        loop {
            let flying = self.flying.front().map_or(u64::MAX, |(due, _)| *due);
            let tick = self.ticks.front().map_or(u64::MAX, |(due, _)| *due);
            let router_tick = self.router_ticks.front().map_or(u64::MAX, |(due, _)| *due);
            let turn = self.due.next_time().unwrap_or(u64::MAX);
            let (arrival, control) = (self.arrival, self.control.due());
            let next = flying.min(tick).min(router_tick).min(turn).min(arrival).min(control);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            if next == flying {
                self.lands();
            } else if next == turn {
                if let Some((_, peer)) = self.due.pop(next) {
                    self.serve_next(peer);
                }
            } else if next == arrival {
                self.arrives();
            } else if next == tick {
                self.tick();
            } else if next == router_tick {
                self.tick_router();
            } else {
                self.control_due();
            }
        }
    }

    fn arrives(&mut self) {
        self.offered_since.1 += 1;
        self.plan_arrival();
        let command = self.workload.draw();
        let front = self.random.index(self.fronts.len());
        self.ask(front, command);
    }

    pub(super) fn ask(&mut self, front: usize, command: Command) {
        self.totals.offered += 1;
        let mut effects = std::mem::take(&mut self.router_effects);
        let own = &mut self.fronts[front];
        let client = own.client(Time(self.now), &mut effects);
        own.router.step(Time(self.now), router::Input::Command { client, command }, &mut effects);
        self.carry_out_router(front, effects);
    }

    fn tick(&mut self) {
        let Some((due, peer)) = self.ticks.pop_front() else { return };
        self.ticks.push_back((due + TICK_US, peer));
        match peer {
            Peer::Node(id) => self.step_node(usize::from(id.0), node::Input::Tick),
            Peer::Shim(id) => self.step_shim(usize::from(id.0), shim::Input::Tick),
            Peer::Router(_) => {}
        }
    }

    fn tick_router(&mut self) {
        let Some((due, front)) = self.router_ticks.pop_front() else { return };
        self.router_ticks.push_back((due + ROUTER_TICK_US, front));
        self.step_router(front, router::Input::Tick);
    }

    fn lands(&mut self) {
        let Some((_, flying)) = self.flying.pop_front() else { return };
        let (from, to, message) = match flying {
            Flying::Message { from, to, message } => (from, to, message),
            Flying::Storage { shim, event } => {
                return self.step_shim(usize::from(shim.0), shim::Input::Storage(event));
            }
            Flying::Client { front } => {
                let command = self.workload.draw();
                return self.ask(front, command);
            }
        };
        match to {
            Peer::Router(id) => {
                self.step_router(usize::from(id.0), router::Input::Message { from, message });
            }
            Peer::Node(id) => self.reaches_node(usize::from(id.0), from, message),
            Peer::Shim(id) => self.reaches_shim(usize::from(id.0), from, message),
        }
    }

    fn reaches_node(&mut self, node: usize, from: Peer, message: Message) {
        self.step_node(node, node::Input::Message { from, message });
        self.await_turn(Peer::Node(NodeId(node as u16)));
    }

    fn reaches_shim(&mut self, server: usize, from: Peer, message: Message) {
        self.step_shim(server, shim::Input::Message { from, message });
        self.await_turn(Peer::Shim(ShimId(server as u16)));
    }

    /// A member at which requests wait is woken when its rate allows one more.
    fn await_turn(&mut self, member: Peer) {
        let (waiting, awaited) = match member {
            Peer::Node(id) => {
                let own = &mut self.nodes[usize::from(id.0)];
                (own.node.waiting(), &mut own.awaited)
            }
            Peer::Shim(id) => {
                let own = &mut self.servers[usize::from(id.0)];
                (own.shim.waiting(), &mut own.awaited)
            }
            Peer::Router(_) => return,
        };
        if waiting == 0 || std::mem::replace(awaited, true) {
            return;
        }
        let units = match member {
            Peer::Node(id) if self.scenario.is_leaf(usize::from(id.0)) => self.scenario.leaf_rate,
            Peer::Node(_) => self.scenario.spine_rate,
            Peer::Shim(_) | Peer::Router(_) => 1.0,
        };
        let service_us = (1e6 / (units * self.server_rate())).ceil() as u64;
        self.due.push(self.now + service_us, member);
    }

    fn serve_next(&mut self, member: Peer) {
        match member {
            Peer::Node(id) => {
                self.nodes[usize::from(id.0)].awaited = false;
                self.step_node(usize::from(id.0), node::Input::Tick);
            }
            Peer::Shim(id) => {
                self.servers[usize::from(id.0)].awaited = false;
                self.step_shim(usize::from(id.0), shim::Input::Tick);
            }
            Peer::Router(_) => {}
        }
        self.await_turn(member);
    }

    pub(super) fn send(&mut self, from: Peer, to: Peer, message: Message) {
        self.flying.push_back((self.now + HOP_US, Flying::Message { from, to, message }));
    }

    pub(super) fn step_node(&mut self, node: usize, input: node::Input) {
        let own = &mut self.nodes[node];
        if !own.alive {
            return;
        }
        let mut effects = std::mem::take(&mut self.node_effects);
        own.node.step(Time(self.now), input, &mut effects);
        let from = Peer::Node(NodeId(node as u16));
        for node::Effect::Send { to, message } in effects.drain(..) {
            self.send(from, to, message);
        }
        self.node_effects = effects;
    }

    pub(super) fn step_shim(&mut self, server: usize, input: shim::Input) {
        let mut effects = std::mem::take(&mut self.shim_effects);
        self.servers[server].shim.step(Time(self.now), input, &mut effects);
        let shim = ShimId(server as u16);
        for effect in effects.drain(..) {
            match effect {
                shim::Effect::Send { to, message } => self.send(Peer::Shim(shim), to, message),
                shim::Effect::Store(store) => {
                    let event = storage::answer(&store);
                    self.flying.push_back((self.now + HOP_US, Flying::Storage { shim, event }));
                }
                // Nothing here blocks, watches, purges or is large.
                _ => {}
            }
        }
        self.shim_effects = effects;
        if self.limited {
            let own = &mut self.servers[server];
            let due = own.coherence_due(self.scenario.coherence_cost);
            own.shim.charge(Time(self.now), due);
        }
    }

    pub(super) fn step_router(&mut self, front: usize, input: router::Input) {
        let mut effects = std::mem::take(&mut self.router_effects);
        self.fronts[front].router.step(Time(self.now), input, &mut effects);
        self.carry_out_router(front, effects);
    }

    fn carry_out_router(&mut self, front: usize, mut effects: Vec<router::Effect>) {
        let from = Peer::Router(RouterId(front as u16));
        for effect in effects.drain(..) {
            match effect {
                router::Effect::Send { to, message } => self.send(from, to, message),
                router::Effect::Reply { client, bytes } => {
                    let refused = bytes.first() == Some(&b'-');
                    self.totals.refused += u64::from(refused);
                    self.totals.served += u64::from(!refused);
                    self.fronts[front].answered(client);
                    if self.closed {
                        self.flying.push_back((self.now + HOP_US, Flying::Client { front }));
                    }
                }
                // Clients ask for one small thing at a time and never misbehave.
                _ => {}
            }
        }
        self.router_effects = effects;
    }
}
