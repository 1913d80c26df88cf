//! The members of a cluster as large as the paper's: its map and what each member is told at its start. Not what they do.

use std::time::Duration;

use protocol::coherence::lease::{LeaseLimits, LeaseTerms};
use protocol::controller::partitions::Terms;
use protocol::heat::HeatConfig;
use protocol::node::{Admission, NodeConfig, NodeSettings};
use protocol::placement::{Placement, Secret};
use protocol::requests::RequestLimits;
use protocol::router::{RouterConfig, RouterSettings};
use protocol::shim::{ShimConfig, ShimSettings};
use wire::{
    ClusterMap, LayerMap, NodeId, NodeMember, Partition, RackId, SHARE_WHOLE, Sharding, ShimId, ShimMember,
};

use super::{Layers, Placing, Population, Scenario};

/// Longer than the default, because a scaled-down second has fewer requests: renewals shall not outnumber them.
pub(super) const LEASE: Duration = Duration::from_secs(4);
const GUARD: Duration = Duration::from_millis(40);
/// No read that a client sends is as hot as what is offered with this heat.
const HEAT_GIVEN: u32 = 1 << 24;
/// As the product's defaults, relative to the lease of one second that they go with.
const HYSTERESIS: u32 = 250;
const HOLD_OFF: Duration = Duration::from_secs(5);
const HEAT_MIN: u32 = 2;

impl Scenario {
    pub(super) fn servers(&self) -> usize {
        usize::from(self.racks) * usize::from(self.servers_per_rack)
    }

    /// One leaf per rack, numbered from zero, and the spines behind them.
    pub(super) fn map(&self) -> ClusterMap {
        let node = |id, rack| NodeMember { id: NodeId(id), rack, capacity: 1000, share: SHARE_WHOLE };
        let layer = |name: &str, partition, nodes| LayerMap { name: name.to_owned(), partition, nodes };
        let leaves = (0..self.racks).map(|id| node(id, Some(RackId(id)))).collect();
        let mut layers = vec![layer("leaf", Partition::Rack, leaves)];
        if self.layers == Layers::Both {
            let spines = (self.racks..self.racks + self.spines).map(|id| node(id, None)).collect();
            layers.push(layer("spine", Partition::Hash, spines));
        }
        let member =
            |id: usize| ShimMember::new(ShimId(id as u16), RackId(id as u16 / self.servers_per_rack));
        let sharding = match self.placing {
            Placing::Slots => Sharding::Slots,
            Placing::Ring => Sharding::Ring,
        };
        ClusterMap { epoch: 1, level: 1, sharding, layers, shims: (0..self.servers()).map(member).collect() }
    }

    pub(super) fn secret(&self) -> Secret {
        Secret(u128::from(self.seed).to_be_bytes())
    }

    pub(super) fn placement(&self, map: ClusterMap) -> Placement {
        Placement::new(self.secret(), map).expect("the scenario was checked")
    }

    pub(super) fn is_leaf(&self, node: usize) -> bool {
        node < usize::from(self.racks)
    }

    pub(super) fn node(&self, id: NodeId, layer: usize, seed: u64) -> NodeConfig {
        let heat_min = match self.population {
            Population::Given => HEAT_GIVEN,
            Population::Found => HEAT_MIN,
        };
        NodeConfig {
            id,
            layer,
            capacity: 1000,
            lease: terms(),
            seed,
            settings: NodeSettings {
                objects_max: self.slots,
                bytes_max: 1 << 30,
                value_bytes_max: 1 << 20,
                heat: HeatConfig { counters: 8192, filter_bits: 16_384, ..HeatConfig::default() },
                admission: Admission { heat_min, hysteresis: HYSTERESIS, hold_off: HOLD_OFF, hits_min: 1 },
                views_max: 64,
                forwarded_max: 1 << 16,
                requests: RequestLimits::default(),
                ..NodeSettings::default()
            },
        }
    }

    pub(super) fn shim(&self, id: ShimId, seed: u64) -> ShimConfig {
        let offers = self.slots > 0 && self.population == Population::Found;
        ShimConfig {
            id,
            lease: terms(),
            lease_limits: LeaseLimits::default(),
            blocking_max: 1,
            large_replies_max: 128,
            early_value_bytes_max: 1 << 16,
            cache_expiring_hashes: false,
            bounded: None,
            tracked_max: 1,
            seed,
            settings: ShimSettings {
                heat: HeatConfig {
                    rows: 2,
                    counters: 512,
                    filter_rows: 1,
                    filter_bits: 512,
                    ..Default::default()
                },
                heat_min: if offers { HEAT_MIN } else { u32::MAX },
                operations_max: 1 << 16,
                key_queue_max: 1 << 12,
                requests: RequestLimits::default(),
                copies_max: if self.elastic { 0 } else { 1 },
                ..ShimSettings::default()
            },
        }
    }

    pub(super) fn router(&self, seed: u64) -> RouterConfig {
        RouterConfig {
            routing: self.routing,
            seed,
            settings: RouterSettings { learned_max: 1 << 15, ..RouterSettings::default() },
            ..RouterConfig::default()
        }
    }

    /// The heat with which an object is offered that is asked for so often.
    pub(super) fn heat_offered(&self, per_second: f64) -> u32 {
        match self.population {
            Population::Given => HEAT_GIVEN,
            Population::Found => (per_second as u32).max(HEAT_MIN),
        }
    }
}

pub(super) fn terms() -> LeaseTerms {
    LeaseTerms { duration: LEASE, guard: GUARD }
}

/// Nodes are lost when the scenario says so, and not by themselves.
pub(super) fn controller_terms() -> Terms {
    Terms { grace: Duration::from_secs(1 << 20), ..Terms::default() }
}
