//! The file in which a durable store says who has it. Not what follows from that (`protocol::storage::durable`).

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use protocol::storage::durable::StoreRecord;

const NAME: &str = "record";

/// The record of a folder, and whether it is a copy of the one that was written; none where there is no store.
/// Whoever `adopts` keys without one takes them for his.
pub(super) fn read(folder: &Path, adopts: bool) -> Result<Option<(StoreRecord, bool)>, String> {
    let read = || -> io::Result<(String, u64)> {
        let mut file = File::open(folder.join(NAME))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((text, file.metadata()?.ino()))
    };
    match read() {
        Ok((text, file)) => StoreRecord::read(&text).map(|(record, written)| Some((record, written != file))),
        // Keys without it are somebody's who must not be forgotten.
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder.join("data").exists() && !adopts => {
            Err(format!(
                "its file {NAME:?} is missing: restore a whole backup; --adopt takes the keys that are there for this shim's"
            ))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("its file {NAME:?} cannot be read: {error}")),
    }
}

/// Takes the place of what was there at once, and is on disk when this returns.
pub(super) fn write(folder: &Path, record: &StoreRecord) -> io::Result<()> {
    let new = folder.join("record.new");
    let mut file = File::create(&new)?;
    let number = file.metadata()?.ino();
    file.write_all(record.write(number).as_bytes())?;
    file.sync_all()?;
    fs::rename(new, folder.join(NAME))?;
    File::open(folder)?.sync_all()
}
