//! Operators change what may be cached and order purges while everything runs. Not what that does to copies.

use protocol::node::{self, Admission};
use protocol::policy::{Eligibility, Policies, Rule};
use protocol::shim::{self, PurgeTarget};
use std::time::Duration;
use wire::NodeId;

use crate::cluster::{Cluster, SimEvent};
use crate::host::Machine;
use crate::network::HostId;
use crate::random::SimRandom;

/// Prefixes of clients' keys: texts in pairs, counters, hashes, lists, all.
const PREFIXES: [&str; 6] = ["{0}", "{1}", "c", "h", "l", ""];

/// What every process is told, and those that start later as well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) policies: Policies,
    /// Counts reloads.
    pub(crate) number: u32,
}

fn draw(random: &mut SimRandom) -> Policies {
    let rule = |random: &mut SimRandom| Rule {
        cache: random.pick(&[Eligibility::Never, Eligibility::Always, Eligibility::Heat]),
        ttl_ms_max: random.pick(&[20, 300, u64::MAX, u64::MAX]),
        value_bytes_max: random.pick(&[12, usize::MAX, usize::MAX]),
    };
    let mut rules = Vec::new();
    for prefix in PREFIXES {
        if random.percent(40) {
            rules.push((prefix.into(), rule(random)));
        }
    }
    Policies::new(rules)
}

impl Cluster {
    /// Everybody gets new rules, each in its own time.
    pub(crate) fn reload(&mut self) -> bool {
        self.rules = Rules { policies: draw(&mut self.random), number: self.rules.number + 1 };
        let rules = &self.rules;
        self.trace.note(self.now, || format!("{rules:?}"));
        for host in 0..self.routers_first {
            let (due, life) = (self.soon(self.shape.lease / 2), self.hosts[host].life);
            self.at(due, SimEvent::Reload { host, life });
        }
        self.disturb_until(self.now + self.shape.lease * 2, None);
        true
    }

    pub(crate) fn reloads(&mut self, host: HostId, life: u32) {
        if self.hosts[host].life != life || self.rules.number == 0 {
            return;
        }
        let (policies, shape) = (self.rules.policies.clone(), &self.shape);
        let held = (self.now, self.rules.number);
        match &self.hosts[host].machine {
            Some(Machine::Node(_)) => {
                let config = shape.node(NodeId(0), 0, 0);
                let settings = node::Settings {
                    objects_max: config.objects_max,
                    bytes_max: config.bytes_max,
                    value_bytes_max: config.value_bytes_max,
                    views_max: config.views_max,
                    forwarded_max: config.forwarded_max,
                    requests: config.requests,
                    heat: config.heat,
                    admission: Admission {
                        hold_off: Duration::from_micros(shape.lease / 4),
                        ..config.admission
                    },
                    policies,
                    observes: false,
                };
                self.step_node(host, node::Input::Settings(Box::new(settings)));
            }
            Some(Machine::Shim(_)) => {
                let config = shape.shim(wire::ShimId(0), 0);
                let settings = shim::Settings {
                    heat: config.heat,
                    heat_min: config.heat_min,
                    operations_max: config.operations_max,
                    key_queue_max: config.key_queue_max,
                    requests: config.requests,
                    policies,
                    observes: None,
                };
                self.step_shim(host, shim::Input::Settings(Box::new(settings)));
            }
            _ => return,
        }
        self.hosts[host].reloaded = held;
    }

    /// Copies of some keys of one shim are to go.
    pub(crate) fn purge(&mut self) -> bool {
        let server = self.random.index(self.servers.len());
        let slot = self.servers[server].current;
        if !self.hosts[slot].is_awake(self.now) {
            return false;
        }
        let scope = match self.random.below(3) {
            0 => PurgeTarget::Key(self.keys[self.random.index(self.keys.len())].key.bytes.clone()),
            1 => PurgeTarget::Prefix(self.random.pick(&PREFIXES).into()),
            _ => PurgeTarget::All,
        };
        self.serial += 1;
        let number = self.serial;
        self.note(|| format!("purge {number} at {slot}: {scope:?}"));
        self.births.purges.insert(number, (self.now, scope.clone()));
        self.disturb_until(self.now + self.shape.lease * 2, None);
        self.step_shim(slot, shim::Input::Purge { number, scope });
        true
    }
}
