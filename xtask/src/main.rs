//! Automation of this repository: `cargo xtask ci`, `tidy`, `codegen`, `bench`, `compat`, `dist`, `docs`, `fuzz`, `jepsen`,
//! `model`, `mutants`, `night`, `flaky`, `picture`, `show`, `setup`, `suite`. Never product code.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]

mod bench;
mod cargo;
mod ci;
#[expect(dead_code, reason = "measurements that are being built use the rest")]
mod cluster;
mod codegen;
mod compat;
mod dist;
mod docs;
mod flaky;
mod fuzz;
mod garden;
mod group;
mod jepsen;
mod model;
mod mutants;
mod night;
mod picture;
mod replies;
mod setup;
mod show;
mod suite;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  ci                 everything that continuous integration runs, in its order; stops at the first failure
  suite PART         the unit tests (test) or those with programs of their own (end-to-end), several programs at a time
  tidy               house rules: sizes, dependency direction, opening sentences, banned calls and names
  codegen [--check]  writes the generated sources; with --check only tells whether they are fresh
  bench WHAT         measures cost, balance, coherence or memory on real processes; see `bench help`
  fuzz [TARGET]      looks for inputs that break a decoder or a machine; see `fuzz help`
  show WHAT          measures what is promised under failure and overload; see `show help`
  jepsen             linearizability of real processes under real faults; see `jepsen help`
  compat [UNIT]      Redis' or memcached's own tests through a cluster; see `compat help`
  model [--deep]     explores every state of small clusters of the production machines
  mutants [NAME]     takes rules out of a copy of the protocol, one by one: model or simulator must notice each
  dist               target/dist as it is installed: stripped binary, its line tables, man pages, completions
  docs               the API's pages below target/doc, private items included, without a warning; runs their examples
  picture            makes the README's moving picture and plot from a run of the demonstration
  night              all of this for hours, on fresh seeds; see `night help`
  flaky [FILTER]     the tests again and again beside busy processes; see `flaky help`
  setup              installs what the tests need from Debian's packages and PyPI, where missing
";

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask has a parent folder")
}

/// The triple that this machine's compiler builds for.
pub(crate) fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("starting rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Where cargo builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// A result, for stdout.
pub(crate) fn print(text: &str) {
    print!("{text}");
}

/// Progress, for stderr.
pub(crate) fn tell(text: &str) {
    eprintln!("{text}");
}

fn run(arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        ["ci"] => ci::run(root()),
        ["tidy"] => tidy::run(root()),
        ["codegen"] => codegen::run(false),
        ["codegen", "--check"] => codegen::run(true),
        ["setup"] => setup::run(root()),
        ["dist"] => dist::run(root()),
        ["docs"] => docs::run(root()),
        ["suite", rest @ ..] => suite::run(root(), rest),
        ["bench", "help"] => {
            print!("{}", bench::USAGE);
            Ok(())
        }
        ["compat", "help"] => {
            print!("{}", compat::USAGE);
            Ok(())
        }
        ["compat", rest @ ..] => compat::run(root(), rest),
        ["show", "help"] => {
            print!("{}", show::USAGE);
            Ok(())
        }
        ["show", rest @ ..] => show::run(root(), rest),
        ["bench", rest @ ..] => bench::run(root(), rest),
        ["fuzz", "help"] => {
            print!("{}", fuzz::USAGE);
            Ok(())
        }
        ["fuzz", rest @ ..] => fuzz::run(root(), rest),
        ["model"] => model::run(root(), false),
        ["model", "--deep"] => model::run(root(), true),
        ["picture", "help"] => {
            print!("{}", picture::USAGE);
            Ok(())
        }
        ["picture", rest @ ..] => picture::run(root(), rest),
        ["mutants"] => mutants::all(root()),
        ["mutants", name] => mutants::run(root(), name),
        ["night", rest @ ..] => night::run(root(), rest),
        ["flaky", rest @ ..] => flaky::run(root(), rest),
        [flaky::BURN] => flaky::burn(),
        ["jepsen", rest @ ..] => jepsen::run(root(), rest),
        ["--help" | "-h" | "help"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => anyhow::bail!("unknown arguments: {}\n\n{USAGE}", arguments.join(" ")),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
