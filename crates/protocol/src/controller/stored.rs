//! The map as stores have it and the members as a driver knows them. Not how either is written down.

use wire::{ClusterMap, NodeId, Peer};

use super::partitions::Ownership;
use super::resharding::ShimPart;

/// Who the members are, in an order that numbers them: there may be more later, and never fewer or others.
pub trait Members: Sized {
    /// What a store keeps of them.
    type Roster: Clone;

    fn roster(&self) -> Self::Roster;

    /// The map before any was made: every node owns its whole partition.
    fn map(&self) -> ClusterMap;

    /// Members beside the nodes and shims of the map.
    fn others(&self) -> Vec<Peer>;

    /// These members and those that only `roster` has; none if it has no others.
    ///
    /// # Errors
    /// Why `roster` is not one of this cluster.
    fn grown(&self, roster: &Self::Roster) -> Result<Option<Self>, String>;

    /// Whether there are members that `roster` lacks.
    fn exceeds(&self, roster: &Self::Roster) -> bool;
}

/// What replicas agree on: who the members are and what each node owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMap<R> {
    pub epoch: u32,
    /// The feature level that every member speaks.
    pub level: u8,
    /// Random for the life of the store, so that an epoch that was lost with another store is not taken for one of its.
    pub history: u64,
    /// The life of the replica that made it.
    pub by: String,
    pub roster: R,
    /// In the order of the roster.
    pub nodes: Vec<Ownership>,
    /// Likewise; none in a map of a release that did not know it.
    pub shims: Vec<ShimPart>,
}

impl<R> StoredMap<R> {
    /// What the node owns, which is nothing for one that the map does not list.
    pub fn share(&self, node: NodeId) -> u16 {
        self.owned(node).map_or(0, |owned| owned.share)
    }

    /// Whether an operator keeps the node at nothing.
    pub fn drained(&self, node: NodeId) -> bool {
        self.owned(node).is_some_and(|owned| owned.drained)
    }

    fn owned(&self, node: NodeId) -> Option<&Ownership> {
        self.nodes.get(usize::from(node.0))
    }
}
