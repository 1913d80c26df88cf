//! One node's local cache: eviction policies, and caches on flash. Never peers, messages or JSON.

pub mod device;
pub mod policy;
