//! One shim, for tests that speak for its storage, its node and its routers. Not what is asked of it.

use std::sync::Arc;
use std::time::Duration;

use protocol::coherence::lease::{LeaseLimits, LeaseTerms};
use protocol::heat::HeatConfig;
use protocol::placement::{Placement, Secret};
use protocol::requests::RequestLimits;
use protocol::shim::{Shim, ShimConfig, ShimSettings};
use wire::{
    ClusterMap, LayerMap, NodeId, NodeMember, Partition, RackId, SHARE_WHOLE, Sharding, ShimId, ShimMember,
};

/// The first of `shims` in a cluster of one node; `change` says what is not as usual.
pub(crate) fn shim(shims: u16, change: impl FnOnce(&mut ShimConfig)) -> (Shim, Arc<Placement>) {
    let node = NodeMember { id: NodeId(0), rack: None, capacity: 1000, share: SHARE_WHOLE };
    let layer = LayerMap { name: "leaf".into(), partition: Partition::Hash, nodes: vec![node] };
    let shims = (0..shims).map(|id| ShimMember::new(ShimId(id), RackId(0))).collect();
    let map = ClusterMap { epoch: 1, level: 1, sharding: Sharding::Ring, layers: vec![layer], shims };
    let placement = Arc::new(Placement::new(Secret([7; 16]), map).expect("the map is in order"));
    let mut config = ShimConfig {
        id: ShimId(0),
        lease: LeaseTerms { duration: Duration::from_millis(800), guard: Duration::from_millis(3) },
        lease_limits: LeaseLimits::default(),
        blocking_max: 10,
        large_replies_max: 128,
        early_value_bytes_max: 0,
        cache_expiring_hashes: false,
        tracked_max: 3,
        bounded: None,
        seed: 1,
        settings: ShimSettings {
            heat: HeatConfig { counters: 64, filter_bits: 64, ..HeatConfig::default() },
            heat_min: u32::MAX,
            operations_max: 1000,
            key_queue_max: 1000,
            requests: RequestLimits::default(),
            ..ShimSettings::default()
        },
    };
    change(&mut config);
    (Shim::new(config, Arc::clone(&placement)), placement)
}
