//! What checkers remember of a run. Not what they conclude.

mod births;
mod versions;
mod watch;

/// How often copies are compared with the directory, and what clients keep with storage.
pub(crate) const INSPECT_US: u64 = 250_000;

pub(crate) use births::{Birth, Births, HeldCopy};
pub(crate) use versions::{Version, Versions};
pub(crate) use watch::{Disturbance, WatchChecker};
