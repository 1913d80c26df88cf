//! One child process: its start, its signals, its end, and what the kernel says it used. Not what it runs.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Kernel clock ticks per second in /proc, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Nothing takes longer to start or to end in order, even on a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

/// A started process; killed when it goes out of scope, and by the kernel if this process dies first.
#[derive(Debug)]
pub(crate) struct MemberProcess {
    child: Child,
    lines: Receiver<String>,
}

impl MemberProcess {
    /// What it writes to stderr goes to `log`, or else is not kept apart from ours.
    pub(crate) fn start(mut command: Command, log: Option<&Path>) -> anyhow::Result<MemberProcess> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(log) = log {
            command.stderr(File::options().create(true).append(true).open(log)?);
        }
        let text = format!("{command:?}");
        let mut child = spawn(command).with_context(|| format!("cannot start {text}"))?;
        let output = child.stdout.take().context("the output is piped")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // It reads to the end even if nobody listens, or the process would block.
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Ok(MemberProcess { child, lines })
    }

    /// Waits for the line `ready`.
    pub(crate) fn ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line == "ready" => return Ok(()),
                Ok(_) => {}
                Err(error) => bail!("it ended, or took too long, before it was ready: {error}"),
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal).context("the process is gone")
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn terminate(mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            anyhow::ensure!(Instant::now() < deadline, "it did not end after SIGTERM");
            std::thread::sleep(POLL);
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.end().is_some()
    }

    /// How it has ended by itself, if it has.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// User and system time so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let (Some(user), Some(system)) = (ticks(11), ticks(12)) else { bail!("cannot read {stat:?}") };
        Ok(Duration::from_secs_f64((user + system) / TICKS_PER_SECOND))
    }

    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kib * 1024)
    }

    pub(crate) fn open_files(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Request = (Command, Sender<std::io::Result<Child>>);

/// The kernel kills a child when the *thread* that started it ends, so one thread starts them all and never ends.
fn spawn(command: Command) -> anyhow::Result<Child> {
    static STARTER: OnceLock<Sender<Request>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, answer) in requests {
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (answer, answered) = channel();
    starter.send((command, answer)).ok().context("the thread that starts processes is gone")?;
    Ok(answered.recv().context("the thread that starts processes is gone")??)
}

/// A command that the kernel kills when this process is gone, however it goes.
pub(crate) fn mortal(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DISTCACHE_")) {
        command.env_remove(&name);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::{MemberProcess, mortal};
    use rustix::process::Signal;

    #[test]
    fn a_process_gets_ready_stops_goes_on_and_ends() {
        let mut command = mortal("sh");
        command.args(["-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done"]);
        let mut process = MemberProcess::start(command, None).unwrap();
        process.ready().unwrap();
        assert!(!process.has_ended() && process.resident_bytes().unwrap() > 0);
        process.signal(Signal::STOP).unwrap();
        process.signal(Signal::CONT).unwrap();
        assert_eq!(process.terminate().unwrap().code(), Some(7));
    }

    #[test]
    fn what_ends_early_is_never_ready() {
        let process = MemberProcess::start(mortal("true"), None).unwrap();
        assert!(process.ready().is_err());
    }
}
