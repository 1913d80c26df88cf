//! What can be wrong with a cluster map. Checked once, so that lookups cannot fail.

use wire::message::LAYERS_MAX;
use wire::{
    ClusterMap, Distribution, Partition, RackId, SHARE_WHOLE, Sharding, ShimMember, ShimState, StoragePool,
};

use super::ring::points_of;
use super::slot::{SLOTS, are_dealt};

/// Most virtual nodes of all layers together (160 MiB of rings); capacities are relative, so nobody needs more.
const POINTS_MAX: u64 = 1 << 24;

/// Points of a server of weight 1 where weights are not relative.
const POOL_POINTS: u64 = 160;

/// Why a cluster map cannot place keys. Members are named by their number, in the order of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    #[error("the map has {0} layers; one to {LAYERS_MAX} are possible")]
    Layers(usize),
    #[error("the map has no shims, so there is no storage behind the cache")]
    NoShims,
    #[error("the map has no shims that have keys, before or after they are divided anew")]
    NoOwners,
    #[error("keys are divided anew only where they are by a ring")]
    Changing,
    #[error("{0} shims are more than there are hash slots ({SLOTS})")]
    Slots(usize),
    #[error("a pool of {servers} servers behind {shims} shims, each of which needs one with a weight")]
    Pool { servers: usize, shims: usize },
    #[error("the slots of the pool's servers are not all {SLOTS}, each once")]
    PoolSlots,
    #[error("the weights of the pool's servers are too large altogether; divide them all by the smallest")]
    PoolWeights,
    #[error("layer {layer:?} has no nodes")]
    NoNodes { layer: String },
    #[error("node {id} of layer {layer:?} is out of place: nodes are numbered 0 to {last}, each once")]
    NodeId { id: u16, layer: String, last: usize },
    #[error("shim {id} is out of place: shims are numbered in order, so number {expected} was due")]
    ShimId { id: u16, expected: usize },
    #[error("node {id} has capacity 0; give it more, or take it out of the map")]
    NoCapacity { id: u16 },
    #[error("node {id} owns {share} thousandths of its partition; {SHARE_WHOLE} are the whole")]
    Share { id: u16, share: u16 },
    #[error("capacities are relative and too large altogether; divide them all by the smallest")]
    Capacities,
    #[error("node {id} of layer {layer:?} needs a rack, because the layer is partitioned by rack")]
    NoRack { id: u16, layer: String },
    #[error("node {id} of layer {layer:?} serves rack {rack}, which has no shim")]
    RackWithoutShim { id: u16, layer: String, rack: u16 },
    #[error("rack {rack} has shims but no node in layer {layer:?}, which is partitioned by rack")]
    RackWithoutNode { rack: u16, layer: String },
}

/// Whether keys can be placed by `map`. Whether its nodes are up makes no difference.
pub(super) fn check(map: &ClusterMap) -> Result<(), MapError> {
    if map.layers.is_empty() || map.layers.len() > LAYERS_MAX {
        return Err(MapError::Layers(map.layers.len()));
    }
    check_shims(map)?;
    check_nodes(map)?;
    check_racks(map)
}

fn check_shims(map: &ClusterMap) -> Result<(), MapError> {
    if map.shims.is_empty() {
        return Err(MapError::NoShims);
    }
    let out_of_place = map.shims.iter().enumerate().find(|(index, shim)| usize::from(shim.id.0) != *index);
    if map.sharding == Sharding::Slots && map.shims.len() > usize::from(SLOTS) {
        return Err(MapError::Slots(map.shims.len()));
    }
    let owners = |owns: fn(&ShimMember) -> bool| map.shims.iter().any(owns);
    if !owners(ShimMember::is_owner) || !owners(ShimMember::will_be_owner) {
        return Err(MapError::NoOwners);
    }
    if map.sharding != Sharding::Ring && map.shims.iter().any(|shim| shim.state != ShimState::Normal) {
        return Err(MapError::Changing);
    }
    if let Sharding::Pool(pool) = &map.sharding {
        check_pool(pool, map.shims.len())?;
    }
    match out_of_place {
        Some((expected, shim)) => Err(MapError::ShimId { id: shim.id.0, expected }),
        None => Ok(()),
    }
}

fn check_pool(pool: &StoragePool, shims: usize) -> Result<(), MapError> {
    let servers = pool.servers.len();
    if servers != shims || pool.servers.iter().any(|server| server.weight == 0) {
        return Err(MapError::Pool { servers, shims });
    }
    if pool.distribution == Distribution::Slots {
        if shims > usize::from(SLOTS) {
            return Err(MapError::Slots(shims));
        }
        if !are_dealt(pool.servers.iter().map(|server| &server.slots)) {
            return Err(MapError::PoolSlots);
        }
    }
    let weights: u64 = pool.servers.iter().map(|server| u64::from(server.weight)).sum();
    let is_jedis = matches!(pool.distribution, Distribution::Jedis | Distribution::Jedis2);
    let points = if is_jedis { weights * POOL_POINTS } else { weights };
    if points > POINTS_MAX { Err(MapError::PoolWeights) } else { Ok(()) }
}

fn check_nodes(map: &ClusterMap) -> Result<(), MapError> {
    let nodes_count = map.layers.iter().map(|layer| layer.nodes.len()).sum::<usize>();
    let mut seen = vec![false; nodes_count];
    let mut points = 0u64;
    for layer in &map.layers {
        if layer.nodes.is_empty() {
            return Err(MapError::NoNodes { layer: layer.name.clone() });
        }
        for node in &layer.nodes {
            match seen.get_mut(usize::from(node.id.0)) {
                Some(seen) if !*seen => *seen = true,
                _ => {
                    let (id, layer) = (node.id.0, layer.name.clone());
                    return Err(MapError::NodeId { id, layer, last: nodes_count - 1 });
                }
            }
            if node.capacity == 0 {
                return Err(MapError::NoCapacity { id: node.id.0 });
            }
            if node.share > SHARE_WHOLE {
                return Err(MapError::Share { id: node.id.0, share: node.share });
            }
            points += points_of(node.capacity);
        }
    }
    if points > POINTS_MAX { Err(MapError::Capacities) } else { Ok(()) }
}

fn check_racks(map: &ClusterMap) -> Result<(), MapError> {
    let racks: Vec<RackId> = map.shims.iter().map(|shim| shim.rack).collect();
    for layer in map.layers.iter().filter(|layer| layer.partition == Partition::Rack) {
        for node in &layer.nodes {
            let (id, layer) = (node.id.0, layer.name.clone());
            match node.rack {
                None => return Err(MapError::NoRack { id, layer }),
                Some(rack) if !racks.contains(&rack) => {
                    return Err(MapError::RackWithoutShim { id, layer, rack: rack.0 });
                }
                Some(_) => {}
            }
        }
        let empty = racks.iter().find(|rack| !layer.nodes.iter().any(|node| node.rack == Some(**rack)));
        if let Some(rack) = empty {
            return Err(MapError::RackWithoutNode { rack: rack.0, layer: layer.name.clone() });
        }
    }
    Ok(())
}
