//! What operators do to a cluster that serves: policies, purges, reloads, drains. One file for each.

mod copies;
pub(crate) mod doctor;
mod hot_keys;
mod leaving;
mod observing;
mod reload;
mod slow_log;
mod tracing;
