//! One child process: its output lines, its log, its signals and its end. Not what it runs.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// After this long nothing that a test waits for will come any more, even where ten processes want each core. Shorter
/// saves time only where a test fails.
const WAIT_MAX: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(10);
/// Lines of a log that a failed test shows.
const LOG_LINES_MAX: usize = 60;

/// Killed when dropped; its log is shown if the test has failed.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    lines: Receiver<String>,
}

/// The binary under test, in an environment without its variables.
pub(crate) fn distcache() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DISTCACHE_")) {
        command.env_remove(&name);
    }
    command
}

impl Process {
    /// `log` gets what it writes to stderr.
    pub(crate) fn start(name: &str, mut command: Command, log: &Path) -> Process {
        let file = File::options().create(true).append(true).open(log).expect("a log file");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Process { name: name.to_owned(), child, log: log.to_owned(), lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait_for_line(&self, expected: &str) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line == expected => return,
                Ok(_) => {}
                Err(error) => panic!("{}: no line {expected:?}: {error}\n{}", self.name, self.log()),
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }

    /// How it has ended, if it has.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        until(&format!("{} ends", self.name), || self.child.try_wait().expect("a child"))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n");
            drop(writeln!(std::io::stderr().lock(), "--- log of {}\n{last}\n---", self.name));
        }
    }
}

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited for {} s: {what}", WAIT_MAX.as_secs());
        std::thread::park_timeout(POLL);
    }
}
