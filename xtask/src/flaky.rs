//! The test steps of CI, again and again beside busy processes: which tests fail now and then. Not why they do.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::night::{self, NightPart, PartOutcome};
use crate::{print, suite, tell};

const USAGE: &str = "\
Usage: cargo xtask flaky [OPTIONS] [FILTER]

Runs CI's test steps again and again, with fresh seeds each time and beside processes that keep cores busy. Tells every
test that failed and keeps the output of every run below target/flaky; exit code 1 if anything failed.

  --times N      how often (default 20)
  --busy N       busy processes beside the tests (default 2)
  --step NAME    only one of the steps: test or end-to-end
  FILTER         only tests whose name contains this
";
/// The argument with which this program starts itself as a busy process.
pub(crate) const BURN: &str = "burn";
/// All test steps of a run together take a few minutes on an idle machine.
const STEP_TIME: Duration = Duration::from_secs(1800);

#[derive(Debug, PartialEq)]
struct FlakyArguments {
    times: u32,
    busy: u32,
    step: Option<String>,
    filter: Option<String>,
}

impl FlakyArguments {
    fn parse(arguments: &[&str]) -> anyhow::Result<FlakyArguments> {
        let mut parsed = FlakyArguments { times: 20, busy: 2, step: None, filter: None };
        let mut rest = arguments.iter();
        while let Some(&argument) = rest.next() {
            if !argument.starts_with("--") && parsed.filter.is_none() {
                parsed.filter = Some(argument.to_owned());
                continue;
            }
            let value = rest.next().with_context(|| format!("{argument} needs a value\n\n{USAGE}"));
            let number = |text: &str| {
                text.parse::<u32>().with_context(|| format!("{argument} {text:?}: write a whole number"))
            };
            match argument {
                "--times" => parsed.times = number(value?)?,
                "--busy" => parsed.busy = number(value?)?,
                "--step" => parsed.step = Some((*value?).to_owned()),
                _ => bail!("unknown argument {argument:?}\n\n{USAGE}"),
            }
        }
        ensure!(parsed.times > 0, "--times 0: at least one run is needed");
        Ok(parsed)
    }

    /// Parts of one run.
    fn parts(&self, number: u32) -> anyhow::Result<Vec<NightPart>> {
        let known = suite::PARTS.map(|(name, _)| name);
        let chosen = known.iter().filter(|name| self.step.as_ref().is_none_or(|step| step == *name));
        let part = |name: &&str| {
            let mut arguments = vec!["xtask", "suite", *name];
            arguments.extend(self.filter.as_deref());
            NightPart::new(&format!("run {number} {name}"), &arguments, STEP_TIME)
        };
        let parts: Vec<NightPart> = chosen.map(part).collect();
        let names = known.join(" and ");
        ensure!(
            !parts.is_empty(),
            "--step {:?}: there are {names}",
            self.step.as_deref().unwrap_or_default()
        );
        Ok(parts)
    }
}

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    if matches!(arguments, ["help" | "--help" | "-h"]) {
        print(USAGE);
        return Ok(());
    }
    let arguments = FlakyArguments::parse(arguments)?;
    let (began, folder) = (Instant::now(), night::folder(root, "flaky", night::stamp()?)?);
    let build = NightPart::new("build", suite::BUILD, STEP_TIME).run(root, &folder)?;
    ensure!(build.passed(), "the tests do not build:\n{}", build.tail());
    let busy = (0..arguments.busy).map(|_| Busy::start()).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut outcomes, mut failures) = (Vec::new(), BTreeMap::new());
    for number in 1..=arguments.times {
        for part in arguments.parts(number)? {
            let outcome = part.run(root, &folder)?;
            tell(&format!("flaky: {}", outcome.summary()));
            count(&outcome, &mut failures);
            outcomes.push(outcome);
        }
    }
    drop(busy);
    print("\n");
    for (test, times) in &failures {
        print(&format!("{test}: failed {times} times in {} runs\n", arguments.times));
    }
    night::summary("flaky", &outcomes, began.elapsed())
}

fn count(outcome: &PartOutcome, failures: &mut BTreeMap<String, u32>) {
    for test in outcome.failed_tests() {
        *failures.entry(test).or_default() += 1;
    }
}

/// A process that keeps one core busy until this one ends or drops it.
struct Busy(Child);

impl Busy {
    fn start() -> anyhow::Result<Busy> {
        // This program, also where the build has just put a newer one in its place.
        let mut command = Command::new("/proc/self/exe");
        // It ends when nobody holds the other end any more.
        command.arg(BURN).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Busy(command.spawn().context("starting a busy process")?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What a busy process does.
pub(crate) fn burn() -> anyhow::Result<()> {
    let waiter = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let mut number = 0_u64;
    while !waiter.is_finished() {
        for _ in 0..1_000_000 {
            number = std::hint::black_box(number.wrapping_mul(31).wrapping_add(7));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_the_steps_of_ci() {
        let all = FlakyArguments::parse(&["--times", "3", "--busy", "0", "pubsub"]).unwrap();
        assert_eq!((all.times, all.busy), (3, 0));
        let commands: Vec<String> = all.parts(2).unwrap().iter().map(NightPart::command).collect();
        assert_eq!(commands, ["cargo xtask suite test pubsub", "cargo xtask suite end-to-end pubsub"]);
        let one = FlakyArguments::parse(&["--step", "test"]).unwrap();
        assert_eq!((one.parts(1).unwrap().len(), one.times), (1, 20));
        assert!(FlakyArguments::parse(&["--step", "lint"]).unwrap().parts(1).is_err());
        for wrong in [&["--times"][..], &["--times", "0"], &["--times", "x"], &["--quick", "1"], &["a", "b"]]
        {
            assert!(FlakyArguments::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
