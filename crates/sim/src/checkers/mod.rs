//! What must hold, watched from outside the system: while it runs, and once it has come to rest.

mod births;
mod counts;
mod directory;
mod kept;
mod leaks;
pub(crate) mod linearize;
mod liveness;
mod load;
mod maps;
mod staleness;
mod versions;
