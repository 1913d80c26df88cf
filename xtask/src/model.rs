//! The model checker over its configurations, as they are.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{cargo, target_folder};

/// Everything that CI explores, or all there is.
pub(crate) fn run(root: &Path, deep: bool) -> anyhow::Result<()> {
    let scale = if deep { "deep" } else { "ci" };
    let mut tester = tester(root, &target_folder(root));
    let status = tester.args(["--", "--nocapture"]).env("MODEL", scale).status().context("starting cargo")?;
    ensure!(status.success(), "model: {status}");
    Ok(())
}

pub(crate) fn ci(root: &Path) -> anyhow::Result<()> {
    run(root, false)
}

/// The checker of a tree; its configurations come from the environment.
pub(crate) fn tester(tree: &Path, build: &Path) -> Command {
    let mut command = cargo::command();
    command.args([
        "test",
        "--quiet",
        "--locked",
        "--profile",
        "checked",
        "--package",
        "protocol",
        "--test",
        "model",
    ]);
    command.current_dir(tree).env("CARGO_TARGET_DIR", build);
    command
}
