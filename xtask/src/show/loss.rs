//! `show loss`: reads at half load while a node is killed and comes back: errors, and the 99th percentile over time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Stage;
use super::finding::Finding;
use super::load::{DoneLoad, LoadSlice, ShownLoad, unix_ms};
use super::plot::{Plot, PlotLine};
use super::rated::{self, OPEN, WORKLOAD};
use crate::cluster::{Folder, ProcessCluster};

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
/// Losses in a row; the middle one counts.
const ROUNDS: usize = 3;
const POLL: Duration = Duration::from_millis(20);

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    for node in ["leaf-1", "spine-1"] {
        lose(stage, node, &mut finding)?;
    }
    Ok(finding)
}

/// When things happened in one round, by the wall clock of the series.
struct Times {
    start_ms: u64,
    lost_ms: u64,
    /// The controller has published a map without the node.
    remapped_ms: Option<u64>,
    returned_ms: u64,
    end_ms: u64,
}

fn lose(stage: &Stage<'_>, node: &str, finding: &mut Finding) -> anyhow::Result<()> {
    let mut cluster = ProcessCluster::start(stage.binary, rated::layout(WIDTH, RATE_MAX), 1)?;
    let folder = Folder::new("loss")?;
    let peak = rated::peak(stage.binary, &cluster, folder.path(), &WORKLOAD)?;
    let (rate, slice) = (format!("{:.0}", peak / 2.0), SLICE_MS.to_string());
    let seconds = ((BEFORE + GONE + AFTER).as_secs() * ROUNDS as u64).to_string();
    let warmup = WARMUP.as_secs().to_string();
    let timing = ["--rate", &rate, "--warmup", &warmup, "--seconds", &seconds, "--slice-ms", &slice];
    let arguments = [&WORKLOAD[..], &OPEN, &timing].concat();
    let load = ShownLoad::start(stage.binary, cluster.router(0), folder.path(), node, &arguments)?;
    std::thread::sleep(WARMUP);
    let times = (0..ROUNDS).map(|_| fail_and_return(&mut cluster, node)).collect::<Result<Vec<_>, _>>()?;
    let done = load.finish()?;
    std::fs::write(stage.runs.join(format!("show-loss-{node}.csv")), &done.csv)?;
    plot(stage, node, &done, &times)?;
    judge(node, peak, &done, &times, finding);
    Ok(())
}

fn fail_and_return(cluster: &mut ProcessCluster, node: &str) -> anyhow::Result<Times> {
    let start_ms = unix_ms();
    std::thread::sleep(BEFORE);
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
    std::thread::sleep(AFTER);
    Ok(Times { start_ms, lost_ms, remapped_ms, returned_ms, end_ms: unix_ms() })
}

/// The 99th percentiles of the half seconds between two times, in milliseconds and in their order.
fn p99_ms(done: &DoneLoad, from_ms: u64, to_ms: u64) -> Vec<f64> {
    let within =
        |slice: &&LoadSlice| slice.unix_ms >= from_ms && slice.unix_ms + SLICE_MS <= to_ms && slice.due > 0;
    let mut found: Vec<f64> =
        done.slices.iter().filter(within).map(|slice| slice.p99_us as f64 / 1e3).collect();
    found.sort_by(f64::total_cmp);
    found
}

/// One round: the 99th percentile of its middle half second and of its worst.
struct LossRound {
    before: (f64, f64),
    first_second: f64,
    after: (f64, f64),
    returned: (f64, f64),
    remapped_s: Option<f64>,
}

impl LossRound {
    fn of(done: &DoneLoad, times: &Times) -> LossRound {
        let calm_ms = times.lost_ms + CALM_AGAIN.as_millis() as u64;
        let between = |from_ms, to_ms| {
            let slices = p99_ms(done, from_ms, to_ms);
            (slices.get(slices.len() / 2).copied().unwrap_or(0.0), slices.last().copied().unwrap_or(0.0))
        };
        LossRound {
            before: between(times.start_ms, times.lost_ms),
            first_second: between(times.lost_ms - SLICE_MS, calm_ms).1,
            after: between(calm_ms, times.returned_ms),
            returned: between(times.returned_ms, times.end_ms),
            remapped_s: times.remapped_ms.map(|at_ms| (at_ms - times.lost_ms) as f64 / 1e3),
        }
    }

    fn factor(&self) -> f64 {
        self.after.0 / self.before.0
    }

    fn json(&self) -> Value {
        let pair = |(middle, worst): (f64, f64)| json!({ "middle": middle, "worst": worst });
        json!({
            "p99_ms_before": pair(self.before), "p99_ms_first_second": self.first_second,
            "p99_ms_after": pair(self.after), "p99_ms_returned": pair(self.returned), "factor": self.factor(),
            "remapped_s": self.remapped_s,
        })
    }
}

fn judge(node: &str, peak: f64, done: &DoneLoad, times: &[Times], finding: &mut Finding) {
    let mut rounds: Vec<LossRound> = times.iter().map(|times| LossRound::of(done, times)).collect();
    let first_ms = times.first().map_or(0, |times| times.lost_ms);
    let from_loss = || done.slices.iter().filter(|slice| slice.unix_ms + SLICE_MS > first_ms);
    let due: u64 = from_loss().map(|slice| slice.due).sum();
    let failed: u64 = from_loss().map(LoadSlice::failed).sum();
    let errors = failed as f64 / due.max(1) as f64;
    let remapped: Vec<String> = (rounds.iter())
        .map(|round| round.remapped_s.map_or("?".to_owned(), |seconds| format!("{seconds:.1}")))
        .collect();
    finding.say(format!(
        "{node} killed at half of {peak:.0} requests/s; map without it after {} s",
        remapped.join(", ")
    ));
    finding.bound(
        errors <= ERRORS_MAX,
        format!("{failed} errors of {due} reads from the loss on: {:.3} %, at most 0.1 %", errors * 100.0),
    );
    let json = json!({
        "peak": peak, "rate": peak / 2.0, "due": due, "failed": failed, "errors": errors,
        "rounds": rounds.iter().map(LossRound::json).collect::<Vec<_>>(),
    });
    finding.figure(node, json);
    rounds.sort_by(|one, other| one.factor().total_cmp(&other.factor()));
    let middle = &rounds[rounds.len() / 2];
    let (before, after, returned) = (middle.before, middle.after, middle.returned);
    finding.bound(
        middle.factor() <= P99_FACTOR_MAX,
        format!(
            "99 % within {:.1} ms from 1 s after the loss, at most twice the {:.1} ms before; {:.1} ms while it \
             returned (middle half second of the middle round; worst: {:.1}, {:.1}, {:.1} ms; {:.1} ms in the first)",
            after.0, before.0, returned.0, after.1, before.1, returned.1, middle.first_second
        ),
    );
}

fn plot(stage: &Stage<'_>, node: &str, done: &DoneLoad, times: &[Times]) -> anyhow::Result<()> {
    let start_ms = done.slices.first().map_or(0, |slice| slice.unix_ms);
    let second = |at_ms: u64| at_ms.saturating_sub(start_ms) as f64 / 1e3;
    let line = |y: &dyn Fn(&LoadSlice) -> f64| {
        done.slices.iter().map(|slice| (second(slice.unix_ms), y(slice))).collect::<Vec<_>>()
    };
    let title = format!("{node} is killed and comes back at half load");
    let marks =
        times.iter().flat_map(|times| [Some(times.lost_ms), times.remapped_ms, Some(times.returned_ms)]);
    Plot {
        title: &title,
        x: "seconds",
        y: "milliseconds",
        lines: vec![
            PlotLine { name: "50 % of reads", points: line(&|slice| slice.p50_us as f64 / 1e3) },
            PlotLine { name: "90 % of reads", points: line(&|slice| slice.p90_us as f64 / 1e3) },
            PlotLine { name: "99 % of reads", points: line(&|slice| slice.p99_us as f64 / 1e3) },
        ],
        marks: marks.flatten().map(second).collect(),
    }
    .write(&stage.runs.join(format!("show-loss-{node}.svg")))
}
