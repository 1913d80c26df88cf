//! The pages that rustdoc makes of the source: no broken link, and every example compiles and runs. Not the pages of `docs`.

use std::path::Path;

use anyhow::{Context, ensure};

/// Private items have pages as well: whoever reads them changes the code. A public page that links to a private item is a
/// warning in either case, so the pages of the public items alone are covered too.
const PAGES: [&str; 5] = ["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"];
const EXAMPLES: [&str; 4] = ["test", "--workspace", "--locked", "--doc"];

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    run_cargo(root, &PAGES)?;
    run_cargo(root, &EXAMPLES)
}

fn run_cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = crate::cargo::command();
    command.args(arguments).current_dir(root).env("RUSTDOCFLAGS", "-D warnings");
    let status = command.status().context("starting cargo")?;
    ensure!(status.success(), "cargo {} ended with {status}", arguments.join(" "));
    Ok(())
}
