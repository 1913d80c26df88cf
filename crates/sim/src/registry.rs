//! Where controllers keep leases of members and the map: a store that is always consistent. Not what they decide.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::controller::partitions::{self, Ownership, Terms};
use protocol::placement::Placement;
use wire::{ClusterMap, NodeId, Peer};

use crate::cluster::{Cluster, Event, placement};
use crate::host::Machine;
use crate::network::HostId;
use crate::random::Random;

/// One change that a controller has yet to see.
#[derive(Clone, Debug)]
enum Change {
    Registered(Peer),
    Expired(Peer),
    Published { version: u64, epoch: u32, nodes: Vec<Ownership> },
}

/// One controller's view of the store.
#[derive(Clone, Debug, Default)]
struct Replica {
    changes: VecDeque<Change>,
    /// The version of the map that it has seen last.
    version: u64,
}

pub(crate) struct Registry {
    lease: u64,
    grace: u64,
    step: u64,
    /// When each member's lease ends.
    members: BTreeMap<Peer, u64>,
    version: u64,
    published: Option<Change>,
    replicas: Vec<Replica>,
    /// What the operator wants of nodes and no controller has taken.
    wishes: Vec<(NodeId, bool)>,
    /// Neither controllers nor members reach it until then.
    pub(crate) lost_until: u64,
}

impl Registry {
    pub(crate) fn new(controllers: usize, random: &mut Random) -> Registry {
        Registry {
            lease: random.pick(&[1_000_000, 2_000_000]),
            grace: random.pick(&[100_000, 300_000, 2_000_000]),
            step: random.pick(&[200_000, 1_000_000]),
            members: BTreeMap::new(),
            version: 0,
            published: None,
            replicas: vec![Replica::default(); controllers],
            wishes: Vec::new(),
            lost_until: 0,
        }
    }

    pub(crate) fn config(&self) -> Terms {
        Terms {
            lease: Duration::from_micros(self.lease),
            grace: Duration::from_micros(self.grace),
            step: Duration::from_micros(self.step),
        }
    }

    pub(crate) fn heartbeat_interval(&self) -> u64 {
        self.lease / 4
    }

    /// From a node's end to the map without it, at most.
    pub(crate) fn remap_max(&self) -> u64 {
        self.lease + self.grace + 500_000
    }

    fn tell_all(&mut self, change: &Change) {
        self.replicas.iter_mut().for_each(|replica| replica.changes.push_back(change.clone()));
    }

    fn keep(&mut self, now: u64, member: Peer) {
        if self.members.insert(member, now + self.lease).is_none() {
            self.tell_all(&Change::Registered(member));
        }
    }

    /// A controller that starts reads what the store has.
    pub(crate) fn join(&mut self, index: usize) {
        let members = self.members.keys().map(|member| Change::Registered(*member));
        let changes = self.published.iter().cloned().chain(members).collect();
        self.replicas[index] = Replica { changes, version: 0 };
    }

    fn expire(&mut self, now: u64) {
        let ended: Vec<Peer> =
            self.members.iter().filter(|(_, end)| **end <= now).map(|(member, _)| *member).collect();
        for member in ended {
            self.members.remove(&member);
            self.tell_all(&Change::Expired(member));
        }
    }
}

impl Cluster {
    /// A member says that it lives, to any controller, which answers with its map.
    pub(crate) fn heartbeat(&mut self, host: HostId, life: u32) {
        if self.hosts[host].life != life {
            return;
        }
        let interval = self.registry.heartbeat_interval();
        let due = self.now + interval / 2 + self.random.below(interval / 2);
        self.at(due, Event::Heartbeat { host, life });
        let controller = self.controllers_first + self.random.index(self.controllers().len());
        let now = self.now;
        let awake = self.hosts[host].is_awake(now) && self.hosts[controller].is_awake(now);
        let cut = self.network.cut_until(now, host, controller).is_some();
        let silent = self.storms.is_silent(now, host) || self.registry.lost_until > now;
        let Some(member) = self.hosts[host].role.peer() else { return };
        // A shim that was replaced has nothing to say any more.
        let replaced = self.is_slot(host) && self.servers[self.server_of(host)].current != host;
        if !awake || cut || silent || replaced {
            return;
        }
        self.watch_registry(controller);
        self.registry.keep(now, member);
        let epoch = self.watch.epoch_of(host, life);
        let empty = self.hosts[host].node().is_none_or(|node| node.objects() == 0);
        self.step_controller(controller, partitions::Input::Heartbeat { member, epoch, empty });
        let Some(newest) = self.hosts[controller].controller().map(|machine| machine.map()) else { return };
        if newest.epoch > epoch {
            let placement = Arc::new(placement(newest.clone()));
            let due = self.now + self.random.wait(self.shape.latency);
            self.at(due, Event::Map { host, life, placement });
        }
    }

    pub(crate) fn tick_controller(&mut self, host: HostId) {
        if self.registry.lost_until <= self.now {
            self.watch_registry(host);
            for (node, drained) in std::mem::take(&mut self.registry.wishes) {
                self.step_controller(host, partitions::Input::Drain { node, drained });
            }
        }
        self.step_controller(host, partitions::Input::Tick);
    }

    pub(crate) fn operate(&mut self, node: NodeId, drained: bool) {
        self.registry.wishes.push((node, drained));
    }

    fn watch_registry(&mut self, host: HostId) {
        self.registry.expire(self.now);
        let index = host - self.controllers_first;
        while let Some(change) = self.registry.replicas[index].changes.pop_front() {
            let input = match change {
                Change::Registered(member) => partitions::Input::Registered { member },
                Change::Expired(member) => partitions::Input::Expired { member },
                Change::Published { version, epoch, nodes } => {
                    self.registry.replicas[index].version = version;
                    partitions::Input::Published { epoch, nodes }
                }
            };
            self.step_controller(host, input);
        }
    }

    /// A controller writes its map, unless another one was faster: then that one's is on its way here.
    pub(crate) fn publish(&mut self, host: HostId, map: &ClusterMap) {
        let index = host - self.controllers_first;
        let Some(nodes) = self.hosts[host].controller().map(|machine| machine.ownership()) else { return };
        let registry = &mut self.registry;
        if registry.lost_until > self.now || registry.replicas[index].version != registry.version {
            return;
        }
        registry.version += 1;
        let change = Change::Published { version: registry.version, epoch: map.epoch, nodes };
        // Its own map is no news to a controller, which may be ahead of it.
        let others = registry.replicas.iter_mut().enumerate().filter(|(other, _)| *other != index);
        others.for_each(|(_, replica)| replica.changes.push_back(change.clone()));
        registry.published = Some(change);
        // Its next write needs the version of this one.
        registry.replicas[index].version = registry.version;
        self.watch.maps += 1;
        self.note(|| format!("{host} publishes {map:?}"));
    }

    pub(crate) fn adopt(&mut self, host: HostId, life: u32, placement: Arc<Placement>) {
        if self.hosts[host].life != life || placement.epoch() <= self.watch.epoch_of(host, life) {
            return;
        }
        self.watch.adopts(host, life, placement.epoch());
        self.trace.event(self.now, 4, host);
        self.trace.word(u64::from(placement.epoch()));
        match &self.hosts[host].machine {
            Some(Machine::Node(_)) => self.step_node(host, protocol::node::Input::Map(placement)),
            Some(Machine::Shim(_)) => self.step_shim(host, protocol::shim::Input::Map(placement)),
            Some(Machine::Router(_)) => self.step_router(host, protocol::router::Input::Map(placement)),
            Some(Machine::Controller(_)) | None => {}
        }
    }
}
