//! What the tests share: the machine's few cores, and the programs that are installed on it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// Tests beside each other for each core: they wait for nine tenths of their time.
const SHARED_PER_CORE: usize = 3;

static OCCUPANCY: Mutex<Occupancy> = Mutex::new(Occupancy { waiting: 0, running: 0, is_alone: false });
static CHANGED: Condvar = Condvar::new();

/// Who has the machine. Tests that want it alone come last: each that came between would wait until the longest of the
/// others has ended, and meanwhile nothing else could begin.
struct Occupancy {
    /// Tests that want to run beside others, and cannot yet.
    waiting: usize,
    running: usize,
    is_alone: bool,
}

/// A test's place on the machine, until it is dropped.
pub(crate) struct Turn(());

/// For a test that others may run beside.
pub(crate) fn shared() -> Turn {
    let running_max = available_parallelism().map_or(1, usize::from) * SHARED_PER_CORE;
    let mut occupancy = occupancy();
    occupancy.waiting += 1;
    let wait = |occupancy: &mut Occupancy| occupancy.is_alone || occupancy.running >= running_max;
    let mut occupancy = CHANGED.wait_while(occupancy, wait).unwrap_or_else(PoisonError::into_inner);
    occupancy.waiting -= 1;
    occupancy.running += 1;
    Turn(())
}

/// For a test that measures load or time.
pub(crate) fn alone() -> Turn {
    let wait =
        |occupancy: &mut Occupancy| occupancy.is_alone || occupancy.running > 0 || occupancy.waiting > 0;
    let mut occupancy = CHANGED.wait_while(occupancy(), wait).unwrap_or_else(PoisonError::into_inner);
    occupancy.is_alone = true;
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut occupancy = occupancy();
        // A test that is alone is the only one.
        if !std::mem::take(&mut occupancy.is_alone) {
            occupancy.running -= 1;
        }
        CHANGED.notify_all();
    }
}

fn occupancy() -> MutexGuard<'static, Occupancy> {
    OCCUPANCY.lock().unwrap_or_else(PoisonError::into_inner)
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
