//! Whole clusters of the production machines on virtual time, in trouble, checked from outside. No rule of the
//! protocol is implemented here.
//!
//! A seed decides everything: the cluster, its traffic and what goes wrong. The same seed gives the same trace.

mod cast;
mod checkers;
mod clients;
mod clock;
mod cluster;
mod commands;
mod controllers;
mod delivery;
mod faults;
pub mod fencing;
mod history;
mod host;
mod model;
mod network;
mod outsiders;
mod policies;
mod queue;
mod random;
mod registry;
mod run;
pub mod scale;
mod shape;
mod storage;
mod trace;
mod tracking;

pub use faults::{FaultKind, FaultSet, UnknownFault};
pub use run::{SimReport, SimSettings, run};
