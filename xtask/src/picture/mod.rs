//! `cargo xtask picture`: runs the demonstration and makes the README's moving picture and its plot. Not the demonstration.

mod film;
mod plot;
mod recording;
mod row;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::bench;
use recording::Recording;

pub(crate) const USAGE: &str = "\
Usage: cargo xtask picture [--binary PATH]

Runs `distcache demo` once and writes docs/images/demo.svg, which shows it, and docs/images/before-after.svg, a plot of
its figures.
  --binary   a `distcache` to run (default: builds a release of this tree)
";

/// What a README may ask its readers to load.
const BYTES_MAX: usize = 200_000;

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let binary: PathBuf = match arguments {
        [] => bench::build(root)?,
        ["--binary", path] => path.into(),
        _ => bail!("{USAGE}"),
    };
    let record = crate::target_folder(root).join("demo-record.jsonl");
    let status = Command::new(&binary)
        .args(["demo", "--json", "--listen", "127.0.0.1:0", "--record"])
        .arg(&record)
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("{} cannot be run", binary.display()))?;
    ensure!(status.success(), "the demonstration failed");
    let recording = Recording::read(&record)?;
    let images = root.join("docs/images");
    std::fs::create_dir_all(&images)?;
    let film = film::svg(&recording);
    ensure!(film.len() <= BYTES_MAX, "the picture has {} bytes; at most {BYTES_MAX}", film.len());
    std::fs::write(images.join("demo.svg"), &film)?;
    plot::write(&recording, &images.join("before-after.svg"))?;
    println!("docs/images/demo.svg ({} bytes) and docs/images/before-after.svg", film.len());
    Ok(())
}
