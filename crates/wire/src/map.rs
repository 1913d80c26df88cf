//! The cluster map as it is published: who takes part, in which layer and rack. Not where keys go.

use crate::member::{NodeId, ShimId};

/// A set of storage servers with one leaf partition; dense, in the order of first mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RackId(pub u16);

/// How a layer divides the keys among its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partition {
    /// By the rack of the key's storage server, then by hash among that rack's nodes.
    Rack,
    /// By hash over all nodes of the layer.
    Hash,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterMap {
    pub epoch: u32,
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
    /// A node that is down owns nothing until the map says otherwise.
    pub up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShimMember {
    pub id: ShimId,
    pub rack: RackId,
}
