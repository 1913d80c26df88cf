//! A control group with a limit of memory, of either version. Not the processes in it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;

/// Removed when dropped, once nothing runs in it.
pub(crate) struct ControlGroup {
    path: PathBuf,
    is_unified: bool,
}

impl ControlGroup {
    /// A new group; where this machine lets nobody make one, words and none.
    pub(crate) fn with_memory(bytes: u64) -> Option<ControlGroup> {
        let name = format!("dc-{}", std::process::id());
        let made = [
            ("/sys/fs/cgroup", "memory.max", true),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", false),
        ]
        .into_iter()
        .map(|(base, file, is_unified)| -> io::Result<ControlGroup> {
            let group = ControlGroup { path: PathBuf::from(base).join(&name), is_unified };
            fs::metadata(PathBuf::from(base).join("cgroup.procs"))?;
            fs::create_dir(&group.path)?;
            // The kernel makes the file, or there is no such limit here.
            let mut limit = OpenOptions::new().write(true).open(group.path.join(file))?;
            limit.write_all(bytes.to_string().as_bytes())?;
            Ok(group)
        })
        .find_map(Result::ok);
        if made.is_none() {
            let text = "SKIPPED: no control group with a limit of memory can be made here";
            drop(writeln!(io::stderr().lock(), "{text}"));
        }
        made
    }

    /// The same command, which puts itself into the group first.
    pub(crate) fn within(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("sh");
        wrapped.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.path.join("cgroup.procs"));
        wrapped.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }

    /// Processes that were killed for want of memory.
    pub(crate) fn killed(&self) -> u64 {
        let file = if self.is_unified { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.path.join(file)).expect("it is counted");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.expect("a count").trim().parse().expect("a number")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.path));
    }
}
