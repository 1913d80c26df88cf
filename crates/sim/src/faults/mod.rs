//! What goes wrong, when, and for how long. Not how machines take it.

mod confused;
mod heat;

use protocol::controller::StoredMap;
use protocol::node;
use protocol::shim::{self, Shim};
use wire::Peer;

use crate::cast::CastRoster;
use crate::cluster::Cluster;
use crate::commands;
use crate::event::SimEvent;
use crate::fault_kind::FaultKind;
use crate::network::HostId;
use crate::storage::RECONNECT;

impl Cluster {
    /// False if it could not happen now.
    pub(crate) fn strike(&mut self, kind: FaultKind) -> bool {
        let lease = self.shape.lease;
        let brief = self.world.soon(lease * 3);
        match kind {
            FaultKind::Loss | FaultKind::Duplicate | FaultKind::Reorder => {
                self.storms.control(kind, brief, &mut self.world.random);
                let leases = self.leases_while_messages_are_lost();
                self.disturb_until(brief, leases);
                true
            }
            FaultKind::Delay => {
                self.storms.delay(brief, self.world.random.between(lease / 50, lease / 3));
                self.disturb_until(brief + lease, None);
                true
            }
            FaultKind::Evict => {
                self.storms.evict(brief);
                true
            }
            FaultKind::Reset => {
                let link = self.world.random.index(self.network.links.len());
                let whole = self.network.links[link].is_whole();
                if whole {
                    self.break_link(link);
                    self.disturb_until(self.world.now() + lease / 5, None);
                }
                whole
            }
            FaultKind::OneWay | FaultKind::Partition => self.part(kind == FaultKind::Partition, brief),
            FaultKind::CrashNode | FaultKind::Drain => self.end_node(kind == FaultKind::Drain),
            FaultKind::CrashShim | FaultKind::Replace => {
                let server = self.world.random.index(self.servers.len());
                self.replace_shim(server, kind == FaultKind::Replace)
            }
            FaultKind::HandOver => self.hand_over(),
            FaultKind::CrashRouter => {
                let host = self.random_of(self.routers());
                self.crash(host, 500_000)
            }
            FaultKind::CrashController => {
                let host = self.random_of(self.controllers());
                self.crash(host, 3_000_000)
            }
            FaultKind::PauseNode | FaultKind::PauseShim | FaultKind::PauseRouter => self.stop(kind, brief),
            FaultKind::Clock => {
                let host = self.world.random.index(self.hosts.len());
                let now = self.world.now();
                self.hosts[host].clock.change_rate(now, &mut self.world.random);
                true
            }
            FaultKind::Confused => self.confuse(),
            FaultKind::Heat => self.talk_of_heat(),
            FaultKind::Reload => self.reload(),
            FaultKind::Purge => self.purge(),
            FaultKind::Barrier => self.flush(),
            FaultKind::Remap => self.silence(),
            FaultKind::Resize => self.resize(),
            FaultKind::ControllerLost => {
                self.registry.lost_until = self.world.soon(5_000_000);
                true
            }
            FaultKind::StoreCut => self.cut_store(),
            FaultKind::StoreEmptied => self.registry.empty(),
            FaultKind::StoreForeign => self.spoil_store(),
            storage => self.strike_storage(storage, brief),
        }
    }

    fn strike_storage(&mut self, kind: FaultKind, brief: u64) -> bool {
        let server = self.world.random.index(self.servers.len());
        let slot = self.servers[server].current;
        let lease = self.shape.lease;
        let serving = self.backends[slot - self.slots_first].is_serving();
        match kind {
            FaultKind::SlowStorage => {
                self.servers[server].slow_until = brief;
                self.disturb_until(brief + lease, None);
                true
            }
            FaultKind::StorageTimeout => {
                let until = self.world.now() + self.shape.storage_timeout() + self.world.random.below(lease);
                // A pause that is over sooner would let what comes later overtake what waits for the first one's end.
                let paused_until = &mut self.servers[server].paused_until;
                *paused_until = until.max(*paused_until);
                let until = *paused_until;
                self.disturb_until(until + lease * 2 + RECONNECT, None);
                true
            }
            FaultKind::StorageLoss => {
                let able = serving && self.lose_connection(slot);
                if able {
                    self.disturb_until(self.world.now() + lease * 2 + RECONNECT, None);
                }
                able
            }
            FaultKind::FeedLoss => serving && self.lose_feed(slot),
            FaultKind::FeedHang => serving && self.hang_feed(slot, brief),
            FaultKind::StorageRestart => {
                if serving {
                    self.lose_incarnation(slot);
                    self.disturb_until(self.world.now() + lease * 2 + RECONNECT, None);
                }
                serving
            }
            FaultKind::StorageRollback => {
                let able = self.servers[server].earlier.is_none();
                if able {
                    self.servers[server].keep();
                    let due = self.world.soon(lease * 2);
                    self.world.at(due, SimEvent::Rollback { server });
                }
                able
            }
            other => unreachable!("{other:?} is no fault of storage"),
        }
    }

    /// Controllers do not hear of a node for so long that they give its partition to others.
    fn silence(&mut self) -> bool {
        let host = self.random_of(self.nodes());
        let until = self.world.now() + self.registry.remap_max();
        self.storms.silence(host, until);
        true
    }

    /// One controller does not reach the store for a while.
    fn cut_store(&mut self) -> bool {
        let (index, until) = (self.world.random.index(self.controllers().len()), self.world.soon(5_000_000));
        self.registry.cut(index, until);
        true
    }

    /// Another cluster uses this one's place in the store, or somebody writes nonsense there, until the operator sees it.
    fn spoil_store(&mut self) -> bool {
        let (epoch, history, by) =
            (self.world.random.below(50) as u32, self.world.random.number(), "another".to_owned());
        let roster = CastRoster { stranger: true, ..self.everybody() };
        let map = StoredMap { epoch, level: 1, history, by, roster, nodes: Vec::new(), shims: Vec::new() };
        let nonsense = self.world.random.percent(50);
        self.registry.spoil(if nonsense { Err("nonsense".to_owned()) } else { Ok(map) });
        let due = self.world.soon(5_000_000);
        self.world.at(due, SimEvent::Mend);
        true
    }

    fn random_of(&mut self, hosts: std::ops::Range<HostId>) -> HostId {
        hosts.start + self.world.random.index(hosts.len())
    }

    /// Cuts a pair of hosts apart, or one host off from all others.
    fn part(&mut self, both_ways: bool, until: u64) -> bool {
        let link = self.world.random.index(self.network.links.len());
        let [dialer, listener] = self.network.links[link].hosts;
        let (host, other) =
            if self.world.random.percent(50) { (dialer, listener) } else { (listener, dialer) };
        let alone = self.world.random.percent(30);
        let others = if alone { 0..self.hosts.len() } else { other..other + 1 };
        for other in others.filter(|other| *other != host) {
            self.network.cut(host, other, until);
            if both_ways {
                self.network.cut(other, host, until);
            }
        }
        let nodes = self.nodes();
        let only_nodes = nodes.contains(&host) || (!alone && nodes.contains(&other));
        self.disturb_until(until + self.shape.lease / 2, only_nodes.then_some(1));
        true
    }

    fn crash(&mut self, host: HostId, away_max: u64) -> bool {
        if !self.hosts[host].is_alive() {
            return false;
        }
        self.kill(host);
        let due = self.world.soon(away_max);
        self.world.at(due, SimEvent::Start { host });
        self.disturb_until(due + self.shape.lease, None);
        true
    }

    fn end_node(&mut self, drains: bool) -> bool {
        let host = self.random_of(self.nodes());
        if !self.hosts[host].is_alive() || (drains && self.hosts[host].is_paused(self.world.now())) {
            return false;
        }
        let life = self.hosts[host].life;
        let mut end = self.world.now();
        if drains {
            self.step_node(host, node::Input::Drain);
            self.say_farewell(host);
            end = self.world.soon(self.shape.lease / 2);
        }
        self.world.at(end, SimEvent::Kill { host, life });
        let start = end + self.world.random.below(self.shape.lease * 3 + 1);
        self.world.at(start, SimEvent::Start { host });
        self.disturb_until(start, Some(1));
        true
    }

    /// A node leaves the cluster for a while, by the operator's will; its process may leave as well.
    fn resize(&mut self) -> bool {
        let host = self.random_of(self.nodes());
        let Some(Peer::Node(node)) = self.hosts[host].role.peer() else { return false };
        let (gone, back) =
            (self.world.soon(500_000), self.world.now() + self.world.random.between(1_000_000, 8_000_000));
        self.world.at(self.world.now(), SimEvent::Operator { node, drained: true });
        self.world.at(back, SimEvent::Operator { node, drained: false });
        if self.world.random.percent(50) && self.hosts[host].is_alive() {
            let life = self.hosts[host].life;
            self.world.at(gone, SimEvent::Kill { host, life });
            self.world.at(back, SimEvent::Start { host });
            self.disturb_until(back, Some(1));
        }
        true
    }

    /// Another shim process starts for the same storage; the old one may live on for a while.
    pub(crate) fn replace_shim(&mut self, server: usize, lives_on: bool) -> bool {
        let old = self.servers[server].current;
        let new = self.other_slot(old);
        let settled = self.backends[old - self.slots_first].is_settled();
        if self.hosts[new].is_alive() || !settled || !self.hosts[old].is_alive() {
            return false;
        }
        let lease = self.shape.lease;
        if lives_on {
            let (end, life) = (self.world.soon(lease * 3), self.hosts[old].life);
            self.world.at(end, SimEvent::Kill { host: old, life });
            if self.world.random.percent(50) {
                let until = self.world.soon(lease * 2);
                self.pause(old, until);
            }
        } else {
            self.kill(old);
        }
        self.servers[server].current = new;
        let start = self.world.soon(lease / 2);
        self.world.at(start, SimEvent::Start { host: new });
        self.disturb_until(self.world.now() + lease * 5 + RECONNECT, None);
        true
    }

    /// A shim is stopped in order; whoever does it waits for it, mostly for long enough.
    fn hand_over(&mut self) -> bool {
        let server = self.world.random.index(self.servers.len());
        let old = self.servers[server].current;
        let settled = self.backends[old - self.slots_first].is_settled();
        let free = !self.hosts[self.other_slot(old)].is_alive();
        if !free || !settled || !self.hosts[old].is_awake(self.world.now()) {
            return false;
        }
        let lease = self.shape.lease;
        let patience = if self.world.random.percent(80) { lease * 4 } else { lease / 4 };
        let (life, until) = (self.hosts[old].life, self.world.now() + patience);
        self.step_shim(old, shim::Input::HandOver);
        self.disturb_until(until + lease * 3 + RECONNECT, None);
        self.hands_over(server, life, until);
        true
    }

    pub(crate) fn hands_over(&mut self, server: usize, life: u32, until: u64) {
        let old = self.servers[server].current;
        if self.hosts[old].life != life {
            return;
        }
        let has_left = self.hosts[old].shim().is_none_or(Shim::has_left);
        if !has_left && self.world.now() < until {
            let next = self.world.soon(self.shape.tick);
            return self.world.at(next, SimEvent::HandsOver { server, life, until });
        }
        self.kill(old);
        let new = self.other_slot(old);
        self.servers[server].current = new;
        let start = self.world.soon(self.shape.lease / 2);
        self.world.at(start, SimEvent::Start { host: new });
    }

    fn stop(&mut self, kind: FaultKind, until: u64) -> bool {
        let hosts = match kind {
            FaultKind::PauseNode => self.nodes(),
            FaultKind::PauseShim => self.slots(),
            _ => self.routers(),
        };
        let host = self.random_of(hosts);
        let awake = self.hosts[host].is_awake(self.world.now());
        if awake {
            self.pause(host, until);
            self.disturb_until(until, (kind == FaultKind::PauseNode).then_some(1));
        }
        awake
    }

    /// A client sends a command that touches everything.
    pub(crate) fn flush(&mut self) -> bool {
        let client = self.world.random.index(self.clients.len());
        let settled = self.settled_at.iter().any(|settled| *settled <= self.world.now());
        let free = !settled && self.clients[client].asked.is_empty() && self.connect(client);
        if free {
            let drawn = commands::flush(self.keys.len());
            self.ask(client, drawn, &mut Vec::new());
            self.disturb_until(self.world.now() + self.shape.lease * 2, None);
        }
        free
    }
}
