//! Rules of the protocol taken out one at a time: the model checker must notice each, or the simulator: the server before
//! which the machines for storage run alone, or a whole cluster.
//!
//! A mutant is a patch in `crates/protocol/mutants`. Its first line says which rule it removes, its second what catches it:
//! a configuration of the model, `sim::fencing` and the first word of its test, `sim::runs` and the first words of its
//! test in `crates/sim/tests/runs.rs`, or `protocol::` with the name of a program in `crates/protocol/tests`, or `lib` for tests
//! beside the code, and words of its test.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::garden::Garden;
use crate::model::tester;
use crate::{cargo, target_folder};

const RULE: &str = "Rule: ";
const CAUGHT_BY: &str = "Caught by: ";
const FENCING: &str = "sim::fencing ";
const RUNS: &str = "sim::runs ";
const PROTOCOL: &str = "protocol::";
/// In the place of a program: tests beside the code.
const UNITS: &str = "lib";
/// Per configuration: a rule that is missing shows long before.
const MODEL_SECONDS: &str = "300";
/// Times as many seeds as the tests try: most rules show in the first.
const TIMES: &str = "4";
/// One more mutant builds what it has touched and no more.
const INCREMENTAL: (&str, &str) = ("CARGO_INCREMENTAL", "1");

/// One rule taken out.
struct Mutant {
    name: String,
    rule: String,
    catcher: Catcher,
    patch: PathBuf,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Catcher {
    /// The configuration with this name.
    Model(String),
    Simulator(SimulatorTest),
    Protocol(ProtocolTest),
}

/// Tests of the machines without a network whose names begin so.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ProtocolTest {
    /// In `crates/protocol/tests`.
    program: String,
    begins: String,
}

/// Tests of the simulator whose names begin so.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatorTest {
    /// Tests of the world in which the machines for storage run alone.
    Fencing(String),
    /// Tests of whole clusters.
    Runs(String),
}

impl SimulatorTest {
    fn arguments(&self) -> [String; 3] {
        match self {
            SimulatorTest::Fencing(world) => {
                ["--lib".to_owned(), "--".to_owned(), format!("fencing::tests::{world}_")]
            }
            SimulatorTest::Runs(test) => ["--test=runs".to_owned(), "--".to_owned(), test.clone()],
        }
    }
}

impl fmt::Display for SimulatorTest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimulatorTest::Fencing(world) => write!(formatter, "{FENCING}{world}"),
            SimulatorTest::Runs(test) => write!(formatter, "{RUNS}{test}"),
        }
    }
}

struct Caught {
    by: String,
    /// How long the way to it is, in steps of the model or seconds of the simulation.
    way: String,
    property: String,
    taken: Duration,
}

/// Tries every mutant, or those whose names begin so.
pub(crate) fn run(root: &Path, begins: &str) -> anyhow::Result<()> {
    let all = listed(root)?;
    let chosen: Vec<&Mutant> = all.iter().filter(|mutant| mutant.name.starts_with(begins)).collect();
    ensure!(!chosen.is_empty(), "no mutant begins with {begins:?}; there are: {}", names(&all));
    // In a folder of its own: cargo takes a package of the tree and its copy for the same.
    let folder = target_folder(root).join("mutants");
    let bench = Bench { garden: Garden::new(root, &folder)?, build: folder.join("build") };
    bench.check_clean(&chosen)?;
    let mut missed = Vec::new();
    for mutant in chosen {
        match bench.try_out(mutant).with_context(|| mutant.name.clone())? {
            Some(Caught { by, way, property, taken }) => {
                println!("{:<36} {by:<16} {way:>10} {:>6.1} s  {property}", mutant.name, taken.as_secs_f64());
            }
            None => {
                println!("{:<36} MISSED: {}", mutant.name, mutant.rule);
                missed.push(mutant.name.as_str());
            }
        }
    }
    ensure!(missed.is_empty(), "nobody notices that these rules are gone: {}", missed.join(", "));
    Ok(())
}

pub(crate) fn all(root: &Path) -> anyhow::Result<()> {
    run(root, "")
}

/// A copy of the tree, and where it is built.
struct Bench {
    garden: Garden,
    build: PathBuf,
}

impl Bench {
    fn check_clean(&self, chosen: &[&Mutant]) -> anyhow::Result<()> {
        let configs: Vec<&str> = chosen
            .iter()
            .filter_map(|mutant| match &mutant.catcher {
                Catcher::Model(config) => Some(config.as_str()),
                Catcher::Simulator(_) | Catcher::Protocol(_) => None,
            })
            .collect();
        let mut clean = Vec::new();
        if !configs.is_empty() {
            clean.push(self.explore(&configs.join(","))?);
        }
        let catchers: BTreeSet<&Catcher> = chosen.iter().map(|mutant| &mutant.catcher).collect();
        for catcher in catchers {
            match catcher {
                Catcher::Model(_) => {}
                Catcher::Simulator(test) => clean.push(self.simulate(test)?),
                Catcher::Protocol(test) => clean.push(self.play(test)?),
            }
        }
        match clean.iter().find(|output| !output.status.success()) {
            Some(failed) => bail!("without any mutant it fails:\n{}", text(failed)),
            None => Ok(()),
        }
    }

    fn try_out(&self, mutant: &Mutant) -> anyhow::Result<Option<Caught>> {
        self.garden.apply(&mutant.patch)?;
        let caught = match &mutant.catcher {
            Catcher::Model(config) => self.catch_by_model(config),
            Catcher::Simulator(test) => self.catch_by_simulator(test),
            Catcher::Protocol(test) => self.catch_by_protocol(test),
        };
        self.garden.revert(&mutant.patch)?;
        caught
    }

    /// With the configuration that the patch names, then with all others.
    fn catch_by_model(&self, config: &str) -> anyhow::Result<Option<Caught>> {
        let built = self.tester().arg("--no-run").output().context("starting cargo")?;
        ensure!(built.status.success(), "does not compile:\n{}", text(&built));
        for configs in [config, "ci"] {
            let began = Instant::now();
            let output = self.explore(configs)?;
            let printed = String::from_utf8_lossy(&output.stdout);
            let mut before = "";
            for line in printed.lines() {
                if let Some(found) = line.strip_prefix("counterexample: ") {
                    let (property, way) = found.rsplit_once("; ").context("a counterexample has steps")?;
                    let by = before.split_whitespace().next().unwrap_or(configs).to_owned();
                    let (property, way, taken) = (property.to_owned(), way.to_owned(), began.elapsed());
                    return Ok(Some(Caught { by, way, property, taken }));
                }
                before = line;
            }
            if !output.status.success() && !printed.contains("not complete") {
                bail!("the model fails without a counterexample:\n{}", text(&output));
            }
        }
        Ok(None)
    }

    fn explore(&self, configs: &str) -> anyhow::Result<Output> {
        let mut command = self.tester();
        command.args(["--", "--nocapture"]).env("MODEL", configs).env("MODEL_SECONDS", MODEL_SECONDS);
        command.output().context("starting cargo")
    }

    fn catch_by_simulator(&self, test: &SimulatorTest) -> anyhow::Result<Option<Caught>> {
        let built = self.simulator().args(["--tests", "--no-run"]).output().context("starting cargo")?;
        ensure!(built.status.success(), "does not compile:\n{}", text(&built));
        let began = Instant::now();
        let output = self.simulate(test)?;
        if output.status.success() {
            return Ok(None);
        }
        let printed = text(&output);
        let found = printed.lines().filter_map(|line| line.strip_prefix("seed ")).find_map(violation);
        let Some((way, property)) = found else { bail!("it fails without a violation:\n{printed}") };
        Ok(Some(Caught { by: test.to_string(), way, property, taken: began.elapsed() }))
    }

    fn catch_by_protocol(&self, test: &ProtocolTest) -> anyhow::Result<Option<Caught>> {
        let began = Instant::now();
        let output = self.play(test)?;
        if output.status.success() {
            return Ok(None);
        }
        let printed = text(&output);
        let mut lines = printed.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
        let Some(property) = lines.next() else { bail!("it fails without a test that fails:\n{printed}") };
        let by = format!("{PROTOCOL}{}", test.program);
        Ok(Some(Caught {
            by,
            way: test.begins.clone(),
            property: property.to_owned(),
            taken: began.elapsed(),
        }))
    }

    fn play(&self, test: &ProtocolTest) -> anyhow::Result<Output> {
        let mut command = self.tests_of("protocol");
        let program = match test.program.as_str() {
            UNITS => "--lib".to_owned(),
            program => format!("--test={program}"),
        };
        command.args([&program, "--", &test.begins]).output().context("starting cargo")
    }

    fn simulate(&self, test: &SimulatorTest) -> anyhow::Result<Output> {
        let mut command = self.simulator();
        command.args(test.arguments()).env("DISTCACHE_TEST_CASES", TIMES);
        command.output().context("starting cargo")
    }

    fn simulator(&self) -> Command {
        self.tests_of("sim")
    }

    fn tests_of(&self, package: &str) -> Command {
        let mut command = cargo::command();
        command.args(["test", "--quiet", "--locked", "--package", package]);
        command.current_dir(self.garden.tree()).env("CARGO_TARGET_DIR", &self.build);
        command.env(INCREMENTAL.0, INCREMENTAL.1);
        command
    }

    fn tester(&self) -> Command {
        let mut command = tester(self.garden.tree(), &self.build);
        command.env(INCREMENTAL.0, INCREMENTAL.1);
        command
    }
}

/// `7, 1.25 s: what`, or `7: at 1.25 s: what` -> when, and what.
fn violation(line: &str) -> Option<(String, String)> {
    let (seed_and_time, what) = line.split_once(" s: ")?;
    let (_, seconds) = seed_and_time.split_once(": at ").or_else(|| seed_and_time.split_once(", "))?;
    let seconds: f64 = seconds.parse().ok()?;
    Some((format!("{seconds:.1} s in"), what.to_owned()))
}

fn listed(root: &Path) -> anyhow::Result<Vec<Mutant>> {
    let folder = root.join("crates/protocol/mutants");
    let mut mutants = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let patch = entry?.path();
        let text = std::fs::read_to_string(&patch).with_context(|| patch.display().to_string())?;
        let mut lines = text.lines();
        let mut field = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name)).map(str::to_owned);
            line.with_context(|| format!("{}: no line {name:?}", patch.display()))
        };
        let (rule, caught_by) = (field(RULE)?, field(CAUGHT_BY)?);
        let catcher = if let Some(world) = caught_by.strip_prefix(FENCING) {
            Catcher::Simulator(SimulatorTest::Fencing(world.to_owned()))
        } else if let Some(test) = caught_by.strip_prefix(RUNS) {
            Catcher::Simulator(SimulatorTest::Runs(test.to_owned()))
        } else if let Some((program, begins)) =
            caught_by.strip_prefix(PROTOCOL).and_then(|test| test.split_once(' '))
        {
            Catcher::Protocol(ProtocolTest { program: program.to_owned(), begins: begins.to_owned() })
        } else {
            Catcher::Model(caught_by)
        };
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        mutants.push(Mutant { name, rule, catcher, patch });
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

fn names(mutants: &[Mutant]) -> String {
    mutants.iter().map(|mutant| mutant.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::{listed, violation};
    use crate::cluster::Folder;
    use crate::garden::Garden;

    #[test]
    fn every_mutant_says_what_it_removes_and_applies() {
        let folder = Folder::new("mutants").unwrap();
        let garden = Garden::new(crate::root(), folder.path()).unwrap();
        let mutants = listed(crate::root()).unwrap();
        assert!(mutants.len() >= 50, "{}", mutants.len());
        for mutant in mutants {
            assert!(mutant.rule.ends_with('.'), "{}", mutant.name);
            garden.apply(&mutant.patch).unwrap();
            garden.revert(&mutant.patch).unwrap();
        }
    }

    #[test]
    fn a_violation_is_read() {
        let line = "16515960321018365708, 7.369532 s: incarnation 4 is up again after 6";
        let expected = ("7.4 s in".to_owned(), "incarnation 4 is up again after 6".to_owned());
        assert_eq!(violation(line), Some(expected.clone()));
        let line = "16515960321018365708: at 7.369532 s: incarnation 4 is up again after 6";
        assert_eq!(violation(line), Some(expected));
        assert_eq!(violation("5 fails; to try it again: cargo test"), None);
    }
}
