//! Nodes say that keys are hot, or cold, whatever is asked of them, and are told of numbers of places that no shim has decided; shims
//! are told that they have no time left, or plenty.
//! Only what the right peers could say, in sessions that are open.

use protocol::{node, shim};
use wire::message::{Heat, SetDegree};
use wire::{Degree, Message, NodeId, Peer};

use crate::cluster::Cluster;

const MESSAGES_MAX: u64 = 12;
const STEPS: u64 = 6;

impl Cluster {
    /// A few messages about keys that a shim's nodes hold.
    pub(crate) fn talk_of_heat(&mut self) -> bool {
        let server = self.world.random.index(self.servers.len());
        let slot = self.servers[server].current;
        if self.hosts[slot].shim().is_some() && self.hosts[slot].is_awake(self.world.now()) {
            let permille = self.world.random.pick(&[0, 150, 1000]);
            self.step_shim(slot, shim::Input::Busy { permille });
        }
        let mut said = false;
        for _ in 0..self.world.random.between(1, MESSAGES_MAX) {
            let key = self.keys[self.world.random.index(self.keys.len())].key.clone();
            let (own, now) = (&self.hosts[slot], self.world.now());
            let Some(machine) = own.shim().filter(|_| own.is_awake(now)) else { return said };
            let nodes = |holder| match holder {
                Peer::Node(node) => Some(node),
                _ => None,
            };
            let holders: Vec<NodeId> = machine.holders(&key).filter_map(nodes).collect();
            if holders.is_empty() {
                continue;
            }
            let node = holders[self.world.random.index(holders.len())];
            let Some((session, _)) = machine.session(own.clock.at(now), Peer::Node(node)) else { continue };
            let random = &mut self.world.random;
            let degree = Degree(random.below(STEPS) as u8);
            let from_node = random.percent(70);
            let permille = random.pick(&[0, 130, 600, 1000]);
            let (hits, invalidations) = (random.below(1 << 20) as u32, random.pick(&[0, 0, 0, 5]));
            let host = usize::from(node.0);
            if from_node {
                let message = Message::Heat(Heat { session, key, degree, permille, hits, invalidations });
                self.step_shim(slot, shim::Input::Message { from: Peer::Node(node), message });
            } else if self.hosts[host].is_awake(now) {
                let Some(from) = self.hosts[slot].role.peer() else { continue };
                let message = Message::SetDegree(SetDegree { key, degree });
                self.step_node(host, node::Input::Message { from, message });
            }
            said = true;
        }
        said
    }
}
