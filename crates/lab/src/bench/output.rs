//! What the user sees of a benchmark: progress, problems and the result. Not how they came about.

use std::io::{self, IsTerminal, Write};

use super::plan::BenchPlan;
use super::tally::BenchSummary;

/// Progress on stderr: one line that is rewritten on a terminal, a new line every few seconds elsewhere.
pub(crate) struct ProgressLine {
    terminal: bool,
    calls: u64,
    dirty: bool,
}

/// How many progress calls (one a second) share a line in a log.
const CALLS_PER_LINE: u64 = 5;
/// Wide enough to wipe what the line said before.
const LINE_CHARS: usize = 78;

impl ProgressLine {
    pub(crate) fn new() -> ProgressLine {
        ProgressLine { terminal: io::stderr().is_terminal(), calls: 0, dirty: false }
    }

    pub(crate) fn show(&mut self, text: &str) {
        self.calls += 1;
        if self.terminal {
            self.dirty = true;
            to_stderr(&format!("\r{text:<LINE_CHARS$}"));
        } else if self.calls.is_multiple_of(CALLS_PER_LINE) {
            to_stderr(&format!("{text}\n"));
        }
    }

    /// Wipes the line, so that what follows starts at the margin.
    pub(crate) fn clear(&mut self) {
        if self.dirty {
            to_stderr(&format!("\r{:LINE_CHARS$}\r", ""));
        }
        (self.calls, self.dirty) = (0, false);
    }
}

/// To stdout: a result that cannot be written is an error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

pub(crate) fn warn(text: &str) {
    to_stderr(&format!("{text}\n"));
}

fn to_stderr(text: &str) {
    // Progress that nobody can read is no reason to stop.
    drop(io::stderr().lock().write_all(text.as_bytes()));
}

/// The result for people.
pub(crate) fn table(plan: &BenchPlan, summary: &BenchSummary) -> String {
    let latency = &summary.latency_us;
    let rate = plan.pace.rate();
    let rate = rate.map_or("closed loop".to_owned(), |rate| format!("open loop, {rate} requests/s due"));
    let mut text = format!(
        "{} connections, pipeline {}, {rate}\n\
         requests    {:>12}\nerrors      {:>12}\nthroughput  {:>12.0} requests/s\n\nlatency\n",
        plan.connections, plan.pipeline, summary.requests, summary.errors, summary.throughput
    );
    for (name, latency_us) in [
        ("50 %", latency.p50),
        ("90 %", latency.p90),
        ("99 %", latency.p99),
        ("99.9 %", latency.p999),
        ("max", latency.max),
    ] {
        text.push_str(&format!("{name:<10}{:>14}\n", duration(latency_us)));
    }
    text
}

/// Microseconds in the unit that people would choose.
pub(crate) fn duration(us: u64) -> String {
    match us {
        0..10_000 => format!("{us} us"),
        10_000..10_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::BenchLength;
    use super::super::tally::Latency;
    use super::*;

    #[test]
    fn the_table_holds_every_number_with_its_unit() {
        let plan = BenchPlan {
            target: super::super::BenchTarget::plain(runtime::reactor::Address::Unix("/tmp/a".into())),
            connections: 50,
            pipeline: 16,
            pace: super::super::Pace::Even(1_000.0),
            warmup: std::time::Duration::ZERO,
            length: BenchLength::Requests(1),
            slice: None,
        };
        let latency_us = Latency { p50: 120, p90: 12_345, p99: 20_000, p999: 99_000, max: 12_000_000 };
        let summary = BenchSummary { requests: 4_321, errors: 7, throughput: 998.6, latency_us };
        let text = table(&plan, &summary);
        for piece in [
            "50 connections",
            "pipeline 16",
            "open loop, 1000 requests/s",
            "4321",
            "7",
            "999 requests/s",
            "120 us",
            "12.3 ms",
            "99.0 ms",
            "12.0 s",
        ] {
            assert!(text.contains(piece), "{piece} is missing in\n{text}");
        }
    }
}
