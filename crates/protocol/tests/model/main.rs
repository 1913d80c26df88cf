//! Model checking of the production machines: every reachable state of small clusters, not a sample of them.

#![expect(clippy::print_stdout, reason = "the figures of an exploration are its result")]

mod backend;
mod config;
mod coverage;
mod explore;
mod network;
mod properties;
mod run;
mod setup;
mod state;
mod steps;
mod table;
mod trace;

#[test]
fn explorations() {
    run::chosen();
}
