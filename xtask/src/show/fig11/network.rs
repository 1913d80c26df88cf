//! A model of switches and servers of limited rate around the production placement, load, heat and controller. It decides
//! nothing that they decide.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use bytes::Bytes;
use protocol::controller::partitions::{Effect, Input, Partitions, Terms};
use protocol::heat::{HeatConfig, HeavyHitters};
use protocol::load::{LoadMeter, LoadTable};
use protocol::placement::{Placement, Secret};
use protocol::time::Time;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use wire::{
    ClusterMap, Key, LayerMap, NodeId, NodeMember, Partition, Peer, RackId, SHARE_WHOLE, Sharding, ShimId,
    ShimMember,
};

const RACKS: u16 = 32;
const SPINES: u16 = 32;
const SERVERS: u16 = 32;
const ROUTERS: usize = 32;
/// Requests per second of a server and of a switch, which has that of a rack: a tenth of a percent of the paper's.
const SERVER_RATE: f64 = 5.0;
pub(super) const SWITCH_RATE: f64 = SERVER_RATE * SERVERS as f64;
/// Longer queues are cut off: what waits longer is dropped.
const QUEUE_US_MAX: u64 = 1_000_000;
const HOP_US: u64 = 100;
const KEYS: usize = 1_000_000;
const EXPONENT: f64 = 0.99;
const OBJECTS_MAX: usize = 100;
/// The keys from which the nodes' hottest are taken: many times what all of them can hold.
const RANKED: usize = 40_000;
const HEAT_MIN: u32 = 2;
const SECRET: Secret = Secret([0x5a; 16]);
const HEARTBEAT_US: u64 = 500_000;
const SECOND_US: u64 = 1_000_000;

pub(super) struct Setup {
    /// Reads for leaves and servers cross a spine switch, too.
    pub(super) crossing: bool,
    /// Routers notice at once that a node is gone.
    pub(super) notices: bool,
    /// Reads per second, evenly spaced.
    pub(super) rate: f64,
}

struct NetworkNode {
    alive: bool,
    free_us: u64,
    meter: LoadMeter,
    heat: HeavyHitters,
    /// Ranks of keys.
    held: BTreeSet<usize>,
    /// The hottest of its partition, the only ones that it would not evict again for others.
    hottest: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NetworkStep {
    Arrives,
    AtNode,
    AtServer,
    Answered,
}

/// A read on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NetworkRead {
    rank: usize,
    router: usize,
    node: NodeId,
    load: u32,
}

type NetworkEvent = (u64, u64, NetworkStep, NetworkRead);

pub(super) struct ModelledNetwork {
    crossing: bool,
    notices: bool,
    interval_us: u64,
    now_us: u64,
    random: SmallRng,
    events: BinaryHeap<Reverse<NetworkEvent>>,
    numbered: u64,
    placement: Placement,
    partitions: Partitions,
    tables: Vec<LoadTable>,
    nodes: Vec<NetworkNode>,
    servers_free_us: Vec<u64>,
    /// Cumulative popularity by rank.
    popularity: Vec<f64>,
    heartbeat_us: u64,
    answered: Vec<u64>,
}

impl ModelledNetwork {
    pub(super) fn new(setup: &Setup) -> ModelledNetwork {
        // Whatever has failed is taken for lost when the experiment says so, and not by itself.
        let terms = Terms { grace: Duration::from_secs(1 << 20), ..Terms::default() };
        let map = map();
        let mut sum = 0.0;
        let popularity = (1..=KEYS).map(|rank| {
            sum += (rank as f64).powf(-EXPONENT);
            sum
        });
        let nodes_count = usize::from(RACKS + SPINES);
        let heat = HeatConfig { counters: 4096, filter_bits: 16_384, ..HeatConfig::default() };
        let node = |seed| NetworkNode {
            alive: true,
            free_us: 0,
            meter: LoadMeter::new(Duration::from_secs(1)),
            heat: HeavyHitters::new(heat, seed),
            held: BTreeSet::new(),
            hottest: BTreeSet::new(),
        };
        let first = NetworkRead { rank: 0, router: 0, node: NodeId(0), load: 0 };
        let mut network = ModelledNetwork {
            crossing: setup.crossing,
            notices: setup.notices,
            interval_us: (SECOND_US as f64 / setup.rate) as u64,
            now_us: 0,
            random: SmallRng::seed_from_u64(11),
            events: BinaryHeap::from([Reverse((0, 0, NetworkStep::Arrives, first))]),
            numbered: 0,
            placement: Placement::new(SECRET, map.clone()).expect("the map is in order"),
            partitions: Partitions::new(Time(0), terms, map, &[]),
            tables: vec![LoadTable::new(nodes_count); ROUTERS],
            nodes: (0..nodes_count as u64).map(node).collect(),
            servers_free_us: vec![0; usize::from(RACKS * SERVERS)],
            popularity: popularity.collect(),
            heartbeat_us: 0,
            answered: Vec::new(),
        };
        network.adopt_map();
        // It starts warm.
        network.nodes.iter_mut().for_each(|node| node.held.clone_from(&node.hottest));
        network
    }

    /// Reads answered in each second so far.
    pub(super) fn answered(&self) -> Vec<u64> {
        let mut answered = self.answered.clone();
        answered.resize((self.now_us / SECOND_US) as usize, 0);
        answered
    }

    pub(super) fn run_until(&mut self, second: u64) {
        let end_us = second * SECOND_US;
        while self.events.peek().is_some_and(|Reverse((at_us, ..))| *at_us < end_us) {
            let Some(Reverse((at_us, _, step, read))) = self.events.pop() else { return };
            self.now_us = at_us;
            if at_us >= self.heartbeat_us {
                self.heartbeat();
            }
            match step {
                NetworkStep::Arrives => self.arrives(),
                NetworkStep::AtNode => self.at_node(read),
                NetworkStep::AtServer => self.at_server(read),
                NetworkStep::Answered => self.is_answered(read),
            }
        }
        self.now_us = end_us;
    }

    /// A spine switch goes down with all that it holds.
    pub(super) fn fail(&mut self, spine: usize) {
        let id = spine_id(spine);
        let node = &mut self.nodes[usize::from(id.0)];
        node.alive = false;
        node.held.clear();
        if self.notices {
            self.tables.iter_mut().for_each(|table| table.set_reachable(id, false));
        }
    }

    /// The operator tells the controller that a node's partition goes to the others, or may go back.
    pub(super) fn drain(&mut self, spine: usize, drained: bool) {
        self.control(Input::Drain { node: spine_id(spine), drained });
    }

    pub(super) fn restore(&mut self, spine: usize) {
        let id = spine_id(spine);
        let node = &mut self.nodes[usize::from(id.0)];
        (node.alive, node.free_us) = (true, self.now_us);
        self.tables.iter_mut().for_each(|table| table.set_reachable(id, true));
        self.drain(spine, false);
    }

    fn heartbeat(&mut self) {
        self.heartbeat_us = self.now_us + HEARTBEAT_US;
        let epoch = self.placement.epoch();
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            if node.alive {
                let (member, empty) = (Peer::Node(NodeId(index as u16)), node.held.is_empty());
                self.control(Input::Heartbeat { member, epoch, empty, level: 1, resharding: None });
            }
        }
        self.control(Input::Tick);
    }

    fn control(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.partitions.step(Time(self.now_us), input, &mut effects);
        for Effect::Publish(map) in effects {
            self.placement = Placement::new(SECRET, map).expect("the map is in order");
            self.adopt_map();
        }
    }

    /// Every node's hottest keys follow the map; what it holds of others goes.
    fn adopt_map(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.hottest.clear());
        for rank in 0..RANKED {
            for id in self.placement.places(&self.key(rank)).into_iter().flatten() {
                let hottest = &mut self.nodes[usize::from(id.0)].hottest;
                if hottest.len() < OBJECTS_MAX {
                    hottest.insert(rank);
                }
            }
        }
        self.nodes.iter_mut().for_each(|node| node.held.retain(|rank| node.hottest.contains(rank)));
    }

    fn key(&self, rank: usize) -> Key {
        self.placement.key(0, Bytes::from(format!("key:{rank:012}")))
    }

    fn after(&mut self, us: u64, step: NetworkStep, read: NetworkRead) {
        self.numbered += 1;
        self.events.push(Reverse((self.now_us + us, self.numbered, step, read)));
    }

    /// A client's read: its router takes the less loaded of the key's places, as the paper's does for every read.
    fn arrives(&mut self) {
        let next = NetworkRead { rank: 0, router: 0, node: NodeId(0), load: 0 };
        self.after(self.interval_us, NetworkStep::Arrives, next);
        let point = self.random.random_range(0.0..self.popularity[KEYS - 1]);
        let rank = self.popularity.partition_point(|sum| *sum <= point);
        let (router, tie) = (self.random.random_range(0..ROUTERS), self.random.random());
        let places: Vec<NodeId> = self.placement.places(&self.key(rank)).into_iter().flatten().collect();
        let (now, table) = (Time(self.now_us), &mut self.tables[router]);
        let Some(node) = table.choose(now, &places, tie) else { return };
        table.sent(now, node);
        let read = NetworkRead { rank, router, node, load: 0 };
        match self.crossing && node.0 < RACKS {
            true => self.cross(read),
            false => self.after(HOP_US, NetworkStep::AtNode, read),
        }
    }

    /// On its way to a leaf, through any spine switch that the map has not given up.
    fn cross(&mut self, read: NetworkRead) {
        let spines = &self.placement.map().layers[1].nodes;
        let up: Vec<usize> =
            spines.iter().filter(|node| node.is_up()).map(|node| usize::from(node.id.0)).collect();
        let spine = up[self.random.random_range(0..up.len())];
        if let Some(wait_us) = self.serve(spine) {
            self.after(wait_us + HOP_US, NetworkStep::AtNode, read);
        }
    }

    /// How long a node takes for one more request; none if it is down, or its queue too long.
    fn serve(&mut self, index: usize) -> Option<u64> {
        let node = &mut self.nodes[index];
        let free_us = if node.alive { &mut node.free_us } else { return None };
        queue(self.now_us, free_us, SWITCH_RATE)
    }

    fn at_node(&mut self, mut read: NetworkRead) {
        let Some(wait_us) = self.serve(usize::from(read.node.0)) else { return };
        let (now, key) = (Time(self.now_us), self.key(read.rank));
        let node = &mut self.nodes[usize::from(read.node.0)];
        node.meter.record(now);
        read.load = node.meter.load(now, 1000);
        if node.held.contains(&read.rank) {
            return self.after(wait_us + HOP_US, NetworkStep::Answered, read);
        }
        let item = key.digest.0 as u64;
        if node.heat.record(now, item, HEAT_MIN).is_some() && node.hottest.contains(&read.rank) {
            node.held.insert(read.rank);
        }
        self.after(wait_us + HOP_US, NetworkStep::AtServer, read);
    }

    fn at_server(&mut self, read: NetworkRead) {
        let shim = self.placement.shim(&self.key(read.rank));
        let free_us = &mut self.servers_free_us[usize::from(shim.0)];
        if let Some(wait_us) = queue(self.now_us, free_us, SERVER_RATE) {
            self.after(wait_us + HOP_US, NetworkStep::Answered, read);
        }
    }

    fn is_answered(&mut self, read: NetworkRead) {
        self.tables[read.router].report(Time(self.now_us), read.node, read.load);
        let second = (self.now_us / SECOND_US) as usize;
        if self.answered.len() <= second {
            self.answered.resize(second + 1, 0);
        }
        self.answered[second] += 1;
    }
}

/// First in, first out: how long until one more is served, unless that is too long.
fn queue(now_us: u64, free_us: &mut u64, rate: f64) -> Option<u64> {
    let begin_us = now_us.max(*free_us);
    if begin_us - now_us > QUEUE_US_MAX {
        return None;
    }
    *free_us = begin_us + (SECOND_US as f64 / rate) as u64;
    Some(*free_us - now_us)
}

fn spine_id(spine: usize) -> NodeId {
    NodeId(RACKS + spine as u16)
}

/// One leaf per rack, numbered from zero, and the spines behind them.
fn map() -> ClusterMap {
    let node = |id, rack| NodeMember { id: NodeId(id), rack, capacity: 1000, share: SHARE_WHOLE };
    let layer = |name: &str, partition, nodes| LayerMap { name: name.to_owned(), partition, nodes };
    let leaves = (0..RACKS).map(|id| node(id, Some(RackId(id)))).collect();
    let spines = (RACKS..RACKS + SPINES).map(|id| node(id, None)).collect();
    let shims = (0..RACKS * SERVERS).map(|id| ShimMember::new(ShimId(id), RackId(id / SERVERS)));
    ClusterMap {
        epoch: 1,
        level: 1,
        layers: vec![layer("leaf", Partition::Rack, leaves), layer("spine", Partition::Hash, spines)],
        sharding: Sharding::Ring,
        shims: shims.collect(),
    }
}
