//! The cluster map as it is published: who takes part, in which layer and rack. Not where keys go.

use std::sync::Arc;

use crate::member::{NodeId, ShimId};

/// A set of storage servers with one leaf partition; dense, in the order of first mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RackId(pub u16);

/// The share of a node that owns the whole of its partition.
pub const SHARE_WHOLE: u16 = 1000;

/// How a layer divides the keys among its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partition {
    /// By the rack of the key's storage server, then by hash among that rack's nodes.
    Rack,
    /// By hash over all nodes of the layer.
    Hash,
}

/// How the keys are divided among the shims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharding {
    /// By a ring of hashes: each shim has a storage server of its own.
    #[default]
    Ring,
    /// By the hash slots of Redis Cluster, of which each shim has an equal range.
    Slots,
    /// As other software has laid them out on a list of servers.
    Pool(StoragePool),
}

/// A list of storage servers, one behind each shim, and who has laid out keys there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoragePool {
    pub distribution: Distribution,
    pub hash_tag: HashTag,
    /// By `ShimId`.
    pub servers: Arc<[PoolServer]>,
}

/// By which rule a pool's keys are divided among its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// libmemcached's `MEMCACHED_BEHAVIOR_KETAMA` with its default hash.
    Libmemcached,
    /// twemproxy's; with MD5 it is libmemcached's `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`, too.
    Ketama(PoolHash),
    /// twemproxy's.
    Modula(PoolHash),
    /// The hash slots of Redis Cluster, in ranges that do not move.
    Slots,
    /// Jump consistent hash.
    Jump(WideHash),
    /// `ShardedJedis`, from Jedis 3 on.
    Jedis,
    /// `ShardedJedis` before Jedis 3, which hashes weights with names.
    Jedis2,
    /// The Ring of go-redis, from version 8 on.
    Rendezvous,
}

/// twemproxy's hashes of a key, by its names for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolHash {
    OneAtATime,
    Md5,
    Crc16,
    Crc32,
    Crc32a,
    Fnv1_64,
    Fnv1a64,
    Fnv1_32,
    Fnv1a32,
    Hsieh,
    Murmur,
    Jenkins,
}

/// Hashes of a key of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WideHash {
    Xxh64,
    /// With the seed of Jedis.
    Murmur64a,
}

/// Which part of a key decides its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashTag {
    /// All of it.
    Whole,
    /// What is between the first one of these and the next one of those, unless that is empty.
    Between(u8, u8),
}

/// A server by what decides its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolServer {
    /// What clients know it by, where names are hashed.
    pub name: Option<String>,
    pub weight: u32,
    /// Its slots, first and last of each range; an equal part of all if no server has any.
    pub slots: Vec<(u16, u16)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterMap {
    pub epoch: u32,
    /// The feature level that every member speaks.
    pub level: u8,
    pub sharding: Sharding,
    /// One to four, the one nearest to storage first.
    pub layers: Vec<LayerMap>,
    pub shims: Vec<ShimMember>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LayerMap {
    pub name: String,
    pub partition: Partition,
    pub nodes: Vec<NodeMember>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeMember {
    pub id: NodeId,
    /// Only where the layer is partitioned by rack.
    pub rack: Option<RackId>,
    /// Relative capacity in thousandths.
    pub capacity: u32,
    /// How much of its partition it owns, in thousandths: 0 is nothing, as of a node that is down, and
    /// [`SHARE_WHOLE`] all of it. One that returns takes it back in steps.
    pub share: u16,
}

impl NodeMember {
    /// Whether it owns anything at all.
    pub fn is_up(&self) -> bool {
        self.share > 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShimMember {
    pub id: ShimId,
    pub rack: RackId,
    pub state: ShimState,
    pub relocation: Relocation,
}

/// How far keys are that leave a shim's storage; of a shim to which they come, `Moving` until it can have them, and then `Announced`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Relocation {
    /// The shim has them, whichever server they are at.
    #[default]
    Moving,
    /// Routers ask the new shims, which wait. What reaches the old one nevertheless is carried out.
    Announced,
    /// The old one takes nothing more, and ends what it has.
    Closing,
    /// Their new shims have them.
    Gone,
}

/// Whether keys are a shim's, where they are divided anew while they are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ShimState {
    /// Keys were and will be.
    #[default]
    Normal,
    /// No key was, and some will be.
    Joining,
    /// Keys were, and none will be.
    Leaving,
    /// No key is.
    Absent,
}

impl ClusterMap {
    /// Whether keys are divided anew.
    pub fn is_changing(&self) -> bool {
        self.shims.iter().any(|shim| shim.is_owner() != shim.will_be_owner())
    }

    /// The shims whose keys leave, all or some: those that stay give to those that come, and to nobody else.
    pub fn givers(&self) -> impl Iterator<Item = &ShimMember> {
        let joins = self.shims.iter().any(|shim| shim.state == ShimState::Joining);
        self.shims.iter().filter(move |shim| match shim.state {
            ShimState::Normal => joins,
            ShimState::Leaving => true,
            ShimState::Joining | ShimState::Absent => false,
        })
    }

    /// The shims to which keys come.
    pub fn takers(&self) -> impl Iterator<Item = &ShimMember> {
        let leaves = self.shims.iter().any(|shim| shim.state == ShimState::Leaving);
        self.shims.iter().filter(move |shim| match shim.state {
            ShimState::Normal => leaves,
            ShimState::Joining => true,
            ShimState::Leaving | ShimState::Absent => false,
        })
    }
}

impl ShimMember {
    pub fn new(id: ShimId, rack: RackId) -> ShimMember {
        ShimMember { id, rack, state: ShimState::Normal, relocation: Relocation::Moving }
    }

    /// Whether keys are its own before they are divided anew.
    pub fn is_owner(&self) -> bool {
        matches!(self.state, ShimState::Normal | ShimState::Leaving)
    }

    /// Whether keys are its own afterwards.
    pub fn will_be_owner(&self) -> bool {
        matches!(self.state, ShimState::Normal | ShimState::Joining)
    }
}
