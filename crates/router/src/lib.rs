//! Runs the router machine: a front door for Redis clients, and the same as a library. Never cached values.

mod client;
mod closing;
mod driver;
mod engine;
mod front;
mod instance;
mod intake;
mod kept;
mod siblings;
mod spans;
mod status;
mod users;

pub use client::{AsyncClient, Client, ConnectError, Error, Pipeline};
pub use instance::spawn;
pub use users::users;
