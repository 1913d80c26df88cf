//! Storage that keeps nothing on disk is killed and comes back empty, while many read a key that is cached: at most one change
//! of what they see. Not members that die.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::one_key::{self, POLL, READY_MAX, Reads};
use crate::cluster::{Layout, ProcessCluster};
use crate::show::Stage;
use crate::show::finding::{Finding, largest};

const ROUNDS: usize = 3;
const READERS: usize = 6;
/// How long it is read after the first one who was told that the key is gone: longer than copies of before could last.
const WATCH: Duration = Duration::from_secs(3);
/// Reads of a value before the server goes: there have to be copies that could be wrong.
const READS_MIN: usize = 2_000;

pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let mut cluster = ProcessCluster::start(stage.binary, Layout { routers: 2, ..one_key::layout() }, 1)?;
    let (mut changed_back, mut seen, mut outages_ms) = (0, 0, Vec::new());
    for round in 0..ROUNDS {
        let value = format!("value {round}");
        one_key::until_written(cluster.router(0), &value)?;
        one_key::wait_cached(&cluster, cluster.router(0), &value)?;
        let (reads, done) = (Reads::default(), AtomicBool::new(false));
        let routers = [cluster.router(0), cluster.router(1)];
        let killed = std::thread::scope(|scope| -> anyhow::Result<Instant> {
            let (reads, done) = (&reads, &done);
            let readers: Vec<_> = (0..READERS)
                .map(|reader| scope.spawn(move || one_key::read(routers[reader % 2], reads, done)))
                .collect();
            let killed = lose(&mut cluster, reads);
            done.store(true, Ordering::Relaxed);
            for reader in readers {
                reader.join().map_err(|_| anyhow::anyhow!("a reader ended badly"))??;
            }
            killed
        })?;
        let reads = reads.into_inner().unwrap_or_default();
        let gone = reads.iter().find(|read| read.value.is_none()).map(|read| read.ended);
        let Some(gone) = gone else { anyhow::bail!("nobody was told that the key is gone") };
        changed_back += reads.iter().filter(|read| read.value.is_some() && read.begun > gone).count();
        seen += reads.len();
        outages_ms.push((gone - killed).as_secs_f64() * 1e3);
    }
    finding.bound(
        changed_back == 0,
        format!(
            "{ROUNDS} times storage came back empty before {READERS} readers of a cached key: {changed_back} of {seen} reads found the \
             value again after somebody had been told that it is gone, none allowed; told so after at most {:.0} ms",
            largest(&outages_ms)
        ),
    );
    finding.figure("loss", json!({ "changed_back": changed_back, "reads": seen, "outages_ms": outages_ms }));
    Ok(())
}

/// Kills the server and starts it again, once enough was read; returns when it was killed.
fn lose(cluster: &mut ProcessCluster, reads: &Reads) -> anyhow::Result<Instant> {
    let deadline = Instant::now() + READY_MAX;
    let wait = |what: &str, enough: &dyn Fn(&[one_key::KeyRead]) -> bool| -> anyhow::Result<()> {
        while !reads.lock().is_ok_and(|reads| enough(&reads)) {
            anyhow::ensure!(Instant::now() < deadline, "{what}");
            std::thread::sleep(POLL);
        }
        Ok(())
    };
    wait("the value is hardly read", &|reads| reads.len() > READS_MIN)?;
    cluster.kill("redis-0")?;
    let killed = Instant::now();
    cluster.run("redis-0")?;
    wait("nobody is told that the key is gone", &|reads| reads.iter().any(|read| read.value.is_none()))?;
    std::thread::sleep(WATCH);
    Ok(killed)
}
