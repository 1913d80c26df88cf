//! How many layers, nodes and objects a cluster needs, from the bounds alone. Not what it can serve then.

use super::{OperatorFacts, PlanError, PlannedLayer};
use crate::small_cache::Backends;

/// Small Cache's k: the most loaded server has at most 1.21 times the average (Eq. 11), and more objects gain little.
pub const FACTOR: f64 = 8.0;
/// Small Cache's alpha, with which it compares bound and simulation (figure 4).
pub const CONFIDENCE: f64 = 2.0;

/// A cluster's form.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterShape {
    pub racks: u32,
    /// More than one where a node serves less than the servers of its rack.
    pub leaves_per_rack: u32,
    /// From the storage servers on.
    pub layers: Vec<PlannedLayer>,
    /// c of Small Cache, Big Effect: each layer has room for so many of the hottest objects.
    pub cached: f64,
    /// Load of the most loaded server over the average, at most, whatever is asked for (Eq. 10).
    pub load_max: f64,
}

impl ClusterShape {
    pub(super) fn new(facts: &OperatorFacts, objects: u64) -> Result<ClusterShape, PlanError> {
        let bounds = Backends::new(u64::from(facts.servers), 1.0, CONFIDENCE)?;
        let cached = bounds.cache(FACTOR).ceil();
        let load_max = if cached > 1.0 { bounds.load(cached)? } else { 1.0 };
        let storage = f64::from(facts.servers) * facts.server_rate;
        let layer = |name, nodes: u32| -> Result<PlannedLayer, PlanError> {
            let share = Backends::new(u64::from(nodes), 1.0, CONFIDENCE)?.keys_max(cached);
            let objects_per_node = (share.ceil() as u64).min(objects);
            Ok(PlannedLayer { name, nodes, objects_per_node })
        };
        let one_is_enough = facts.node_rate >= storage;
        if one_is_enough && facts.racks.is_none_or(|racks| racks == 1) {
            let layers = vec![layer("spine", 1)?];
            return Ok(ClusterShape { racks: 1, leaves_per_rack: 0, layers, cached, load_max });
        }
        let racks = facts.racks.unwrap_or_else(|| {
            let servers = (facts.node_rate / facts.server_rate).floor().max(1.0) as u32;
            facts.servers.div_ceil(servers)
        });
        let rack_rate = f64::from(facts.servers.div_ceil(racks)) * facts.server_rate;
        let leaves_per_rack = (rack_rate / facts.node_rate).ceil() as u32;
        let leaves = racks.saturating_mul(leaves_per_rack);
        let spines = ((storage / facts.node_rate).ceil() as u32).max(2);
        let layers = vec![layer("leaf", leaves)?, layer("spine", spines)?];
        Ok(ClusterShape { racks, leaves_per_rack, layers, cached, load_max })
    }

    pub fn nodes(&self) -> u32 {
        self.layers.iter().map(|layer| layer.nodes).sum()
    }
}
