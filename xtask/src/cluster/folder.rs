//! A temporary folder for configurations, sockets, logs and data. Removed at the end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Before the process id, which tells whose it was.
const NAMES: &str = "distcache-xtask-";

#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(purpose: &str) -> anyhow::Result<Folder> {
        Folder::within(&std::env::temp_dir(), purpose)
    }

    pub(crate) fn within(parent: &Path, purpose: &str) -> anyhow::Result<Folder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        sweep(parent);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAMES}{}-{purpose}-{number}", std::process::id());
        let path = parent.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes what processes have left that were killed.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(NAMES).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !lives(process)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

pub(super) fn lives(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::Folder;

    #[test]
    fn folders_of_the_dead_are_swept_and_those_of_the_living_stay() {
        // Above the largest process id of Linux.
        let dead = std::env::temp_dir().join("distcache-xtask-4194305-test-0");
        std::fs::create_dir_all(&dead).unwrap();
        let own = Folder::new("test").unwrap();
        let other = Folder::new("test").unwrap();
        assert!(!dead.exists() && own.path().exists() && other.path().exists());
    }
}
