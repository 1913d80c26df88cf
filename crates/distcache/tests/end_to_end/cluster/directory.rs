//! The temporary directory of one cluster or server. Not what is in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Removed when dropped. Short, because the paths of sockets may have 107 bytes.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dc-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Directory(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
