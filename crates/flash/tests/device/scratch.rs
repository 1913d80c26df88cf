//! A place for one file of one test, which goes with it. Nothing is there at first.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    pub(crate) fn within(folder: &Path) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("device-{}-{next}", std::process::id()));
        drop(std::fs::remove_file(&path));
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}
