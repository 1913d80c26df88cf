//! `distcache bench`: a load generator for anything that speaks RESP. Not a correctness checker.

mod arguments;
mod arrivals;
mod connection;
mod drive;
mod engine;
mod frames;
mod load;
pub(crate) mod open_files;
mod output;
mod pacer;
mod plan;
mod replay;
mod requests;
mod schedule;
mod series;
mod tally;
mod target;

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use runtime::stop::Stop;
use trace::Workload;

pub use arguments::BenchArguments;
pub(crate) use arrivals::Arrivals;
pub(crate) use drive::drive;
pub(crate) use frames::Frames;
pub(crate) use load::load;
pub(crate) use plan::{BenchLength, BenchPlan, Live, Pace, RequestEnd, RequestFate};
pub(crate) use requests::{LoadedKeys, Requests, WorkloadRounds};
pub(crate) use target::BenchTarget;

use crate::terminal::mistake;
use drive::BenchProgress;
use output::ProgressLine;
use plan::{BenchOutcome, Ending};
use replay::Replay;

/// Runs the benchmark and prints its result. Fails also if no request was answered without an error.
pub fn run(arguments: BenchArguments) -> Result<()> {
    arguments.check().map_err(mistake)?;
    let plan = plan(&arguments).map_err(mistake)?;
    let (requests, keys) = requests(&arguments).map_err(mistake)?;
    let frames = Frames::new(arguments.value_bytes, arguments.seed);
    open_files::allow(plan.connections)?;
    // A path that cannot be written is better found before the run than after it.
    let series_file = arguments.series.as_ref().map(|path| {
        File::create(path).with_context(|| format!("--series {}: cannot be written", path.display()))
    });
    let mut series_file = series_file.transpose().map_err(mistake)?;
    let stop = Stop::on_signals()?;
    let mut line = ProgressLine::new();
    if !arguments.no_load {
        let count = keys.count;
        let loaded = load(&plan, keys, &frames, &stop, &mut |written| {
            line.show(&format!("writing keys: {written} of {count}"));
        });
        line.clear();
        loaded?;
    }
    let driven = drive(&plan, requests, &frames, &Live::default(), &stop, &mut |progress| {
        line.show(&progress_text(&plan, progress));
    });
    line.clear();
    let outcome = driven?;
    report_problems(&outcome);
    let summary = outcome.tally.summary();
    if let (Some(file), Some(series)) = (&mut series_file, &outcome.tally.series) {
        file.write_all(series.csv().as_bytes()).context("the file of --series cannot be written")?;
    }
    if arguments.json {
        output::print(&format!("{}\n", serde_json::to_string(&summary)?))?;
    } else {
        output::print(&output::table(&plan, &summary))?;
    }
    match outcome.ending {
        Ending::Stopped => bail!("stopped before the end; the result is about what was done until then"),
        Ending::Silent => bail!("{} has not answered for 30 s", plan.target),
        Ending::Done if summary.requests == summary.errors => {
            bail!("no request to {} was answered without an error", plan.target)
        }
        Ending::Done => Ok(()),
    }
}

/// What is asked for, and all the keys that may be, with their number.
fn requests(arguments: &BenchArguments) -> Result<(Requests, LoadedKeys)> {
    if let Some(path) = arguments.trace() {
        let replay = Replay::read(path).with_context(|| format!("--dist trace:{}", path.display()))?;
        let keys = replay.keys();
        return Ok((Requests::Replay(replay), keys));
    }
    let workload = Workload {
        keys: arguments.keys,
        distribution: arguments.dist.parse().with_context(|| format!("--dist {}", arguments.dist))?,
        write_ratio: arguments.write_ratio,
        value_bytes: arguments.value_bytes,
        seed: arguments.seed,
    };
    let requests = match arguments.mget {
        1 => Requests::Mix(workload.requests(0)?),
        count => Requests::Batches(workload.requests(0)?, count),
    };
    Ok((requests, LoadedKeys::below(workload.keys)))
}

fn plan(arguments: &BenchArguments) -> Result<BenchPlan> {
    let time = |seconds: f64| Duration::from_micros((seconds * 1e6) as u64);
    Ok(BenchPlan {
        target: target::parse(&arguments.target, arguments.ca_file.as_deref())?,
        connections: arguments.connections,
        pipeline: arguments.pipeline,
        pace: arguments.rate.map_or(Pace::Closed, Pace::Even),
        warmup: time(arguments.warmup),
        length: match (arguments.requests, arguments.seconds) {
            (Some(requests), _) => BenchLength::Requests(requests),
            (None, seconds) => BenchLength::Time(time(seconds.unwrap_or(arguments::SECONDS_DEFAULT))),
        },
        slice: arguments.series.as_ref().map(|_| Duration::from_millis(arguments.slice_ms)),
    })
}

fn progress_text(plan: &BenchPlan, progress: &BenchProgress<'_>) -> String {
    let Some(measured) = progress.measured else {
        return format!("warming up  {:.0} requests/s", progress.throughput);
    };
    let summary = progress.tally.summary();
    let done = match plan.length {
        BenchLength::Time(time) => format!("{} s of {} s", measured.as_secs(), time.as_secs()),
        BenchLength::Requests(requests) => format!("{} of {requests} requests", summary.requests),
    };
    format!(
        "{done}  {:.0} requests/s  p50 {}  p99 {}  errors {}",
        progress.throughput,
        output::duration(summary.latency_us.p50),
        output::duration(summary.latency_us.p99),
        summary.errors,
    )
}

/// What the numbers alone do not tell.
fn report_problems(outcome: &BenchOutcome) {
    let tally = &outcome.tally;
    for text in &tally.texts {
        output::warn(text);
    }
    if tally.lost > 0 {
        output::warn(&format!("{} requests were lost with their connections", tally.lost));
    }
    if tally.unanswered > 0 {
        output::warn(&format!(
            "{} requests were still unanswered at the end; the latencies count them with the time they waited",
            tally.unanswered
        ));
    }
}

#[cfg(test)]
mod tests;
