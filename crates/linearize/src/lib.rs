//! Whether what clients were told of one key has an order that explains it. Not who the clients are, and nothing of the
//! system: the simulator's histories and those of real processes are judged alike.

mod model;
mod operation;
mod search;
mod witness;

pub use model::{ModelOutcome, ModelState, ModelWindow, REFUSED, What};
pub use operation::{HistoryOperation, HistoryOutcome};
pub use search::{HistoryVerdict, Unexplained, check};
