//! What must hold, watched from outside the system: while it runs, and once it has come to rest.

mod births;
mod counts;
mod directory;
mod kept;
mod leaks;
mod liveness;
mod load;
mod maps;
mod staleness;
mod versions;
