//! A command with everything that it starts, which end together: when the command has ended, when it takes too long, or when
//! this program is to stop.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A command that was started in a group of its own; all of it is killed when dropped.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    /// Until it has been waited for, so that its group is still its own.
    leader: Option<Child>,
    began: Instant,
    time_max: Duration,
    stop: Arc<AtomicBool>,
}

/// What came of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupEnd {
    Ended(ExitStatus),
    /// It took longer than it may, and was killed.
    Hung,
}

impl ProcessGroup {
    pub(crate) fn start(mut command: Command, time_max: Duration) -> anyhow::Result<ProcessGroup> {
        let stop = interrupted()?;
        let leader = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        Ok(ProcessGroup { leader: Some(leader), began: Instant::now(), time_max, stop })
    }

    /// What came of it, if it is over.
    ///
    /// # Errors
    /// If this program is to stop.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<GroupEnd>> {
        let leader = self.leader.as_ref().context("it has been told to have ended")?;
        // Not waited for: its group has to be its own yet when the others are killed.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(Pid::from_child(leader)), options)?.is_some() {
            return Ok(self.kill()?.map(GroupEnd::Ended));
        }
        if self.stop.load(Ordering::Relaxed) {
            self.kill()?;
            bail!("interrupted; what was running was killed");
        }
        if self.began.elapsed() <= self.time_max {
            return Ok(None);
        }
        self.kill()?;
        Ok(Some(GroupEnd::Hung))
    }

    /// Waits for its end, and looks for it this often.
    ///
    /// # Errors
    /// As of `ended`.
    pub(crate) fn wait(&mut self, poll: Duration) -> anyhow::Result<GroupEnd> {
        loop {
            match self.ended()? {
                Some(end) => return Ok(end),
                None => std::thread::sleep(poll),
            }
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends all of it, and says how the command ended.
    fn kill(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let Some(mut leader) = self.leader.take() else { return Ok(None) };
        kill_process_group(Pid::from_child(&leader), Signal::KILL).context("killing what is left")?;
        Ok(Some(leader.wait()?))
    }
}

/// Set once this program is to stop, whatever runs then: a terminal's ctrl-c reaches this process alone, which hands it on.
fn interrupted() -> anyhow::Result<Arc<AtomicBool>> {
    static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = INTERRUPTED.get() {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::clone(INTERRUPTED.get_or_init(Arc::default));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).context("listening to signals")?;
    }
    Ok(flag)
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str, output: Stdio, time_max: Duration) -> ProcessGroup {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(output);
        ProcessGroup::start(command, time_max).unwrap()
    }

    #[test]
    fn what_hangs_ends_with_everything_that_it_started() {
        let poll = Duration::from_millis(1);
        let long = Duration::from_secs(1000);
        for (script, time_max, code) in
            [("sleep 1000 & exit 3", long, Some(3)), ("sleep 1000 & sleep 1000", poll, None)]
        {
            // The pipe is closed only once both are gone.
            let (mut reader, writer) = std::io::pipe().unwrap();
            let end = shell(script, writer.into(), time_max).wait(poll).unwrap();
            match code {
                None => assert_eq!(end, GroupEnd::Hung),
                Some(_) => {
                    assert!(matches!(end, GroupEnd::Ended(status) if status.code() == code), "{end:?}")
                }
            }
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        }

        let mut stopped = shell("sleep 1000", Stdio::null(), long);
        stopped.stop = Arc::new(AtomicBool::new(true));
        let error = stopped.wait(poll).unwrap_err();
        assert!(error.to_string().starts_with("interrupted"), "{error}");
    }
}
