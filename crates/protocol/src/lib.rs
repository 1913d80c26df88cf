//! Every distributed decision of DistCache as sans-I/O machines. Never async, sockets, clocks, threads or files.

mod awake;
pub mod coherence;
pub mod controller;
pub mod hash;
pub mod heat;
mod key_view;
pub mod load;
pub mod migration;
pub mod node;
pub mod placement;
pub mod policy;
pub mod requests;
pub mod router;
pub mod shards;
pub mod shim;
pub mod statistics;
pub mod storage;
pub mod succession;
pub mod time;
