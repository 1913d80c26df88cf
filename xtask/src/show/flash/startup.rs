//! How long a cache file with 10 GiB of objects takes to open. Not how it was filled.

use std::path::Path;
use std::process::Command;

use anyhow::bail;
use serde_json::json;

use super::replay::{Cache, Checked, ReplayCheck};
use super::{Scene, generate};
use crate::show::finding::{Finding, median};

const OPEN_S_MAX: f64 = 3.0;
const OBJECTS_MIN: u64 = (10 << 30) / (32 << 10);
/// Some are drawn twice.
const REQUESTS: u64 = 330_000;
const FREE_BYTES_MIN: u64 = 15 << 30;
const OPENINGS: usize = 3;

pub(super) fn show(scene: &Scene<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let disk = rustix::fs::statvfs(scene.folder)?;
    let free = disk.f_bavail * disk.f_frsize;
    if free < FREE_BYTES_MIN {
        let free = free >> 30;
        finding.say(format!("start-up of 10 GiB: skipped, the disk has {free} GiB free and it takes 15"));
        finding.figure("start_up", json!({ "skipped_free_gib": free }));
        return Ok(());
    }
    let (all, few) = (scene.folder.join("all"), scene.folder.join("few"));
    // So many objects that nearly every request is for another one, the first of them the same in both.
    let traffic = ["--objects", "1000000000", "--dist", "uniform", "--sizes", "32768"];
    generate(scene.binary, &all, REQUESTS, &traffic)?;
    generate(scene.binary, &few, 1000, &traffic)?;
    let cache = Cache {
        binary: scene.binary,
        trace: &all,
        file: scene.folder.join("start-up"),
        engine: "ripq",
        policy: "slru:3",
        size: "10800MiB",
        block_size: "16MiB",
    };
    eprintln!("filling 10 GiB");
    cache.fill()?;
    let mut openings = Vec::new();
    for _ in 0..OPENINGS {
        openings.push((served(cache.check_of(&few)?)?, page_cache_bytes(&cache.file)));
    }
    let open_s: Vec<f64> = openings.iter().map(|(check, _)| check.open_s).collect();
    let cached: Vec<Option<u64>> = openings.iter().map(|(_, cached)| *cached).collect();
    let whole = served(cache.check()?)?;
    std::fs::remove_file(&cache.file)?;
    let cached_mib = cached.iter().flatten().max().map_or("?".to_owned(), |bytes| (bytes >> 20).to_string());
    finding.bound(
        median(&open_s) < OPEN_S_MAX && whole.found >= OBJECTS_MIN && whole.found == whole.durable_objects,
        format!(
            "start-up: {} objects of 32 KiB ({:.2} GiB), all read back intact; opened in {:.2} s (median of \
             {OPENINGS}), below 3 s, with {cached_mib} MiB of the file in the page cache",
            whole.found,
            whole.durable_bytes as f64 / f64::from(1 << 30),
            median(&open_s),
        ),
    );
    let figures = json!({
        "open_s": open_s, "open_s_median": median(&open_s), "page_cache_bytes": cached, "objects": whole.found,
        "bytes": whole.durable_bytes,
    });
    finding.figure("start_up", figures);
    Ok(())
}

fn served(checked: Checked) -> anyhow::Result<ReplayCheck> {
    match checked {
        Checked::Served(check) => Ok(check),
        Checked::Refused(error) | Checked::Wrong(error) => bail!("a cache that was closed: {error}"),
    }
}

/// Bytes of a file in the page cache; `None` where `fincore` of util-linux is not at hand.
fn page_cache_bytes(file: &Path) -> Option<u64> {
    let output =
        Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(file).output();
    String::from_utf8(output.ok()?.stdout).ok()?.trim().parse().ok()
}
