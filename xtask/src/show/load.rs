//! `distcache bench` as a child process, with the series that it wrote. Not the load generator itself.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::cluster::mortal;

/// A load that runs; killed when it goes out of scope.
pub(super) struct ShownLoad {
    child: Child,
    series: PathBuf,
}

/// What a finished load has to tell.
pub(super) struct DoneLoad {
    pub(super) slices: Vec<LoadSlice>,
    /// The series as it was written.
    pub(super) csv: String,
}

/// A line of the series. Requests count in the slice in which they were due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadSlice {
    pub(super) unix_ms: u64,
    pub(super) due: u64,
    /// Answered without an error and within a second.
    pub(super) in_time: u64,
    pub(super) errors: u64,
    pub(super) lost: u64,
    pub(super) unanswered: u64,
    pub(super) p50_us: u64,
    pub(super) p90_us: u64,
    pub(super) p99_us: u64,
    /// Replies that came in this slice, whenever their requests were due, and those of them that are errors.
    pub(super) replies: u64,
    pub(super) error_replies: u64,
}

impl LoadSlice {
    pub(super) fn failed(&self) -> u64 {
        self.errors + self.lost + self.unanswered
    }
}

impl ShownLoad {
    /// `target` is an address, or `USER:PASSWORD@ADDRESS`. The series goes to `folder` under `name`.
    pub(super) fn start(
        binary: &Path,
        target: impl std::fmt::Display,
        folder: &Path,
        name: &str,
        arguments: &[&str],
    ) -> anyhow::Result<ShownLoad> {
        let series = folder.join(format!("{name}.csv"));
        let mut command = mortal(binary);
        command.args(["bench", "--json", "--target", &format!("redis://{target}")]).args(arguments);
        command.arg("--series").arg(&series).stdin(Stdio::null()).stdout(Stdio::piped());
        // What it warns of is in the series, too.
        let child = command.stderr(Stdio::null()).spawn().context("distcache bench cannot be started")?;
        Ok(ShownLoad { child, series })
    }

    /// Waits for its end. Errors of single requests are part of the result.
    pub(super) fn finish(mut self) -> anyhow::Result<DoneLoad> {
        let output = self.child.stdout.take().context("the output is piped")?;
        let summary = serde_json::from_reader::<_, Value>(output);
        let status = self.child.wait()?;
        summary.with_context(|| format!("distcache bench ended with {status} and without a result"))?;
        let csv = std::fs::read_to_string(&self.series)?;
        let lines = csv.lines().skip(1).map(slice).collect::<anyhow::Result<Vec<LoadSlice>>>()?;
        Ok(DoneLoad { slices: lines, csv })
    }
}

impl Drop for ShownLoad {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn slice(line: &str) -> anyhow::Result<LoadSlice> {
    let cells: Vec<u64> = line.split(',').map(str::parse).collect::<Result<_, _>>().context("a series")?;
    // start, unix, due, answered, in time, errors, lost, unanswered, p50, p90, p99, max, replies, error replies
    ensure!(cells.len() == 14, "{line:?} is no line of a series");
    Ok(LoadSlice {
        unix_ms: cells[1],
        due: cells[2],
        in_time: cells[4],
        errors: cells[5],
        lost: cells[6],
        unanswered: cells[7],
        p50_us: cells[8],
        p90_us: cells[9],
        p99_us: cells[10],
        replies: cells[12],
        error_replies: cells[13],
    })
}

/// The wall clock in milliseconds, as series have it.
pub(super) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
