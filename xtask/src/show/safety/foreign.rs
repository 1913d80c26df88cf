//! Writes past DistCache to a key that both layers hold: how soon they are told, and what is read after that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use serde_json::json;

use super::one_key::{self, KEY, KeyRead, POLL, READY_MAX, Reads};
use crate::cluster::{ProcessCluster, client};
use crate::show::Stage;
use crate::show::finding::{Finding, largest};

/// Writes past DistCache, and how long after each one the alarm may come.
const FOREIGN: usize = 20;
const ALARM_MAX_MS: f64 = 1000.0;

/// Somebody writes past DistCache to a key that both layers hold, again and again.
pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let cluster = ProcessCluster::start(stage.binary, one_key::layout(), 1)?;
    let router = cluster.router(0);
    let mut outsider = client::connect(cluster.member("redis-0")?.listen)?;
    one_key::until_written(router, "0")?;
    let (reads, done) = (Reads::default(), AtomicBool::new(false));
    let alarms = std::thread::scope(|scope| -> anyhow::Result<Vec<(Instant, Instant)>> {
        let reader = scope.spawn(|| one_key::read(router, &reads, &done));
        let mut alarms = Vec::new();
        for number in 1..=FOREIGN {
            one_key::wait_cached(&cluster, router, &(number - 1).to_string())?;
            // What is registered is told from what was before it by the answer to a PING.
            std::thread::sleep(POLL * 5);
            let told = foreign_writes(&cluster)?;
            let written = Instant::now();
            let _: () = redis::cmd("SET").arg(KEY).arg(number).query(&mut outsider)?;
            while foreign_writes(&cluster)? == told && written.elapsed() < READY_MAX / 10 {
                std::thread::sleep(POLL / 10);
            }
            alarms.push((written, Instant::now()));
        }
        done.store(true, Ordering::Relaxed);
        reader.join().map_err(|_| anyhow::anyhow!("the reader ended badly"))??;
        Ok(alarms)
    })?;
    let reads = reads.into_inner().unwrap_or_default();
    // The first write whose alarm had come when a read began, counted from the last, is the oldest that it may show.
    let is_stale = |read: &&KeyRead| {
        let told = alarms.iter().filter(|(_, alarm)| *alarm < read.begun).count();
        read.value.as_ref().is_none_or(|value| value.parse::<usize>().is_ok_and(|value| value < told))
    };
    let (stale, delays) = (
        reads.iter().filter(is_stale).count(),
        alarms.iter().map(|(written, alarm)| (*alarm - *written).as_secs_f64() * 1e3).collect::<Vec<_>>(),
    );
    let writers = cluster.member_status("shim-0")?["foreign_writers"].as_str().unwrap_or_default().to_owned();
    finding.bound(
        stale == 0 && largest(&delays) < ALARM_MAX_MS && writers.contains("last command SET") && reads.len() > FOREIGN,
        format!(
            "{FOREIGN} writes past DistCache to a cached key: alarm after at most {:.0} ms, at most {ALARM_MAX_MS:.0}; {stale} of {} \
             reads were older than an alarm before them, none allowed; the writer is named: {writers}",
            largest(&delays),
            reads.len()
        ),
    );
    finding.figure("foreign", json!({ "stale": stale, "alarms_ms": delays, "reads": reads.len() }));
    Ok(())
}

fn foreign_writes(cluster: &ProcessCluster) -> anyhow::Result<u64> {
    cluster.member_status("shim-0")?["foreign_writes_total"].as_u64().context("a counter")
}
