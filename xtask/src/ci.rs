//! Exactly what continuous integration runs, step by step. What a step checks is decided elsewhere.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::{cargo, codegen, docs, fuzz, jepsen, model, setup, suite, tidy};

/// The newest clippy (`0.1.N`) whose lints this tree is known to pass. A newer one brings new lints: they are
/// shown then, but they do not fail, or every new toolchain would break a tree in which nothing changed.
const CLIPPY_MINOR_KNOWN: u32 = 96;

/// Whole clusters on virtual time, every tenth of them twice: both runs must do the same.
#[rustfmt::skip]
const SIMULATION: [&str; 14] = [
    "run", "--profile", "checked", "--locked", "--package", "distcache", "--",
    "sim", "--seeds", "0..300", "--seconds", "30", "--repeat", "10",
];

enum Work {
    /// A cargo command line.
    Cargo(Vec<&'static str>),
    Own(fn(&Path) -> anyhow::Result<()>),
    /// Why the step cannot run here.
    Skip(&'static str),
}

struct CiStep {
    name: &'static str,
    /// What a person types to run this step alone.
    rerun: String,
    work: Work,
}

/// Seconds that each step may take from a clean clone on two otherwise idle cores, 35 minutes in all. What a step took is
/// told beside it and not judged: how busy a machine is must not decide whether a tree passes.
const BUDGETS: [(&str, u64); 14] = [
    ("format", 5),
    ("clippy", 200),
    ("tidy", 60),
    ("deny", 5),
    ("advisories", 5),
    ("codegen", 5),
    ("build", 420),
    ("docs", 150),
    ("test", 55),
    ("end-to-end", 300),
    ("model", 120),
    ("fuzz", 240),
    ("simulation", 120),
    // With the build of the release to come.
    ("jepsen", 400),
];

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let started = Instant::now();
    let steps = steps();
    let mut times: Vec<(&str, Option<Duration>)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n[{}/{}] {}: {}", index + 1, steps.len(), step.name, step.rerun);
        let began = Instant::now();
        let took = match &step.work {
            Work::Skip(reason) => {
                println!("***** SKIPPED: {reason} *****");
                None
            }
            Work::Cargo(arguments) => {
                run_cargo(root, arguments).with_context(|| failure(step))?;
                Some(began.elapsed())
            }
            Work::Own(check) => {
                check(root).with_context(|| failure(step))?;
                Some(began.elapsed())
            }
        };
        times.push((step.name, took));
    }
    println!();
    times.iter().for_each(|(name, took)| println!("{}", time_told(name, *took)));
    let budget: u64 = BUDGETS.iter().map(|(_, seconds)| seconds).sum();
    println!("ci: passed in {:.0} s of {budget} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// A step's line of the summary.
fn time_told(name: &str, took: Option<Duration>) -> String {
    let Some(took) = took else { return format!("{name:>12}  skipped") };
    let budget = BUDGETS.iter().find(|(known, _)| *known == name).map_or(0, |(_, seconds)| *seconds);
    let over = if took > Duration::from_secs(budget) { ", over its budget" } else { "" };
    format!("{name:>12}  {:6.1} s of {budget:3} s{over}", took.as_secs_f64())
}

fn failure(step: &CiStep) -> String {
    format!("ci: FAILED at {}; to run it again: {}", step.name, step.rerun)
}

fn steps() -> Vec<CiStep> {
    vec![
        if answers(&["fmt", "--version"]) {
            by_cargo("format", vec!["fmt", "--all", "--check"])
        } else {
            skip("format", "cargo fmt --all --check", "this toolchain has no rustfmt")
        },
        clippy(),
        own("tidy", "cargo xtask tidy", tidy::run),
        match answers(&["deny", "--version"]) {
            true => by_cargo("deny", vec!["deny", "--locked", "check", "bans", "licenses", "sources"]),
            false => skip(
                "deny",
                "cargo deny check bans licenses sources",
                "cargo-deny is not installed; tidy checks licences",
            ),
        },
        match answers(&["deny", "--version"]) && has_advisories() {
            true => by_cargo("advisories", vec!["deny", "--offline", "check", "advisories"]),
            false => skip(
                "advisories",
                "cargo deny check advisories",
                "whether dependencies have known holes was not looked at: cargo-deny is not installed, or has no database \
                 (`cargo deny fetch db`, where the network lets it)",
            ),
        },
        own("codegen", "cargo xtask codegen --check", |_| codegen::run(true)),
        by_cargo("build", suite::BUILD.to_vec()),
        own("docs", "cargo xtask docs", docs::run),
        own("test", "cargo xtask suite test", suite::unit),
        own("end-to-end", "cargo xtask suite end-to-end", suite::end_to_end),
        own("model", "cargo xtask model", model::ci),
        own("fuzz", &format!("cargo xtask fuzz {}", fuzz::SHORT.join(" ")), fuzz::short),
        by_cargo("simulation", SIMULATION.to_vec()),
        // On an optimised build: a debug build is so slow that fewer writes meet a fault.
        own("jepsen", &format!("cargo xtask jepsen {}", jepsen::SHORT.join(" ")), jepsen::short),
    ]
}

/// Whether cargo-deny has fetched a database of advisories.
fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let folder = home.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok());
    folder.is_some_and(|mut entries| entries.next().is_some())
}

fn clippy() -> CiStep {
    let lint = vec!["clippy", "--workspace", "--all-targets", "--locked"];
    match clippy_minor() {
        None => skip("clippy", "cargo clippy", "this toolchain has no clippy"),
        Some(minor) if minor > CLIPPY_MINOR_KNOWN => {
            println!(
                "***** clippy 0.1.{minor} is newer than 0.1.{CLIPPY_MINOR_KNOWN}: its warnings do not fail *****"
            );
            by_cargo("clippy", lint)
        }
        Some(_) => by_cargo("clippy", [lint, vec!["--", "-D", "warnings"]].concat()),
    }
}

fn by_cargo(name: &'static str, arguments: Vec<&'static str>) -> CiStep {
    let rerun = format!("cargo {}", arguments.join(" ").replace('*', "'*'"));
    CiStep { name, rerun, work: Work::Cargo(arguments) }
}

fn own(name: &'static str, rerun: &str, check: fn(&Path) -> anyhow::Result<()>) -> CiStep {
    CiStep { name, rerun: rerun.to_owned(), work: Work::Own(check) }
}

fn skip(name: &'static str, rerun: &str, reason: &'static str) -> CiStep {
    CiStep { name, rerun: rerun.to_owned(), work: Work::Skip(reason) }
}

fn run_cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = cargo::command();
    command.args(arguments).current_dir(root).env(setup::PYTHON_VARIABLE, setup::python(root));
    let status = command.status().context("starting cargo")?;
    anyhow::ensure!(status.success(), "cargo {} ended with {status}", arguments[0]);
    Ok(())
}

fn answers(arguments: &[&str]) -> bool {
    cargo::command().args(arguments).output().is_ok_and(|output| output.status.success())
}

fn clippy_minor() -> Option<u32> {
    let output = cargo::command()
        .args(["clippy", "--version"])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    minor(&String::from_utf8_lossy(&output.stdout))
}

/// `clippy 0.1.95 (59807616e1 2026-04-14)` -> 95.
fn minor(version: &str) -> Option<u32> {
    version.split_whitespace().nth(1)?.split('.').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clippy_versions_are_understood() {
        assert_eq!(minor("clippy 0.1.95 (59807616e1 2026-04-14)\n"), Some(95));
        assert_eq!(minor("clippy 0.1.96\n"), Some(96));
        assert_eq!(minor("error: no such command\n"), None);
    }

    #[test]
    fn every_step_can_be_run_alone() {
        let steps = steps();
        assert!(steps.iter().all(|step| step.rerun.starts_with("cargo ")));
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        assert_eq!(names, BUDGETS.map(|(name, _)| name));
    }

    #[test]
    fn all_steps_together_take_little_more_than_half_an_hour() {
        assert!(BUDGETS.iter().map(|(_, seconds)| seconds).sum::<u64>() <= 2100);
        let told = |seconds| time_told("test", Some(Duration::from_secs(seconds)));
        assert_eq!(told(55), "        test    55.0 s of  55 s");
        assert!(told(61).ends_with("over its budget"));
        assert_eq!(time_told("deny", None), "        deny  skipped");
    }

    #[test]
    fn generated_files_are_fresh() {
        codegen::run(true).expect("run `cargo xtask codegen`");
    }
}
