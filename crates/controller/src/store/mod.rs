//! Where controllers keep what they share: leases, small values, a watch. Not what the values mean.
//!
//! The shape is etcd's, cut down to what one controller needs, so that replicas can share a real one.

mod memory;

pub use memory::MemoryStore;

use std::time::Duration;

use protocol::time::Time;

/// Keys that belong to a lease vanish with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A value written if the key's version is still `version`; 0 says that the key must not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: String,
    pub version: u64,
    pub value: String,
    pub lease: Option<LeaseId>,
}

/// How a conditional write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Written; the key has this version now.
    Done(u64),
    /// Somebody else was faster.
    Conflict,
    /// The lease it names has run out.
    LeaseGone,
}

/// What the watch reports, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put { key: String, version: u64, value: String },
    Deleted { key: String },
}

/// The store cannot be asked now. Nothing is known about what was sent to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store does not answer: {0}")]
pub struct StoreError(pub String);

/// A store with leases, a watch and transactions.
pub trait Store: Send {
    /// Opens a lease that runs out `length` after it was opened or kept alive last.
    fn grant(&mut self, now: Time, length: Duration) -> Result<LeaseId, StoreError>;

    /// Keeps a lease alive; false if it has run out already.
    fn keep_alive(&mut self, now: Time, lease: LeaseId) -> Result<bool, StoreError>;

    fn transact(&mut self, now: Time, put: Put) -> Result<Transaction, StoreError>;

    /// Everything that has changed since the last call, from whomever.
    fn watch(&mut self, now: Time) -> Result<Vec<Change>, StoreError>;
}
