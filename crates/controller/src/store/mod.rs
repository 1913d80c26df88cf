//! Where controllers keep what they share: who lives, and the map. Not what either means.
//!
//! A store is told and asked, and never waited for: heartbeats must be answered however long it takes. What became of
//! something is seen by `changes`.

mod etcd;
mod memory;
mod stored;

pub use etcd::{EtcdSettings, EtcdStore};
pub use memory::MemoryStore;
pub use stored::{StoredMapError, StoredRoster, UnknownFields, map_text, parse_map};
pub(crate) use stored::{parts, shares};

use protocol::time::Time;

/// What has changed, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// The map is another one now, of this version.
    Map { version: u64, value: String },
    /// There is no map any more: somebody has emptied the store.
    NoMap,
    /// The member has a lease.
    Registered { member: String },
    /// The member's lease has run out, or it left.
    Gone { member: String },
}

/// The store cannot be asked now. Nothing is known about what was told to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store does not answer: {0}")]
pub struct StoreError(pub String);

/// A store with leases, a watch and transactions, shared by replicas or not.
pub trait ControllerStore: Send {
    /// The member lives: it gets a lease, or its lease starts anew, once the store can be asked: every member that was kept is
    /// registered, and gone after its lease.
    fn keep(&mut self, now: Time, member: &str);

    /// The member has left: its lease ends.
    fn forget(&mut self, now: Time, member: &str);

    /// Puts a map into the place of the one that has `version`; 0 says that there is none. Whether another replica was
    /// faster, `changes` tells. The newest proposal counts; it may be repeated.
    fn propose(&mut self, now: Time, version: u64, map: &str);

    /// Everything that has changed since the last call, from whomever; at first, everything that is there.
    ///
    /// # Errors
    /// The store cannot be asked now. Changes are lost by that only if later ones make up for them.
    fn changes(&mut self, now: Time) -> Result<Vec<StoreChange>, StoreError>;
}
