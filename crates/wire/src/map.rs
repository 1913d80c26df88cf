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
    /// As libmemcached places keys on a pool of servers.
    Ketama(Ketama),
}

/// The pool of memcached servers behind the shims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ketama {
    pub weighted: bool,
    /// By `ShimId`.
    pub servers: Arc<[KetamaServer]>,
}

/// A server by the name that clients know it by, which decides its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KetamaServer {
    pub host: String,
    pub port: u16,
    pub weight: u32,
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
}
