//! `distcache policies`: what eviction policies would have missed on a trace, from the command line. It simulates nothing
//! itself.

mod figure;
mod table;

use std::path::{Path, PathBuf};

use policies::PolicySpec;
use serde::Serialize;
use study::what_if::{GridOutcome, GridSetting, Size};

use crate::reproduce::{figure_file, plot};
use crate::terminal::{BadInput, print};
use crate::trace::SourceArguments;

/// Simulate eviction policies on a trace: object and byte miss ratios for every policy at every size
///
/// Policies: fifo, lru, lfu, s4lru, s4lru-fill, slru:L, slru-borrow:L, gdsf, gdsf:L, clairvoyant, infinite, random, clock,
/// arc, lirs, 2q, s3fifo, sieve, wtinylfu. docs/policies.md says what each does.
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct PoliciesArguments {
    #[command(flatten)]
    source: SourceArguments,

    /// Policies, with commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "fifo,lru,s4lru,arc,s3fifo,sieve,clairvoyant"
    )]
    policy: Vec<PolicySpec>,

    /// Cache sizes, with commas: bytes (8000, 64MiB), objects with --ignore-size, or shares of the working set (0.1ws)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0.01ws,0.03ws,0.1ws,0.3ws",
        allow_hyphen_values = true
    )]
    size: Vec<Size>,

    /// Every object has size 1, and sizes are numbers of objects
    #[arg(long)]
    ignore_size: bool,

    /// Share of the requests, from the first on, that fill the caches and are not counted
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    warmup: f64,

    /// Simulations that run at the same time [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,

    /// Print one JSON array
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print CSV
    #[arg(long)]
    csv: bool,

    /// Draw the miss-ratio curves as well: FILE.svg or FILE.png
    #[arg(long, value_name = "FILE", value_parser = figure_file)]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct PolicyRow {
    policy: String,
    size: u64,
    requests: u64,
    objects: u64,
    miss_ratio: f64,
    byte_miss_ratio: f64,
    requests_per_s: f64,
}

pub fn run(arguments: &PoliciesArguments) -> anyhow::Result<()> {
    if arguments.ignore_size && arguments.size.iter().any(|size| matches!(size, Size::Bytes(_))) {
        return Err(BadInput::of(
            "--size: with --ignore-size write a number of objects or a share (0.1ws), not bytes",
        ));
    }
    arguments.plot.as_deref().map_or(Ok(()), check_place)?;
    let (setting, source) = (setting(arguments), &arguments.source);
    let open = || if setting.opens_twice() { source.shown() } else { source.shown_once() };
    let outcomes = setting.simulate(open).map_err(BadInput::of)?;
    if arguments.json {
        print(&serde_json::to_string(&outcomes.iter().map(row).collect::<Vec<_>>())?);
    } else if arguments.csv {
        table::print_csv(&outcomes);
    } else {
        table::print_table(&outcomes, arguments);
    }
    match &arguments.plot {
        Some(file) => plot(file, &figure::curves(&outcomes, arguments)),
        None => Ok(()),
    }
}

/// Whether a figure can be there, before all is computed.
fn check_place(file: &Path) -> Result<(), BadInput> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    match directory.filter(|directory| !directory.is_dir()) {
        Some(directory) => Err(BadInput(format!(
            "--plot {}: the directory {} does not exist",
            file.display(),
            directory.display()
        ))),
        None => Ok(()),
    }
}

fn setting(arguments: &PoliciesArguments) -> GridSetting {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    GridSetting {
        policies: arguments.policy.clone(),
        sizes: arguments.size.clone(),
        ignore_size: arguments.ignore_size,
        warmup: arguments.warmup,
        threads: arguments.threads.map_or_else(cores, |threads| threads as usize),
    }
}

fn row(outcome: &GridOutcome) -> PolicyRow {
    PolicyRow {
        policy: outcome.policy.to_string(),
        size: outcome.size,
        requests: outcome.requests,
        objects: outcome.objects,
        miss_ratio: outcome.miss_ratio(),
        byte_miss_ratio: outcome.byte_miss_ratio(),
        requests_per_s: outcome.requests_per_s.round(),
    }
}
