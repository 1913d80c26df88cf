//! How many cases a test on random input tries, and from which seeds. Never what is tried, and never product code.
//!
//! Seeds are new in every run. A test that fails prints the command that tries the same again. `DISTCACHE_TEST_CASES=100`
//! tries 100 times as many cases, `DISTCACHE_TEST_SEED=N` tries what that seed gives.

#![expect(clippy::print_stderr, reason = "the harness shows it where the test fails")]

use std::path::Path;
use std::str::FromStr;

use proptest::test_runner::{Config, RngSeed};

/// How many times as many cases as usual.
pub const CASES_VARIABLE: &str = "DISTCACHE_TEST_CASES";
/// The only seed to try.
pub const SEED_VARIABLE: &str = "DISTCACHE_TEST_SEED";

/// For `#![proptest_config(cases::proptest(24))]`.
///
/// # Panics
/// If a variable of the environment is no number.
pub fn proptest(cases: u32) -> Config {
    let seed = given(SEED_VARIABLE).unwrap_or_else(rand::random);
    // Kept by the harness, and shown if the test fails.
    eprintln!("to try the same cases again: {}", again(seed));
    let cases = times(cases);
    // What is thrown away grows with what is tried.
    let rejects = Config::default().max_global_rejects.max(cases.saturating_mul(4));
    Config { cases, rng_seed: RngSeed::Fixed(seed), max_global_rejects: rejects, ..Config::default() }
}

/// So many seeds: `for case in cases::seeds(100) { let mut random = SmallRng::seed_from_u64(case.seed); .. }`.
///
/// # Panics
/// If a variable of the environment is no number.
pub fn seeds(count: u32) -> Seeds {
    let only = given(SEED_VARIABLE);
    let left = if only.is_some() { 1 } else { times(count) };
    Seeds { known: Vec::new(), only, next: rand::random(), left }
}

/// A single seed, for a test whose one run is long.
///
/// # Panics
/// If a variable of the environment is no number.
pub fn one() -> Case {
    Case { seed: given(SEED_VARIABLE).unwrap_or_else(rand::random) }
}

/// The seeds of one test: those that failed once, then fresh ones.
pub struct Seeds {
    /// The first to be tried stands last.
    known: Vec<u64>,
    only: Option<u64>,
    next: u64,
    left: u32,
}

impl Seeds {
    /// Tries these first: seeds that have found a bug.
    #[must_use]
    pub fn after(mut self, known: &[u64]) -> Seeds {
        if self.only.is_none() {
            self.known = known.iter().rev().copied().collect();
        }
        self
    }
}

impl Iterator for Seeds {
    type Item = Case;

    fn next(&mut self) -> Option<Case> {
        if let Some(seed) = self.known.pop() {
            return Some(Case { seed });
        }
        self.left = self.left.checked_sub(1)?;
        let seed = self.only.unwrap_or(self.next);
        self.next = self.next.wrapping_add(1);
        Some(Case { seed })
    }
}

/// One case of a test. It must live until the case has ended: if that is by a panic, it tells how to repeat it.
#[derive(Debug)]
pub struct Case {
    pub seed: u64,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} fails; to try it again: {}", self.seed, again(self.seed));
        }
    }
}

/// Whether only one seed is tried, so that sums over all of them say nothing.
pub fn alone() -> bool {
    std::env::var_os(SEED_VARIABLE).is_some()
}

/// This many, or as many times more as the environment asks for.
///
/// # Panics
/// If the variable of the environment is no number.
pub fn times(cases: u32) -> u32 {
    cases.saturating_mul(given(CASES_VARIABLE).unwrap_or(1))
}

fn given<T: FromStr>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable}={text}: write a whole number"),
    }
}

/// What a person types to run the test of this thread on the same cases.
fn again(seed: u64) -> String {
    let executable = std::env::current_exe().unwrap_or_default();
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    // The harness runs a test on the main thread where it has only one.
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main");
    let times = given(CASES_VARIABLE);
    Repetition { seed, times, package: &package, executable: &executable, test }.command()
}

/// One case to be tried again.
struct Repetition<'a> {
    seed: u64,
    times: Option<u32>,
    package: &'a str,
    executable: &'a Path,
    /// The test's name; `None` where its executable has only this one.
    test: Option<&'a str>,
}

impl Repetition<'_> {
    fn command(&self) -> String {
        let mut words = vec![format!("{SEED_VARIABLE}={}", self.seed)];
        words.extend(self.times.map(|times| format!("{CASES_VARIABLE}={times}")));
        words.push(format!("cargo test -p {}", self.package));
        // `target/debug/deps/NAME-HASH`, where NAME is the package for its unit tests.
        let file = self.executable.file_name().unwrap_or_default().to_string_lossy();
        let target = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
        if target != self.package.replace('-', "_") {
            words.push(format!("--test {target}"));
        }
        words.extend(self.test.map(|test| format!("-- --exact {test}")));
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_new_and_in_number() {
        let tried: Vec<u64> = seeds(3).after(&[7, 9]).map(|case| case.seed).collect();
        if let Some(only) = given::<u64>(SEED_VARIABLE) {
            assert_eq!(tried, [only]);
            return;
        }
        assert_eq!(tried.len() as u32, 2 + times(3));
        assert_eq!(tried[..2], [7, 9]);
        assert_ne!(tried[2..], seeds(3).map(|case| case.seed).collect::<Vec<_>>()[..]);
        let [first, second] = [proptest(8), proptest(8)];
        assert_eq!(first.cases, times(8));
        assert_ne!(first.rng_seed, second.rng_seed);
    }

    #[test]
    fn a_failure_names_the_command_that_repeats_it() {
        let unit = Path::new("/x/target/debug/deps/flash-0123456789abcdef");
        let (seed, test) = (7, Some("ripq::tests::holds"));
        let flash = Repetition { seed, times: None, package: "flash", executable: unit, test };
        assert_eq!(
            flash.command(),
            "DISTCACHE_TEST_SEED=7 cargo test -p flash -- --exact ripq::tests::holds"
        );
        let apart = Path::new("/x/target/debug/deps/end_to_end-0123456789abcdef");
        let distcache =
            Repetition { seed, times: Some(100), package: "distcache", executable: apart, test: None };
        assert_eq!(
            distcache.command(),
            "DISTCACHE_TEST_SEED=7 DISTCACHE_TEST_CASES=100 cargo test -p distcache --test end_to_end"
        );
    }
}
