//! One command with a time limit, its output in a file, and what to tell of it. Not which commands there are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;

use crate::group::{GroupEnd, ProcessGroup};

const POLL: Duration = Duration::from_millis(100);
/// A part that has not ended so long after its time hangs.
const GRACE: Duration = Duration::from_secs(1800);
/// Lines of a failed part that are shown at once; the file has all.
const TAIL_LINES: usize = 40;
/// What is printed before a command that repeats a failure, by all tests and searches here.
const AGAIN: &str = " again: ";
/// More ways to repeat are in the file.
const HINTS_MAX: usize = 8;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NightPart {
    pub(crate) name: String,
    /// Behind `cargo`.
    pub(crate) arguments: Vec<String>,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// How long it should take.
    pub(crate) time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartVerdict {
    Passed,
    Failed,
    /// It was ended long after its time.
    Hung,
}

/// What came of a part.
#[derive(Debug)]
pub(crate) struct PartOutcome {
    pub(crate) part: NightPart,
    pub(crate) verdict: PartVerdict,
    pub(crate) took: Duration,
    pub(crate) log: PathBuf,
}

impl NightPart {
    pub(crate) fn new(name: &str, arguments: &[&str], time: Duration) -> NightPart {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        NightPart { name: name.to_owned(), arguments, variables: Vec::new(), time }
    }

    /// What a person types to run it.
    pub(crate) fn command(&self) -> String {
        let mut words: Vec<String> =
            self.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words.push("cargo".to_owned());
        words.extend(self.arguments.iter().map(|argument| argument.replace('*', "'*'")));
        words.join(" ")
    }

    /// Runs it, with its output in a file of `folder`.
    pub(crate) fn run(self, root: &Path, folder: &Path) -> anyhow::Result<PartOutcome> {
        let log = folder.join(format!("{}.log", self.name.replace(' ', "-")));
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let mut command = crate::cargo::command();
        command.args(&self.arguments).envs(self.variables.iter().cloned()).current_dir(root);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut group = ProcessGroup::start(command, self.time + GRACE)?;
        let verdict = match group.wait(POLL)? {
            GroupEnd::Ended(status) if status.success() => PartVerdict::Passed,
            GroupEnd::Ended(_) => PartVerdict::Failed,
            GroupEnd::Hung => PartVerdict::Hung,
        };
        Ok(PartOutcome { part: self, verdict, took: group.elapsed(), log })
    }
}

impl PartOutcome {
    pub(crate) fn passed(&self) -> bool {
        self.verdict == PartVerdict::Passed
    }

    fn text(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its last lines, for the moment in which it fails.
    pub(crate) fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Tests that failed in it.
    pub(crate) fn failed_tests(&self) -> Vec<String> {
        failed_tests(&self.text())
    }

    /// A line of the summary and, where it failed, how to see it again.
    pub(crate) fn summary(&self) -> String {
        let verdict = match self.verdict {
            PartVerdict::Passed => "passed",
            PartVerdict::Failed => "FAILED",
            PartVerdict::Hung => "HUNG",
        };
        let mut lines = vec![format!("{:<24} {:>8.0} s  {verdict}", self.part.name, self.took.as_secs_f64())];
        if !self.passed() {
            let hints = hints(&self.text());
            let whole = [self.part.command()];
            let again = if hints.is_empty() { &whole[..] } else { &hints[..] };
            lines.extend(again.iter().map(|command| format!("    again: {command}")));
            lines.push(format!("    output: {}", self.log.display()));
        }
        lines.join("\n")
    }
}

/// The commands that the output names to see failures again.
fn hints(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some((_, command)) = line.split_once(AGAIN) else { continue };
        if !found.iter().any(|known| known == command) && found.len() < HINTS_MAX {
            found.push(command.to_owned());
        }
    }
    found
}

/// The names that the harness lists at the end of each program, behind the program's.
fn failed_tests(text: &str) -> Vec<String> {
    let (mut found, mut program, mut listed) = (Vec::new(), "", false);
    for line in text.lines() {
        if let Some(running) = line.trim_start().strip_prefix("Running ") {
            program = running.split(" (").next().unwrap_or(running);
        }
        match line.strip_prefix("    ") {
            Some(name) if listed && !name.contains(' ') => found.push(format!("{program}: {name}")),
            _ => listed = line == "failures:",
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Folder;

    const OUTPUT: &str = "\
     Running unittests src/lib.rs (target/debug/deps/flash-0123456789abcdef)
test a::holds ... ok
test a::breaks ... FAILED

failures:

---- a::breaks stdout ----
to try the same cases again: DISTCACHE_TEST_SEED=7 cargo test -p flash -- --exact a::breaks
to try the same cases again: DISTCACHE_TEST_SEED=7 cargo test -p flash -- --exact a::breaks
error: to run it again: cargo xtask jepsen --seed 3

failures:
    a::breaks
    a::is_slow

test result: FAILED. 1 passed; 2 failed
     Running tests/codec.rs (target/debug/deps/codec-0123456789abcdef)
failures:
    breaks
";

    #[test]
    fn output_says_what_failed_and_how_to_see_it_again() {
        let failed =
            ["unittests src/lib.rs: a::breaks", "unittests src/lib.rs: a::is_slow", "tests/codec.rs: breaks"];
        assert_eq!(failed_tests(OUTPUT), failed);
        assert_eq!(
            hints(OUTPUT),
            ["DISTCACHE_TEST_SEED=7 cargo test -p flash -- --exact a::breaks", "cargo xtask jepsen --seed 3"]
        );
    }

    #[test]
    fn a_part_that_fails_is_told_with_its_output() {
        let folder = Folder::new("part").unwrap();
        let part = NightPart::new("version", &["--version"], Duration::ZERO);
        let passed = part.run(crate::root(), folder.path()).unwrap();
        assert!(passed.passed() && passed.tail().starts_with("cargo "), "{passed:?}");
        let mut part = NightPart::new("no such", &["no-such-command"], Duration::ZERO);
        part.variables = vec![("CASES", "7".to_owned())];
        let failed = part.run(crate::root(), folder.path()).unwrap();
        assert_eq!(failed.verdict, PartVerdict::Failed);
        let summary = failed.summary();
        assert!(summary.contains("again: CASES=7 cargo no-such-command\n"), "{summary}");
        assert!(summary.contains("no-such.log") && failed.tail().contains("no-such-command"), "{summary}");
    }
}
