//! The front-end cache of Small Cache, Big Effect: its bounds, and what simulation finds. Not a cluster of several layers.

mod bins;
mod bound;

pub use bins::{BinsOutcome, Experiment, Throughput};
pub use bound::{Backends, normalized_load};

/// Why there is no such bound or experiment.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SmallCacheError {
    #[error("{0} nodes; there must be 1 to {max}", max = bound::NODES_MAX)]
    Nodes(u64),
    #[error("a confidence factor alpha of {0}; it must be above 0 (section 4.3 wants it above 1)")]
    Alpha(f64),
    #[error("{0} virtual nodes for each node; there must be 1 to 100 on average (section 4.4)")]
    VirtualNodes(f64),
    #[error("a cache of {0} objects; the bound is for more than 1 (Eq. 10 divides by c - 1)")]
    Cache(f64),
}
