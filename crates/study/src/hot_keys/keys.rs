//! Which server has a key, by rank, for one run. Not how popular it is.

use std::sync::Arc;

use bytes::Bytes;
use protocol::placement::{MapError, Placement, Secret};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use wire::{
    ClusterMap, Distribution, HashTag, LayerMap, NodeId, NodeMember, Partition, PoolServer, RackId,
    SHARE_WHOLE, Sharding, ShimId, ShimMember, StoragePool,
};

use super::HotKeysSetting;
use crate::seeds;

/// Keeps placements apart from other random numbers of the same seed.
const PLACES: u64 = 0x4d42_414c;

/// How servers of keys are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotKeysPlacing {
    /// Uniformly at random, as the paper has it.
    Uniform,
    /// As the product places keys on a memcached pool, where the servers' shares of the keys differ as well.
    Ketama,
}

/// The servers of one run's keys, from the most popular on.
#[derive(Clone)]
pub(super) enum KeyServers {
    Uniform { random: Box<Xoshiro256PlusPlus>, servers: u32 },
    Ketama { pool: Arc<Placement>, seed: u64, rank: u64 },
}

impl KeyServers {
    pub(super) fn new(setting: &HotKeysSetting, seed: u64) -> Result<KeyServers, MapError> {
        match setting.placing {
            HotKeysPlacing::Uniform => {
                let random = Box::new(seeds::random(seed, PLACES));
                Ok(KeyServers::Uniform { random, servers: setting.servers })
            }
            HotKeysPlacing::Ketama => {
                let pool = Arc::new(Placement::new(Secret([0; 16]), pool(setting.servers, seed))?);
                Ok(KeyServers::Ketama { pool, seed, rank: 0 })
            }
        }
    }

    pub(super) fn next_server(&mut self) -> usize {
        match self {
            KeyServers::Uniform { random, servers } => random.random_range(0..*servers) as usize,
            KeyServers::Ketama { pool, seed, rank } => {
                let name = Bytes::from(format!("key:{seed}:{rank}"));
                *rank += 1;
                usize::from(pool.shim(&pool.key(0, name)).0)
            }
        }
    }
}

/// Servers whose names belong to the seed. A map has a layer, which has no part in this.
fn pool(servers: u32, seed: u64) -> ClusterMap {
    let named =
        |server| PoolServer { name: Some(format!("server-{seed}-{server}")), weight: 1, slots: Vec::new() };
    let pool = StoragePool {
        distribution: Distribution::Libmemcached,
        hash_tag: HashTag::Whole,
        servers: (0..servers).map(named).collect(),
    };
    let node = NodeMember { id: NodeId(0), rack: None, capacity: 1000, share: SHARE_WHOLE };
    ClusterMap {
        epoch: 1,
        level: 1,
        sharding: Sharding::Pool(pool),
        layers: vec![LayerMap { name: "spine".to_owned(), partition: Partition::Hash, nodes: vec![node] }],
        shims: (0..servers).map(|server| ShimMember::new(ShimId(server as u16), RackId(0))).collect(),
    }
}
