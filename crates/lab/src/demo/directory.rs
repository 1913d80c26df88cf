//! The private temporary directory in which the demonstration's sockets live. Not what is in it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Removed with everything in it when dropped.
#[derive(Debug)]
pub(crate) struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    pub(crate) fn new() -> Result<TemporaryDirectory> {
        let path = std::env::temp_dir().join(format!("distcache-demo-{}", std::process::id()));
        // Left behind by an earlier process with the same number.
        drop(std::fs::remove_dir_all(&path));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| {
            format!("cannot create {}; set TMPDIR to a directory you may write to", path.display())
        })?;
        Ok(TemporaryDirectory(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
