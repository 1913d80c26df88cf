//! What a Redis command is: its entry in the command table, its keys and how a cache has to treat it.

mod classify;
mod early;
mod keys;
mod lookup;
mod own;
mod parameter;
mod refusal;
mod rule;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod transaction;
mod view;

pub(crate) use classify::kind_of;
pub use classify::{Classified, Kind, classify};
pub use early::early_value;
pub(crate) use keys::integer;
pub use lookup::{all, find};
pub use own::{Scope, purge_scope};
pub use refusal::{Reason, Refusal};
pub use spec::{Flag, Group, Spec, Tip};
pub use table::REDIS_VERSION;
pub(crate) use transaction::{Parts, transaction_kind, writes};
pub use view::view;
