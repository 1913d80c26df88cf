//! One file of Redis' test suite against a server that runs already: what each of its tests came to.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

/// Without progress for so many seconds the suite gives up.
const TIMEOUT_S: &str = "60";
/// What needs its own server: its files, its configuration, its replicas.
const TAGS: &str =
    "-slow -needs:debug -needs:repl -needs:save -needs:reset -needs:config-maxmemory -needs:config-resetstat";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    Failed,
    /// By a tag or by the skip file.
    Skipped,
}

/// One test; several of a file may have one name.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    /// Of a failure.
    pub(super) detail: String,
}

/// The tests in the order in which they ended. All that the suite prints is kept in `log`.
pub(super) fn run(
    source: &Path,
    unit: &str,
    address: SocketAddr,
    skip: &[String],
    log: &Path,
) -> anyhow::Result<Vec<Test>> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut command = Command::new("tclsh");
    command.current_dir(source).stdin(Stdio::null()).env("TERM", "dumb");
    command.args(["tests/test_helper.tcl", "--host", &host, "--port", &port, "--singledb"]);
    command.args([
        "--ignore-encoding",
        "--ignore-digest",
        "--durable",
        "--no-latency",
        "--timeout",
        TIMEOUT_S,
    ]);
    command.args(["--tags", TAGS, "--single", unit]);
    // The suite's own processes meet at a port below this, far from those that a cluster takes.
    command.args(["--baseport", &rand::random_range(11_000..20_000).to_string()]);
    for name in skip {
        command.args(["--skiptest", name]);
    }
    let mut output = command.output().context("compat: starting tclsh (Debian's package tcl)")?;
    if String::from_utf8_lossy(&output.stderr).contains("address already in use") {
        command.args(["--baseport", &rand::random_range(11_000..20_000).to_string()]);
        output = command.output()?;
    }
    std::fs::write(log, [&output.stdout[..], &output.stderr].concat())?;
    let mut tests = parse(&String::from_utf8_lossy(&output.stdout));
    if !output.status.success() && tests.iter().all(|test| test.outcome != Outcome::Failed) {
        let detail = String::from_utf8_lossy(&output.stderr).into_owned();
        tests.push(Test { name: "the file itself".to_owned(), outcome: Outcome::Failed, detail });
    }
    Ok(tests)
}

fn parse(text: &str) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let Some((kind, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("]: ")) else {
            if let (true, Some(test)) = (open, tests.last_mut()) {
                test.detail += line;
                test.detail.push('\n');
            }
            open = open && !line.is_empty();
            continue;
        };
        let outcome = match kind {
            "ok" => Outcome::Ok,
            "skip" | "ignore" => Outcome::Skipped,
            "err" | "exception" | "timeout" => Outcome::Failed,
            _ => {
                open = false;
                continue;
            }
        };
        open = outcome == Outcome::Failed;
        let name = match outcome {
            Outcome::Ok => rest.rsplit_once(" (").map_or(rest, |(name, _)| name),
            Outcome::Failed => rest.rsplit_once(" in tests/").map_or(rest, |(name, _)| name),
            Outcome::Skipped => rest.split_once(": Tag:").map_or(rest, |(name, _)| name),
        };
        tests.push(Test { name: name.to_owned(), outcome, detail: String::new() });
    }
    // What failed is listed once more at the end.
    let end = text.find("!!! WARNING The following tests failed").map(|at| parse_count(&text[..at]));
    tests.truncate(end.unwrap_or(tests.len()));
    tests
}

fn parse_count(text: &str) -> usize {
    let kinds = ["[ok]: ", "[skip]: ", "[ignore]: ", "[err]: ", "[exception]: ", "[timeout]: "];
    text.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(kind))).count()
}

#[cfg(test)]
mod tests {
    use super::{Outcome, parse};

    #[test]
    fn every_kind_of_line_is_understood() {
        let text = "[ready]: 1\n[testing]: a\n[ok]: a (b) (3 ms)\n[skip]: c\n[ignore]: d: Tag: x denied\n\
                    [err]: e in f in tests/unit/x.tcl\nExpected 1\n[ok]: g (0 ms)\n\n\
                    !!! WARNING The following tests failed:\n\n*** [err]: e in f in tests/unit/x.tcl\n";
        let tests = parse(text);
        let short: Vec<_> = tests.iter().map(|test| (test.name.as_str(), test.outcome)).collect();
        let (ok, failed, skipped) = (Outcome::Ok, Outcome::Failed, Outcome::Skipped);
        assert_eq!(short, [("a (b)", ok), ("c", skipped), ("d", skipped), ("e in f", failed), ("g", ok)]);
        assert_eq!(tests[3].detail, "Expected 1\n");
    }
}
