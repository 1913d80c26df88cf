//! Model checking of the production machines: every reachable state of small clusters, not a sample of them.
//!
//! # Model
//!
//! `Node` and `Shim` run as they are, through `step`; nothing of them is written down a second time. A state is those
//! machines with their clocks, the messages ever sent, storage with what is on its way to it, the reads that clients
//! wait for, and how much may yet go wrong (`state`). Two states are one if nothing that either machine would ever do
//! tells them apart: each machine gives a fingerprint with times relative to its clock and free of the order in which
//! things came about (`Node::fingerprint`, `Shim::fingerprint`).
//!
//! - **Network** (`network`): no message leaves the set, so each may come late, again, out of order, or never. RENEW and
//!   GRANT whose leases are over are alike.
//! - **Clocks** (`steps`): in ticks of 10 ms, with leases of one to three ticks. Where they drift, a node's is up to a
//!   tick ahead of the shims', which the guard covers. Machines may miss their ticks (`Ticks::Free`).
//! - **Storage** (`backend`): one value; three connections in order; commands run and are answered at separate times;
//!   connections break and their writes run late, until a fence. A shim that is replaced goes on without knowing. Storage
//!   itself may end and come back with nothing.
//! - **Clients**: writes in a given order, among them one whose value rides on INV, one that does not, a barrier and a
//!   blocking command; reads of two views at nodes. Offers are the only way into a node, so that heat decides nothing,
//!   and another shim's large object is what pushes a key out.
//! - **Faults**: evictions, crashes of nodes and shims, takeovers, handovers to one that stands by, lost connections, links
//!   that break, remaps, drains. How many of each is the configuration's budget (`table`); it is what makes the number of
//!   states finite.
//! - **Keys that are divided anew**: the key goes from one shim to another, as map follows map. Whoever is not waited for acts
//!   on old maps for as long as it likes, and clients ask either shim at any time. That the server which has the key is one
//!   all the time is `moving`'s: the machine that moves a key between two servers, alone.
//!
//! Left out: time to live, several keys, more than one router, the limit of storage. The simulator has them.
//!
//! `cargo xtask model` explores what CI does, `cargo xtask model --deep` all. A configuration passes only if it was
//! explored to its end and if what it is there for has happened (`coverage`). `cargo xtask mutants` takes one rule
//! after the other out of a copy of the protocol (`crates/protocol/mutants`) and demands a counterexample for each.

#![expect(clippy::print_stdout, reason = "the figures of an exploration are its result")]

mod backend;
mod config;
mod coverage;
mod explore;
mod idle;
mod moving;
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
