//! `cargo xtask show`: what DistCache promises under failure and overload, measured on real processes and held against
//! its bounds. Not a test: the figures depend on the machine.

mod coalesce;
mod elastic;
mod fig11;
mod finding;
mod flash;
mod hostile;
mod load;
mod loss;
mod overload;
mod plot;
mod rated;
mod resharding;
mod safety;
mod soak;
mod stall;
mod standby;
mod writers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;

use crate::bench;
use finding::Finding;

pub(crate) const USAGE: &str = "\
Usage: cargo xtask show WHAT [--json] [--minutes M] [--only NAME] [--times N] [--binary PATH]

  stall      the longest wait of a write when a node is killed, leaves in order, or never acknowledges
  standby    what clients see when a shim is stopped, killed or hangs, and another process stands by
  resharding 5 M keys on three servers get a fourth and lose it: keys per second, what clients notice, and without clients
  loss       reads at half load while a node is killed and comes back
  fig11      throughput while spine nodes fail one by one and come back (figure 11 of the paper)
  overload   what a cluster does with twice and five times the load that it can carry
  elastic    one key and Zipf 1.2 on 8 and 16 nodes with a rate: how much is served and how soon, writes, copies afterwards
  coalesce   storage reads when 1,000 connections ask for a hot key that was just invalidated
  flash      caches on flash: kill -9 at random points, damage to their files, start-up with 10 GiB
  hostile    clients that flood, stall, lie and hoard, beside clients that behave
  safety     lives and members whose files differ, storage that loses data or is written to by others, web pages, silent
             connections, and clients that hoard where there is little memory
  soak       half an hour under faults: memory, descriptors, sessions, directory and queues of every process

Each prints what it measured beside its bound, keeps it in benches/runs/DATE-MACHINE/, and fails if a bound is missed.
  --json     prints one JSON object instead
  --only     one attack of `hostile` or one case of `safety` alone
  --times    how often `flash` kills (default 200)
  --minutes  how long `soak` takes (default 30)
  --binary   a `distcache` to look at (default: builds a release of this tree)
";

/// What a show needs.
struct Stage<'a> {
    binary: &'a Path,
    /// For series and plots that are kept.
    runs: &'a Path,
    time: Option<Duration>,
    /// One of several things that could be shown.
    only: Option<&'a str>,
    /// How often, where it is done over and over.
    times: Option<u64>,
}

struct ShowOptions {
    json: bool,
    time: Option<Duration>,
    binary: Option<PathBuf>,
    only: Option<String>,
    times: Option<u64>,
}

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let Some((what, flags)) = arguments.split_first() else { bail!("{USAGE}") };
    if let ["attack", name, router] = arguments {
        return hostile::attack(name, router);
    }
    let show: fn(&Stage<'_>) -> anyhow::Result<Finding> = match *what {
        "stall" => stall::show,
        "standby" => standby::show,
        "resharding" => resharding::show,
        "loss" => loss::show,
        "fig11" => fig11::show,
        "overload" => overload::show,
        "soak" => soak::show,
        "coalesce" => coalesce::show,
        "elastic" => elastic::show,
        "flash" => flash::show,
        "safety" => safety::show,
        "hostile" => hostile::show,
        _ => bail!("{what:?} is nothing to show\n\n{USAGE}"),
    };
    let options = options(flags)?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => bench::build(root)?,
    };
    let runs = bench::folder(root)?;
    let before = load_average();
    let (only, times) = (options.only.as_deref(), options.times);
    let finding = show(&Stage { binary: &binary, runs: &runs, time: options.time, only, times })?;
    report(what, &runs, &options, before, finding)
}

fn options(flags: &[&str]) -> anyhow::Result<ShowOptions> {
    let mut options = ShowOptions { json: false, time: None, binary: None, only: None, times: None };
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        match *flag {
            "--binary" => options.binary = Some(flags.next().context("--binary needs a path")?.into()),
            "--only" => options.only = Some((*flags.next().context("--only needs a name")?).to_owned()),
            "--times" => {
                let text = flags.next().context("--times needs a number")?;
                let times = text.parse().ok().filter(|times| *times > 0);
                options.times = Some(times.with_context(|| format!("--times {text}: not a number above 0"))?);
            }
            "--json" => options.json = true,
            "--minutes" => {
                let text = flags.next().context("--minutes needs a number")?;
                let minutes: f64 = text.parse().with_context(|| format!("--minutes {text}: not a number"))?;
                anyhow::ensure!(
                    minutes > 0.0 && minutes <= 10_000.0,
                    "--minutes {text}: above 0, at most 10000"
                );
                options.time = Some(Duration::from_secs_f64(minutes * 60.0));
            }
            other => bail!("unknown flag {other:?}\n\n{USAGE}"),
        }
    }
    Ok(options)
}

/// Over the last minute.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn report(
    what: &str,
    runs: &Path,
    options: &ShowOptions,
    before: f64,
    finding: Finding,
) -> anyhow::Result<()> {
    // A part of a show takes no whole one's place.
    let (flag, part) = match &options.only {
        Some(only) => (format!(" --only {only}"), format!("-{only}")),
        None => (String::new(), String::new()),
    };
    let whole = json!({
        "show": what,
        "command": format!("cargo xtask show {what}{flag}"),
        "machine": bench::machine(),
        // On a machine that is busy with other things, latencies tell about those.
        "load_average_before": before,
        "load_average_after": load_average(),
        "passed": finding.missed.is_empty(),
        "missed": finding.missed,
        "figures": finding.figures,
    });
    let text = serde_json::to_string_pretty(&whole)?;
    std::fs::write(runs.join(format!("show-{what}{part}.json")), format!("{text}\n"))?;
    if options.json {
        println!("{text}");
    } else {
        finding.lines.iter().for_each(|line| println!("{line}"));
        println!("load average of the machine: {before:.1} before, {:.1} after", load_average());
    }
    let missed = finding.missed.len();
    anyhow::ensure!(missed == 0, "{what}: {missed} missed: {}", finding.missed.join("; "));
    Ok(())
}
