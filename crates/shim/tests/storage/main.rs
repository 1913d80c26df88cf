//! The storages of a shim against real redis-server processes, and on disk. Not the shim's machine.

mod durable;
mod embedded;
mod failover;
mod mark;
mod migration;
#[path = "../peer/mod.rs"]
mod peer;
mod redis;
mod relay;
mod server;
mod start;
