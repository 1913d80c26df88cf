//! A whole cluster on virtual time: its rooms, and who stands where. Not what happens to them.

use std::sync::Arc;

use protocol::placement::{Placement, Secret};
use wire::{NodeId, Peer, RouterId, ShimId};

use crate::cast::{Cast, CastRoster};
use crate::clients::SimClient;
use crate::clock::HostClock;
use crate::commands::TestKey;
use crate::fault_kind::FaultSet;
use crate::following::{Operator, SimFollower};
use crate::history::History;
use crate::host::{Host, HostRole};
use crate::network::{HostId, SimNetwork};
use crate::random::SimRandom;
use crate::records::{Births, Versions, WatchChecker};
use crate::registry::Registry;
use crate::rules::Rules;
use crate::shape::Shape;
use crate::storage::{Backend, Server};
use crate::storms::Storms;
use crate::trace::Trace;
use crate::world::World;

/// What features a seed draws shall not change what else it draws.
const FEATURES: u64 = 0x9e37_79b9_7f4a_7c15;
/// Nor shall what befalls the controllers' store.
const STORES: u64 = 0xc2b2_ae3d_27d4_eb4f;
const STRANGERS: u64 = 0x9e6c_63d0_876a_68f1;
const LOSSES: u64 = 0xd6e8_feb8_6659_fd93;
const HEATS: u64 = 0xa076_1d64_78bd_642f;
const NEAR: u64 = 0x5851_f42d_4c95_7f2d;
const HANDOVERS: u64 = 0x2545_f491_4f6c_dd1d;
const MANAGED: u64 = 0x1d8e_4e27_c47d_124f;
const STALE: u64 = 0x6b0f_93d5_21ce_78a4;
const SECRET: Secret = Secret([7; 16]);

pub(crate) struct Cluster {
    pub(crate) shape: Shape,
    pub(crate) world: World,
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
}

impl Cluster {
    pub(crate) fn new(seed: u64, allowed: FaultSet, with_text: bool) -> Cluster {
        let mut random = SimRandom::new(seed);
        let [
            mut features,
            mut stores,
            mut strangers,
            mut losses,
            mut heats,
            mut near,
            mut handovers,
            mut managed,
            mut stale,
        ] = [FEATURES, STORES, STRANGERS, LOSSES, HEATS, NEAR, HANDOVERS, MANAGED, STALE]
            .map(|source| SimRandom::new(seed ^ source));
        let shape = Shape::draw(&mut random, &mut features, allowed);
        let shape = shape.with_controllers_troubles(&mut stores, allowed);
        let shape = shape.with_foreign_writers(&mut strangers);
        let shape = shape.with_storage_that_loses(&mut losses, allowed);
        let shape = shape.with_heat(&mut heats, allowed).with_near_copies(&mut near);
        let shape = shape.with_handovers(&mut handovers, allowed).with_managed_servers(&mut managed);
        let shape = shape.with_stale_copies(&mut stale);
        let placement = Arc::new(placement(shape.map.clone()));
        let mut trace = Trace::new(seed, with_text);
        trace.note(0, || format!("seed {seed}: {shape:#?}"));
        let (hosts, network) = lay_out(&shape, &placement, &mut random);
        let slots_first = placement.nodes_count();
        let everybody = CastRoster { nodes: slots_first, routers: shape.routers, stranger: false };
        let first = if shape.grows_at.is_some() { everybody.without_the_last() } else { everybody };
        let shims = shape.map.shims.len();
        let keys = crate::commands::keys(&shape, &placement);
        Cluster {
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
            settled_at: crate::tracker::settled_at(&shape, keys.len(), &mut random),
            clients: crate::clients::clients(&shape, slots_first + 2 * shims, &mut random),
            storms: Storms::default(),
            watch: WatchChecker::default(),
            calm: false,
            quiet: false,
            serial: 0,
            hosts,
            network,
            keys,
            placement,
            shape,
            world: World::new(random, trace),
        }
    }

    pub(crate) fn is_slot(&self, host: HostId) -> bool {
        (self.slots_first..self.routers_first).contains(&host)
    }

    pub(crate) fn nodes(&self) -> std::ops::Range<HostId> {
        0..self.slots_first
    }

    /// Who may hold copies.
    pub(crate) fn holders(&self) -> impl Iterator<Item = HostId> + use<> {
        self.nodes().chain(self.routers())
    }

    /// Where a holder of copies is.
    pub(crate) fn holder_host(&self, holder: Peer) -> Option<HostId> {
        match holder {
            Peer::Node(node) => Some(usize::from(node.0)),
            Peer::Router(router) => Some(self.routers_first + usize::from(router.0)),
            Peer::Shim(_) => None,
        }
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
