//! The file in which a durable store says who has it. Not what follows from that (`protocol::storage::durable`).

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use protocol::storage::durable::StoreRecord;

const NAME: &str = "record";

/// The record of a folder; none where there is no store.
pub(super) fn read(folder: &Path) -> Result<Option<StoreRecord>, String> {
    match fs::read_to_string(folder.join(NAME)) {
        Ok(text) => StoreRecord::read(&text).map(Some),
        // Keys without it are somebody's who must not be forgotten.
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder.join("data").exists() => {
            Err(format!("its file {NAME:?} is missing: restore a whole backup"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("its file {NAME:?} cannot be read: {error}")),
    }
}

/// Takes the place of what was there at once, and is on disk when this returns.
pub(super) fn write(folder: &Path, record: &StoreRecord) -> io::Result<()> {
    let new = folder.join("record.new");
    let mut file = File::create(&new)?;
    file.write_all(record.write().as_bytes())?;
    file.sync_all()?;
    fs::rename(new, folder.join(NAME))?;
    File::open(folder)?.sync_all()
}
