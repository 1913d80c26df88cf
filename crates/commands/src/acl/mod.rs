//! Who may do what: users, their rules in Redis' language, and the check of one command. Not where users come from.

mod describe;
mod password;
mod rule_error;
mod selector;
mod user;
mod users;

pub use rule_error::{RuleError, UserError};
pub use selector::Denied;
pub use user::{User, UserRules};
pub use users::{FENCE_PREFIX, Users};
