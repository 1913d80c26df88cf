//! What must hold, watched from outside the system: while it runs, and once it has come to rest.

mod births;
mod directory;
mod leaks;
pub(crate) mod linearize;
mod liveness;
mod load;
mod maps;
mod staleness;
mod versions;
mod watch;

pub(crate) use births::Births;
pub(crate) use directory::INSPECT_US;
pub(crate) use versions::Versions;
pub(crate) use watch::WatchChecker;
