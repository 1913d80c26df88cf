//! Random schedules of the production machines under random faults, checked for order, staleness, progress and leaks.
//!
//! `RANDOM_SEEDS=A..B` runs other seeds, `RANDOM_TRACE=FILE` writes down what happened in the first of them.

mod backend;
mod check;
mod clients;
mod confused;
mod faults;
mod history;
mod linearize;
mod model;
mod network;
#[path = "../world/storage.rs"]
mod storage;
mod swarm;
mod traffic;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Report, World};

/// The seeds of one half of a plain run; the halves run side by side.
const SEEDS: u64 = 150;

fn run(seed: u64, traced: bool) -> Result<Report, String> {
    let mut world = World::new(seed, traced);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let (true, Some(path)) = (traced, std::env::var_os("RANDOM_TRACE")) {
        std::fs::write(path, world.trace()).expect("the trace can be written");
    }
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("a panic: {}", text.unwrap_or("without words")))
    });
    result.map_err(|failure| {
        format!("RANDOM_SEEDS={seed}..{} cargo test -p protocol --test random\n{failure}", seed + 1)
    })
}

fn run_all(seeds: Range<u64>) -> Report {
    let traced = std::env::var_os("RANDOM_TRACE").is_some();
    let mut total = Report::default();
    let mut failures = Vec::new();
    for seed in seeds.clone() {
        match run(seed, traced && seed == seeds.start) {
            Ok(report) => total.add(&report),
            Err(failure) => failures.push(failure),
        }
    }
    let heads = failures.iter().map(|failure| failure.lines().take(2).collect::<Vec<_>>().join(": "));
    let heads: Vec<String> = heads.collect();
    assert!(failures.is_empty(), "{} seeds fail:\n{}\n\n{}", heads.len(), heads.join("\n"), failures[0]);
    total
}

fn seeds(half: u64) -> Range<u64> {
    let Ok(text) = std::env::var("RANDOM_SEEDS") else { return half * SEEDS..(half + 1) * SEEDS };
    let bounds = text.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let (start, end): (u64, u64) = bounds.expect("RANDOM_SEEDS is A..B");
    let middle = start + (end - start).div_ceil(2);
    if half == 0 { start..middle } else { middle..end }
}

/// Runs that never hit, commit or fence would prove nothing.
fn check(half: u64) {
    let seeds = seeds(half);
    let count = seeds.end - seeds.start;
    let total = run_all(seeds);
    if count >= SEEDS {
        total.assert_busy();
    }
    if std::env::var_os("RANDOM_SEEDS").is_some() && count > 0 {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "{count} seeds: {total:?}");
    }
}

#[test]
fn schedules_of_the_first_half() {
    check(0);
}

#[test]
fn schedules_of_the_second_half() {
    check(1);
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 1000..1005 {
        let (first, second) = (run(seed, false), run(seed, false));
        assert_eq!(first.expect("the seed passes"), second.expect("the seed passes"));
    }
}
