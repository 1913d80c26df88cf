//! `compat`: the test suites of Redis and memcached through a cluster, compared with the same run direct to a server.

mod memcached;
mod redis;
mod report;
mod skip;
mod source;
mod tap;

use std::path::{Path, PathBuf};

use anyhow::Context;

use report::CaseRow;

pub(crate) const USAGE: &str = "\
Usage: cargo xtask compat [UNIT...] [OPTIONS]
       cargo xtask compat memcached [SCRIPT...] [OPTIONS]

Runs the test suite of the packaged redis-server, or the scripts `t/*.t` of the packaged memcached, against a
router and against such a server, and tells what passes only direct. UNIT is a file of Redis' suite as in
`unit/type/string`, SCRIPT one of memcached's as in `getset`; without one: all that apply.

  --servers N,...   storage servers behind the router, one run for each [default: 1,4; memcached: 1]
  --all             runs each test that `xtask/compat/redis.skip` leaves out as well, one at a time beside what it does
                    not, and fails if one passes (memcached's scripts cannot leave anything out and always tell)
  --binary PATH     this distcache instead of a release build
  --markdown        prints the table as it stands in docs/compatibility.md
";

#[derive(Debug, Default)]
struct CompatArguments {
    units: Vec<String>,
    servers: Vec<usize>,
    all: bool,
    markdown: bool,
    binary: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        ["memcached", rest @ ..] => memcached::compare(root, &CompatArguments::parse(rest, &[1])?),
        rest => redis::compare(root, &CompatArguments::parse(rest, &[1, 4])?),
    }
}

impl CompatArguments {
    fn parse(arguments: &[&str], servers: &[usize]) -> anyhow::Result<CompatArguments> {
        let mut parsed = CompatArguments { servers: servers.to_vec(), ..CompatArguments::default() };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value =
                || rest.next().copied().with_context(|| format!("compat: {argument} needs a value"));
            match *argument {
                "--servers" => {
                    let numbers = value()?.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>();
                    parsed.servers = numbers.context("compat: --servers takes numbers, as in 1,4")?;
                }
                "--all" => parsed.all = true,
                "--markdown" => parsed.markdown = true,
                "--binary" => parsed.binary = Some(PathBuf::from(value()?)),
                unit if !unit.starts_with('-') => parsed.units.push(unit.to_owned()),
                other => anyhow::bail!("compat: unknown argument {other:?}\n\n{USAGE}"),
            }
        }
        Ok(parsed)
    }

    /// Units that are asked for, all of them known ones; or else all.
    fn units_of(&self, known: &[String]) -> anyhow::Result<Vec<String>> {
        if let Some(unit) = self.units.iter().find(|unit| !known.contains(unit)) {
            anyhow::bail!("compat: {unit:?} is none of {}\n\n{USAGE}", known.join(" "));
        }
        Ok(if self.units.is_empty() { known.to_vec() } else { self.units.clone() })
    }

    fn binary(&self, root: &Path) -> anyhow::Result<PathBuf> {
        match &self.binary {
            Some(binary) => Ok(binary.clone()),
            None => crate::bench::build(root),
        }
    }

    /// The table of each number of servers, and an error if anything is missed.
    fn tables(&self, rows: impl Fn(usize) -> anyhow::Result<Vec<CaseRow>>) -> anyhow::Result<()> {
        let (mut missed, mut needless) = (0, 0);
        for servers in &self.servers {
            let rows = rows(*servers)?;
            crate::print(&report::text(&rows, *servers, self.markdown));
            missed += rows.iter().map(|row| row.missed.len()).sum::<usize>();
            needless += rows.iter().map(|row| row.needless.len()).sum::<usize>();
        }
        anyhow::ensure!(missed == 0, "compat: {missed} tests pass direct and not through DistCache");
        anyhow::ensure!(
            needless == 0,
            "compat: {needless} lines of the skip file name what need not be skipped"
        );
        Ok(())
    }
}

/// Where what a suite prints is kept: beside its sources.
fn logs(source: &Path) -> anyhow::Result<PathBuf> {
    let logs = source.parent().unwrap_or(source).join("logs");
    std::fs::create_dir_all(&logs)?;
    Ok(logs)
}
