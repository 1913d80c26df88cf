//! The cluster of an exploration: its map, its keys, and how its machines start.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::heat::HeatConfig;
use protocol::node::{self, Admission, Node, NodeConfig, NodeSettings};
use protocol::placement::{Custody, Placement, Secret};
use protocol::requests::RequestLimits;
use protocol::shim::{Shim, ShimConfig, ShimSettings};
use protocol::time::Time;
use wire::message::{Fill, Offer};
use wire::{
    ClusterMap, Degree, Key, LayerMap, LayerSet, Message, NodeId, NodeMember, Partition, Peer, RackId,
    Relocation, RouterId, SHARE_WHOLE, Sharding, ShimId, ShimMember, ShimState, Status, View,
};

use super::backend;
use super::config::Config;
use super::coverage::Coverage;
use super::state::{NEXT, SHIM, ShimCell};

/// A shim that stands for the rest of the cluster: its one key pushes the key out of a full node.
pub(crate) const OTHER: ShimId = ShimId(1);
/// Two objects of the model's values fit, one of the other shim's does not fit beside anything.
const BYTES_MAX: u64 = 2000;
const FILLER_BYTES: usize = 1900;
/// Nothing is hot but what is offered, so that heat takes no part in any decision.
const HEAT: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) config: Config,
    pub(crate) placement: Arc<Placement>,
    /// The maps by which keys are divided anew, from the first one to the last.
    pub(crate) stages: Vec<Arc<Placement>>,
    /// After a remap: the first node is down.
    pub(crate) remapped: Arc<Placement>,
    pub(crate) key: Key,
    filler: Key,
    pub(crate) second: View,
    second_command: Bytes,
    pub(crate) coverage: Coverage,
}

/// Routers from this number on are those that hold copies; the others are clients.
const NEAR_FIRST: u16 = 1000;

impl Cluster {
    pub(crate) fn new(config: Config) -> Cluster {
        let placement = placement(&config, true);
        let placement_of = &placement;
        let named = |number: u32| placement.key(0, Bytes::from(format!("k{number}")));
        let stages = stages(&placement);
        let leaves =
            |shim, key: &Key| stages.last().is_some_and(|_| stages[1].departure(shim, &key.bytes).is_some());
        // The key goes with the others, and the filler never does.
        let is_meant = |shim, key: &Key| {
            placement_of.shim(key) == shim && (!config.divides || leaves(shim, key) == (shim == SHIM))
        };
        let of = |shim: ShimId| (0..).map(named).filter(move |key| is_meant(shim, key)).take(16);
        // Of equally hot objects the one with the lowest digest leaves first.
        let key = of(SHIM).min_by_key(|key| key.digest).expect("keys of the shim");
        let filler = of(OTHER).max_by_key(|key| key.digest).expect("keys of the other shim");
        assert!(key.digest < filler.digest, "the filler must outlast the key");
        let second = backend::second(&key.bytes);
        let classified = commands::classify(&second).expect("a command of the table");
        Cluster {
            second: commands::view(placement.view_hash(), &second, &classified, true),
            second_command: second.frame().clone(),
            remapped: self::placement(&config, false),
            coverage: Coverage::default(),
            config,
            stages,
            placement,
            key,
            filler,
        }
    }

    /// Who the shim takes this node for.
    pub(crate) fn holder(&self, node: NodeId) -> Peer {
        let is_last = usize::from(node.0) + 1 == self.config.nodes;
        if self.config.near && is_last {
            Peer::Router(RouterId(NEAR_FIRST + node.0))
        } else {
            Peer::Node(node)
        }
    }

    /// The node that the shim means.
    pub(crate) fn node_of(&self, holder: Peer) -> Peer {
        match holder {
            Peer::Router(RouterId(router)) if router >= NEAR_FIRST => Peer::Node(NodeId(router - NEAR_FIRST)),
            holder => holder,
        }
    }

    /// Whether the shim takes the key for its own.
    pub(crate) fn owns(&self, shim: &ShimCell) -> bool {
        self.stages[shim.stage].custody(shim.id, &self.key) == Custody::Own
    }

    pub(crate) fn views(&self) -> [View; 2] {
        [View::GET, self.second]
    }

    /// The second view's frame; GET has none.
    pub(crate) fn command(&self, view: View) -> Bytes {
        if view == View::GET { Bytes::new() } else { self.second_command.clone() }
    }

    pub(crate) fn offer(&self, view: View) -> Message {
        let (key, command) = (self.key.clone(), self.command(view));
        // Fills and writes take different connections to storage.
        Message::Offer(Offer { key, view, resp3: true, heat: HEAT, command })
    }

    /// A node as it starts, linked to its shims and with a session to the other one.
    pub(crate) fn start_node(&self, id: NodeId, life: u8, now: Time) -> Node {
        let config = NodeConfig {
            id,
            layer: if self.config.elastic { 0 } else { usize::from(id.0) },
            capacity: 1000,
            lease: self.config.lease(),
            seed: (u64::from(id.0) + 1) << 8 | u64::from(life),
            settings: NodeSettings {
                objects_max: 2,
                bytes_max: BYTES_MAX,
                value_bytes_max: FILLER_BYTES,
                heat: heat(),
                admission: Admission { heat_min: HEAT, hysteresis: 0, hold_off: Duration::ZERO, hits_min: 1 },
                views_max: 64,
                forwarded_max: 64,
                requests: RequestLimits::default(),
                ..NodeSettings::default()
            },
        };
        let mut node = Node::new(config, Arc::clone(&self.placement));
        let mut effects = Vec::new();
        for shim in &self.placement.map().shims {
            node.step(now, node::Input::Linked(Peer::Shim(shim.id)), &mut effects);
        }
        // The once-a-second work is done for the next hundred ticks.
        node.step(now, node::Input::Tick, &mut effects);
        effects.clear();
        node.step(now, arrives(self.filler_offer()), &mut effects);
        let nonce = effects.iter().find_map(|node::Effect::Send { message, .. }| match message {
            Message::Hello(hello) => Some(hello.nonce),
            _ => None,
        });
        let nonce = nonce.expect("an offer opens a session");
        node.step(now, arrives(Message::Welcome(self.config.lease().welcome(1, nonce))), &mut effects);
        self.fill_filler(&mut node, now, &mut effects);
        node
    }

    /// Another shim's large object comes into the node, and what it does not fit beside leaves.
    pub(crate) fn press(&self, node: &mut Node, now: Time, effects: &mut Vec<node::Effect>) {
        node.step(now, arrives(self.filler_offer()), effects);
        self.fill_filler(node, now, effects);
    }

    fn fill_filler(&self, node: &mut Node, now: Time, effects: &mut Vec<node::Effect>) {
        let fetch = effects.iter().rev().find_map(|node::Effect::Send { to, message }| match message {
            Message::Fetch(fetch) if *to == Peer::Shim(OTHER) => Some(fetch.clone()),
            _ => None,
        });
        let fetch = fetch.expect("the filler was offered");
        let fill = Fill {
            session: fetch.session,
            fill: fetch.fill,
            key: self.filler.clone(),
            view: View::GET,
            version: 0,
            granted: true,
            status: Status::Ok,
            cached: LayerSet::EMPTY,
            degree: Degree::BASE,
            ttl_ms: None,
            stale_ms: 0,
            value: Bytes::from(vec![b'x'; FILLER_BYTES]),
        };
        node.step(now, arrives(Message::Fill(fill)), effects);
        assert!(!node.knows(&self.filler), "the filler is too large to stay");
    }

    fn filler_offer(&self) -> Message {
        let (key, command) = (self.filler.clone(), Bytes::new());
        Message::Offer(Offer { key, view: View::GET, resp3: false, heat: HEAT, command })
    }

    /// A shim as it starts: it has not reached storage.
    pub(crate) fn start_shim(&self, id: ShimId, life: u8) -> Shim {
        let config = ShimConfig {
            id,
            lease: self.config.lease_of(life),
            lease_limits: self.config.lease_limits(),
            blocking_max: 2,
            large_replies_max: 128,
            early_value_bytes_max: 64,
            cache_expiring_hashes: false,
            tracked_max: 1000,
            bounded: None,
            seed: u64::from(life),
            settings: ShimSettings {
                heat: heat(),
                heat_min: HEAT,
                operations_max: 64,
                key_queue_max: 16,
                requests: self.config.requests(),
                ..ShimSettings::default()
            },
        };
        Shim::new(config, Arc::clone(&self.placement))
    }
}

/// From the other shim.
fn arrives(message: Message) -> node::Input {
    node::Input::Message { from: Peer::Shim(OTHER), message }
}

fn heat() -> HeatConfig {
    HeatConfig { rows: 1, counters: 1, filter_rows: 1, filter_bits: 64, window: Duration::from_secs(1) }
}

fn placement(config: &Config, first_up: bool) -> Arc<Placement> {
    let member = |id: usize| NodeMember {
        id: NodeId(id as u16),
        rack: None,
        capacity: 1000,
        share: if id > 0 || first_up { SHARE_WHOLE } else { 0 },
    };
    let layer = |ids: std::ops::Range<usize>| LayerMap {
        name: format!("layer-{}", ids.start),
        partition: Partition::Hash,
        nodes: ids.map(member).collect(),
    };
    let layers = match config.elastic {
        true => vec![layer(0..config.nodes)],
        false => (0..config.nodes).map(|id| layer(id..id + 1)).collect(),
    };
    let map = ClusterMap {
        epoch: if first_up { 1 } else { 2 },
        level: 1,
        layers,
        sharding: Sharding::Ring,
        shims: shims(config.divides).collect(),
    };
    place(map)
}

fn place(map: ClusterMap) -> Arc<Placement> {
    Arc::new(Placement::new(Secret([7; 16]), map).expect("the map is in order"))
}

/// The third one has no keys at first.
fn shims(divides: bool) -> impl Iterator<Item = ShimMember> {
    let all = [SHIM, OTHER, NEXT].map(|id| ShimMember::new(id, RackId(id.0)));
    let states = [ShimState::Normal, ShimState::Normal, ShimState::Absent];
    let all = all.into_iter().zip(states).map(|(shim, state)| ShimMember { state, ..shim });
    all.take(if divides { 3 } else { 2 })
}

/// The map as it is, and where there is a third shim those by which keys go to it.
fn stages(first: &Arc<Placement>) -> Vec<Arc<Placement>> {
    let mut stages = vec![Arc::clone(first)];
    if first.map().shims.len() < 3 {
        return stages;
    }
    let steps = [
        Relocation::Moving,
        Relocation::Moving,
        Relocation::Announced,
        Relocation::Closing,
        Relocation::Gone,
    ];
    let joining = steps.map(|relocation| (ShimState::Joining, relocation));
    for (state, relocation) in joining.into_iter().chain([(ShimState::Normal, Relocation::Moving)]) {
        let mut map = first.map().clone();
        map.epoch = first.epoch() + stages.len() as u32;
        map.shims[usize::from(NEXT.0)].state = state;
        map.shims.iter_mut().for_each(|shim| shim.relocation = relocation);
        // It has to be prepared first, and then is.
        if (state, stages.len()) == (ShimState::Joining, 2) {
            map.shims[usize::from(NEXT.0)].relocation = Relocation::Announced;
        }
        stages.push(place(map));
    }
    stages
}
