//! Nodes fail and come back, the production controller makes maps of it, objects are offered to nodes. Not when.

use std::sync::Arc;

use protocol::controller::partitions::{Effect, Input, Partitions};
use protocol::time::Time;
use protocol::{node, router, shim};
use wire::message::Offer;
use wire::resp::Command;
use wire::{ClusterMap, Message, NodeId, Peer, View};

use super::cluster::{HOP_US, ScaleCluster};
use super::layout::controller_terms;
use super::{Layers, Routing, Scenario};

const HEARTBEAT_US: u64 = 500_000;
/// As long as a read takes that no node answers.
const READ_US: u64 = 4 * HOP_US;

/// The controller's decisions, and when members are heard of next.
pub(super) struct Control {
    partitions: Partitions,
    heartbeat: u64,
}

impl Control {
    pub(super) fn new(scenario: &Scenario, now: u64) -> Control {
        let partitions = Partitions::new(Time(now), controller_terms(), scenario.map(), &[]);
        Control { partitions, heartbeat: now + HEARTBEAT_US }
    }

    pub(super) fn due(&self) -> u64 {
        self.heartbeat
    }
}

impl ScaleCluster {
    /// Spines fail from the last one on.
    fn spine(&self, index: usize) -> usize {
        usize::from(self.scenario.racks) + usize::from(self.scenario.spines) - 1 - index
    }

    /// Every node that lives is heard of.
    pub(super) fn control_due(&mut self) {
        self.control.heartbeat = self.now + HEARTBEAT_US;
        let epoch = self.placement.epoch();
        for index in 0..self.nodes.len() {
            if self.nodes[index].alive {
                let empty = self.nodes[index].node.objects() == 0;
                let member = Peer::Node(NodeId(index as u16));
                self.control(Input::Heartbeat { member, epoch, empty, level: 1, resharding: None });
            }
        }
        self.control(Input::Tick);
    }

    fn control(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.control.partitions.step(Time(self.now), input, &mut effects);
        for Effect::Publish(map) in effects {
            self.adopt(map);
        }
    }

    fn adopt(&mut self, map: ClusterMap) {
        self.placement = Arc::new(self.scenario.placement(map));
        let placement = Arc::clone(&self.placement);
        for node in 0..self.nodes.len() {
            self.step_node(node, node::Input::Map(Arc::clone(&placement)));
        }
        for server in 0..self.servers.len() {
            self.step_shim(server, shim::Input::Map(Arc::clone(&placement)));
        }
        for front in 0..self.fronts.len() {
            self.step_router(front, router::Input::Map(Arc::clone(&placement)));
        }
    }

    /// A spine goes down with all that it holds.
    pub(super) fn fail(&mut self, spine: usize) {
        let node = self.spine(spine);
        self.change(node, false);
        if !self.scenario.silent {
            self.tell(node, false);
        }
    }

    /// The controller is told that those spines will not come back soon.
    pub(super) fn remap(&mut self, spines: usize) {
        for spine in 0..spines {
            let node = NodeId(self.spine(spine) as u16);
            self.control(Input::Drain { node, drained: true });
        }
    }

    pub(super) fn restore(&mut self, spines: usize) {
        for spine in 0..spines {
            let node = self.spine(spine);
            self.change(node, true);
            self.tell(node, true);
            self.link(node);
            self.control(Input::Drain { node: NodeId(node as u16), drained: false });
        }
    }

    fn change(&mut self, node: usize, alive: bool) {
        let (id, scenario) = (NodeId(node as u16), self.scenario.clone());
        self.nodes[node].replace(&scenario, id, &Arc::clone(&self.placement), alive);
        let limited = self.limited;
        self.limit(limited);
    }

    fn tell(&mut self, node: usize, linked: bool) {
        let peer = Peer::Node(NodeId(node as u16));
        for front in 0..self.fronts.len() {
            let input = if linked { router::Input::Linked(peer) } else { router::Input::Unlinked(peer) };
            self.step_router(front, input);
        }
        for server in 0..self.servers.len() {
            let input = if linked { shim::Input::Linked(peer) } else { shim::Input::Unlinked(peer) };
            self.step_shim(server, input);
        }
    }

    /// Every node is offered the hottest objects of its partition, as many as it holds, as if `rate` were asked for.
    /// Returns the ranks of what has been offered.
    pub(super) fn populate(&mut self, rate: f64) -> Vec<usize> {
        let mut offered = Vec::new();
        if self.scenario.layers == Layers::None {
            return offered;
        }
        let mut room = vec![self.scenario.slots; self.nodes.len()];
        let mut left: usize = room.len() * self.scenario.slots;
        for rank in 0..self.scenario.popularity.head.len() {
            if left == 0 {
                break;
            }
            let key = self.placement.key(0, self.workload.head_name(rank));
            let shim = Peer::Shim(self.placement.shim(&key));
            let per_second = self.scenario.popularity.head[rank] * rate * self.server_rate();
            let before = left;
            for id in self.placement.places(&key).into_iter().flatten() {
                let node = usize::from(id.0);
                if room[node] == 0 {
                    continue;
                }
                (room[node], left) = (room[node] - 1, left - 1);
                let heat = self.scenario.heat_offered(per_second);
                let (key, view, command) = (key.clone(), View::GET, bytes::Bytes::new());
                let offer = Message::Offer(Offer { key, view, resp3: false, heat, command });
                self.step_node(node, node::Input::Message { from: shim, message: offer });
            }
            if left < before {
                offered.push(rank);
            }
        }
        offered
    }

    /// Routers that learn what is cached from replies have asked for each of these objects once. In a second of the
    /// paper's rates they would have many times over; here it would take the colder ones minutes.
    pub(super) fn teach(&mut self, ranks: &[usize]) {
        if self.scenario.routing == Routing::Learned {
            for &rank in ranks {
                let command = Command::from_args(&[b"GET".as_slice(), &self.workload.head_name(rank)]);
                (0..self.fronts.len()).for_each(|front| self.ask(front, command.clone()));
                self.run_for(READ_US);
            }
        }
    }

    /// How many nodes hold each object that some node holds now.
    pub(super) fn copies(&self) -> Vec<usize> {
        let alive = self.nodes.iter().filter(|own| own.alive);
        let mut keys: Vec<_> = alive.flat_map(|own| own.node.keys().map(|key| key.bytes)).collect();
        keys.sort_unstable();
        keys.chunk_by(|key, other| key == other).map(<[_]>::len).collect()
    }
}
