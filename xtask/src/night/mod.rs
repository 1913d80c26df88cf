//! What is too long for `make test`, one part after the other on fresh seeds, until the night is over. Judges nothing.

mod arguments;
mod part;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};

use crate::{cargo, fuzz, print, tell};
use arguments::{NightArguments, NightKind, USAGE};
pub(crate) use part::{NightPart, PartOutcome};

/// Seeds of the simulator that are tried in one go: a few minutes of two cores.
const SIMULATED_SEEDS: u64 = 500;
/// The first round of the property tests tries this many times the usual cases.
const TIMES_FIRST: u32 = 10;
/// A round is at most this many times the one before: times are known from that only.
const TIMES_GROWTH_MAX: u32 = 8;
/// The crate whose users are property tests.
const CASES: &str = "cases";
/// Its own tests with real servers would be repeated with every round; what is random in them is a part of its own.
const WITHOUT: &str = "distcache";
/// Parts that build end when they have built.
const BUILD_TIME: Duration = Duration::from_secs(3600);

struct Night<'a> {
    root: &'a Path,
    arguments: NightArguments,
    folder: PathBuf,
    began: Instant,
    /// Seconds since 1970 when it began: seeds that no night before has had.
    stamp: u64,
    outcomes: Vec<PartOutcome>,
}

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    if matches!(arguments, ["help" | "--help" | "-h"]) {
        print(USAGE);
        return Ok(());
    }
    let arguments = NightArguments::parse(arguments)?;
    let stamp = stamp()?;
    let folder = folder(root, "night", stamp)?;
    let mut night = Night { root, arguments, folder, began: Instant::now(), stamp, outcomes: Vec::new() };
    night.all()?;
    summary("night", &night.outcomes, night.began.elapsed())
}

/// Seconds since 1970.
pub(crate) fn stamp() -> anyhow::Result<u64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(since.context("the clock is before 1970")?.as_secs())
}

/// Where this run keeps what its parts print.
pub(crate) fn folder(root: &Path, name: &str, stamp: u64) -> anyhow::Result<PathBuf> {
    let folder = crate::target_folder(root).join(name).join(stamp.to_string());
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// Prints what came of each part, and fails if one failed.
pub(crate) fn summary(name: &str, outcomes: &[PartOutcome], took: Duration) -> anyhow::Result<()> {
    print("\n");
    for outcome in outcomes {
        print(&format!("{}\n", outcome.summary()));
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    let minutes = took.as_secs_f64() / 60.0;
    ensure!(failed == 0, "{name}: {failed} of {} parts failed, in {minutes:.0} minutes", outcomes.len());
    print(&format!("{name}: all {} parts passed in {minutes:.0} minutes\n", outcomes.len()));
    Ok(())
}

impl Night<'_> {
    fn all(&mut self) -> anyhow::Result<()> {
        if self.arguments.has(NightKind::Model) {
            self.part(NightPart::new("model", &["xtask", "model", "--deep"], BUILD_TIME))?;
        }
        if self.arguments.has(NightKind::Mutants) {
            self.part(NightPart::new("mutants", &["xtask", "mutants"], BUILD_TIME))?;
        }
        if self.arguments.has(NightKind::Instructions) {
            self.part(NightPart::new("instructions", &["xtask", "bench", "instructions"], BUILD_TIME))?;
        }
        if self.arguments.has(NightKind::Properties) {
            self.properties()?;
        }
        if self.arguments.has(NightKind::Simulation) {
            self.simulation()?;
        }
        if self.arguments.has(NightKind::Fuzz) {
            self.fuzz()?;
        }
        if self.arguments.has(NightKind::Differential) {
            self.differential()?;
        }
        if self.arguments.has(NightKind::Jepsen) {
            self.jepsen()?;
        }
        Ok(())
    }

    fn part(&mut self, part: NightPart) -> anyhow::Result<&PartOutcome> {
        tell(&format!("night: {}: {}", part.name, part.command()));
        let outcome = part.run(self.root, &self.folder)?;
        if !outcome.passed() {
            tell(&outcome.tail());
        }
        tell(&format!("night: {}", outcome.summary()));
        self.outcomes.push(outcome);
        Ok(&self.outcomes[self.outcomes.len() - 1])
    }

    /// What this kind gets of what is left.
    fn share(&self, kind: NightKind) -> Duration {
        let left = self.arguments.time.saturating_sub(self.began.elapsed());
        self.arguments.share(kind, left)
    }

    /// Rounds of ever more cases, until the next would take too long.
    fn properties(&mut self) -> anyhow::Result<()> {
        let users = users_of(CASES, &metadata(self.root)?);
        let mut arguments =
            vec!["test", "--locked", "--profile", "checked", "--no-fail-fast", "--lib", "--tests"];
        for user in users.iter().filter(|user| *user != WITHOUT) {
            arguments.extend(["--package", user]);
        }
        let build = [&arguments[..], &["--no-run"]].concat();
        if !self.part(NightPart::new("properties build", &build, BUILD_TIME))?.passed() {
            return Ok(());
        }
        let (began, share) = (Instant::now(), self.share(NightKind::Properties));
        let mut times = TIMES_FIRST;
        loop {
            let left = share.saturating_sub(began.elapsed());
            let mut part = NightPart::new(&format!("properties x{times}"), &arguments, left);
            part.variables = vec![("DISTCACHE_TEST_CASES", times.to_string())];
            let took = self.part(part)?.took;
            let Some(next) = next_times(times, took, share.saturating_sub(began.elapsed())) else { break };
            times = next;
        }
        Ok(())
    }

    fn simulation(&mut self) -> anyhow::Result<()> {
        let (began, share) = (Instant::now(), self.share(NightKind::Simulation));
        let mut first = self.stamp * 1000;
        loop {
            let seeds = format!("{first}..{}", first + SIMULATED_SEEDS);
            #[rustfmt::skip]
            let part = NightPart::new(&format!("simulation {seeds}"), &[
                "run", "--profile", "checked", "--locked", "--package", "distcache", "--",
                "sim", "--seeds", &seeds, "--seconds", "60", "--repeat", "50",
            ], share);
            let took = self.part(part)?.took;
            first += SIMULATED_SEEDS;
            if began.elapsed() + took > share {
                return Ok(());
            }
        }
    }

    fn fuzz(&mut self) -> anyhow::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let (targets, share) = (fuzz::targets(self.root)?.len() as u64, self.share(NightKind::Fuzz));
        let seconds = (share.as_secs() * cores / targets.max(1)).max(1).to_string();
        let seed = self.seed();
        self.part(NightPart::new("fuzz", &["xtask", "fuzz", "--seconds", &seconds, "--seed", &seed], share))?;
        Ok(())
    }

    fn differential(&mut self) -> anyhow::Result<()> {
        let share = self.share(NightKind::Differential);
        let (seconds, seed) = ((share.as_secs() / 2).max(1), self.seed());
        // Some thousand commands pass in a second.
        let commands = (seconds * 4000).min(u64::from(u32::MAX)).to_string();
        for (name, flag, much) in
            [("streams", "--seconds", seconds.to_string()), ("commands", "--commands", commands)]
        {
            let line = ["xtask", "fuzz", "differential", flag, &much, "--seed", &seed];
            self.part(NightPart::new(&format!("differential {name}"), &line, share / 2))?;
        }
        Ok(())
    }

    fn jepsen(&mut self) -> anyhow::Result<()> {
        let share = self.share(NightKind::Jepsen);
        let (seconds, seed) = ((share / 2).as_secs().max(60).to_string(), self.seed());
        let line = ["xtask", "jepsen", "--seconds", &seconds, "--seed", &seed, "--storage"];
        for (name, storage, flag) in [
            ("jepsen", "redis,cluster,redis,memcached", "--upgrades"),
            ("jepsen resharding", "durable", "--resharding"),
        ] {
            self.part(NightPart::new(name, &[&line[..], &[storage, flag]].concat(), share / 2))?;
        }
        Ok(())
    }

    /// One that fits 32 bits.
    fn seed(&self) -> String {
        (self.stamp % u64::from(u32::MAX)).to_string()
    }
}

/// How many times the usual cases the next round may try, if this one took so long and so much time is left.
fn next_times(times: u32, took: Duration, left: Duration) -> Option<u32> {
    let per_time = took.as_secs_f64() / f64::from(times);
    // Not all of the time grows with the cases.
    let fits =
        (left.as_secs_f64() / per_time.max(1e-6)).min(f64::from(times.saturating_mul(TIMES_GROWTH_MAX)));
    (fits as u32 >= TIMES_FIRST).then_some(fits as u32)
}

fn metadata(root: &Path) -> anyhow::Result<serde_json::Value> {
    let mut command = cargo::command();
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root);
    let output = command.output().context("starting cargo")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Names of the packages that depend on `name`.
fn users_of(name: &str, metadata: &serde_json::Value) -> Vec<String> {
    let empty = Vec::new();
    let packages = metadata["packages"].as_array().unwrap_or(&empty);
    let uses = |package: &&serde_json::Value| {
        let dependencies = package["dependencies"].as_array().unwrap_or(&empty);
        dependencies.iter().any(|dependency| dependency["name"] == name)
    };
    packages.iter().filter(uses).filter_map(|package| Some(package["name"].as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_tests_are_found_and_rounds_fill_the_time() {
        let users = users_of(CASES, &metadata(crate::root()).unwrap());
        for user in ["flash", "policies", "commands", "protocol", "wire", "trace", "study", "shim"] {
            assert!(users.iter().any(|known| known == user), "{user} of {users:?}");
        }
        let second = Duration::from_secs(1);
        assert_eq!(next_times(10, 10 * second, 30 * second), Some(30));
        assert_eq!(next_times(10, second, 3600 * second), Some(80), "not too much at once");
        assert_eq!(next_times(80, 80 * second, 5 * second), None);
    }

    #[test]
    fn a_summary_fails_if_a_part_did() {
        let folder = crate::cluster::Folder::new("night").unwrap();
        let run = |arguments: &[&str]| {
            NightPart::new("part", arguments, Duration::ZERO).run(crate::root(), folder.path()).unwrap()
        };
        let mut outcomes = vec![run(&["--version"])];
        assert!(summary("night", &outcomes, Duration::ZERO).is_ok());
        outcomes.push(run(&["no-such-command"]));
        let error = summary("night", &outcomes, Duration::ZERO).unwrap_err().to_string();
        assert!(error.starts_with("night: 1 of 2 parts failed"), "{error}");
    }
}
