//! `distcache study stability`: whether queues grow under a policy, and how the routers' knowledge matters.

use std::time::Duration;

use serde::Serialize;
use study::matching::{RoutingPolicy, alpha_max};
use study::stability::{self, StabilityRun, StabilitySettings};

use super::model::{Flags, PolicyFlag};
use super::{bad_input, positive, print_json};
use crate::terminal::print;

/// Simulate the queues of cache nodes: do they grow under a policy or not (DistCache, sections 3.2 and 3.3)
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct StabilityArguments {
    #[command(flatten)]
    flags: Flags,

    /// alpha: the total rate R in m T, with T and m of layer 0 (lemma 2)
    #[arg(long, value_name = "ALPHA", default_value_t = 0.9, value_parser = positive)]
    rate: f64,

    /// Where a request goes
    #[arg(long, value_name = "P", default_value = "two-choices")]
    policy: PolicyFlag,

    /// What routers know of the nodes' loads (section 4.2)
    #[arg(long, value_name = "T", default_value = "exact")]
    telemetry: TelemetryName,

    /// Time in which a report fades to zero (section 4.2), in ms; 0: never
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    aging_ms: u64,

    /// Routers (client ToR switches), each with its own knowledge
    #[arg(long, value_name = "N", default_value_t = 1)]
    routers: usize,

    /// T: throughput of a node of layer 0, in requests/s
    #[arg(long, value_name = "R", default_value_t = 1000.0, value_parser = positive)]
    node_rate: f64,

    /// Longest queue of a node, in requests; what comes then is dropped
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    queue_max: u32,

    /// Simulated time, in s; the second half is observed
    #[arg(long, value_name = "S", default_value_t = 100.0, value_parser = positive)]
    seconds: f64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TelemetryName {
    /// All queues, at any time
    Exact,
    /// Replies carry the requests a node served in the sliding last second
    Sliding,
    /// Replies carry the requests a node served in the last whole second
    Completed,
}

#[derive(Serialize)]
struct StabilityReport {
    /// Requests that wait or were dropped, more per second; mean over seeds.
    growth_per_s: f64,
    /// Requests served per second; mean over seeds.
    goodput: f64,
    /// Over all seeds.
    drops_total: u64,
    /// Longest queue of any node of any seed.
    queue_max: u32,
    /// Share of the seeds that are stationary.
    stationary: f64,
    /// Requests per second.
    offered: f64,
    /// Requests in all nodes, mean over time and seeds.
    queue_mean: f64,
    /// Share of the seeds at which the policy can carry the rate by computation (lemmas 2 and 3).
    feasible: f64,
    /// Share of the seeds for which the simulation and the computation agree.
    agree: f64,
}

pub(crate) fn run(arguments: &StabilityArguments) -> anyhow::Result<()> {
    let model = arguments.flags.model()?;
    let settings = StabilitySettings {
        model,
        policy: arguments.policy.into(),
        alpha: arguments.rate,
        telemetry: match arguments.telemetry {
            TelemetryName::Exact => stability::Telemetry::Exact,
            TelemetryName::Sliding => stability::Telemetry::Sliding,
            TelemetryName::Completed => stability::Telemetry::Completed,
        },
        aging: (arguments.aging_ms > 0).then(|| Duration::from_millis(arguments.aging_ms)),
        routers: arguments.routers,
        node_rate: arguments.node_rate,
        seconds: arguments.seconds,
        queue_max: arguments.queue_max,
    };
    let one = |seed| stability::run(&settings, seed).map(|run| (run, feasible(&settings, seed)));
    let runs = arguments.flags.each(one);
    let runs: Vec<(StabilityRun, bool)> = runs.into_iter().collect::<Result<_, _>>().map_err(bad_input)?;
    let report = StabilityReport::new(&settings, &runs);
    if arguments.flags.json {
        return print_json(&report);
    }
    show(arguments, &settings, &report);
    Ok(())
}

/// At the limit itself queues grow, if ever more slowly.
fn feasible(settings: &StabilitySettings, seed: u64) -> bool {
    settings.alpha < alpha_max(&settings.model, settings.policy, seed) * (1.0 - 1e-9)
}

impl StabilityReport {
    fn new(settings: &StabilitySettings, runs: &[(StabilityRun, bool)]) -> StabilityReport {
        let mean = |of: &dyn Fn(&StabilityRun) -> f64| {
            runs.iter().map(|(run, _)| of(run)).sum::<f64>() / runs.len() as f64
        };
        let share = |of: &dyn Fn(&StabilityRun, bool) -> bool| {
            runs.iter().filter(|(run, feasible)| of(run, *feasible)).count() as f64 / runs.len() as f64
        };
        StabilityReport {
            growth_per_s: mean(&|run| run.growth_per_s),
            goodput: mean(&|run| run.goodput),
            drops_total: runs.iter().map(|(run, _)| run.drops).sum(),
            queue_max: runs.iter().map(|(run, _)| run.queue_max).max().unwrap_or(0),
            stationary: share(&|run, _| run.stationary),
            offered: settings.alpha * f64::from(settings.model.layers()[0].nodes) * settings.node_rate,
            queue_mean: mean(&|run| run.queue_mean),
            feasible: share(&|_, feasible| feasible),
            agree: share(&|run, feasible| run.stationary == feasible),
        }
    }
}

fn show(arguments: &StabilityArguments, settings: &StabilitySettings, report: &StabilityReport) {
    print(&arguments.flags.describe(&settings.model));
    let seeds = f64::from(arguments.flags.seeds);
    let of_seeds = |share: f64| format!("{:.0} of {seeds} seeds", share * seeds);
    print(&format!("stationary      {}", of_seeds(report.stationary)));
    print(&format!("computed        {} can carry alpha {}", of_seeds(report.feasible), arguments.rate));
    if settings.policy == RoutingPolicy::TwoChoices {
        print(&format!("telemetry       {:?}, {} routers", settings.telemetry, settings.routers));
    }
    print(&format!("offered         {:.0} requests/s", report.offered));
    print(&format!("goodput         {:.0} requests/s", report.goodput));
    print(&format!("growth          {:.1} requests per s", report.growth_per_s));
    print(&format!("waiting         {:.0} requests on average", report.queue_mean));
    print(&format!("longest queue   {} of {} requests", report.queue_max, settings.queue_max));
    print(&format!("dropped         {} requests", report.drops_total));
}
