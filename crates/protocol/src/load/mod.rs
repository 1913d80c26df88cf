//! How busy nodes are: measured by each node, remembered and compared by each router (paper, section 4.2).

mod meter;
mod table;

pub use meter::LoadMeter;
pub use table::LoadTable;

/// Most requests per second that a report may claim: a larger one is a fault or a forgery, and is cut to this.
pub const LOAD_MAX: u32 = 1 << 30;
