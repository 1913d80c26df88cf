//! `distcache flash replay` on one cache file: lives that are ended with kill -9, and checks of what they left. Not what
//! either must show.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::cluster::mortal;

/// Also of a machine that does much else.
const START_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_micros(300);
/// What a replay and a check say of a value that nobody wrote.
const WRONG: &str = "what was never put into it";

/// A cache in a file, and the trace that drives it.
pub(super) struct Cache<'a> {
    pub(super) binary: &'a Path,
    pub(super) trace: &'a Path,
    pub(super) file: PathBuf,
    pub(super) engine: &'static str,
    pub(super) policy: &'static str,
    pub(super) size: &'static str,
    pub(super) block_size: &'static str,
}

/// What a check tells.
#[derive(Debug, serde::Deserialize)]
pub(super) struct ReplayCheck {
    pub(super) open_s: f64,
    pub(super) found: u64,
    pub(super) durable_objects: u64,
    pub(super) durable_bytes: u64,
}

pub(super) enum Checked {
    Served(ReplayCheck),
    /// In its own words.
    Refused(String),
    /// A wrong value, a panic, or more than a line.
    Wrong(String),
}

impl Cache<'_> {
    fn command(&self, trace: &Path, flags: &[&str]) -> Command {
        let mut command = mortal(self.binary);
        command.args(["flash", "replay", "--json", "--trace"]).arg(trace).arg("--device").arg(&self.file);
        command.args(["--engine", self.engine, "--policy", self.policy]);
        command.args(["--size", self.size, "--block-size", self.block_size]).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Goes on with the file, or makes it.
    pub(super) fn start(&self) -> anyhow::Result<CacheLife> {
        let how = if self.file.exists() { "--reopen" } else { "--overwrite" };
        let mut child =
            self.command(self.trace, &[how, "--tell-every", "100"]).spawn().context("starting a replay")?;
        let stdout = child.stdout.take().context("the replay has no stdout")?;
        let (sender, told) = channel();
        std::thread::spawn(move || {
            let bytes = |line: &str| -> Option<u64> {
                serde_json::from_str::<Value>(line).ok()?["durable"]["bytes"].as_u64()
            };
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.filter_map(|line| bytes(&line)).all(|sealed| sender.send(sealed).is_ok())
        });
        Ok(CacheLife { child, told, sealed: None })
    }

    /// Replays to the end.
    pub(super) fn fill(&self) -> anyhow::Result<()> {
        let output = self.command(self.trace, &["--overwrite"]).output().context("starting a replay")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    pub(super) fn check(&self) -> anyhow::Result<Checked> {
        self.check_of(self.trace)
    }

    /// Opens the cache and reads every object of a trace from it.
    pub(super) fn check_of(&self, trace: &Path) -> anyhow::Result<Checked> {
        let output = self.command(trace, &["--reopen", "--check"]).output().context("starting a check")?;
        if output.status.success() {
            return Ok(Checked::Served(serde_json::from_slice(&output.stdout)?));
        }
        Ok(refusal(&output))
    }
}

fn refusal(output: &Output) -> Checked {
    let error = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    let clear = matches!(output.status.code(), Some(1 | 2)) && !error.is_empty() && !error.contains('\n');
    if clear && !error.contains(WRONG) { Checked::Refused(error) } else { Checked::Wrong(error) }
}

/// A replay that runs.
pub(super) struct CacheLife {
    child: Child,
    /// Bytes that would survive, as the replay goes.
    told: Receiver<u64>,
    sealed: Option<u64>,
}

impl CacheLife {
    /// Until it has served requests.
    pub(super) fn wait_served(&mut self) -> anyhow::Result<()> {
        match self.told.recv_timeout(START_MAX) {
            Ok(sealed) => self.sealed = Some(sealed),
            Err(RecvTimeoutError::Timeout) => bail!("a replay served nothing within {START_MAX:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("a replay ended: {}", self.error()?),
        }
        Ok(())
    }

    /// Until it has the file open, and so is about to read what is in it.
    pub(super) fn wait_opening(&mut self, file: &Path) -> anyhow::Result<()> {
        let descriptors = PathBuf::from(format!("/proc/{}/fd", self.child.id()));
        let begun = Instant::now();
        let is_it = |link: std::io::Result<std::fs::DirEntry>| {
            link.and_then(|link| std::fs::read_link(link.path())).is_ok_and(|target| target == file)
        };
        while !std::fs::read_dir(&descriptors)?.any(is_it) {
            if self.child.try_wait()?.is_some() {
                bail!("a replay ended: {}", self.error()?);
            }
            ensure!(begun.elapsed() < START_MAX, "a replay did not open its file within {START_MAX:?}");
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// With -9. Bytes that it last said would survive; none if it had served nothing.
    pub(super) fn kill(mut self) -> anyhow::Result<Option<u64>> {
        if self.child.try_wait()?.is_some() {
            bail!("a replay ended before it was killed: {}", self.error()?);
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.told.iter().last().or(self.sealed))
    }

    /// The error of a replay that has ended.
    fn error(&mut self) -> anyhow::Result<String> {
        let mut error = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_string(&mut error)?;
        }
        let status = self.child.wait()?;
        Ok(format!("{status} {}", error.trim_end()))
    }
}

impl Drop for CacheLife {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
