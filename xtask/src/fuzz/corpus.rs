//! Where inputs are: the small corpora of the tree, and what runs have found since. Not what is in them.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Bytes of one target in the tree: a dozen of them stay below the 1 MiB that everybody has to clone.
const TARGET_BYTES_MAX: u64 = 72 << 10;

/// One folder per target.
pub(super) fn in_tree(root: &Path) -> PathBuf {
    root.join("fuzz/corpus")
}

/// Names of all targets: those that have a corpus, which a test of the targets keeps true.
pub(crate) fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = in_tree(root);
    let mut names = Vec::new();
    for entry in folder.read_dir().with_context(|| format!("reading {}", folder.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Replaces the tree's corpus of a target by the inputs in `from`, the small ones first, as many as there is room for.
pub(super) fn replace(root: &Path, target: &str, from: &Path) -> anyhow::Result<(usize, u64)> {
    let folder = in_tree(root).join(target);
    std::fs::remove_dir_all(&folder).with_context(|| format!("emptying {}", folder.display()))?;
    std::fs::create_dir_all(&folder)?;
    let mut inputs = Vec::new();
    for entry in from.read_dir().with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        inputs.push((entry.metadata()?.len(), entry.file_name()));
    }
    inputs.sort();
    let (mut count, mut bytes) = (0, 0);
    for (length, name) in inputs {
        if bytes + length > TARGET_BYTES_MAX {
            break;
        }
        std::fs::copy(from.join(&name), folder.join(&name))?;
        (count, bytes) = (count + 1, bytes + length);
    }
    Ok((count, bytes))
}
