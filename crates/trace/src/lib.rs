//! Request streams: the one definition of a workload for every tool that makes load. Never eviction policies.

mod distribution;
mod permutation;
mod workload;
mod zipf;

pub use distribution::{Distribution, DistributionError};
pub use workload::{KEYS_MAX, Request, Requests, Workload, WorkloadError, key_name};
