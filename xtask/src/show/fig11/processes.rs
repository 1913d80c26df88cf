//! Figure 11 with real processes of limited rate: eight leaf nodes, eight spine nodes, eight servers.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cluster::{Folder, ProcessCluster};
use crate::show::Stage;
use crate::show::finding::Finding;
use crate::show::load::{DoneLoad, LoadSlice, ShownLoad, unix_ms};
use crate::show::plot::{Plot, PlotLine};
use crate::show::rated::{self, OPEN, WORKLOAD};

const WIDTH: usize = 8;
const RATE_MAX: u64 = 250;
const FAILURES: usize = 4;
/// Before the first failure, between two, and after the last: long enough for the map without the node to take effect.
const STEP: Duration = Duration::from_secs(8);
/// Time of a step until its throughput is looked at. A node is lost for the controller after 2.3 s.
const SETTLING_MS: u64 = 4_000;
/// After the return, nodes take their partitions back over three seconds.
const RETURN: Duration = Duration::from_secs(14);
const RETURNING_MS: u64 = 6_000;
const SLICE_MS: u64 = 500;
/// Share of what the nodes that are left could do; and of what is asked for at half load.
const FULL_MIN: f64 = 0.9;
const HALF_MIN: f64 = 0.99;

pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let mut cluster = ProcessCluster::start(stage.binary, rated::layout(WIDTH, RATE_MAX), 1)?;
    let folder = Folder::new("fig11")?;
    let peak = rated::peak(stage.binary, &cluster, folder.path(), &WORKLOAD)?;
    finding.figure("processes_peak", peak);
    let full = run(stage, &mut cluster, &folder, peak)?;
    let half = run(stage, &mut cluster, &folder, peak / 2.0)?;
    for (name, run) in [("full", &full), ("half", &half)] {
        std::fs::write(stage.runs.join(format!("show-fig11-processes-{name}.csv")), &run.done.csv)?;
    }
    plot(stage, &full, &half)?;
    judge(finding, peak, &full, &half);
    Ok(())
}

struct ProcessesRun {
    done: DoneLoad,
    /// By the wall clock of the series.
    failures_ms: Vec<u64>,
    returned_ms: u64,
}

/// An open loop of the given rate while spines are killed one by one and then started again, all at once.
fn run(
    stage: &Stage<'_>,
    cluster: &mut ProcessCluster,
    folder: &Folder,
    rate: f64,
) -> anyhow::Result<ProcessesRun> {
    let time = STEP * (FAILURES as u32 + 1) + RETURN;
    let (rate, slice) = (format!("{rate:.0}"), SLICE_MS.to_string());
    let seconds = (time.as_secs() + 2).to_string();
    let timing = ["--rate", &rate, "--warmup", "3", "--seconds", &seconds, "--slice-ms", &slice];
    let arguments = [&WORKLOAD[..], &OPEN, &timing].concat();
    let load = ShownLoad::start(stage.binary, cluster.router(0), folder.path(), "fig11", &arguments)?;
    std::thread::sleep(Duration::from_secs(3));
    let started = Instant::now();
    let until = |at: Duration| std::thread::sleep(at.saturating_sub(started.elapsed()));
    let mut failures_ms = Vec::new();
    for spine in 0..FAILURES {
        until(STEP * (spine as u32 + 1));
        failures_ms.push(unix_ms());
        cluster.kill(&format!("spine-{spine}"))?;
    }
    until(STEP * (FAILURES as u32 + 1));
    let returned_ms = unix_ms();
    for spine in 0..FAILURES {
        cluster.run(&format!("spine-{spine}"))?;
    }
    Ok(ProcessesRun { done: load.finish()?, failures_ms, returned_ms })
}

impl ProcessesRun {
    /// Requests per second answered in time and without an error, of those due between the two.
    fn goodput(&self, from_ms: u64, to_ms: u64) -> f64 {
        let within = |slice: &&LoadSlice| {
            slice.unix_ms >= from_ms && slice.unix_ms + SLICE_MS <= to_ms && slice.due > 0
        };
        let slices = || self.done.slices.iter().filter(within);
        slices().map(|slice| slice.in_time).sum::<u64>() as f64 * 1e3
            / (slices().count() as u64 * SLICE_MS).max(1) as f64
    }

    /// Throughput of every step, once it has settled, and after the return.
    fn levels(&self) -> Vec<f64> {
        let start_ms = self.done.slices.first().map_or(0, |slice| slice.unix_ms);
        let mut begins = vec![start_ms];
        begins.extend(&self.failures_ms);
        let ends = self.failures_ms.iter().copied().chain([self.returned_ms]);
        let settled = begins.iter().zip(ends).map(|(begin_ms, end_ms)| {
            let settling_ms = if *begin_ms == start_ms { 0 } else { SETTLING_MS };
            self.goodput(begin_ms + settling_ms, end_ms)
        });
        let mut levels: Vec<f64> = settled.collect();
        levels.push(self.goodput(self.returned_ms + RETURNING_MS, u64::MAX));
        levels
    }

    /// Seconds and requests per second that were answered in time.
    fn points(&self, of: f64) -> Vec<(f64, f64)> {
        let start_ms = self.done.slices.first().map_or(0, |slice| slice.unix_ms);
        let due = self.done.slices.iter().filter(|slice| slice.due > 0);
        due.map(|slice| {
            ((slice.unix_ms - start_ms) as f64 / 1e3, slice.in_time as f64 * 1e3 / SLICE_MS as f64 / of)
        })
        .collect()
    }
}

fn judge(finding: &mut Finding, peak: f64, full: &ProcessesRun, half: &ProcessesRun) {
    let (full, half) = (full.levels(), half.levels());
    let whole = (2 * WIDTH) as f64;
    // Throughput may fall by what the lost nodes could have served, and by no more.
    let left: Vec<f64> = (0..=FAILURES).map(|failed| (whole - failed as f64) / whole).chain([1.0]).collect();
    let shares = |levels: &[f64], of: f64| levels.iter().map(|level| level / of).collect::<Vec<f64>>();
    let show =
        |levels: &[f64]| levels.iter().map(|level| format!("{level:.2}")).collect::<Vec<_>>().join(", ");
    let (full_shares, half_shares) = (shares(&full, full[0]), shares(&half, peak / 2.0));
    finding.say(format!(
        "{WIDTH} leaves, {WIDTH} spines, {WIDTH} servers of {RATE_MAX} requests/s each: {peak:.0} requests/s at most. \
         With 8, 7, 6, 5, 4 spines, and with all of them again:"
    ));
    finding.bound(
        full_shares.iter().zip(&left).all(|(share, left)| *share >= left * FULL_MIN),
        format!("at full load {} of the throughput; nodes left: {}", show(&full_shares), show(&left)),
    );
    finding.bound(
        half_shares.iter().all(|share| *share >= HALF_MIN),
        format!("at half load {} of what was asked for, at least {HALF_MIN}", show(&half_shares)),
    );
    finding.figure(
        "processes",
        json!({ "full": full, "half": half, "full_shares": full_shares, "half_shares": half_shares, "nodes_left": left }),
    );
}

fn plot(stage: &Stage<'_>, full: &ProcessesRun, half: &ProcessesRun) -> anyhow::Result<()> {
    let start_ms = full.done.slices.first().map_or(0, |slice| slice.unix_ms);
    let of = full.levels()[0];
    let marks = full.failures_ms.iter().chain([&full.returned_ms]);
    Plot {
        title: "Four of eight spines fail one by one and come back (real processes)",
        x: "seconds",
        y: "throughput, 1 with all nodes",
        lines: vec![
            PlotLine { name: "full load", points: full.points(of) },
            PlotLine { name: "half load", points: half.points(of) },
        ],
        marks: marks.map(|at_ms| at_ms.saturating_sub(start_ms) as f64 / 1e3).collect(),
    }
    .write(&stage.runs.join("show-fig11-processes.svg"))
}
