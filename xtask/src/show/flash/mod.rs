//! `show flash`: caches on flash that are killed and damaged, and how soon a large one is open again.

mod damage;
mod kills;
mod replay;
mod startup;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::Stage;
use super::finding::Finding;
use crate::cluster::Folder;
use replay::Cache;

const KILLS: u64 = 200;
/// Rounds of damage beside each hundred kills.
const DAMAGE_PERCENT: u64 = 30;
const BLOCK_BYTES: u64 = 64 << 10;
/// More than a life can serve.
const REQUESTS: u64 = 400_000;

/// Where the caches are, and what drives them.
struct Scene<'a> {
    binary: &'a Path,
    folder: &'a Path,
    trace: &'a Path,
}

impl<'a> Scene<'a> {
    fn cache(&self, engine: &'static str, policy: &'static str) -> Cache<'a> {
        let file = self.folder.join(format!("{engine}-{policy}").replace(':', "-"));
        let (binary, trace) = (self.binary, self.trace);
        Cache { binary, trace, file, engine, policy, size: "0.4ws", block_size: "64KiB" }
    }
}

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    // Not in the temporary folder, which may be memory.
    let folder = Folder::within(&crate::target_folder(crate::root()), "flash")?;
    let trace = folder.path().join("trace");
    let traffic = ["--objects", "20000", "--dist", "zipf:0.9", "--sizes", "uniform:500:8000"];
    generate(stage.binary, &trace, REQUESTS, &traffic)?;
    let scene = Scene { binary: stage.binary, folder: folder.path(), trace: &trace };
    let kills = stage.times.unwrap_or(KILLS);
    kills::show(&scene, kills, &mut finding)?;
    damage::show(&scene, kills * DAMAGE_PERCENT / 100, &mut finding)?;
    startup::show(&scene, &mut finding)?;
    Ok(finding)
}

fn generate(binary: &Path, trace: &Path, requests: u64, traffic: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(binary);
    command.args(["trace", "generate", "--requests", &requests.to_string()]).args(traffic).arg(trace);
    let output = command.output().context("starting distcache trace generate")?;
    ensure!(output.status.success(), "trace generate: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
