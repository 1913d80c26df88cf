//! What an embedded store on disk promises: who succeeds whom, and which replies wait for which commit. No files, no threads.

mod group_commit;
mod record;

pub use group_commit::GroupCommit;
pub use record::{StoreLife, StoreOpening, StoreRecord};
