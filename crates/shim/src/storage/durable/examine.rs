//! A look at the folder of a durable store from outside, while a shim may have it. Not what is in it.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use protocol::storage::durable::StoreRecord;

use super::disk::{FREE_BYTES_MIN, free_bytes, shared_file_system};
use super::record;

/// What there is to see of a store's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFolderSeen {
    /// What the store says of itself, or why it cannot; none where there is none.
    pub record: Result<Option<StoreRecord>, String>,
    /// A process has it open.
    pub is_open: bool,
    /// What this process may still write there, in bytes, and what a store wants to be free.
    pub free: u64,
    pub free_min: u64,
    /// The kind of file system, if a store cannot be on it.
    pub shared: Option<&'static str>,
}

/// Changes nothing there.
///
/// # Errors
/// A folder that cannot be looked at; one that is not there yet is made by the shim, so the one above it is looked at.
pub fn examine(path: &Path) -> io::Result<StoreFolderSeen> {
    let there = path.ancestors().find(|folder| folder.exists()).unwrap_or(path);
    let lock = match File::open(path.join("lock")) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let is_open = match lock.as_ref().map(File::try_lock_shared) {
        None | Some(Ok(())) => false,
        Some(Err(TryLockError::WouldBlock)) => true,
        Some(Err(TryLockError::Error(error))) => return Err(error),
    };
    Ok(StoreFolderSeen {
        record: record::read(path, false).map(|found| found.map(|(record, _)| record)),
        is_open,
        free: free_bytes(there)?,
        free_min: FREE_BYTES_MIN,
        shared: shared_file_system(there)?,
    })
}
