//! What a client's command means, for Redis' commands and memcached's: its entry in the command table, its keys, how a
//! cache has to treat it, and who may use it. Not the cluster: where a command goes is decided by `protocol`.

mod access;
pub mod acl;
mod classify;
mod early;
mod entry;
pub mod glob;
mod keys;
mod lookup;
pub mod memcached;
mod native;
mod own;
mod parameter;
mod reason;
mod refusal;
mod rule;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod transaction;
mod view;

pub(crate) use access::{AccessMode, KeyAccesses, accesses};
pub use classify::kind_of;
pub use classify::{Classified, CommandKind, UnnamedKeys, classify, resolve};
pub use early::early_value;
pub use keys::{integer, sort_option_that_reads_keys};
pub use lookup::{all, find, specs};
pub(crate) use lookup::{containers, lookup};
pub(crate) use native::{COMMANDS_COUNT, natives};
pub use own::{PurgeTarget, purge_scope};
pub use reason::RefusalReason;
pub use refusal::CommandRefusal;
pub(crate) use spec::Category;
pub use spec::{CommandGroup, CommandSpec, Flag, Tip};
pub use table::REDIS_VERSION;
pub use transaction::{TransactionParts, transaction_kind, writes};
pub use view::view;
