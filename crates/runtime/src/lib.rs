//! Effects that every role shares: sockets, timers, status, metrics, stop. Never a DistCache decision.

pub mod admin;
pub mod clock;
pub mod heartbeat;
pub mod instance;
pub mod member;
pub mod metrics;
pub mod orders;
pub mod peers;
pub mod reactor;
mod ready;
pub mod reload;
mod resolver;
pub mod spans;
mod statistics_json;
pub mod status;
pub mod stop;
pub mod threads;
pub mod tls;
pub mod upgrade;
