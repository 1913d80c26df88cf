//! What a seed switches on: sizes, speeds and kinds of faults, some of them off entirely. Not when they strike.

use std::time::Duration;

use protocol::coherence::lease::LeaseTerms;
use protocol::heat::HeatConfig;
use protocol::node::{Admission, NodeConfig};
use protocol::shim::ShimConfig;
use rand::RngExt;
use rand::rngs::SmallRng;
use wire::{NodeId, ShimId};

/// The draw of one seed. Times are microseconds of real time.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) lease: u64,
    guard: u64,
    pub(crate) tick: u64,
    /// Mean time between two deliveries of anything.
    pub(crate) latency: u64,
    /// The share of channels that are slow all the time, each way of each link for itself.
    pub(crate) slow_channels: f64,
    pub(crate) slow_storage: bool,
    /// How long clients go on.
    pub(crate) duration: u64,
    /// Mean time between two faults of one kind.
    pub(crate) fault_interval: u64,
    pub(crate) think: u64,
    pub(crate) text_keys: usize,
    pub(crate) hashes: bool,
    pub(crate) lists: bool,
    pub(crate) flushes: bool,
    pub(crate) expiry: bool,
    pub(crate) resp3: bool,
    pub(crate) pipelines: bool,
    /// Out of 100 commands.
    pub(crate) reads: u32,
    /// The share of control messages that arrive twice.
    pub(crate) duplicates: f64,
    pub(crate) stalls: bool,
    pub(crate) breaks: bool,
    pub(crate) node_pauses: bool,
    pub(crate) shim_pauses: bool,
    pub(crate) node_kills: bool,
    pub(crate) drains: bool,
    pub(crate) shim_kills: bool,
    /// A shim that is replaced lives on for a while.
    pub(crate) zombies: bool,
    pub(crate) storage_losses: bool,
    pub(crate) storage_pauses: bool,
    pub(crate) incarnations: bool,
    pub(crate) up_before_fence: bool,
    pub(crate) remaps: bool,
    pub(crate) offers: bool,
    objects_max: usize,
    bytes_max: u64,
    value_bytes_max: usize,
    views_max: usize,
    forwarded_max: usize,
    operations_max: usize,
    key_queue_max: usize,
    early_value_bytes_max: usize,
}

impl Swarm {
    pub(crate) fn draw(random: &mut SmallRng) -> Swarm {
        let lease = [100_000, 300_000, 1_000_000][random.random_range(0..3)];
        let quiet = random.random_bool(0.1);
        let mut fault = |chance: f64| !quiet && random.random_bool(chance);
        let (duplicates, stalls, breaks) = (fault(0.3), fault(0.4), fault(0.4));
        let duplicates = if duplicates { [0.05, 0.5][random.random_range(0..2)] } else { 0.0 };
        let mut fault = |chance: f64| !quiet && random.random_bool(chance);
        let (node_pauses, shim_pauses) = (fault(0.3), fault(0.2));
        let (node_kills, drains, shim_kills, zombies) = (fault(0.3), fault(0.3), fault(0.3), fault(0.4));
        let (storage_losses, incarnations, up_before_fence) = (fault(0.3), fault(0.2), fault(0.3));
        let (remaps, storage_pauses) = (fault(0.2), fault(0.3));
        let mut small = |chance: f64, small: usize, large: usize| match random.random_bool(chance) {
            true => small,
            false => large,
        };
        let (objects_max, bytes_max) = (small(0.4, 2, 16), small(0.3, 700, 1 << 20) as u64);
        let (value_bytes_max, views_max) = (small(0.15, 12, 1 << 16), small(0.2, 1, 64));
        let (forwarded_max, operations_max) = (small(0.1, 1, 1024), small(0.1, 8, 1000));
        let (key_queue_max, early_value_bytes_max) = (small(0.1, 2, 100), small(0.2, 0, 1 << 16));
        Swarm {
            lease,
            guard: lease / 100,
            tick: lease / 10,
            latency: [20, 100, 400][random.random_range(0..3)],
            slow_channels: [0.0, 0.0, 0.3, 0.6][random.random_range(0..4)],
            slow_storage: random.random_bool(0.25),
            duration: lease * random.random_range(8..20),
            fault_interval: lease * random.random_range(1..5),
            think: lease / random.random_range(2..30),
            text_keys: random.random_range(1..=4),
            hashes: random.random_bool(0.4),
            lists: random.random_bool(0.3),
            flushes: random.random_bool(0.3),
            expiry: random.random_bool(0.4),
            resp3: random.random_bool(0.3),
            pipelines: random.random_bool(0.5),
            reads: [40, 60, 80][random.random_range(0..3)],
            duplicates,
            stalls,
            breaks,
            node_pauses,
            shim_pauses,
            node_kills,
            drains,
            shim_kills,
            zombies,
            storage_losses,
            storage_pauses,
            incarnations,
            up_before_fence,
            remaps,
            offers: random.random_bool(0.4),
            objects_max,
            bytes_max,
            value_bytes_max,
            views_max,
            forwarded_max,
            operations_max,
            key_queue_max,
            early_value_bytes_max,
        }
    }

    pub(crate) fn terms(&self) -> LeaseTerms {
        LeaseTerms { duration: Duration::from_micros(self.lease), guard: Duration::from_micros(self.guard) }
    }

    /// Whether a message, once sent, arrives: then nodes and directory must agree in the end.
    pub(crate) fn loses_nothing(&self) -> bool {
        !self.breaks && !self.node_kills && !self.shim_kills
    }

    pub(crate) fn node(&self, index: usize, seed: u64) -> NodeConfig {
        NodeConfig {
            id: NodeId(index as u16),
            layer: index,
            objects_max: self.objects_max,
            bytes_max: self.bytes_max,
            value_bytes_max: self.value_bytes_max,
            capacity: 1000,
            lease: self.terms(),
            heat: heat(),
            admission: Admission {
                heat_min: 1,
                hysteresis: 250,
                hold_off: Duration::from_micros(self.lease / 2),
            },
            views_max: self.views_max,
            forwarded_max: self.forwarded_max,
            seed,
        }
    }

    pub(crate) fn shim(&self, seed: u64) -> ShimConfig {
        ShimConfig {
            id: ShimId(0),
            lease: self.terms(),
            heat: heat(),
            heat_min: if self.offers { 1 } else { u32::MAX },
            operations_max: self.operations_max,
            key_queue_max: self.key_queue_max,
            blocking_max: 10,
            early_value_bytes_max: self.early_value_bytes_max,
            cache_expiring_hashes: false,
            seed,
        }
    }
}

/// Small, and a window of 10 ms, so that keys become hot often in a run of seconds.
fn heat() -> HeatConfig {
    HeatConfig { rows: 2, counters: 64, filter_rows: 1, filter_bits: 256, window: Duration::from_millis(10) }
}
