//! A shim whose lives have other leases, before nodes that are cut off from it. Not what a killed shim does to a load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::one_key::{self, KeyRead, Reads};
use crate::cluster::proxy::Weather;
use crate::cluster::{Layout, ProcessCluster};
use crate::show::Stage;
use crate::show::finding::{Finding, largest};

/// Lives of the shim with long leases, each with one with the shortest after it.
const LIVES: usize = 2;
const LEASES_MS: [&str; 2] = ["lease_ms = 60000", "lease_ms = 20"];
/// How long it is read after the write: longer than any lease that there can be after so short a time.
const WATCH: Duration = Duration::from_millis(1500);

/// A shim is killed and comes back with other leases, while the nodes that hold copies hear nothing of it.
pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let layout = Layout { proxied: true, cluster_lines: LEASES_MS[0].to_owned(), ..one_key::layout() };
    let mut cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let (mut stale, mut old_before, mut waits_ms) = (0, 0, Vec::new());
    for life in 0..LIVES {
        let (old, new) = (format!("{life}"), format!("{}", life + 1));
        let router = cluster.router(0);
        one_key::until_written(router, &old)?;
        one_key::wait_cached(&cluster, router, &old)?;
        for node in ["leaf-0", "spine-0"] {
            for (from, to) in [(node, "shim-0"), ("shim-0", node)] {
                cluster.proxy()?.weather(
                    Some(from),
                    Some(to),
                    Weather { cut: true, ..Weather::default() },
                )?;
            }
        }
        cluster.kill("shim-0")?;
        cluster.rewrite("shim-0", LEASES_MS[0], LEASES_MS[1])?;
        let (reads, done) = (Reads::default(), AtomicBool::new(false));
        let written = std::thread::scope(|scope| -> anyhow::Result<Instant> {
            let reader = scope.spawn(|| one_key::read(router, &reads, &done));
            let begun = Instant::now();
            let started = cluster.run("shim-0");
            let written = started.and_then(|()| one_key::until_written(router, &new));
            waits_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(WATCH);
            done.store(true, Ordering::Relaxed);
            reader.join().map_err(|_| anyhow::anyhow!("the reader ended badly"))??;
            written
        })?;
        let reads = reads.into_inner().unwrap_or_default();
        let is_old = |read: &&KeyRead| read.value.as_ref() == Some(&old);
        let (after, before): (Vec<_>, Vec<_>) =
            reads.iter().filter(is_old).partition(|read| read.begun > written);
        (stale, old_before) = (stale + after.len(), old_before + before.len());
        cluster.proxy()?.clear()?;
        cluster.kill("shim-0")?;
        cluster.rewrite("shim-0", LEASES_MS[1], LEASES_MS[0])?;
        cluster.run("shim-0")?;
        eprintln!("{} of {LIVES}: written after {:.0} ms", life + 1, waits_ms.last().unwrap_or(&0.0));
    }
    finding.bound(
        stale == 0 && old_before > 0,
        format!(
            "{LIVES} times from leases of 60000 ms to 20 ms, with the nodes cut off from the shim: {stale} reads of the \
             old value after a write was answered, none allowed ({old_before} before); longest until the write {:.0} ms",
            largest(&waits_ms)
        ),
    );
    finding.figure("leases", json!({ "stale": stale, "old_before": old_before, "written_ms": waits_ms }));
    Ok(())
}
