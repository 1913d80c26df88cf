//! What `distcache sim` prints: a line per seed, failures with the way back to them, a summary. Judges nothing.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::Finished;
use super::arguments::SimPlan;
use crate::terminal::{print, say};

/// Without a terminal one line in so many shows that it goes on.
const PROGRESS_EVERY: u64 = 500;

pub(crate) struct SeedTable<'a> {
    json: bool,
    plan: &'a SimPlan,
}

impl SeedTable<'_> {
    pub(crate) fn new(json: bool, plan: &SimPlan) -> SeedTable<'_> {
        if !json {
            print(
                "      seed  trace             simulated    wall  operations  faults   hits  longest write",
            );
        }
        SeedTable { json, plan }
    }

    pub(crate) fn row(&mut self, finished: &Finished) {
        let report = &finished.report;
        if self.json {
            print(&json_row(finished).to_string());
        } else {
            let done = report.seed - self.plan.seeds.start + 1;
            let few = self.plan.seeds.end - self.plan.seeds.start <= 100;
            if few || std::io::stdout().is_terminal() || done.is_multiple_of(PROGRESS_EVERY) {
                print(&text_row(finished));
            }
        }
        for violation in &report.violations {
            say(&format!("seed {}: {violation}", report.seed));
        }
        if finished.differs {
            say(&format!("seed {}: two runs of it differ", report.seed));
        }
        if is_failure(finished) {
            say(&format!("to see it again: {}", self.plan.again(report.seed)));
        }
    }
}

fn is_failure(finished: &Finished) -> bool {
    finished.differs || !finished.report.violations.is_empty()
}

fn text_row(finished: &Finished) -> String {
    let report = &finished.report;
    format!(
        "{:>10}  {:016x}  {:>7.1} s  {:>4.0} ms  {:>10}  {:>6}  {:>5}  {:>10.3} s",
        report.seed,
        report.trace_hash,
        report.simulated.as_secs_f64(),
        finished.wall.as_secs_f64() * 1e3,
        report.operations,
        report.faults.values().sum::<u64>(),
        report.hits,
        report.stall_longest.as_secs_f64(),
    )
}

fn json_row(finished: &Finished) -> serde_json::Value {
    let report = &finished.report;
    json!({
        "seed": report.seed,
        "trace_hash": format!("{:016x}", report.trace_hash),
        "simulated_s": report.simulated.as_secs_f64(),
        "wall_s": finished.wall.as_secs_f64(),
        "events": report.events,
        "operations": report.operations,
        "hits": report.hits,
        "near_hits": report.near_hits,
        "stall_longest_s": report.stall_longest.as_secs_f64(),
        "faults": report.faults,
        "counts": report.counts,
        "violations": report.violations,
        "repeat_differs": finished.differs,
    })
}

/// Totals over all seeds.
#[derive(Debug, Serialize)]
pub(crate) struct SimSummary {
    seeds: u64,
    failed: u64,
    violations: u64,
    repeated: u64,
    repeats_differ: u64,
    operations: u64,
    events: u64,
    hits: u64,
    near_hits: u64,
    simulated_s: f64,
    wall_s: f64,
    /// Seconds that all threads together were at work.
    busy_s: f64,
    events_per_s: f64,
    simulated_s_per_wall_s: f64,
    simulated_s_per_core_s: f64,
    fault_kinds: usize,
    faults: BTreeMap<&'static str, u64>,
    counts: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    every: Option<u64>,
}

impl SimSummary {
    pub(crate) fn new(plan: &SimPlan) -> SimSummary {
        SimSummary {
            seeds: 0,
            failed: 0,
            violations: 0,
            repeated: 0,
            repeats_differ: 0,
            operations: 0,
            events: 0,
            hits: 0,
            near_hits: 0,
            simulated_s: 0.0,
            wall_s: 0.0,
            busy_s: 0.0,
            events_per_s: 0.0,
            simulated_s_per_wall_s: 0.0,
            simulated_s_per_core_s: 0.0,
            fault_kinds: 0,
            faults: BTreeMap::new(),
            counts: BTreeMap::new(),
            every: plan.repeat,
        }
    }

    pub(crate) fn add(&mut self, finished: &Finished) {
        let report = &finished.report;
        self.seeds += 1;
        self.failed += u64::from(is_failure(finished));
        self.violations += report.violations.len() as u64;
        self.repeated += u64::from(self.every.is_some_and(|every| report.seed.is_multiple_of(every)));
        self.repeats_differ += u64::from(finished.differs);
        self.operations += report.operations;
        self.events += report.events;
        self.hits += report.hits;
        self.near_hits += report.near_hits;
        self.simulated_s += report.simulated.as_secs_f64();
        self.busy_s += finished.wall.as_secs_f64();
        for (kind, count) in &report.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (name, count) in &report.counts {
            *self.counts.entry(name).or_default() += count;
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    pub(crate) fn finish(&mut self, wall: Duration, json: bool) {
        self.wall_s = wall.as_secs_f64();
        self.events_per_s = self.events as f64 / self.wall_s;
        self.simulated_s_per_wall_s = self.simulated_s / self.wall_s;
        self.simulated_s_per_core_s = self.simulated_s / self.busy_s;
        self.fault_kinds = self.faults.len();
        if json {
            return print(&json!({ "summary": self }).to_string());
        }
        print(&format!(
            "{} seeds, {} failed; {} repeated, {} differ; {} operations, {} hits and {} near, {} events",
            self.seeds,
            self.failed,
            self.repeated,
            self.repeats_differ,
            self.operations,
            self.hits,
            self.near_hits,
            self.events
        ));
        print(&format!(
            "{:.0} simulated s in {:.1} s: {:.0} simulated s per s ({:.0} per core), {:.0} events per s",
            self.simulated_s,
            self.wall_s,
            self.simulated_s_per_wall_s,
            self.simulated_s_per_core_s,
            self.events_per_s
        ));
        let list = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
        };
        print(&format!("faults of {} kinds: {}", self.fault_kinds, list(&self.faults)));
        print(&format!("beside: {}", list(&self.counts)));
    }
}
