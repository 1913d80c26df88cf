//! What the tests share: the machine's few cores, and the programs that are installed on it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// For a test that others may run beside.
pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that measures load or time.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether these programs are there. Where continuous integration runs they must be.
pub(crate) fn installed(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !starts(program)).collect();
    missing.is_empty() || skip(&format!("not installed: {} (`make setup`)", missing.join(", ")))
}

/// As `installed`, of one that is not where programs usually are.
pub(crate) fn installed_at(program: &Path, remedy: &str) -> bool {
    starts(program) || skip(&format!("{} does not start: {remedy}", program.display()))
}

fn starts(program: impl AsRef<OsStr>) -> bool {
    succeeds(Command::new(program).arg("--version"))
}

/// The Python that has redis-py: `cargo xtask setup` makes its environment, `cargo xtask ci` names it.
pub(crate) fn python() -> Option<PathBuf> {
    python_with("import redis")
}

/// The same Python, if it can run this.
pub(crate) fn python_with(statement: &str) -> Option<PathBuf> {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin/python3");
    let python = std::env::var_os("DISTCACHE_TEST_PYTHON").map_or(made, PathBuf::from);
    if succeeds(Command::new(&python).args(["-c", statement])) {
        return Some(python);
    }
    skip(&format!("{} cannot `{statement}` (`make setup`)", python.display()));
    None
}

fn skip(reason: &str) -> bool {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}");
    drop(writeln!(std::io::stderr().lock(), "SKIPPED: {reason}"));
    false
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
