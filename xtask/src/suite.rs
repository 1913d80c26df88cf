//! The test programs of the workspace, several at a time, because most of them wait for other processes and not for a core.
//! Not which tests there are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::group::{GroupEnd, ProcessGroup};
use crate::{cargo, print, setup, tell};

/// Both parts in one, with the same selection of packages: another one would unify features differently and build half of
/// the dependencies again.
pub(crate) const BUILD: &[&str] = &["test", "--workspace", "--locked", "--no-run"];
/// Each part of the tests, and the programs that cargo has for it.
pub(crate) const PARTS: [(&str, &[&str]); 2] =
    [("test", &["--lib", "--bins", "--examples"]), ("end-to-end", &["--test", "*"])];
/// Threads of a test program for each core.
const THREADS_PER_CORE: usize = 3;
/// A program whose tests see to it themselves how many run, and which want to be alone; and threads for those that wait.
const WITH_TURNS: (&str, usize) = ("tests/end_to_end/main.rs", 40);
const POLL: Duration = Duration::from_millis(20);
/// A program that takes longer hangs, even on a machine that has more to do than it can: the longest takes eight minutes on
/// two cores.
const TIME_MAX: Duration = Duration::from_secs(40 * 60);

const USAGE: &str = "\
Usage: cargo xtask suite test|end-to-end [FILTER]

Runs the unit tests, or those with programs of their own, a program per core and several tests of each at a time; with FILTER only tests whose name
contains it. Goes on after a failure and prints the output of each program that failed, or that was killed as it did
not end within 40 minutes. `cargo test` does the same, one program
after the other.
";

/// A program with tests.
#[derive(Debug, PartialEq)]
struct Program {
    /// As cargo shows it: `unittests src/lib.rs` or `tests/NAME.rs`, and its package.
    name: String,
    package: String,
    /// Where it is run.
    folder: PathBuf,
    executable: PathBuf,
}

/// A program that runs.
struct Running {
    program: Program,
    group: ProcessGroup,
    log: PathBuf,
}

/// What `cargo xtask suite` is asked for.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        ["help" | "--help" | "-h"] => {
            print(USAGE);
            Ok(())
        }
        [part] => part_of(root, part, None),
        [part, filter] => part_of(root, part, Some(filter)),
        _ => bail!("{USAGE}"),
    }
}

/// All unit tests.
pub(crate) fn unit(root: &Path) -> anyhow::Result<()> {
    part_of(root, PARTS[0].0, None)
}

/// All tests that are programs of their own.
pub(crate) fn end_to_end(root: &Path) -> anyhow::Result<()> {
    part_of(root, PARTS[1].0, None)
}

fn part_of(root: &Path, part: &str, filter: Option<&str>) -> anyhow::Result<()> {
    let selection = PARTS.iter().find(|(name, _)| *name == part).with_context(|| USAGE.to_owned())?.1;
    let mut programs = built(root, selection)?;
    // The largest has the most tests and is begun first: whatever ends last should not have waited.
    programs.sort_by_key(|program| std::cmp::Reverse(size(&program.executable)));
    let folder = crate::target_folder(root).join("suite");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let (mut waiting, mut running) = (programs.into_iter(), Vec::new());
    let (mut count, mut failed) = (0, Vec::new());
    loop {
        while running.len() < cores()
            && let Some(program) = waiting.next()
        {
            running.push(start(root, program, filter, &folder)?);
        }
        if running.is_empty() {
            break;
        }
        std::thread::sleep(POLL);
        let mut still = Vec::new();
        for mut one in running {
            let Some(end) = one.group.ended()? else {
                still.push(one);
                continue;
            };
            count += 1;
            if !tell_end(&one, end) {
                failed.push(format!("{} of {}", one.program.name, one.program.package));
            }
        }
        running = still;
    }
    ensure!(count > 0, "no program with tests was built");
    ensure!(failed.is_empty(), "{} of {count} programs failed: {}", failed.len(), failed.join(", "));
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Builds what is selected.
fn built(root: &Path, selection: &[&str]) -> anyhow::Result<Vec<Program>> {
    let mut command = cargo::command();
    command.args(BUILD).args(selection).args(["--message-format", "json-render-diagnostics"]);
    let output = command.current_dir(root).stderr(Stdio::inherit()).output().context("starting cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    messages.lines().filter_map(|line| program(line).transpose()).collect()
}

/// The program of one of cargo's messages, if it tells of one that has tests.
fn program(line: &str) -> anyhow::Result<Option<Program>> {
    let message: Value = serde_json::from_str(line).context("a message of cargo")?;
    let is_test = message["profile"]["test"].as_bool() == Some(true);
    let (Some(executable), true) = (message["executable"].as_str(), is_test) else { return Ok(None) };
    let text =
        |value: &Value| value.as_str().map(str::to_owned).context("a message of cargo has another form");
    let manifest = PathBuf::from(text(&message["manifest_path"])?);
    let folder = manifest.parent().context("a manifest has a folder")?.to_owned();
    let source = PathBuf::from(text(&message["target"]["src_path"])?);
    let source = source.strip_prefix(&folder).unwrap_or(&source).display().to_string();
    let name = if source.starts_with("tests/") { source } else { format!("unittests {source}") };
    // Every package here is named after its folder.
    let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Some(Program { name, package, folder, executable: executable.into() }))
}

/// Starts a program as cargo would.
fn start(root: &Path, program: Program, filter: Option<&str>, folder: &Path) -> anyhow::Result<Running> {
    let file = program.executable.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let log = folder.join(format!("{file}.log"));
    let output = File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let mut command = Command::new(&program.executable);
    let (with_turns, waiting_max) = WITH_TURNS;
    let waiting_max = if program.name == with_turns { waiting_max } else { 0 };
    let threads = (cores() * THREADS_PER_CORE + waiting_max).to_string();
    command.args(["--test-threads", &threads]).args(filter);
    command.current_dir(&program.folder).stdin(Stdio::null());
    command.env("CARGO_PKG_NAME", &program.package).env("CARGO_MANIFEST_DIR", &program.folder);
    command.env(setup::PYTHON_VARIABLE, setup::python(root));
    command.stdout(output.try_clone()?).stderr(output);
    let group = ProcessGroup::start(command, TIME_MAX)?;
    Ok(Running { program, group, log })
}

/// Prints the result of a program, or all that it has printed if it failed. False: it did.
fn tell_end(running: &Running, end: GroupEnd) -> bool {
    let output = std::fs::read(&running.log).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    let Running { program, group, .. } = running;
    print(&format!(
        "     Running {} ({}): {:.1} s\n",
        program.name,
        program.package,
        group.elapsed().as_secs_f64()
    ));
    let passed = matches!(end, GroupEnd::Ended(status) if status.success());
    if passed {
        output
            .lines()
            .filter(|line| line.starts_with("test result: "))
            .for_each(|line| print(&format!("{line}\n")));
    } else {
        let how = if end == GroupEnd::Hung { "did not end and was killed" } else { "failed" };
        tell(&format!("{} of {} {how}:", program.name, program.package));
        print(&output);
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::program;

    #[test]
    fn programs_are_read_from_what_cargo_says() {
        let message = |kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/x/crates/wire/Cargo.toml","target":{{"kind":["{kind}"],
                "src_path":"/x/crates/wire/{kind}s/codec.rs"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let found = program(&message("test", true, r#""/x/target/codec-1""#)).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.package.as_str()), ("tests/codec.rs", "wire"));
        assert_eq!(found.folder.display().to_string(), "/x/crates/wire");
        let unit = program(&message("example", true, r#""/x/target/codec-2""#)).unwrap().unwrap();
        assert_eq!(unit.name, "unittests examples/codec.rs");
        assert_eq!(program(&message("bin", false, r#""/x/target/codec""#)).unwrap(), None);
        assert_eq!(program(&message("lib", true, "null")).unwrap(), None);
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#).unwrap(), None);
    }
}
