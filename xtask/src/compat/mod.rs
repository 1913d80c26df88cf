//! `compat`: Redis' own test suite through a cluster, compared with the same run direct to a redis-server.

mod report;
mod skip;
mod source;
mod suite;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cluster::{Cluster, Folder, Layer, Layout};
use report::Row;
use skip::Skips;

pub(crate) const USAGE: &str = "\
Usage: cargo xtask compat [UNIT...] [OPTIONS]

Runs the test suite of the packaged redis-server against a router and against a redis-server, and tells
what passes only direct. UNIT is a file of the suite as in `unit/type/string`; without one: all that apply.

  --servers N,...   storage servers behind the router, one run for each [default: 1,4]
  --all             also what `xtask/compat/redis.skip` says to leave out, and tells what passes all the same
  --binary PATH     this distcache instead of a release build
  --markdown        prints the table as it stands in docs/compatibility.md
";

/// The files of the suite that say something about a proxy.
const UNITS: [&str; 27] = [
    "unit/type/string",
    "unit/type/incr",
    "unit/type/hash",
    "unit/type/list",
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
    "unit/scripting",
    "unit/functions",
    "unit/tracking",
    "unit/quit",
    // Last: what it makes of the direct server's users stays.
    USERS,
];

/// The file about users, which are those of storage then.
const USERS: &str = "unit/acl";

struct Arguments {
    units: Vec<String>,
    servers: Vec<usize>,
    all: bool,
    markdown: bool,
    binary: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let arguments = parse(arguments)?;
    let source = source::fetch(root)?;
    let skips = Skips::read(&root.join("xtask/compat/redis.skip"))?;
    let binary = match &arguments.binary {
        Some(binary) => binary.clone(),
        None => crate::bench::build(root)?,
    };
    let mut missed = 0;
    for servers in &arguments.servers {
        let skips = skips.of(*servers, arguments.all);
        let rows = compare(&source, &binary, &arguments.units, *servers, &skips)?;
        crate::print(&report::text(&rows, *servers, arguments.markdown));
        missed += rows.iter().map(|row| row.missed.len()).sum::<usize>();
    }
    anyhow::ensure!(missed == 0, "compat: {missed} tests pass direct to Redis and not through DistCache");
    Ok(())
}

fn parse(arguments: &[&str]) -> anyhow::Result<Arguments> {
    let mut parsed =
        Arguments { units: Vec::new(), servers: vec![1, 4], all: false, markdown: false, binary: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().copied().with_context(|| format!("compat: {argument} needs a value"));
        match *argument {
            "--servers" => {
                let numbers = value()?.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>();
                parsed.servers = numbers.context("compat: --servers takes numbers, as in 1,4")?;
            }
            "--all" => parsed.all = true,
            "--markdown" => parsed.markdown = true,
            "--binary" => parsed.binary = Some(PathBuf::from(value()?)),
            unit if UNITS.contains(&unit) => parsed.units.push(unit.to_owned()),
            other => anyhow::bail!("compat: unknown argument or unit {other:?}\n\n{USAGE}"),
        }
    }
    if parsed.units.is_empty() {
        parsed.units = UNITS.map(str::to_owned).to_vec();
    }
    Ok(parsed)
}

/// Every unit twice: direct, and through a router with caches so small that all is admitted and evicted all the time.
fn compare(
    source: &Path,
    binary: &Path,
    units: &[String],
    servers: usize,
    skips: &Skips,
) -> anyhow::Result<Vec<Row>> {
    let logs = source.parent().unwrap_or(source).join("logs");
    std::fs::create_dir_all(&logs)?;
    let folder = Folder::new("compat")?;
    let (direct, address) = crate::cluster::redis(folder.path())?;
    let mut rows = Vec::new();
    for unit in units {
        // A cluster for each: what one unit leaves behind is not the next one's trouble.
        let cluster = Cluster::start(binary, layout(unit, servers), 1)?;
        let log = |which: &str| logs.join(format!("{}-{which}.txt", unit.replace('/', "-")));
        let expected = suite::run(source, unit, address, &[], &log("direct"))?;
        let direct_ok = expected.iter().any(|test| test.outcome == suite::Outcome::Ok);
        anyhow::ensure!(
            direct_ok,
            "compat: nothing of {unit} passes direct: see {}",
            log("direct").display()
        );
        let through = log(&servers.to_string());
        let got = suite::run(source, unit, cluster.router(0), &skips.names(unit), &through)?;
        rows.push(report::row(unit, &expected, &got, skips));
        crate::tell(&report::line(&rows[rows.len() - 1]));
        let fallen = { cluster }.fallen();
        anyhow::ensure!(fallen.is_empty(), "compat: {unit}: {} ended on their own", fallen.join(", "));
    }
    drop(direct);
    Ok(rows)
}

fn layout(unit: &str, servers: usize) -> Layout {
    let users = if unit == USERS { "storage" } else { "config" };
    Layout {
        layers: vec![Layer::leaves(1), Layer::spines(2)],
        racks: servers,
        objects_max: 100,
        tables: format!("[security]\nusers = \"{users}\"\n[heat]\nthreshold = 1\nhold_off_ms = 10"),
        separate: false,
        ..Layout::default()
    }
}
