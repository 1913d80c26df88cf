//! Redis' own test suite: which of its files say something about a proxy, and what each test of one came to at a server
//! that runs already. Not how two runs compare.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::CompatArguments;
use super::report::{self, CaseOutcome, CaseRow, Test};
use super::skip::Skips;
use super::source;
use crate::cluster::{Folder, Layer, Layout, ProcessCluster};

/// Without progress for so many seconds the suite gives up.
const TIMEOUT_S: &str = "60";
/// What needs its own server: its files, its configuration, its replicas.
const TAGS: &str =
    "-slow -needs:debug -needs:repl -needs:save -needs:reset -needs:config-maxmemory -needs:config-resetstat";

/// The files of the suite that say something about a proxy.
const UNITS: [&str; 34] = [
    "unit/type/string",
    "unit/type/incr",
    "unit/type/hash",
    "unit/type/list",
    SLOW,
    "unit/type/list-3",
    "unit/type/set",
    "unit/type/zset",
    "unit/type/stream",
    "unit/type/stream-cgroups",
    "unit/expire",
    "unit/keyspace",
    "unit/scan",
    "unit/protocol",
    "unit/sort",
    "unit/geo",
    "unit/hyperloglog",
    "unit/bitops",
    "unit/bitfield",
    "unit/dump",
    "unit/introspection-2",
    "unit/multi",
    "unit/pubsub",
    "unit/pubsubshard",
    "unit/pause",
    "unit/scripting",
    "unit/functions",
    "unit/tracking",
    "unit/lazyfree",
    "unit/other",
    "unit/violations",
    "unit/quit",
    // Last: what they make of the direct server's users stays.
    USERS[0],
    USERS[1],
];

/// What failed if no test of a file did.
const THE_FILE: &str = "the file itself";
/// The files about users, which are those of storage then.
const USERS: [&str; 2] = ["unit/acl", "unit/acl-v2"];
/// The file whose tests the suite all calls slow. They take some seconds.
const SLOW: &str = "unit/type/list-2";
/// Files that the suite leaves out where it has not started the server itself, because a few of their tests need that.
const ADMITTED: [&str; 3] = [USERS[0], USERS[1], "unit/pubsubshard"];

/// Runs the suite as the arguments say, with a table for each number of servers.
pub(super) fn compare(root: &Path, arguments: &CompatArguments) -> anyhow::Result<()> {
    let units = arguments.units_of(&UNITS.map(str::to_owned))?;
    let source = fetch(root)?;
    let skips = Skips::read(&root.join("xtask/compat/redis.skip"))?.exact()?;
    let binary = arguments.binary(root)?;
    arguments.tables(|servers| {
        let through = Through { source: &source, binary: &binary, servers };
        rows(&through, &units, &skips.of(servers), arguments.all)
    })
}

/// What the suite is run through.
struct Through<'a> {
    source: &'a Path,
    binary: &'a Path,
    servers: usize,
}

impl Through<'_> {
    /// A unit through a router with caches so small that all is admitted and evicted all the time. Each time a cluster of
    /// its own: what one run leaves behind is not the next one's trouble.
    fn run(&self, unit: &str, skip: &[&str], log: &Path) -> anyhow::Result<Vec<Test>> {
        let mut cluster = ProcessCluster::start(self.binary, layout(unit, self.servers), 1)?;
        let got = run(self.source, unit, cluster.router(0), skip, log)?;
        let fallen = cluster.fallen();
        anyhow::ensure!(fallen.is_empty(), "compat: {unit}: {} ended on their own", fallen.join(", "));
        Ok(got)
    }

    /// What the skip file leaves out of a unit although it passes, if it alone is run beside what is not left out.
    fn needless(&self, unit: &str, skips: &Skips, log: &Path) -> anyhow::Result<Vec<(String, String)>> {
        let names = skips.names(unit);
        let mut found = Vec::new();
        for name in &names {
            let others: Vec<&str> = names.iter().copied().filter(|other| other != name).collect();
            if report::passes(name, &self.run(unit, &others, log)?) {
                let reason = skips.reason(unit, name).map_or("", |reason| reason.text);
                found.push(report::needless(name, reason));
            }
        }
        Ok(found)
    }
}

/// Every unit twice: direct, and through a router. If `prove`, each test that is left out is run as well.
fn rows(through: &Through<'_>, units: &[String], skips: &Skips, prove: bool) -> anyhow::Result<Vec<CaseRow>> {
    let logs = super::logs(through.source)?;
    let mut rows = Vec::new();
    for unit in units {
        let log = |which: &str| logs.join(format!("{}-{which}.txt", unit.replace('/', "-")));
        let expected = direct(through.source, unit, &log("direct"))?;
        let got = through.run(unit, &skips.names(unit), &log(&through.servers.to_string()))?;
        let mut row = report::row(unit, &expected, &got, skips);
        if prove {
            row.needless.extend(through.needless(unit, skips, &log("skipped"))?);
        }
        crate::tell(&report::line(&row));
        rows.push(row);
    }
    Ok(rows)
}

/// A unit on a server of its own: files leave settings behind on which others hang.
fn direct(source: &Path, unit: &str, log: &Path) -> anyhow::Result<Vec<Test>> {
    let folder = Folder::new("compat")?;
    let (_server, address) = crate::cluster::redis(folder.path())?;
    let expected = run(source, unit, address, &[], log)?;
    let is_whole = expected.iter().all(|test| test.name != THE_FILE);
    anyhow::ensure!(is_whole, "compat: {unit} did not come to its end direct: see {}", log.display());
    Ok(expected)
}

/// The folder of the suite's sources, made fit for servers that others run.
fn fetch(root: &Path) -> anyhow::Result<PathBuf> {
    let source = source::fetch(root, "redis")?;
    leave_saving_alone(&source)?;
    ADMITTED.iter().try_for_each(|unit| admit(&source, unit))?;
    Ok(source)
}

/// The servers of a run save nothing anyway, and whether they do is not for clients to say.
fn leave_saving_alone(source: &Path) -> anyhow::Result<()> {
    let (plain, careful) = (
        "        r config set $param $val\n",
        "        if {$param ne \"save\"} { r config set $param $val }\n",
    );
    let path = source.join("tests/support/server.tcl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("compat: {}", path.display()))?;
    // It sets them before a block, and again behind it.
    let changed = text.replace(plain, careful);
    anyhow::ensure!(changed.contains(careful), "compat: {} sets nothing where expected", path.display());
    std::fs::write(&path, changed).with_context(|| format!("compat: {}", path.display()))
}

/// The first block of a file is run as if the suite had started the server. Its later ones have servers of their own.
fn admit(source: &Path, unit: &str) -> anyhow::Result<()> {
    let path = source.join("tests").join(unit).with_extension("tcl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("compat: {}", path.display()))?;
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let admitted = format!("{}\n{rest}", first.replace(" external:skip", ""));
    std::fs::write(&path, admitted).with_context(|| format!("compat: {}", path.display()))
}

fn layout(unit: &str, servers: usize) -> Layout {
    let users = if USERS.contains(&unit) { "storage" } else { "config" };
    Layout {
        layers: vec![Layer::leaves(1), Layer::spines(2)],
        racks: servers,
        objects_max: 100,
        tables: format!("[security]\nusers = \"{users}\"\n[heat]\nthreshold = 1\nhold_off_ms = 10"),
        separate: false,
        ..Layout::default()
    }
}

/// The tests in the order in which they ended. All that the suite prints is kept in `log`.
fn run(
    source: &Path,
    unit: &str,
    address: SocketAddr,
    skip: &[&str],
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
    let tags = if unit == SLOW { TAGS.replace("-slow ", "") } else { TAGS.to_owned() };
    command.args(["--tags", &tags, "--single", unit]);
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
    if !output.status.success() && tests.iter().all(|test| test.outcome != CaseOutcome::Failed) {
        let detail = String::from_utf8_lossy(&output.stderr).into_owned();
        tests.push(Test { name: THE_FILE.to_owned(), outcome: CaseOutcome::Failed, detail });
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
            "ok" => CaseOutcome::Ok,
            "skip" | "ignore" => CaseOutcome::Skipped,
            "err" | "exception" | "timeout" => CaseOutcome::Failed,
            _ => {
                open = false;
                continue;
            }
        };
        open = outcome == CaseOutcome::Failed;
        let name = match outcome {
            CaseOutcome::Ok => rest.rsplit_once(" (").map_or(rest, |(name, _)| name),
            CaseOutcome::Failed => rest.rsplit_once(" in tests/").map_or(rest, |(name, _)| name),
            CaseOutcome::Skipped => rest.split_once(": Tag:").map_or(rest, |(name, _)| name),
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
    use super::super::report::CaseOutcome;
    use super::parse;

    #[test]
    fn every_kind_of_line_is_understood() {
        let text = "[ready]: 1\n[testing]: a\n[ok]: a (b) (3 ms)\n[skip]: c\n[ignore]: d: Tag: x denied\n\
                    [err]: e in f in tests/unit/x.tcl\nExpected 1\n[ok]: g (0 ms)\n\n\
                    !!! WARNING The following tests failed:\n\n*** [err]: e in f in tests/unit/x.tcl\n";
        let tests = parse(text);
        let short: Vec<_> = tests.iter().map(|test| (test.name.as_str(), test.outcome)).collect();
        let (ok, failed, skipped) = (CaseOutcome::Ok, CaseOutcome::Failed, CaseOutcome::Skipped);
        assert_eq!(short, [("a (b)", ok), ("c", skipped), ("d", skipped), ("e in f", failed), ("g", ok)]);
        assert_eq!(tests[3].detail, "Expected 1\n");
    }
}
