//! A key that changes its server: every reachable state of the machine that moves it, of the two servers, and of what is on its way
//! between them.
//!
//! `Migration` runs as it is, through `step`. Commands are carried out and answered at separate times; connections break and what they
//! had is carried out late, until a fence; the process dies and another one takes over without knowing what was begun; the old home
//! comes back with what it had at first; the destination takes no new key for a while. A client's commands go on all the time, and
//! every reply has to be one that a single server could have given.

mod actions;
mod config;
mod server;
mod state;

pub(super) use config::configs;
