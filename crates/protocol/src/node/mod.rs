//! The cache node as a machine: answers hits under a lease, fetches what its agent admits, obeys invalidations.
//!
//! A hit is linearised at `now`, which the driver samples after the read system call that delivered the
//! request. Nothing enters the table but by a fill that the shim registered first.

mod agent;
mod begin;
mod body;
mod coherent;
mod elastic;
mod inspect;
mod lifetime;
mod near;
mod object;
mod order;
mod reads;
mod settings;
mod stale;
mod statistics;
mod step;
mod table;

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use slab::Slab;
use wire::message::{LAYERS_MAX, Offer, Refuse};
use wire::{Key, Message, NodeId, NodeMember, Peer, ShimId, View};

use crate::coherence::lease::{LeaseTerms, NodeSession};
use crate::hash::KeySet;
use crate::heat::{HeatConfig, HeavyHitters};
use crate::load::LoadMeter;
use crate::placement::Placement;
use crate::requests::{RequestQueue, RouterWindows};
use crate::time::Time;
use agent::Agent;
use elastic::LastSecond;
use object::{Object, Waiter};
use order::ReadOrder;
use step::NodeStep;
use table::ObjectTable;

pub use inspect::NodeBacklog;
pub use near::NearRead;
pub use object::OVERHEAD_BYTES as OBJECT_OVERHEAD_BYTES;
pub(crate) use reads::heat_item;
pub use settings::NodeSettings;
pub use statistics::{HotKey, LeaseStatus, NodeStatistics};

/// Offers kept while a session opens, per node.
const OFFERS_WAITING_MAX: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

/// What a node is told at its start.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub id: NodeId,
    pub layer: usize,
    /// Relative capacity in thousandths: the load reported is requests per second divided by it.
    pub capacity: u32,
    pub lease: LeaseTerms,
    pub seed: u64,
    pub settings: NodeSettings,
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        NodeConfig {
            id: NodeId(0),
            layer: 0,
            capacity: 1000,
            lease: LeaseTerms::default(),
            seed: 0,
            settings: NodeSettings::default(),
        }
    }
}

/// What the agent asks of a key before it caches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Requests per second below which nothing is cached, however empty the node is.
    pub heat_min: u32,
    /// How much hotter than the coldest object a newcomer must be, in thousandths of the coldest's heat.
    pub hysteresis: u32,
    /// How long a key is kept out for being written more than read, too large, or refused.
    pub hold_off: Duration,
    /// Hits that each invalidation must have brought, or the copy costs more than it serves.
    pub hits_min: u32,
}

/// All that a node can see.
#[derive(Clone, Debug)]
pub enum Input {
    Message {
        from: Peer,
        message: Message,
    },
    Linked(Peer),
    Unlinked(Peer),
    Map(Arc<Placement>),
    /// What has changed in the configuration while serving.
    Settings(Box<NodeSettings>),
    /// How much of the last second the node had something to do, in thousandths.
    Busy {
        permille: u32,
    },
    /// Stop: give up every copy, so that no write waits for this node's leases.
    Drain,
    Tick,
}

/// All that a node can do. A message to a peer that is not linked is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Send { to: Peer, message: Message },
}

/// A read passed on to a shim.
#[derive(Clone, Debug)]
struct Forwarded {
    /// Upper half of its request id, so that a reply from before the link broke never meets another read.
    serial: u32,
    waiter: Waiter,
    shim: ShimId,
    key: Key,
    view: View,
    /// Its router takes the key to have more places than one per layer.
    elastic: bool,
}

/// This node's end of everything it has with one shim.
#[derive(Clone, Debug, Default)]
struct ShimLink {
    session: NodeSession,
    /// The session that this process was welcomed to last, whether it is still open or not.
    welcomed: Option<u64>,
    linked: bool,
    /// It leaves, and takes nothing new.
    hands_over: bool,
    fill_last: u64,
    /// The session's last barrier that was obeyed here.
    revoked: u64,
    /// The last that spared what may be stale, or 0: nothing else may be served until one that spares nothing.
    spared: u64,
    /// Keys with fetches under way.
    fetching: KeySet,
}

impl ShimLink {
    /// Whether it can be asked for something.
    fn is_asked(&self) -> bool {
        self.linked && !self.hands_over
    }
}

#[derive(Clone)]
pub struct Node {
    config: NodeConfig,
    /// Tells this process from others with its id.
    process: u64,
    placement: Arc<Placement>,
    links: Vec<ShimLink>,
    objects: ObjectTable,
    /// Reads that are not begun yet, each with who asks.
    waiting: RequestQueue<(Peer, Message)>,
    windows: RouterWindows,
    /// When a sign of life was given last to those whose reads take long.
    signed: Time,
    forwarded: Slab<Forwarded>,
    forwarded_serial: u32,
    order: ReadOrder,
    /// Reads that have come.
    arrivals: u64,
    offers: Vec<Offer>,
    agent: Agent,
    heat: HeavyHitters,
    meter: LoadMeter,
    busy_permille: u32,
    random: SmallRng,
    second: Time,
    draining: bool,
    /// Whether the map gives it any part of the keys.
    owns: bool,
    statistics: NodeStatistics,
}

impl Node {
    pub fn new(config: NodeConfig, placement: Arc<Placement>) -> Node {
        assert!(config.layer < LAYERS_MAX, "layers are numbered 0..{LAYERS_MAX}");
        assert!(config.capacity > 0, "a node without capacity cannot be compared with others");
        let shims = placement.map().shims.len();
        let mut random = SmallRng::seed_from_u64(config.seed);
        Node {
            // Not where an earlier process with this id began.
            forwarded_serial: random.random(),
            process: random.random(),
            agent: Agent::new(
                config.settings.objects_max,
                config.settings.bytes_max,
                config.settings.admission,
            ),
            heat: HeavyHitters::new(config.settings.heat, config.seed),
            meter: LoadMeter::new(SECOND),
            busy_permille: 0,
            random,
            links: vec![ShimLink::default(); shims],
            objects: ObjectTable::default(),
            waiting: RequestQueue::new(config.settings.requests),
            windows: RouterWindows::default(),
            signed: Time(0),
            forwarded: Slab::new(),
            order: ReadOrder::default(),
            arrivals: 0,
            offers: Vec::new(),
            second: Time(0),
            draining: false,
            owns: true,
            statistics: NodeStatistics::default(),
            config,
            placement,
        }
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        let step = &mut NodeStep { now, effects };
        match input {
            Input::Message { from, message } => self.arrives(step, from, message),
            Input::Linked(Peer::Shim(shim)) => self.linked(step, shim),
            Input::Unlinked(Peer::Shim(shim)) => self.unlinked(step, shim),
            Input::Linked(Peer::Router(router)) => {
                self.windows.linked(router);
                self.tick_waiting(step);
            }
            Input::Unlinked(Peer::Router(router)) => {
                self.windows.unlinked(router);
                self.waiting.retain(|(from, _)| *from != Peer::Router(router));
            }
            Input::Linked(Peer::Node(_)) | Input::Unlinked(Peer::Node(_)) => {}
            // Members are never taken out of a map, only marked down.
            Input::Map(placement) if placement.map().shims.len() < self.links.len() => {
                self.statistics.unexpected += 1;
            }
            Input::Map(placement) => self.map(step, placement),
            Input::Settings(settings) => self.adopt(step, *settings),
            Input::Busy { permille } => self.busy_permille = permille.min(1000),
            Input::Drain => self.drain(step),
            Input::Tick => self.tick(step),
        }
    }

    /// A node that the map gives nothing holds nothing: what it comes back with later is new.
    fn map(&mut self, step: &mut NodeStep<'_>, placement: Arc<Placement>) {
        self.links.resize_with(placement.map().shims.len(), ShimLink::default);
        let mut nodes = placement.map().layers.iter().flat_map(|layer| &layer.nodes);
        let own = nodes.find(|node| node.id == self.config.id);
        let owned = std::mem::replace(&mut self.owns, own.is_none_or(NodeMember::is_up));
        self.placement = placement;
        if owned && !self.owns {
            self.drop_everything(step);
        }
    }

    fn message(&mut self, step: &mut NodeStep<'_>, from: Peer, message: Message) {
        match (from, message) {
            (_, Message::Read(read)) => self.read(step, from, read),
            (Peer::Shim(shim), message) if usize::from(shim.0) < self.links.len() => {
                self.close_if_lapsed(step, shim);
                match message {
                    Message::Reply(reply) => self.relay(step, shim, reply),
                    Message::Offer(offer) => self.offer(step, offer),
                    Message::Fill(fill) => self.filled(step, shim, fill),
                    Message::Handover(handover) => self.hands_over(step, shim, &handover),
                    control => self.coherence(step, shim, control),
                }
            }
            _ => self.statistics.unexpected += 1,
        }
    }

    fn tick(&mut self, step: &mut NodeStep<'_>) {
        self.begin_waiting(step);
        self.tick_waiting(step);
        for index in 0..self.links.len() {
            let shim = ShimId(index as u16);
            self.close_if_lapsed(step, shim);
            let floor = self.heat_floor();
            let link = &mut self.links[index];
            if link.session.hello_overdue(step.now, &self.config.lease) {
                self.hello(step, shim);
            } else if self.objects.count_of(shim) > 0 && link.session.renew_due(step.now) {
                self.renew(step, shim, floor);
            }
        }
        self.look_through(step);
    }

    /// Each second a pass goes over all objects, slice by slice: heats decay, the coldest and the hottest are found, write-hot keys
    /// leave.
    fn look_through(&mut self, step: &mut NodeStep<'_>) {
        let passed = step.now.since(self.second);
        let is_over = passed >= SECOND;
        if is_over && self.objects.is_untouched() {
            // It is small, or nobody has ticked meanwhile.
            self.objects.begin_pass();
        }
        let share = passed.min(SECOND).as_micros() * 1000 / SECOND.as_micros();
        while let Some(slice) = self.objects.next_slice(share as u64) {
            self.look_at(step, slice);
        }
        if is_over {
            self.second = step.now;
            self.agent.end_pass();
            self.agent.release(step.now);
            self.objects.begin_pass();
        }
    }

    fn look_at(&mut self, step: &mut NodeStep<'_>, slice: usize) {
        let (mut leaving, mut hot) = (Vec::new(), Vec::new());
        let floor = self.hot_hits(step.now);
        let hits_min = self.config.settings.admission.hits_min;
        let agent = &mut self.agent;
        self.objects.look_at(slice, |object| {
            if object.hits >= floor || !object.degree.is_base() {
                let (key, hits, invalidations) = (object.key(), object.hits, object.invalidations);
                hot.push(LastSecond { key, hits, invalidations });
            }
            object.decay();
            if object.is_write_hot(hits_min) && object.is_idle() {
                leaving.push(object.key());
            } else {
                agent.rank(object);
            }
        });
        self.agent.end_slice();
        for last in hot {
            self.tell_heat(step, &last);
        }
        for key in leaving {
            self.statistics.write_hot += 1;
            self.agent.hold_off(step.now, &key);
            self.evict(step, &key);
        }
    }

    /// Removes an object and tells the shim, which drops its entry if no newer fetch is under way.
    fn evict(&mut self, step: &mut NodeStep<'_>, key: &Key) {
        let Some(object) = self.remove(key) else { return };
        debug_assert!(object.is_idle(), "waiters would be lost");
        self.statistics.evictions += 1;
        let link = &self.links[usize::from(object.shim.0)];
        if let Some(session) = link.session.id() {
            // All that was fetched of it so far.
            let evict = wire::message::Evict { session, key: key.clone(), fill: link.fill_last };
            step.send(Peer::Shim(object.shim), Message::Evict(evict));
        }
    }

    /// The least heat, in requests per second, that an insertion takes now.
    fn heat_floor(&self) -> u32 {
        self.agent.heat_floor(self.objects.len(), self.objects.bytes())
    }

    fn remove(&mut self, key: &Key) -> Option<Object> {
        let object = self.objects.remove(key)?;
        self.links[usize::from(object.shim.0)].fetching.remove(key);
        Some(object)
    }

    fn drain(&mut self, step: &mut NodeStep<'_>) {
        self.draining = true;
        self.drop_everything(step);
    }

    fn admits_nothing(&self) -> bool {
        self.draining || self.config.settings.observes || !self.owns
    }

    fn drop_everything(&mut self, step: &mut NodeStep<'_>) {
        self.offers.clear();
        for index in 0..self.links.len() {
            if let Some(session) = self.links[index].session.id() {
                let shim = ShimId(index as u16);
                self.close_session(step, shim);
                // So that no write waits for the lease; nobody waits for an answer.
                step.send(Peer::Shim(shim), Message::Refuse(Refuse { session }));
            }
        }
    }
}
