//! What a seed draws: the cluster's members, sizes, speeds and kinds of faults. Not when anything happens.

use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::{LeaseLimits, LeaseTerms};
use protocol::heat::HeatConfig;
use protocol::node::{Admission, NodeConfig, NodeSettings};
use protocol::policy::{Policies, Rule};
use protocol::requests::{Overload, RequestLimits};
use protocol::router::{NearSettings, RouterConfig, RouterSettings, Routing};
use protocol::shim::{Bounded, ForeignWritePolicy, ShimConfig, ShimSettings};
use protocol::storage::redis::LeaseRecord;
use wire::{
    ClusterMap, LayerMap, NodeId, NodeMember, Partition, RackId, SHARE_WHOLE, Sharding, ShimId, ShimMember,
};

use crate::fault_kind::{FaultKind, FaultSet};
use crate::random::SimRandom;

/// What storage does not allow of that which keeps others from writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefusedFences {
    /// A user for each incarnation.
    pub(crate) users: bool,
    /// The end of a lost connection.
    pub(crate) kills: bool,
}

impl RefusedFences {
    /// Whether this command is refused.
    pub(crate) fn covers(self, name: &[u8], sub: &[u8]) -> bool {
        self.users && name == b"ACL" || self.kills && name == b"CLIENT" && sub == b"KILL"
    }
}

/// The draw of one seed. Times are microseconds of virtual time.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) lease: u64,
    guard: u64,
    pub(crate) tick: u64,
    /// Mean time that a message takes, and a command at storage.
    pub(crate) latency: u64,
    pub(crate) storage_latency: u64,
    /// Percent of the channels that are slow all the time, each way of each link for itself.
    pub(crate) slow_channels: u64,
    pub(crate) map: ClusterMap,
    pub(crate) routers: usize,
    pub(crate) clients: usize,
    pub(crate) controllers: usize,
    /// When controllers hear of the last node and the last router, if not from the start.
    pub(crate) grows_at: Option<u64>,
    pub(crate) routing: Routing,
    /// Mean time between a client's reply and its next command.
    pub(crate) think: u64,
    pub(crate) traffic: Traffic,
    pub(crate) faults: FaultSet,
    /// Others write to storage, too, and may.
    pub(crate) bounded: Option<Bounded>,
    /// What servers refuse of fences, where mode `bounded` does without.
    pub(crate) refused: RefusedFences,
    /// For how long copies may answer when storage is gone.
    pub(crate) stale: u64,
    /// Others do although they must not.
    pub(crate) foreign: bool,
    foreign_writes: ForeignWritePolicy,
    /// Mean time between two of their writes.
    pub(crate) outsiders: u64,
    /// So many clients, the first ones, keep what they read.
    pub(crate) trackers: usize,
    /// Keys that they may track.
    tracked_max: usize,
    /// Mean time between two faults of any kind.
    pub(crate) fault_interval: u64,
    objects_max: usize,
    bytes_max: u64,
    value_bytes_max: usize,
    views_max: usize,
    forwarded_max: usize,
    operations_max: usize,
    key_queue_max: usize,
    early_value_bytes_max: usize,
    pipeline_max: usize,
    pending_max: usize,
    learned_max: usize,
    /// Without them a cluster with learned routing caches nothing.
    offers: bool,
    heat_window: u64,
    /// Limits of nodes and shims alike.
    pub(crate) requests: RequestLimits,
    /// What nodes are told of how busy they are, in thousandths.
    pub(crate) busy: u32,
    pub(crate) near: NearSettings,
}

/// What clients ask for.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    pub(crate) texts: usize,
    pub(crate) counters: usize,
    pub(crate) hashes: usize,
    pub(crate) lists: usize,
    /// Percent of the commands.
    pub(crate) reads: u64,
    pub(crate) expiry: bool,
    pub(crate) resp3: bool,
    pub(crate) pipelines: bool,
    /// Percent of the commands that go to the first key of its kind.
    pub(crate) skew: u64,
}

fn layers(random: &mut SimRandom, racks: u16) -> Vec<LayerMap> {
    let count = random.pick(&[1, 2, 2, 2, 3, 4]);
    let mut id = 0;
    let mut layers = Vec::new();
    for index in 0..count {
        let by_rack = index == 0 && random.percent(60);
        let nodes = random.between(1, if count > 2 { 2 } else { 3 }) as u16;
        let nodes = if by_rack { nodes.max(racks) } else { nodes };
        let member = |place: u16| {
            let rack = by_rack.then_some(RackId(place % racks));
            NodeMember { id: NodeId(id + place), rack, capacity: 1000, share: SHARE_WHOLE }
        };
        let partition = if by_rack { Partition::Rack } else { Partition::Hash };
        layers.push(LayerMap {
            name: format!("layer-{index}"),
            partition,
            nodes: (0..nodes).map(member).collect(),
        });
        id += nodes;
    }
    layers
}

fn map(random: &mut SimRandom) -> ClusterMap {
    let shims = random.pick(&[1u16, 2, 2, 3]);
    let racks = random.between(1, u64::from(shims)) as u16;
    let member = |id: u16| ShimMember::new(ShimId(id), RackId(id % racks));
    ClusterMap {
        epoch: 1,
        level: 1,
        sharding: Sharding::Ring,
        layers: layers(random, racks),
        shims: (0..shims).map(member).collect(),
    }
}

/// A small number with so many percent, where the little room that it leaves is in everybody's way.
fn small(random: &mut SimRandom, chance: u64, small: usize, large: usize) -> usize {
    if random.percent(chance) { small } else { large }
}

fn bounded(features: &mut SimRandom, lease: u64) -> Option<Bounded> {
    let staleness = Duration::from_micros(features.pick(&[lease / 2, lease, lease * 2]));
    let age = Duration::from_micros(features.pick(&[lease / 2, lease * 4, 60_000_000]));
    Some(Bounded { staleness, age })
}

/// Every kind has its chance; one run in twelve has no faults at all.
fn faults(random: &mut SimRandom, features: &mut SimRandom, allowed: FaultSet, chosen: bool) -> FaultSet {
    let quiet = !chosen && random.percent(8);
    let share = random.pick(&[20, 40, 70]);
    let mut faults = FaultSet::NONE;
    for kind in allowed.kinds() {
        let source = if kind.is_of_feature() { &mut *features } else { &mut *random };
        let on = source.percent(share) && !quiet;
        faults = if on || chosen { faults.with(kind) } else { faults };
    }
    if faults.is_empty() && !quiet && !allowed.is_empty() {
        let kinds: Vec<FaultKind> = allowed.kinds().collect();
        faults = faults.with(random.pick(&kinds));
    }
    faults
}

impl Shape {
    /// `allowed`: all kinds, of which the seed chooses, or those that were asked for.
    pub(crate) fn draw(random: &mut SimRandom, features: &mut SimRandom, allowed: FaultSet) -> Shape {
        let chosen = allowed != FaultSet::ALL;
        let lease = random.pick(&[200_000, 500_000, 1_000_000, 1_000_000, 2_000_000]);
        let (reads, routing) =
            (random.pick(&[50, 70, 85]), random.pick(&[Routing::Learned, Routing::OnPath]));
        let bounded = bounded(features, lease);
        let (wanted, chance) = (allowed.kinds().any(FaultKind::needs_feed), if chosen { 60 } else { 30 });
        let bounded = bounded.filter(|_| features.percent(chance) && (wanted || !chosen));
        let tracks =
            features.percent(chance) && (wanted || !chosen) || (chosen && wanted && bounded.is_none());
        let trackers = if tracks { features.between(2, 6) as usize } else { 0 };
        let allowed =
            if bounded.is_some() || tracks { allowed } else { allowed.without(FaultKind::needs_feed) };
        let is_later = |kind: FaultKind| {
            kind.is_of_store() || kind.loses_data() || kind.is_of_heat() || kind.is_in_order()
        };
        let allowed = allowed.without(is_later);
        Shape {
            lease,
            guard: lease / random.pick(&[50, 100]),
            tick: lease / 20,
            latency: random.pick(&[200, 1_000, 5_000]),
            storage_latency: random.pick(&[100, 500, 5_000]),
            slow_channels: random.pick(&[0, 0, 0, 30, 60]),
            map: map(random),
            routers: random.between(1, 2) as usize,
            clients: random.between(10, 18) as usize,
            controllers: random.between(1, 2) as usize,
            grows_at: None,
            routing,
            think: random.pick(&[50_000, 100_000, 150_000]),
            traffic: Traffic {
                texts: random.between(1, 6) as usize,
                counters: random.between(1, 3) as usize,
                hashes: random.index(3),
                lists: random.index(2),
                reads,
                expiry: random.percent(40),
                resp3: random.percent(40),
                pipelines: random.percent(60),
                skew: random.pick(&[0, 30, 60]),
            },
            faults: faults(random, features, allowed, chosen),
            bounded,
            refused: RefusedFences::default(),
            stale: 0,
            foreign: false,
            foreign_writes: ForeignWritePolicy::Warn,
            trackers,
            tracked_max: small(features, 15, 2, 1000),
            outsiders: features.pick(&[10_000, 40_000, 200_000]),
            fault_interval: lease.max(1_000_000) * random.between(1, 3),
            objects_max: small(random, 30, 2, 64),
            bytes_max: small(random, 20, 700, 1 << 20) as u64,
            value_bytes_max: small(random, 10, 12, 1 << 16),
            views_max: small(random, 20, 1, 64),
            forwarded_max: small(random, 10, 1, 1024),
            operations_max: small(random, 10, 8, 1000),
            key_queue_max: small(random, 10, 2, 100),
            early_value_bytes_max: small(random, 20, 0, 1 << 16),
            pipeline_max: small(random, 10, 2, 64),
            pending_max: small(random, 5, 8, 1 << 12),
            learned_max: small(random, 20, 3, 256),
            offers: routing == Routing::Learned || random.percent(50),
            heat_window: random.pick(&[50_000, 300_000, 1_000_000]),
            requests: requests(features, lease),
            busy: 0,
            near: NearSettings::default(),
        }
    }

    /// With what befalls controllers: their store is in trouble, unless the run is without faults, and in half of the
    /// clusters members are added while it serves.
    pub(crate) fn with_controllers_troubles(self, stores: &mut SimRandom, allowed: FaultSet) -> Shape {
        let at = stores.between(1_000_000, 15_000_000);
        let grows_at = stores.percent(50).then_some(at);
        let chosen = allowed != FaultSet::ALL;
        let on = |_: &FaultKind| chosen || (stores.percent(40) && !self.faults.is_empty());
        let kinds = allowed.kinds().filter(|kind| kind.is_of_store());
        let faults = kinds.filter(on).fold(self.faults, FaultSet::with);
        Shape { grows_at, faults, ..self }
    }

    /// In some clusters in strict mode others write to storage all the same.
    pub(crate) fn with_foreign_writers(self, strangers: &mut SimRandom) -> Shape {
        let foreign = strangers.percent(15) && self.bounded.is_none() && self.trackers == 0;
        let foreign_writes =
            if strangers.percent(20) { ForeignWritePolicy::Refuse } else { ForeignWritePolicy::Warn };
        // Each write of the clients' own would drop a copy that has become stale, whether or not anybody knows.
        let reads = if foreign { 95 } else { self.traffic.reads };
        let traffic = Traffic { reads, ..self.traffic.clone() };
        Shape { foreign, foreign_writes, traffic, ..self }
    }

    /// In some clusters storage loses its newest writes, again and again.
    pub(crate) fn with_storage_that_loses(self, losses: &mut SimRandom, allowed: FaultSet) -> Shape {
        let chosen = allowed != FaultSet::ALL;
        let on = chosen || losses.percent(20) && !self.faults.is_empty();
        let kinds = allowed.kinds().filter(|kind| on && kind.loses_data());
        Shape { faults: kinds.fold(self.faults, FaultSet::with), ..self }
    }

    /// In half of the clusters nodes have no time left, so that keys have more places than one per layer, and in most of these
    /// hardly anything is written, so that writes allow it. Whatever is said of heat may be wrong.
    pub(crate) fn with_heat(self, heats: &mut SimRandom, allowed: FaultSet) -> Shape {
        let chosen = allowed != FaultSet::ALL;
        let on = chosen || heats.percent(50) && !self.faults.is_empty();
        let kinds = allowed.kinds().filter(|kind| on && kind.is_of_heat());
        let faults = kinds.fold(self.faults, FaultSet::with);
        let busy = heats.pick(&[0, 1000]);
        let reads = if busy > 0 && heats.percent(75) { 97 } else { self.traffic.reads };
        let traffic = Traffic { reads, ..self.traffic.clone() };
        Shape { faults, busy, traffic, ..self }
    }

    /// In half of the clusters shims are stopped in order, and others take their places.
    pub(crate) fn with_handovers(self, handovers: &mut SimRandom, allowed: FaultSet) -> Shape {
        let chosen = allowed != FaultSet::ALL;
        let on = chosen || handovers.percent(50) && !self.faults.is_empty();
        let kinds = allowed.kinds().filter(|kind| on && kind.is_in_order());
        Shape { faults: kinds.fold(self.faults, FaultSet::with), ..self }
    }

    /// In half of the clusters in mode `bounded` servers refuse some fences, or all.
    pub(crate) fn with_managed_servers(self, managed: &mut SimRandom) -> Shape {
        let on = managed.percent(50) && self.bounded.is_some();
        let (users, kills) = managed.pick(&[(true, true), (true, false), (false, true)]);
        let refused = RefusedFences { users: on && users, kills: on && kills };
        Shape { refused, ..self }
    }

    /// In half of the clusters in mode `bounded` copies answer when storage is gone.
    pub(crate) fn with_stale_copies(self, stale: &mut SimRandom) -> Shape {
        let on = stale.percent(50) && self.bounded.is_some();
        let leases = stale.pick(&[3, 8, 20]);
        Shape { stale: if on { leases * self.lease } else { 0 }, ..self }
    }

    /// The rules that processes start with.
    fn policies(&self) -> Policies {
        let rule = Rule { stale_if_error: Duration::from_micros(self.stale), ..Rule::default() };
        Policies::new(vec![(Bytes::new(), rule)])
    }

    /// In half of the clusters routers hold copies themselves.
    pub(crate) fn with_near_copies(self, near: &mut SimRandom) -> Shape {
        let objects_max = if near.percent(50) { near.pick(&[1, 4, 64, 64]) } else { 0 };
        Shape { near: NearSettings { objects_max, heat_min: 1, ..NearSettings::default() }, ..self }
    }

    /// Whether what an earlier shim or a lost connection has sent may be written late, and is followed then.
    pub(crate) fn is_unfenced(&self) -> bool {
        self.refused != RefusedFences::default()
    }

    /// Whether others than DistCache write to storage.
    pub(crate) fn has_outsiders(&self) -> bool {
        self.bounded.is_some() || self.foreign
    }

    pub(crate) fn terms(&self) -> LeaseTerms {
        LeaseTerms { duration: Duration::from_micros(self.lease), guard: Duration::from_micros(self.guard) }
    }

    /// The terms of one life of a shim: not every one is started with the same configuration.
    pub(crate) fn terms_of_life(&self, seed: u64) -> LeaseTerms {
        let parts = [1, 1, 1, 4, 20][seed as usize % 5];
        let terms = self.terms();
        LeaseTerms { duration: terms.duration / parts, guard: terms.guard / parts }
    }

    fn lease_limits(&self) -> LeaseLimits {
        let longest = LeaseTerms { guard: Duration::ZERO, ..self.terms() };
        LeaseLimits { wait_max: longest.restart_wait(), short: longest.duration / 4, growth: 8 }
    }

    /// What the shim of such a life leaves at its storage.
    pub(crate) fn lease_record(&self, seed: u64, is_first: bool) -> LeaseRecord {
        let wait = self.terms_of_life(seed).restart_wait();
        LeaseRecord { wait, limits: self.lease_limits(), is_first }
    }

    /// The longest that a write may wait for a lease: one that a dead node holds, or all those before a restart.
    pub(crate) fn stall_max(&self) -> u64 {
        self.terms().restart_wait().as_micros() as u64
    }

    pub(crate) fn node(&self, id: NodeId, layer: usize, seed: u64) -> NodeConfig {
        NodeConfig {
            id,
            layer,
            capacity: 1000,
            lease: self.terms(),
            seed,
            settings: NodeSettings {
                objects_max: self.objects_max,
                bytes_max: self.bytes_max,
                value_bytes_max: self.value_bytes_max,
                heat: self.heat(),
                admission: Admission {
                    heat_min: 1,
                    hysteresis: 250,
                    hold_off: Duration::from_micros(self.lease / 2),
                    hits_min: 1,
                },
                views_max: self.views_max,
                forwarded_max: self.forwarded_max,
                requests: self.requests,
                policies: self.policies(),
                ..NodeSettings::default()
            },
        }
    }

    pub(crate) fn shim(&self, id: ShimId, seed: u64) -> ShimConfig {
        ShimConfig {
            id,
            lease: self.terms_of_life(seed),
            lease_limits: self.lease_limits(),
            blocking_max: 10,
            large_replies_max: 128,
            early_value_bytes_max: self.early_value_bytes_max,
            cache_expiring_hashes: false,
            tracked_max: self.tracked_max,
            bounded: self.bounded,
            seed,
            settings: ShimSettings {
                heat: self.heat(),
                heat_min: if self.offers { 1 } else { u32::MAX },
                operations_max: self.operations_max,
                key_queue_max: self.key_queue_max,
                requests: self.requests,
                policies: self.policies(),
                foreign_writes: self.foreign_writes,
                ..ShimSettings::default()
            },
        }
    }

    pub(crate) fn router(&self, seed: u64) -> RouterConfig {
        RouterConfig {
            routing: self.routing,
            seed,
            pending_max: self.pending_max,
            bounded: self.bounded.is_some(),
            tracked_max: self.tracked_max,
            lease: self.terms(),
            settings: RouterSettings {
                near: self.near.clone(),
                pipeline_max: self.pipeline_max,
                learned_max: self.learned_max,
                queue_max: self.requests.patience().unwrap_or(Duration::from_secs(5)),
                ..RouterSettings::default()
            },
            ..RouterConfig::default()
        }
    }

    /// Small, so that a run of thousands of clusters fits into memory and caches.
    fn heat(&self) -> HeatConfig {
        let window = Duration::from_micros(self.heat_window);
        HeatConfig { rows: 2, counters: 64, filter_rows: 1, filter_bits: 256, window }
    }
}

/// Half of the clusters refuse what is too much for them, the others have it wait, for so short a time in some that it shows;
/// a quarter of each cannot do what they are asked for.
fn requests(random: &mut SimRandom, lease: u64) -> RequestLimits {
    let patience = Duration::from_micros(random.pick(&[lease / 4, lease, 4 * lease]));
    let overload = random.pick(&[Overload::Refuse, Overload::Wait { patience }]);
    let rate_max = random.pick(&[0, 0, 0, 100]);
    let window_max = random.pick(&[16, 1 << 14]);
    RequestLimits { rate_max, overload, window_max, ..RequestLimits::default() }
}

impl Shape {
    /// How old a copy may be when it is served, in virtual time: clocks run at different rates.
    pub(crate) fn staleness_max(&self) -> u64 {
        let staleness = match self.bounded {
            // Leave that was given before storage was back may run for a lease.
            Some(bounded) if self.stale > 0 => {
                (bounded.staleness.as_micros() as u64).max(self.stale + self.lease)
            }
            Some(bounded) => bounded.staleness.as_micros() as u64,
            // A connection breaks and the shim hears of it late; then the last node hears of the change, or loses its lease.
            None if self.foreign => self.stall_max() + self.lease / 2 + 40 * self.storage_latency,
            None => return 0,
        };
        staleness + staleness / 100 + 1_000
    }

    /// How long copies may be served of what storage has lost: a lease of before, or the bound; clocks run at different rates.
    pub(crate) fn copies_outlive_us(&self) -> u64 {
        self.lease.max(self.staleness_max()) * 102 / 100 + 1_000
    }

    /// Whether shims ask storage to report changes.
    pub(crate) fn has_feed(&self) -> bool {
        self.bounded.is_some() || self.trackers > 0
    }

    /// How long a driver waits for storage before it gives a connection up.
    pub(crate) fn storage_timeout(&self) -> u64 {
        self.lease + 20 * self.storage_latency
    }

    /// Whether nodes can hold all that is asked for, and say so to routers.
    pub(crate) fn has_room(&self) -> bool {
        self.objects_max > 2 && self.bytes_max > 700 && self.value_bytes_max > 12 && self.learned_max > 3
    }
}
