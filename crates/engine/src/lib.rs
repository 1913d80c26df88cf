//! One node's local cache: eviction policies, and caches on flash. Never peers, messages or JSON.

pub mod device;
pub mod flash;
pub mod policy;
pub mod ripq;
pub mod sipq;
