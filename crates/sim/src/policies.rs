//! Operators change what may be cached and order purges while everything runs. Not what that does to copies.

use std::time::Duration;

use protocol::node;
use protocol::shim::{self, PurgeTarget, ShimSettings};
use wire::NodeId;

use crate::cluster::Cluster;
use crate::event::SimEvent;
use crate::host::Machine;
use crate::network::HostId;
use crate::rules::PREFIXES;

impl Cluster {
    /// Everybody gets new rules, each in its own time.
    pub(crate) fn reload(&mut self) -> bool {
        self.rules = self.rules.next(&mut self.world.random, Duration::from_micros(self.shape.stale));
        let rules = &self.rules;
        self.world.note(|| format!("{rules:?}"));
        for host in 0..self.routers_first {
            let (due, life) = (self.world.soon(self.shape.lease / 2), self.hosts[host].life);
            self.world.at(due, SimEvent::Reload { host, life });
        }
        self.disturb_until(self.world.now() + self.shape.lease * 2, None);
        true
    }

    pub(crate) fn reloads(&mut self, host: HostId, life: u32) {
        if self.hosts[host].life != life || self.rules.number == 0 {
            return;
        }
        let (policies, shape) = (self.rules.policies.clone(), &self.shape);
        let held = (self.world.now(), self.rules.number);
        match &self.hosts[host].machine {
            Some(Machine::Node(_)) => {
                let mut settings = shape.node(NodeId(0), 0, 0).settings;
                settings.admission.hold_off = Duration::from_micros(shape.lease / 4);
                settings.policies = policies;
                self.step_node(host, node::Input::Settings(Box::new(settings)));
            }
            Some(Machine::Shim(_)) => {
                let settings = ShimSettings { policies, ..shape.shim(wire::ShimId(0), 0).settings };
                self.step_shim(host, shim::Input::Settings(Box::new(settings)));
            }
            _ => return,
        }
        self.hosts[host].reloaded = held;
    }

    /// Copies of some keys of one shim are to go.
    pub(crate) fn purge(&mut self) -> bool {
        let server = self.world.random.index(self.servers.len());
        let slot = self.servers[server].current;
        if !self.hosts[slot].is_awake(self.world.now()) {
            return false;
        }
        let scope = match self.world.random.below(3) {
            0 => PurgeTarget::Key(self.keys[self.world.random.index(self.keys.len())].key.bytes.clone()),
            1 => PurgeTarget::Prefix(self.world.random.pick(&PREFIXES).into()),
            _ => PurgeTarget::All,
        };
        self.serial += 1;
        let number = self.serial;
        self.world.note(|| format!("purge {number} at {slot}: {scope:?}"));
        self.births.purges.insert(number, (self.world.now(), scope.clone()));
        self.disturb_until(self.world.now() + self.shape.lease * 2, None);
        self.step_shim(slot, shim::Input::Purge { number, scope });
        true
    }
}
