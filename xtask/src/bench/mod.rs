//! `cargo xtask bench`: what this release costs and how well it balances, measured on real processes. Not a test.

mod cost;
mod figures;
mod instructions;
mod library;
mod load;
mod memory;
mod tls;
mod twemproxy;
mod users;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use serde_json::{Value, json};

pub(crate) const USAGE: &str = "\
Usage: cargo xtask bench WHAT [SECONDS]

  cost        CPU microseconds per GET, hot (with near copies, too) and cold, per MGET of 10 and per SET, pipelines 1 and 16, against twemproxy
              and Redis asked directly (default 4 s each)
  library     CPU microseconds per hot GET of an application with the router inside it, from 1 and 50 threads, near copies or
              not, against the way through a router (default 3 s each)
  tls         CPU microseconds per GET with TLS at the front door and between members, against none (default 5 s each)
  instructions  user instructions of a router and a node per hot GET (callgrind); fails if there are a tenth more than they were
  users       instructions per hit of a router that checks users, against one that has none
  balance     requests per node and per storage server under Zipf 0.99, with and without cache (default 60 s)
  coherence   messages per invalidated copy with 10 % writes (default 20 s)
  memory      resident memory of a node with 10,000 objects and of a router with 10,000 idle clients
  all         all of them

Results are printed and written to benches/runs/DATE-MACHINE/.
";

/// Runs one measurement, or all, on a release build.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let seconds = |default: u64| match arguments.get(1) {
        Some(text) => text.parse::<u64>().with_context(|| format!("{text:?} is not a number of seconds")),
        None => Ok(default),
    };
    if arguments.first() == Some(&"users") {
        return save(root, "users", &users::run(root)?);
    }
    let binary = build(root)?;
    match arguments.first().copied() {
        Some("cost") => save(root, "cost", &cost::run(&binary, seconds(4)?)?),
        Some("tls") => save(root, "tls", &tls::run(&binary, seconds(5)?)?),
        Some("library") => save(root, "library", &library::run(root, &binary, seconds(3)?)?),
        Some("balance") => save(root, "balance", &figures::balance(&binary, seconds(60)?)?),
        Some("coherence") => save(root, "coherence", &figures::coherence(&binary, seconds(20)?)?),
        Some("instructions") => save(root, "instructions", &instructions::run(&binary)?),
        Some("memory") => save(root, "memory", &memory::run(&binary)?),
        Some("all") => {
            save(root, "memory", &memory::run(&binary)?)?;
            save(root, "coherence", &figures::coherence(&binary, seconds(20)?)?)?;
            save(root, "balance", &figures::balance(&binary, seconds(60)?)?)?;
            save(root, "cost", &cost::run(&binary, seconds(4)?)?)
        }
        _ => bail!("{USAGE}"),
    }
}

/// The release build of `distcache`.
pub(crate) fn build(root: &Path) -> anyhow::Result<PathBuf> {
    build_as("release", root)
}

/// `distcache`, built with this profile.
pub(crate) fn build_as(profile: &str, root: &Path) -> anyhow::Result<PathBuf> {
    Ok(built(root, profile, &["--package", "distcache"])?.join("distcache"))
}

/// As [`build_as`], with a feature of `distcache`.
pub(crate) fn build_with(profile: &str, feature: &str, root: &Path) -> anyhow::Result<PathBuf> {
    Ok(built(root, profile, &["--features", feature, "--package", "distcache"])?.join("distcache"))
}

/// The release build of an example.
fn build_example(root: &Path, package: &str, example: &str) -> anyhow::Result<PathBuf> {
    Ok(built(root, "release", &["--package", package, "--example", example])?.join("examples").join(example))
}

/// Where cargo has put what it built.
fn built(root: &Path, profile: &str, what: &[&str]) -> anyhow::Result<PathBuf> {
    let mut cargo = crate::cargo::command();
    cargo.args(["build", "--profile", profile, "--locked"]).args(what).current_dir(root);
    if !cargo.status().context("cargo cannot be run")?.success() {
        bail!("the {profile} build of {} failed", what[what.len() - 1]);
    }
    Ok(crate::target_folder(root).join(profile))
}

/// Where the runs of today on this machine are kept.
pub(crate) fn folder(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = root.join("benches/runs").join(format!("{}-{}", today(), slug(&machine())));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Prints the figures and keeps them beside what they were measured on.
fn save(root: &Path, name: &str, figures: &Value) -> anyhow::Result<()> {
    let folder = folder(root)?;
    let command = format!("cargo xtask bench {name}");
    let whole = json!({ "command": command, "machine": machine(), "figures": figures });
    let text = serde_json::to_string_pretty(&whole)?;
    std::fs::write(folder.join(format!("{name}.json")), format!("{text}\n"))?;
    println!("{text}");
    Ok(())
}

pub(crate) fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{} x {cores}", model.unwrap_or("unknown processor").trim())
}

fn slug(machine: &str) -> String {
    let words =
        machine.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty() && *word != "R");
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// Today as YYYY-MM-DD, from days since 1970 (H. Hinnant's civil-from-days).
fn today() -> String {
    let days =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400) as i64;
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
