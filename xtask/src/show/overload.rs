//! `show overload`: twice and five times what a cluster can do: what it still does, its leases, and how it recovers; for
//! clusters where requests wait and for those that refuse them.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Stage;
use super::finding::Finding;
use super::load::{DoneLoad, LoadSlice, ShownLoad, unix_ms};
use super::plot::{Plot, PlotLine};
use super::rated::{self, OPEN, WORKLOAD};
use crate::cluster::{Folder, Layout, ProcessCluster};

const WIDTH: usize = 4;
const RATE_MAX: u64 = 300;
/// Writes need leases and acknowledgements, which overload must not delay.
const WRITES: [&str; 2] = ["--write-ratio", "0.05"];
const GOODPUT_MIN: f64 = 0.9;
const RECOVERY_MAX: Duration = Duration::from_secs(10);

const BEFORE: Duration = Duration::from_secs(6);
const SURGE: Duration = Duration::from_secs(12);
/// Longer than a recovery may take.
const REST: Duration = Duration::from_secs(14);
/// What a surge needs to reach every queue.
const ONSET_MS: u64 = 1_000;
const SLICE_MS: u64 = 500;
/// So many good slices in a row are a recovery: two seconds.
const WELL_SLICES: usize = 4;

/// What becomes of a request that is too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownOverload {
    Wait,
    Refuse,
}

impl ShownOverload {
    fn name(self) -> &'static str {
        match self {
            ShownOverload::Wait => "wait",
            ShownOverload::Refuse => "refuse",
        }
    }
}

/// A load of half the peak runs all the time; surges come on top.
pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    for overload in [ShownOverload::Wait, ShownOverload::Refuse] {
        show_one(stage, overload, &mut finding)?;
    }
    Ok(finding)
}

fn show_one(stage: &Stage<'_>, overload: ShownOverload, finding: &mut Finding) -> anyhow::Result<()> {
    let name = overload.name();
    let tables = format!("[limits]\noverload = {name:?}\n");
    let cluster =
        ProcessCluster::start(stage.binary, Layout { tables, ..rated::layout(WIDTH, RATE_MAX) }, 1)?;
    let folder = Folder::new("overload")?;
    let workload = [&WORKLOAD[..], &WRITES].concat();
    let peak = rated::peak(stage.binary, &cluster, folder.path(), &workload)?;
    finding.figure(&format!("{name}_peak"), peak);
    finding.say(format!("{name}: the cluster answers {peak:.0} requests/s in time at most"));
    let surge =
        Surge { binary: stage.binary, cluster: &cluster, folder: folder.path(), workload: &workload, peak };
    for factor in [2.0, 5.0] {
        let run = surge.run(factor)?;
        run.keep(stage, overload)?;
        run.judge(finding, overload);
    }
    Ok(())
}

/// The two series of one surge, and when it began and ended.
struct OverloadRun {
    base: DoneLoad,
    extra: DoneLoad,
    from_ms: u64,
    to_ms: u64,
    /// Requests/s that the cluster answers in time at most.
    peak: f64,
    /// How many times the peak was asked for.
    factor: f64,
    leases_lost: u64,
}

/// What is asked of whom in each surge.
struct Surge<'a> {
    binary: &'a Path,
    cluster: &'a ProcessCluster,
    folder: &'a Path,
    workload: &'a [&'a str],
    peak: f64,
}

impl Surge<'_> {
    fn run(&self, factor: f64) -> anyhow::Result<OverloadRun> {
        let Surge { cluster, peak, .. } = *self;
        let lost = leases_lost(cluster)?;
        let start = |name: &str, rate: f64, time: Duration| {
            let (rate, seconds, slice) =
                (format!("{rate:.0}"), time.as_secs().to_string(), SLICE_MS.to_string());
            let timing = ["--rate", &rate, "--seconds", &seconds, "--slice-ms", &slice];
            let arguments = [self.workload, &OPEN, &timing].concat();
            ShownLoad::start(self.binary, cluster.router(0), self.folder, name, &arguments)
        };
        let base = start("base", peak / 2.0, BEFORE + SURGE + REST)?;
        std::thread::sleep(BEFORE);
        let (begun, from_ms) = (Instant::now(), unix_ms());
        let extra = start("extra", peak * (factor - 0.5), SURGE)?;
        std::thread::sleep(SURGE.saturating_sub(begun.elapsed()));
        let to_ms = unix_ms();
        let (extra, base) = (extra.finish()?, base.finish()?);
        let leases_lost = leases_lost(cluster)? - lost;
        Ok(OverloadRun { base, extra, from_ms, to_ms, peak, factor, leases_lost })
    }
}

impl OverloadRun {
    fn both(&self) -> impl Iterator<Item = &LoadSlice> {
        self.base.slices.iter().chain(&self.extra.slices)
    }

    /// The sum over the surge, per second.
    fn per_second(&self, count: impl Fn(&LoadSlice) -> u64) -> f64 {
        let (from_ms, to_ms) = (self.from_ms + ONSET_MS, self.to_ms - ONSET_MS);
        let within = |slice: &&LoadSlice| slice.unix_ms >= from_ms && slice.unix_ms < to_ms;
        let sum: u64 = self.both().filter(within).map(count).sum();
        sum as f64 * 1e3 / (to_ms - from_ms) as f64
    }

    /// Replies without an error: of requests that were due in the surge and within a second where a cluster refuses, at
    /// whatever age where it lets wait.
    fn goodput(&self, overload: ShownOverload) -> f64 {
        self.per_second(|slice| match overload {
            ShownOverload::Wait => slice.replies - slice.error_replies,
            ShownOverload::Refuse => slice.in_time,
        })
    }

    /// From the end of the surge to the first two seconds in a row in which the base load is served as before: no errors,
    /// and a 99th percentile of at most twice the worst before. Nothing if they never come.
    fn recovery(&self) -> Option<Duration> {
        let before = self.base.slices.iter().filter(|slice| slice.unix_ms + SLICE_MS <= self.from_ms);
        let p99_us_max = 2 * before.map(|slice| slice.p99_us).max().unwrap_or(0);
        let well = |slice: &LoadSlice| slice.failed() == 0 && slice.p99_us <= p99_us_max;
        let after = self.base.slices.iter().filter(|slice| slice.unix_ms >= self.to_ms && slice.due > 0);
        let after: Vec<&LoadSlice> = after.collect();
        let window = after.windows(WELL_SLICES).find(|slices| slices.iter().all(|slice| well(slice)))?;
        Some(Duration::from_millis(window[0].unix_ms - self.to_ms))
    }

    fn keep(&self, stage: &Stage<'_>, overload: ShownOverload) -> anyhow::Result<()> {
        let factor = self.factor;
        let file = |end: &str| stage.runs.join(format!("show-overload-{}-{factor}x{end}", overload.name()));
        for (end, done) in [("-base.csv", &self.base), ("-extra.csv", &self.extra)] {
            std::fs::write(file(end), &done.csv)?;
        }
        let start_ms = self.base.slices.first().map_or(0, |slice| slice.unix_ms);
        let second = |at_ms: u64| at_ms.saturating_sub(start_ms) as f64 / 1e3;
        let rate = |y: &dyn Fn(&LoadSlice) -> f64| {
            let slices = self.base.slices.iter().map(|base| {
                let near = |slice: &&LoadSlice| slice.unix_ms.abs_diff(base.unix_ms) * 2 <= SLICE_MS;
                let extra = self.extra.slices.iter().find(near).map_or(0.0, y);
                (second(base.unix_ms), (y(base) + extra) * 1e3 / SLICE_MS as f64)
            });
            slices.collect::<Vec<_>>()
        };
        let title = format!("{factor} times what the cluster can do ({})", overload.name());
        Plot {
            title: &title,
            x: "seconds",
            y: "requests per second",
            lines: vec![
                PlotLine { name: "answered in time", points: rate(&|slice| slice.in_time as f64) },
                PlotLine {
                    name: "replies",
                    points: rate(&|slice| (slice.replies - slice.error_replies) as f64),
                },
                PlotLine { name: "due", points: rate(&|slice| slice.due as f64) },
                PlotLine { name: "refused", points: rate(&|slice| slice.failed() as f64) },
            ],
            marks: vec![second(self.from_ms), second(self.to_ms)],
        }
        .write(&file(".svg"))
    }

    fn judge(&self, finding: &mut Finding, overload: ShownOverload) {
        let OverloadRun { peak, factor, leases_lost: lost, .. } = *self;
        let (goodput, recovery) = (self.goodput(overload), self.recovery());
        let name = overload.name();
        let errors = self.per_second(|slice| slice.error_replies);
        let within = match overload {
            ShownOverload::Wait => "",
            ShownOverload::Refuse => " within a second",
        };
        finding.bound(
        goodput >= GOODPUT_MIN * peak,
        format!(
            "{name}, {factor} times the load: {goodput:.0} requests/s answered{within}, {:.0} % of the peak, at least \
             90 %; {errors:.0} error replies/s",
            goodput / peak * 100.0
        ),
    );
        finding
            .bound(lost == 0, format!("{name}, {factor} times the load: {lost} leases lost, none allowed"));
        finding.bound(
            recovery.is_some_and(|recovery| recovery <= RECOVERY_MAX),
            format!(
                "{name}, {factor} times the load: as before {} s after it dropped, at most 10 s",
                recovery.map_or("never, or later than 14".to_owned(), |time| format!(
                    "{:.1}",
                    time.as_secs_f64()
                ))
            ),
        );
        finding.figure(
            &format!("{name}_{factor}x"),
            json!({
                "offered": peak * factor, "goodput": goodput, "goodput_over_peak": goodput / peak,
                "error_replies_per_s": errors, "leases_lost": lost,
                "recovery_s": recovery.map_or(Value::Null, |time| json!(time.as_secs_f64())),
            }),
        );
    }
}

/// By nodes and by shims, since the cluster started.
fn leases_lost(cluster: &ProcessCluster) -> anyhow::Result<u64> {
    let status = cluster.status()?;
    let members =
        ["nodes", "shims"].into_iter().flat_map(|role| status[role].as_array().into_iter().flatten());
    Ok(members.filter_map(|member| member["leases_lost_total"].as_u64()).sum())
}
