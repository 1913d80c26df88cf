//! Who takes part: ids of instances, small and dense because tables are indexed by them.

/// A cache node instance; dense over all layers, in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// A shim instance; dense, in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShimId(pub u16);

/// A router instance, or a client library's: those count from `CLIENT_LIBRARY_FIRST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterId(pub u16);

/// The other end of a connection between roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    Node(NodeId),
    Shim(ShimId),
    Router(RouterId),
}
