//! One file per target; each has `run`, which panics where the product is wrong.

pub(crate) mod cluster_map;
pub(crate) mod commands;
pub(crate) mod config;
pub(crate) mod controller;
pub(crate) mod embedded;
pub(crate) mod flash;
pub(crate) mod handshake;
pub(crate) mod heartbeats;
pub(crate) mod memcached;
pub(crate) mod node;
pub(crate) mod planted;
pub(crate) mod resp_commands;
pub(crate) mod resp_replies;
pub(crate) mod router;
pub(crate) mod shards;
pub(crate) mod shim;
mod speech;
pub(crate) mod stored_map;
pub(crate) mod traces;
pub(crate) mod users;
pub(crate) mod wire;
