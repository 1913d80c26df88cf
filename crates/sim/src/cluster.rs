//! A whole cluster on virtual time: its hosts, what will happen to them, and the loop that makes it happen.

use std::sync::Arc;

use protocol::controller::Heartbeat;
use protocol::node::{self, Node};
use protocol::placement::{Placement, Secret};
use protocol::router::{self, Router};
use protocol::shim::{self, Shim};
use wire::resp::Command;
use wire::{Message, NodeId, RouterId, ShimId};

use crate::cast::{Cast, CastRoster};
use crate::checkers::{Births, Versions, WatchChecker};
use crate::clients::{SimClient, TestKey};
use crate::clock::{HostClock, ROUTER_TICK_US};
use crate::controllers::{Operator, SimFollower, Told};
use crate::faults::{FaultSet, Storms};
use crate::history::History;
use crate::host::{Host, HostRole, Machine};
use crate::network::{HostId, Place, SimNetwork};
use crate::policies::Rules;
use crate::random::SimRandom;
use crate::registry::Registry;
use crate::shape::Shape;
use crate::storage::site::WireEvent;
use crate::storage::{Backend, RECONNECT, Server};
use crate::trace::Trace;

/// What features a seed draws shall not change what else it draws.
const FEATURES: u64 = 0x9e37_79b9_7f4a_7c15;
/// Nor shall what befalls the controllers' store.
const STORES: u64 = 0xc2b2_ae3d_27d4_eb4f;
const SECRET: Secret = Secret([7; 16]);

/// What happens at a time.
#[derive(Debug)]
pub(crate) enum SimEvent {
    Deliver {
        place: Place,
        life: u32,
    },
    /// A message that left its order: `life` is the link's, if it must not outlive it.
    Late {
        link: usize,
        from: usize,
        life: Option<u32>,
        message: Message,
    },
    Tell {
        link: usize,
        side: usize,
        life: u32,
        up: bool,
    },
    Dial {
        link: usize,
    },
    Tick {
        host: HostId,
        life: u32,
    },
    Wake {
        host: HostId,
        life: u32,
    },
    /// What a process wanted when it was paused.
    Effects {
        host: HostId,
        life: u32,
        effects: Effects,
    },
    /// At a storage server, or at a connection to it.
    Wire {
        server: usize,
        event: WireEvent,
    },
    /// A process is told what may be cached now.
    Reload {
        host: HostId,
        life: u32,
    },
    /// Somebody writes to storage directly.
    Outsider,
    /// A client reads again what it has just heard to have changed.
    Refresh {
        client: usize,
        key: usize,
    },
    Client {
        client: usize,
    },
    Command {
        host: HostId,
        client: usize,
        connection: u32,
        command: Command,
    },
    Cancel {
        client: usize,
        connection: u32,
    },
    /// To the controller that this agent is for.
    Heartbeat {
        host: HostId,
        life: u32,
        agent: usize,
    },
    Map {
        host: HostId,
        life: u32,
        told: Told,
    },
    /// The operator adds members.
    Grow,
    /// The operator takes what does not belong there out of the controllers' store.
    Mend,
    /// A heartbeat that a controller has taken, in that life, reaches it again.
    Repeat {
        host: HostId,
        life: u32,
        heartbeat: Heartbeat,
    },
    /// What a controller proposed reaches its store.
    Propose {
        host: HostId,
        life: u32,
    },
    Start {
        host: HostId,
    },
    Kill {
        host: HostId,
        life: u32,
    },
    /// The operator takes a node's partition away, or lets it have it again.
    Operator {
        node: NodeId,
        drained: bool,
    },
    Fault,
    Inspect,
}

/// What a machine wants, by role.
#[derive(Debug)]
pub(crate) enum Effects {
    Node(Vec<node::Effect>),
    Shim(Vec<shim::Effect>),
    Router(Vec<router::Effect>),
}

pub(crate) struct Cluster {
    pub(crate) shape: Shape,
    pub(crate) random: SimRandom,
    /// Virtual time in microseconds.
    pub(crate) now: u64,
    pub(crate) queue: crate::queue::EventQueue<SimEvent>,
    pub(crate) hosts: Vec<Host>,
    /// Where the slots of the shims begin, two for each.
    pub(crate) slots_first: HostId,
    pub(crate) routers_first: HostId,
    pub(crate) controllers_first: HostId,
    pub(crate) network: SimNetwork,
    pub(crate) servers: Vec<Server>,
    /// By slot.
    pub(crate) backends: Vec<Backend>,
    pub(crate) registry: Registry,
    /// The members that configurations of controllers have now.
    pub(crate) cast: Cast,
    pub(crate) operator: Operator,
    /// The map that clusters start with.
    pub(crate) placement: Arc<Placement>,
    pub(crate) keys: Vec<TestKey>,
    pub(crate) clients: Vec<SimClient>,
    /// By key: when nobody writes it any more, so that what clients keep has time to be found stale.
    pub(crate) settled_at: Vec<u64>,
    pub(crate) history: History,
    /// What storage held of each key, and when.
    pub(crate) versions: Versions,
    pub(crate) births: Births,
    pub(crate) rules: Rules,
    pub(crate) storms: Storms,
    pub(crate) watch: WatchChecker,
    /// Nothing more goes wrong.
    pub(crate) calm: bool,
    /// Clients ask for nothing more.
    pub(crate) quiet: bool,
    pub(crate) serial: u64,
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Trace,
}

impl Cluster {
    pub(crate) fn new(seed: u64, allowed: FaultSet, with_text: bool) -> Cluster {
        let mut random = SimRandom::new(seed);
        let [mut features, mut stores] = [FEATURES, STORES].map(|source| SimRandom::new(seed ^ source));
        let shape = Shape::draw(&mut random, &mut features, allowed);
        let shape = shape.with_controllers_troubles(&mut stores, allowed);
        let placement = Arc::new(placement(shape.map.clone()));
        let mut trace = Trace::new(seed, with_text);
        trace.note(0, || format!("seed {seed}: {shape:#?}"));
        let (hosts, network) = lay_out(&shape, &placement, &mut random);
        let slots_first = placement.nodes_count();
        let everybody = CastRoster { nodes: slots_first, routers: shape.routers, stranger: false };
        let first = if shape.grows_at.is_some() { everybody.without_the_last() } else { everybody };
        let shims = shape.map.shims.len();
        let keys = crate::clients::keys(&shape, &placement);
        let mut cluster = Cluster {
            now: 0,
            queue: crate::queue::EventQueue::new(),
            slots_first,
            routers_first: slots_first + 2 * shims,
            controllers_first: slots_first + 2 * shims + shape.routers,
            servers: (0..shims)
                .map(|shim| Server::new(&shape, slots_first + 2 * shim, &mut random))
                .collect(),
            backends: (0..2 * shims).map(|_| Backend::default()).collect(),
            registry: Registry::new(shape.controllers, &mut random),
            cast: Cast::new(Arc::new(shape.map.clone()), first),
            operator: Operator::default(),
            history: History::new(keys.len()),
            versions: Versions::new(&keys),
            births: Births::default(),
            rules: Rules::default(),
            settled_at: crate::tracking::settled_at(&shape, keys.len(), &mut random),
            clients: crate::clients::clients(&shape, slots_first + 2 * shims, &mut random),
            storms: Storms::default(),
            watch: WatchChecker::default(),
            calm: false,
            quiet: false,
            serial: 0,
            violations: Vec::new(),
            hosts,
            network,
            keys,
            placement,
            shape,
            random,
            trace,
        };
        cluster.begin();
        cluster
    }

    fn begin(&mut self) {
        let slow = self.shape.slow_channels;
        self.network.slow_down(slow, &mut self.random);
        for host in 0..self.hosts.len() {
            let spare = self.is_slot(host) && (host - self.slots_first) % 2 == 1;
            if !spare {
                self.start(host);
            }
        }
        for link in 0..self.network.links.len() {
            let due = self.soon(2_000);
            self.at(due, SimEvent::Dial { link });
        }
        for client in 0..self.clients.len() {
            let due = self.soon(50_000);
            self.at(due, SimEvent::Client { client });
        }
        // Every shim takes its storage over and waits as after a restart, and writes gather meanwhile.
        self.disturb_until(RECONNECT + self.shape.stall_max(), None);
        let due = self.soon(self.shape.fault_interval);
        self.at(due, SimEvent::Fault);
        self.at(1_000_000, SimEvent::Inspect);
        if let Some(grows_at) = self.shape.grows_at {
            self.at(grows_at, SimEvent::Grow);
        }
        if self.shape.bounded.is_some() {
            self.at(0, SimEvent::Outsider);
        }
    }

    pub(crate) fn is_slot(&self, host: HostId) -> bool {
        (self.slots_first..self.routers_first).contains(&host)
    }

    pub(crate) fn nodes(&self) -> std::ops::Range<HostId> {
        0..self.slots_first
    }

    pub(crate) fn slots(&self) -> std::ops::Range<HostId> {
        self.slots_first..self.routers_first
    }

    pub(crate) fn routers(&self) -> std::ops::Range<HostId> {
        self.routers_first..self.controllers_first
    }

    pub(crate) fn controllers(&self) -> std::ops::Range<HostId> {
        self.controllers_first..self.hosts.len()
    }

    pub(crate) fn server_of(&self, slot: HostId) -> usize {
        (slot - self.slots_first) / 2
    }

    pub(crate) fn at(&mut self, time: u64, event: SimEvent) {
        self.queue.push(time, event);
    }

    /// Up to `most` microseconds from now.
    pub(crate) fn soon(&mut self, most: u64) -> u64 {
        self.now + self.random.below(most + 1)
    }

    pub(crate) fn fail(&mut self, violation: String) {
        let now = self.now;
        self.trace.note(now, || format!("VIOLATION {violation}"));
        if self.violations.len() < 8 {
            self.violations.push(format!("at {:.6} s: {violation}", self.now as f64 / 1e6));
        }
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        self.trace.note(now, what);
    }

    /// Lets virtual time pass. The first violation ends it: what follows from it says nothing.
    pub(crate) fn run_until(&mut self, end: u64) {
        while self.violations.is_empty() {
            let Some((time, event)) = self.queue.pop(end) else {
                self.now = end;
                return;
            };
            self.now = time;
            self.fire(event);
        }
    }

    /// Starts a process in its place, if none is there.
    pub(crate) fn start(&mut self, host: HostId) {
        if self.hosts[host].is_alive() {
            return;
        }
        let seed = self.random.number();
        let clock = HostClock::draw(&mut self.random, self.shape.faults.contains(crate::FaultKind::Clock));
        let placement = Arc::clone(&self.placement);
        let machine = match self.hosts[host].role {
            HostRole::Node(id) => {
                let config = self.shape.node(id, placement.layer_of(id), seed);
                Machine::Node(Box::new(Node::new(config, placement)))
            }
            HostRole::Shim(id) => Machine::Shim(Box::new(Shim::new(self.shape.shim(id, seed), placement))),
            HostRole::Router(_) => {
                let mut router = Router::new(self.shape.router(seed));
                router.step(clock.at(self.now), router::Input::Map(placement), &mut Vec::new());
                Machine::Router(Box::new(router))
            }
            HostRole::Controller => {
                self.registry.join(host - self.controllers_first);
                Machine::Controller(Box::new(self.new_controller(host, clock.at(self.now), seed)))
            }
        };
        let numbers: Vec<u64> = self.controllers().map(|_| self.random.number()).collect();
        let follower = SimFollower::new(Arc::clone(&self.placement), numbers.into_iter());
        let own = &mut self.hosts[host];
        own.life += 1;
        own.follower = follower;
        (own.machine, own.clock, own.paused_until, own.pause_in_hand) = (Some(machine), clock, 0, None);
        own.parked.clear();
        own.reloaded = (self.now, 0);
        let life = own.life;
        if !matches!(self.hosts[host].role, HostRole::Router(_) | HostRole::Controller) {
            // It reads its configuration before anything else.
            self.reloads(host, life);
        }
        if self.is_slot(host) {
            self.start_backend(host);
        }
        self.note(|| format!("{host} starts"));
        let tick = self.soon(self.tick_of(host));
        self.at(tick, SimEvent::Tick { host, life });
        if !matches!(self.hosts[host].role, HostRole::Controller) {
            self.begin_heartbeats(host);
        }
    }

    /// A process ends at once; its peers notice in their own time.
    pub(crate) fn kill(&mut self, host: HostId) {
        if !self.hosts[host].is_alive() {
            return;
        }
        self.note(|| format!("{host} ends"));
        self.count_up(host);
        self.cut_links(host);
        if self.is_slot(host) {
            self.end_backend(host);
        }
        let own = &mut self.hosts[host];
        own.machine = None;
        own.parked.clear();
        own.life += 1;
        if self.routers().contains(&host) {
            self.disconnect_clients(host);
        }
    }

    pub(crate) fn tick_of(&self, host: HostId) -> u64 {
        match self.hosts[host].role {
            HostRole::Node(_) | HostRole::Shim(_) => self.shape.tick,
            HostRole::Router(_) => ROUTER_TICK_US,
            HostRole::Controller => 100_000,
        }
    }
}

pub(crate) fn placement(map: wire::ClusterMap) -> Placement {
    Placement::new(SECRET, map).expect("maps are drawn and published in order")
}

/// Hosts in the order nodes, slots of shims, routers, controllers; and who dials whom.
fn lay_out(shape: &Shape, placement: &Arc<Placement>, random: &mut SimRandom) -> (Vec<Host>, SimNetwork) {
    let nodes = shape.map.layers.iter().map(|layer| layer.nodes.len()).sum::<usize>() as u16;
    let shims = shape.map.shims.len() as u16;
    let routers = shape.routers as u16;
    let slots = (0..shims).flat_map(|shim| [HostRole::Shim(ShimId(shim)); 2]);
    let roles: Vec<HostRole> = (0..nodes)
        .map(|node| HostRole::Node(NodeId(node)))
        .chain(slots)
        .chain((0..routers).map(|router| HostRole::Router(RouterId(router))))
        .chain((0..shape.controllers).map(|_| HostRole::Controller))
        .collect();
    let mut network = SimNetwork::default();
    let place = |wanted: HostRole| {
        let host = roles.iter().position(|role| *role == wanted);
        host.zip(wanted.peer())
    };
    let mut link = |dialer: HostRole, listener: HostRole| {
        if let (Some(dialer), Some(listener)) = (place(dialer), place(listener)) {
            network.add(dialer, listener);
        }
    };
    for shim in 0..shims {
        (0..nodes).for_each(|node| link(HostRole::Node(NodeId(node)), HostRole::Shim(ShimId(shim))));
    }
    for router in 0..routers {
        (0..nodes).for_each(|node| link(HostRole::Router(RouterId(router)), HostRole::Node(NodeId(node))));
        (0..shims).for_each(|shim| link(HostRole::Router(RouterId(router)), HostRole::Shim(ShimId(shim))));
    }
    let follower = || SimFollower::new(Arc::clone(placement), std::iter::empty());
    let hosts = roles.iter().map(|role| Host::new(*role, HostClock::draw(random, false), follower()));
    (hosts.collect(), network)
}
