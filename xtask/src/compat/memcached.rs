//! memcached's own test suite: which of its scripts say something about a proxy, and what each test of one came to at a
//! server that runs already. Not how two runs compare.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::report::{self, CaseOutcome, CaseRow, Test};
use super::skip::Skips;
use super::{CompatArguments, source, tap};
use crate::cluster::{Folder, Layer, Layout, LayoutStorage, ProcessCluster, mortal};
use crate::group::ProcessGroup;

/// Then a script, with all that it has started, is ended. What it has told until then counts.
const SCRIPT_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// The suite asks a memcached that it would have built what it can do, also where others run the server. Scripts that
/// would try the storage on disk of another server wait for ever for what this one never does.
const PROGRAM: &str = "#!/bin/sh\nmemcached \"$@\" | grep -v ext_path\n";
/// Options of memcached that are about its memory or how fair it is, and so may stand before a script that is about what
/// clients are told. With any other a script tries the option: it is left out.
const PLAIN: [&str; 4] = ["-m N", "-R N", "-o no_modern", "-o slab_chunk_max=N"];

/// A script that runs, with the options of the memcached that it wants.
struct MemcachedScript {
    name: String,
    options: Vec<String>,
}

/// Runs the scripts as the arguments say, with a table for each number of servers.
pub(super) fn compare(root: &Path, arguments: &CompatArguments) -> anyhow::Result<()> {
    let source = source::fetch(root, "memcached")?;
    let scripts = scripts(&source)?;
    let names: Vec<String> = scripts.iter().map(|script| script.name.clone()).collect();
    let wanted = arguments.units_of(&names)?;
    let skips = Skips::read(&root.join("xtask/compat/memcached.skip"))?;
    let binary = arguments.binary(root)?;
    arguments.tables(|servers| {
        let wanted = scripts.iter().filter(|script| wanted.contains(&script.name));
        rows(&source, &binary, wanted, servers, &skips.of(servers))
    })
}

/// All that take part, in the order of their names.
fn scripts(source: &Path) -> anyhow::Result<Vec<MemcachedScript>> {
    let program = source.join("memcached-debug");
    // Another run may be using it.
    if std::fs::read_to_string(&program).unwrap_or_default() != PROGRAM {
        std::fs::write(&program, PROGRAM)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(source.join("t"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "t") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            found.extend(options(&text).map(|options| MemcachedScript { name, options }));
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    anyhow::ensure!(!found.is_empty(), "compat: no scripts in {}", source.join("t").display());
    Ok(found)
}

/// The options of the first memcached that a script starts; none if it starts none, or is about an option. With a server
/// that runs already the options of the others go unheard.
fn options(script: &str) -> Option<Vec<String>> {
    let (_, rest) = script.split_once("new_memcached(")?;
    let (arguments, _) = rest.split_once(')')?;
    let words = arguments.trim().trim_matches(['"', '\'']).split_whitespace();
    let words: Vec<String> = words.map(str::to_owned).collect();
    let plain = words.chunks(2).all(|pair| {
        let digits = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        let shape = digits(&pair.join(" "));
        PLAIN.iter().any(|plain| plain.replace('N', "") == shape)
    });
    plain.then_some(words)
}

/// Every script twice: direct, and through a router with caches so small that all is admitted and evicted all the time.
fn rows<'a>(
    source: &Path,
    binary: &Path,
    scripts: impl Iterator<Item = &'a MemcachedScript>,
    servers: usize,
    skips: &Skips,
) -> anyhow::Result<Vec<CaseRow>> {
    let logs = super::logs(source)?;
    let mut rows = Vec::new();
    for MemcachedScript { name, options } in scripts {
        let log = |which: &str| logs.join(format!("{name}-{which}.txt"));
        let folder = Folder::new("compat")?;
        let (direct, address) = crate::cluster::memcached(folder.path(), options)?;
        let expected = run(source, name, address, &log("direct"))?;
        drop(direct);
        if expected.iter().all(|test| test.outcome != CaseOutcome::Ok) {
            crate::tell(&format!("{name}: nothing passes direct"));
            continue;
        }
        let cluster = ProcessCluster::start(binary, layout(servers, options), 1)?;
        let got = run(source, name, cluster.router(0), &log(&servers.to_string()))?;
        rows.push(report::row(name, &expected, &got, skips));
        crate::tell(&report::line(&rows[rows.len() - 1]));
        let fallen = { cluster }.fallen();
        anyhow::ensure!(fallen.is_empty(), "compat: {name}: {} ended on their own", fallen.join(", "));
    }
    anyhow::ensure!(!rows.is_empty(), "compat: nothing passes direct: see {}", logs.display());
    Ok(rows)
}

fn layout(servers: usize, options: &[String]) -> Layout {
    Layout {
        layers: vec![Layer::leaves(1), Layer::spines(2)],
        racks: servers,
        storage: LayoutStorage::Memcached,
        storage_options: options.to_vec(),
        router_lines: "protocol = \"memcached\"".to_owned(),
        objects_max: 4,
        tables: "[heat]\nthreshold = 1\nhold_off_ms = 10".to_owned(),
        separate: false,
        ..Layout::default()
    }
}

/// All that the script prints is kept in `log`.
fn run(source: &Path, name: &str, address: SocketAddr, log: &Path) -> anyhow::Result<Vec<Test>> {
    let output = File::create(log)?;
    let mut command = mortal("perl");
    command.current_dir(source).arg("-It/lib").arg(PathBuf::from("t").join(format!("{name}.t")));
    command.env("T_MEMD_USE_DAEMON", address.to_string());
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    ProcessGroup::start(command, SCRIPT_MAX)?.wait(POLL)?;
    Ok(tap::parse(&String::from_utf8_lossy(&std::fs::read(log)?)))
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn scripts_about_an_option_are_left_out() {
        let words = |text: &str| options(text).map(|words| words.join(" "));
        assert_eq!(words("my $s = new_memcached();\n new_memcached('-F');"), Some(String::new()));
        assert_eq!(words("new_memcached('-m 32 -o no_modern');"), Some("-m 32 -o no_modern".to_owned()));
        assert_eq!(
            words("new_memcached(\"-o slab_chunk_max=4096\")"),
            Some("-o slab_chunk_max=4096".to_owned())
        );
        for other in
            ["new_memcached('-S')", "new_memcached('-m 3 -o modern')", "new_memcached($args)", "plan"]
        {
            assert_eq!(words(other), None, "{other}");
        }
    }
}
