//! System calls of a running member that fail or take long, as they do where descriptors, buffers or threads are short: strace
//! does it to the process as it is. Not which member, and when.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cluster::{MemberProcess, mortal};

/// Nothing takes longer to be attached to.
const ATTACH_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);

/// What goes wrong with which calls, as `strace --inject` has it. Where one comes late, time goes by between what a member knows and
/// what it does.
pub(super) const CALLS: [&str; 12] = [
    "accept4:error=EMFILE:when=1+2",
    "accept4:error=ECONNABORTED:when=1+2",
    "socket:error=ENFILE:when=1+2",
    "connect:error=ENETUNREACH:when=1+2",
    "clone,clone3:error=EAGAIN:when=1+2",
    "recvfrom,read:error=ECONNRESET:when=100+300",
    "sendto,writev,write:error=ENOBUFS:when=100+300",
    "epoll_wait,recvfrom,sendto:error=EINTR:when=2+3",
    "epoll_wait:delay_exit=150000:when=20+40",
    "recvfrom:delay_exit=120000:when=50+150",
    "sendto,writev:delay_enter=80000:when=50+150",
    "fdatasync,fsync,io_uring_enter:delay_enter=100000:when=2+5",
];

/// Calls go wrong until this is over.
pub(super) struct FailingCalls(MemberProcess);

impl FailingCalls {
    /// Whether this machine lets a process do it to another.
    pub(super) fn are_possible() -> bool {
        let mut probe = Command::new("strace");
        probe.args(["-qq", "-e", "trace=none", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    }

    pub(super) fn begin(process: &MemberProcess, inject: &str) -> anyhow::Result<FailingCalls> {
        let calls = inject.split(':').next().unwrap_or_default();
        let mut strace = mortal("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
        strace.args(["-e", &format!("inject={inject}"), "-p", &process.id().to_string()]);
        let tracer = MemberProcess::start(strace, None)?;
        let deadline = Instant::now() + ATTACH_MAX;
        while !is_traced(process.id())? {
            anyhow::ensure!(Instant::now() < deadline, "strace does not attach to the process");
            std::thread::sleep(POLL);
        }
        Ok(FailingCalls(tracer))
    }

    pub(super) fn end(self) -> anyhow::Result<()> {
        // It ends by the signal once it has let go.
        self.0.terminate().map(drop)
    }
}

fn is_traced(id: u32) -> anyhow::Result<bool> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("the process is gone")?;
    Ok(status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0")))
}
