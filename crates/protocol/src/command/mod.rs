//! What a Redis command is: its entry in the command table, its keys and how a cache has to treat it.

mod access;
mod classify;
mod early;
mod keys;
mod lookup;
mod native;
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

pub(crate) use access::{Access, Accesses, accesses};
pub(crate) use classify::kind_of;
pub use classify::{Classified, Kind, classify, resolve};
pub use early::early_value;
pub(crate) use keys::{integer, sort_option_that_reads_keys};
pub use lookup::{all, find, specs};
pub(crate) use lookup::{containers, lookup};
pub(crate) use native::{COMMANDS_COUNT, natives};
pub use own::{Scope, purge_scope};
pub use refusal::{Reason, Refusal};
pub(crate) use spec::Category;
pub use spec::{Flag, Group, Spec, Tip};
pub use table::REDIS_VERSION;
pub(crate) use transaction::{Parts, transaction_kind, writes};
pub use view::view;
