//! The newest commit that is known to be on disk, in a file of its own. Not the commits.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

/// A number and its checksum.
const SLOT_BYTES: usize = 16;

/// A store that has fewer commits than this file says has lost some that were durable: a damaged journal ends early, and looks
/// like one that was cut short by a crash.
///
/// It is not synced itself: what a power cut takes away makes it say less, never more.
#[derive(Debug)]
pub(super) struct CommitGuard {
    file: File,
    /// Every other number goes into the other slot, so that one is always whole.
    is_odd: bool,
}

impl CommitGuard {
    /// With the number that it holds; 0 where it holds none.
    pub(super) fn open(path: &Path) -> io::Result<(CommitGuard, u64)> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = [0; 2 * SLOT_BYTES];
        let mut len = 0;
        while let rest @ 1.. = file.read_at(&mut bytes[len..], len as u64)? {
            len += rest;
        }
        let (slots, _) = bytes[..len].as_chunks::<SLOT_BYTES>();
        let newest = slots.iter().filter_map(parse).max().unwrap_or(0);
        Ok((CommitGuard { file, is_odd: false }, newest))
    }

    /// Forgets what it said before, also where that was more.
    pub(super) fn begin(&mut self, commit: u64) -> io::Result<()> {
        self.write(commit)?;
        self.write(commit)
    }

    pub(super) fn write(&mut self, commit: u64) -> io::Result<()> {
        let mut slot = [0; SLOT_BYTES];
        let number = commit.to_be_bytes();
        slot[..8].copy_from_slice(&number);
        slot[8..].copy_from_slice(&xxh3_64(&number).to_be_bytes());
        self.is_odd = !self.is_odd;
        self.file.write_all_at(&slot, if self.is_odd { SLOT_BYTES as u64 } else { 0 })
    }
}

fn parse(slot: &[u8; SLOT_BYTES]) -> Option<u64> {
    let (number, checksum) = slot.split_first_chunk::<8>()?;
    (xxh3_64(number).to_be_bytes() == *checksum).then(|| u64::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::CommitGuard;

    #[test]
    fn the_newest_whole_number_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard");
        let (mut guard, none) = CommitGuard::open(&path).unwrap();
        assert_eq!(none, 0);
        (1..=5).for_each(|commit| guard.write(commit).unwrap());
        assert_eq!(CommitGuard::open(&path).unwrap().1, 5);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(CommitGuard::open(&path).unwrap().1, 4, "a torn slot is none");
        let (mut guard, _) = CommitGuard::open(&path).unwrap();
        guard.begin(2).unwrap();
        assert_eq!(CommitGuard::open(&path).unwrap().1, 2, "somebody has taken the loss");
        std::fs::write(&path, &bytes[..10]).unwrap();
        assert_eq!(CommitGuard::open(&path).unwrap().1, 0);
    }
}
