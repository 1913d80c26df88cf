//! A copy of the tree in which patches are tried one at a time. Never the tree itself.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

pub(crate) struct Garden {
    tree: PathBuf,
}

impl Garden {
    /// Brings the copy in `folder` up to date. Files that have not changed keep their times, and so what was built
    /// from them stays good.
    pub(crate) fn new(root: &Path, folder: &Path) -> anyhow::Result<Garden> {
        let garden = Garden { tree: folder.join("tree") };
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("starting git")?;
        ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
        let mut kept = HashSet::new();
        for name in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = std::str::from_utf8(name)?;
            let (from, to) = (root.join(name), garden.tree.join(name));
            // Deleted, but not committed yet.
            if !from.is_file() {
                continue;
            }
            let bytes = std::fs::read(&from).with_context(|| from.display().to_string())?;
            if std::fs::read(&to).ok().as_ref() != Some(&bytes) {
                std::fs::create_dir_all(to.parent().unwrap_or(&garden.tree))?;
                std::fs::write(&to, bytes).with_context(|| to.display().to_string())?;
            }
            kept.insert(to);
        }
        remove_others(&garden.tree, &kept)?;
        Ok(garden)
    }

    pub(crate) fn tree(&self) -> &Path {
        &self.tree
    }

    pub(crate) fn apply(&self, patch: &Path) -> anyhow::Result<()> {
        self.git_apply(patch, &[])
    }

    pub(crate) fn revert(&self, patch: &Path) -> anyhow::Result<()> {
        self.git_apply(patch, &["--reverse"])
    }

    fn git_apply(&self, patch: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new("git");
        command.arg("apply").args(arguments).arg(patch).current_dir(&self.tree);
        // The copy lies within a repository, but is not of it.
        command.env("GIT_CEILING_DIRECTORIES", self.tree.parent().unwrap_or(&self.tree));
        let output = command.output().context("starting git")?;
        let problem = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} does not apply any more; renew it:\n{problem}", patch.display());
        Ok(())
    }
}

fn remove_others(folder: &Path, kept: &HashSet<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}
