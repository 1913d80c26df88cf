//! `show overload`: twice and five times what a cluster can do: what it still does, its leases, and how it recovers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Stage;
use super::finding::Finding;
use super::load::{Done, Load, Slice, unix_ms};
use super::plot::{Line, Plot};
use super::rated::{self, OPEN, WORKLOAD};
use crate::cluster::{Cluster, Folder};

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

/// A load of half the peak runs all the time; surges come on top.
pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let cluster = Cluster::start(stage.binary, rated::layout(WIDTH, RATE_MAX), 1)?;
    let folder = Folder::new("overload")?;
    let workload = [&WORKLOAD[..], &WRITES].concat();
    let peak = rated::peak(stage.binary, &cluster, folder.path(), &workload)?;
    let mut finding = Finding::default();
    finding.figure("peak", peak);
    finding.say(format!("the cluster answers {peak:.0} requests/s in time at most"));
    for factor in [2.0, 5.0] {
        let lost = leases_lost(&cluster)?;
        let run = surge(stage, &cluster, &folder, &workload, peak, factor)?;
        let lost = leases_lost(&cluster)? - lost;
        run.keep(stage, factor)?;
        judge(&mut finding, peak, factor, &run, lost);
    }
    Ok(finding)
}

/// The two series of one surge, and when it began and ended.
struct Run {
    base: Done,
    extra: Done,
    from_ms: u64,
    to_ms: u64,
}

fn surge(
    stage: &Stage<'_>,
    cluster: &Cluster,
    folder: &Folder,
    workload: &[&str],
    peak: f64,
    factor: f64,
) -> anyhow::Result<Run> {
    let start = |name: &str, rate: f64, time: Duration| {
        let (rate, seconds, slice) = (format!("{rate:.0}"), time.as_secs().to_string(), SLICE_MS.to_string());
        let timing = ["--rate", &rate, "--seconds", &seconds, "--slice-ms", &slice];
        let arguments = [workload, &OPEN, &timing].concat();
        Load::start(stage.binary, cluster.router(0), folder.path(), name, &arguments)
    };
    let base = start("base", peak / 2.0, BEFORE + SURGE + REST)?;
    std::thread::sleep(BEFORE);
    let (begun, from_ms) = (Instant::now(), unix_ms());
    let extra = start("extra", peak * (factor - 0.5), SURGE)?;
    std::thread::sleep(SURGE.saturating_sub(begun.elapsed()));
    let to_ms = unix_ms();
    Ok(Run { extra: extra.finish()?, base: base.finish()?, from_ms, to_ms })
}

impl Run {
    fn both(&self) -> impl Iterator<Item = &Slice> {
        self.base.slices.iter().chain(&self.extra.slices)
    }

    /// Replies in time and without an error, of what was due in the surge, per second.
    fn goodput(&self) -> f64 {
        let (from_ms, to_ms) = (self.from_ms + ONSET_MS, self.to_ms - ONSET_MS);
        let within = |slice: &&Slice| slice.unix_ms >= from_ms && slice.unix_ms < to_ms;
        let good: u64 = self.both().filter(within).map(|slice| slice.in_time).sum();
        good as f64 * 1e3 / (to_ms - from_ms) as f64
    }

    /// From the end of the surge to the first two seconds in a row in which the base load is served as before: no errors,
    /// and a 99th percentile of at most twice the worst before. Nothing if they never come.
    fn recovery(&self) -> Option<Duration> {
        let before = self.base.slices.iter().filter(|slice| slice.unix_ms + SLICE_MS <= self.from_ms);
        let p99_us_max = 2 * before.map(|slice| slice.p99_us).max().unwrap_or(0);
        let well = |slice: &Slice| slice.failed() == 0 && slice.p99_us <= p99_us_max;
        let after = self.base.slices.iter().filter(|slice| slice.unix_ms >= self.to_ms && slice.due > 0);
        let after: Vec<&Slice> = after.collect();
        let window = after.windows(WELL_SLICES).find(|slices| slices.iter().all(|slice| well(slice)))?;
        Some(Duration::from_millis(window[0].unix_ms - self.to_ms))
    }

    fn keep(&self, stage: &Stage<'_>, factor: f64) -> anyhow::Result<()> {
        for (name, done) in [("base", &self.base), ("extra", &self.extra)] {
            std::fs::write(stage.runs.join(format!("show-overload-{factor}x-{name}.csv")), &done.csv)?;
        }
        let start_ms = self.base.slices.first().map_or(0, |slice| slice.unix_ms);
        let second = |at_ms: u64| at_ms.saturating_sub(start_ms) as f64 / 1e3;
        let rate = |y: &dyn Fn(&Slice) -> f64| {
            let slices = self.base.slices.iter().map(|base| {
                let near = |slice: &&Slice| slice.unix_ms.abs_diff(base.unix_ms) * 2 <= SLICE_MS;
                let extra = self.extra.slices.iter().find(near).map_or(0.0, y);
                (second(base.unix_ms), (y(base) + extra) * 1e3 / SLICE_MS as f64)
            });
            slices.collect::<Vec<_>>()
        };
        let title = format!("{factor} times what the cluster can do");
        Plot {
            title: &title,
            x: "seconds",
            y: "requests per second",
            lines: vec![
                Line { name: "answered in time", points: rate(&|slice| slice.in_time as f64) },
                Line { name: "due", points: rate(&|slice| slice.due as f64) },
                Line { name: "refused", points: rate(&|slice| slice.failed() as f64) },
            ],
            marks: vec![second(self.from_ms), second(self.to_ms)],
        }
        .write(&stage.runs.join(format!("show-overload-{factor}x.svg")))
    }
}

/// By nodes and by shims, since the cluster started.
fn leases_lost(cluster: &Cluster) -> anyhow::Result<u64> {
    let status = cluster.status()?;
    let members =
        ["nodes", "shims"].into_iter().flat_map(|role| status[role].as_array().into_iter().flatten());
    Ok(members.filter_map(|member| member["leases_lost_total"].as_u64()).sum())
}

fn judge(finding: &mut Finding, peak: f64, factor: f64, run: &Run, lost: u64) {
    let (goodput, recovery) = (run.goodput(), run.recovery());
    finding.bound(
        goodput >= GOODPUT_MIN * peak,
        format!(
            "{factor} times the load: {goodput:.0} requests/s answered within a second, {:.0} % of the peak, at least 90 %",
            goodput / peak * 100.0
        ),
    );
    finding.bound(lost == 0, format!("{factor} times the load: {lost} leases lost, none allowed"));
    finding.bound(
        recovery.is_some_and(|recovery| recovery <= RECOVERY_MAX),
        format!(
            "{factor} times the load: as before {} s after it dropped, at most 10 s",
            recovery
                .map_or("never, or later than 14".to_owned(), |time| format!("{:.1}", time.as_secs_f64()))
        ),
    );
    finding.figure(
        &format!("{factor}x"),
        json!({
            "offered": peak * factor, "goodput": goodput, "goodput_over_peak": goodput / peak, "leases_lost": lost,
            "recovery_s": recovery.map_or(Value::Null, |time| json!(time.as_secs_f64())),
        }),
    );
}
