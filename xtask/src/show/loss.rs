//! `show loss`: reads at half load while a node is killed and comes back: errors, and the 99th percentile over time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Stage;
use super::finding::Finding;
use super::load::{Done, Load, Slice, unix_ms};
use super::plot::{Line, Plot};
use super::rated::{self, OPEN, WORKLOAD};
use crate::cluster::{Cluster, Folder};

/// Leaves, spines and servers.
const WIDTH: usize = 4;
const RATE_MAX: u64 = 500;
const ERRORS_MAX: f64 = 0.001;
const P99_FACTOR_MAX: f64 = 2.0;
/// From the loss to the time when the percentile must be in bounds again. Routers notice a killed process at once, by
/// its broken connections, so this counts from the loss itself.
const CALM_AGAIN: Duration = Duration::from_secs(1);

const WARMUP: Duration = Duration::from_secs(3);
const BEFORE: Duration = Duration::from_secs(8);
const GONE: Duration = Duration::from_secs(10);
const AFTER: Duration = Duration::from_secs(10);
/// A percentile of fewer requests is noise.
const SLICE_MS: u64 = 500;
const POLL: Duration = Duration::from_millis(20);

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    for node in ["leaf-1", "spine-1"] {
        lose(stage, node, &mut finding)?;
    }
    Ok(finding)
}

/// When things happened, by the wall clock of the series.
struct Times {
    lost_ms: u64,
    /// The controller has published a map without the node.
    remapped_ms: Option<u64>,
    returned_ms: u64,
}

fn lose(stage: &Stage<'_>, node: &str, finding: &mut Finding) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(stage.binary, rated::layout(WIDTH, RATE_MAX), 1)?;
    let folder = Folder::new("loss")?;
    let peak = rated::peak(stage.binary, &cluster, folder.path(), &WORKLOAD)?;
    let (rate, slice) = (format!("{:.0}", peak / 2.0), SLICE_MS.to_string());
    let seconds = (BEFORE + GONE + AFTER).as_secs().to_string();
    let warmup = WARMUP.as_secs().to_string();
    let timing = ["--rate", &rate, "--warmup", &warmup, "--seconds", &seconds, "--slice-ms", &slice];
    let arguments = [&WORKLOAD[..], &OPEN, &timing].concat();
    let load = Load::start(stage.binary, cluster.router(0), folder.path(), node, &arguments)?;
    std::thread::sleep(WARMUP + BEFORE);
    let times = fail_and_return(&mut cluster, node)?;
    let done = load.finish()?;
    std::fs::write(stage.runs.join(format!("show-loss-{node}.csv")), &done.csv)?;
    plot(stage, node, &done, &times)?;
    judge(node, peak, &done, &times, finding);
    Ok(())
}

fn fail_and_return(cluster: &mut Cluster, node: &str) -> anyhow::Result<Times> {
    let epoch = rated::epoch(cluster)?;
    let lost = Instant::now();
    let lost_ms = unix_ms();
    cluster.kill(node)?;
    let mut remapped_ms = None;
    while lost.elapsed() < GONE {
        if remapped_ms.is_none() && rated::epoch(cluster)? > epoch {
            remapped_ms = Some(unix_ms());
        }
        std::thread::sleep(POLL);
    }
    let returned_ms = unix_ms();
    cluster.run(node)?;
    Ok(Times { lost_ms, remapped_ms, returned_ms })
}

fn judge(node: &str, peak: f64, done: &Done, times: &Times, finding: &mut Finding) {
    let p99_ms = |from_ms: u64, to_ms: u64| {
        let within =
            |slice: &&Slice| slice.unix_ms >= from_ms && slice.unix_ms + SLICE_MS <= to_ms && slice.due > 0;
        let slices = done.slices.iter().filter(within);
        slices.map(|slice| slice.p99_us as f64 / 1e3).fold(0.0, f64::max)
    };
    let start_ms = done.slices.first().map_or(0, |slice| slice.unix_ms);
    let baseline = p99_ms(start_ms, times.lost_ms);
    let after = p99_ms(times.lost_ms + CALM_AGAIN.as_millis() as u64, times.returned_ms);
    let at_once = p99_ms(times.lost_ms - SLICE_MS, times.lost_ms + CALM_AGAIN.as_millis() as u64);
    let returned = p99_ms(times.returned_ms, u64::MAX);
    let from_loss = || done.slices.iter().filter(|slice| slice.unix_ms + SLICE_MS > times.lost_ms);
    let due: u64 = from_loss().map(|slice| slice.due).sum();
    let failed: u64 = from_loss().map(Slice::failed).sum();
    let errors = failed as f64 / due.max(1) as f64;
    let remapped = times.remapped_ms.map(|at_ms| (at_ms - times.lost_ms) as f64 / 1e3);
    finding.say(format!(
        "{node} killed at half of {peak:.0} requests/s; map without it after {} s",
        remapped.map_or("?".to_owned(), |seconds| format!("{seconds:.1}"))
    ));
    finding.bound(
        errors <= ERRORS_MAX,
        format!("{failed} errors of {due} reads from the loss on: {:.3} %, at most 0.1 %", errors * 100.0),
    );
    finding.bound(
        after <= P99_FACTOR_MAX * baseline,
        format!(
            "99 % within {after:.1} ms from 1 s after the loss (worst half second), at most twice the {baseline:.1} ms \
             before (worst half second); {at_once:.1} ms in that second, {returned:.1} ms while it returned"
        ),
    );
    finding.figure(
        node,
        json!({
            "peak": peak, "rate": peak / 2.0, "remapped_s": remapped.map_or(Value::Null, Value::from),
            "due": due, "failed": failed, "errors": errors, "p99_ms_before": baseline, "p99_ms_first_second": at_once,
            "p99_ms_after": after, "p99_ms_returned": returned,
        }),
    );
}

fn plot(stage: &Stage<'_>, node: &str, done: &Done, times: &Times) -> anyhow::Result<()> {
    let start_ms = done.slices.first().map_or(0, |slice| slice.unix_ms);
    let second = |at_ms: u64| at_ms.saturating_sub(start_ms) as f64 / 1e3;
    let line = |y: &dyn Fn(&Slice) -> f64| {
        done.slices.iter().map(|slice| (second(slice.unix_ms), y(slice))).collect::<Vec<_>>()
    };
    let title = format!("{node} is killed and comes back at half load");
    let marks = [Some(times.lost_ms), times.remapped_ms, Some(times.returned_ms)];
    Plot {
        title: &title,
        x: "seconds",
        y: "milliseconds",
        lines: vec![
            Line { name: "50 % of reads", points: line(&|slice| slice.p50_us as f64 / 1e3) },
            Line { name: "90 % of reads", points: line(&|slice| slice.p90_us as f64 / 1e3) },
            Line { name: "99 % of reads", points: line(&|slice| slice.p99_us as f64 / 1e3) },
        ],
        marks: marks.into_iter().flatten().map(second).collect(),
    }
    .write(&stage.runs.join(format!("show-loss-{node}.svg")))
}
