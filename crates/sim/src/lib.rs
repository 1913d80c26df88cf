//! Whole clusters of the production machines on virtual time, in trouble, checked from outside. No rule of the
//! protocol is implemented here.
//!
//! A seed decides everything: the cluster, its traffic and what goes wrong. The same seed gives the same trace.
//!
//! From the ground up: `world` (clock, what will happen, chance), `network`, `host`, `storage`, `registry`, `clients` and
//! `records` (what checkers remember) know nothing of each other but types; `cluster` holds them; `checkers` and `answers`
//! look at them; `delivery` and `storing` carry messages and bytes between machines; `controllers`, `asking`, `policies`,
//! `outsiders` and `lifecycle` act; `faults` make them act wrongly; `turn` is the loop over all of it, and `run` judges.

mod answers;
mod asking;
mod cast;
mod checkers;
mod clients;
mod clock;
mod cluster;
mod commands;
mod controllers;
mod delivery;
mod event;
mod fault_kind;
mod faults;
pub mod fencing;
mod following;
mod history;
mod host;
mod lifecycle;
mod network;
mod outsiders;
mod policies;
mod queue;
mod random;
mod records;
mod registry;
mod rules;
mod run;
pub mod scale;
mod shape;
mod storage;
mod storing;
mod storms;
mod trace;
mod tracker;
mod turn;
mod world;

pub use fault_kind::{FaultKind, FaultSet, UnknownFault};
pub use run::{SimReport, SimSettings, run};
