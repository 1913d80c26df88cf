//! The attackers of one attack as a process of their own. Not what they send.
//!
//! In the field they have machines of their own. Here they get only the time of processors that nobody else wants
//! (`SCHED_IDLE`), so that what those who behave notice is what the cluster spends on the attack.

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::attack::{Attack, Field, named};
use crate::cluster::mortal;

/// What attackers report at their end.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::show) struct Deeds {
    pub(in crate::show) attempts: u64,
    pub(in crate::show) wrong: Vec<String>,
}

/// Killed when it goes out of scope.
pub(in crate::show) struct Attackers(Child);

impl Attackers {
    pub(in crate::show) fn start(attack: &Attack, router: SocketAddr) -> anyhow::Result<Attackers> {
        let mut command = mortal("chrt");
        command.args(["--idle", "0"]).arg(std::env::current_exe()?);
        command.args(["show", "attack", attack.name, &router.to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Ok(Attackers(child.context("chrt (of util-linux) cannot be started")?))
    }

    /// Ends the attack, and waits for that.
    pub(in crate::show) fn finish(mut self) -> anyhow::Result<Deeds> {
        drop(self.0.stdin.take());
        let output = self.0.stdout.take().context("the output is piped")?;
        serde_json::from_reader(output).context("the attackers ended without a report")
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the process of the attackers does, until its standard input ends.
pub(in crate::show) fn attack(name: &str, router: &str) -> anyhow::Result<()> {
    let attack = named(name)?;
    let router = router.parse().with_context(|| format!("{router:?} is no address"))?;
    raise_files_max()?;
    let (stop, wrong) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let attempts = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
        (attack.run)(&Field { router, stop: &stop, wrong: &wrong })
    });
    let deeds = Deeds { attempts, wrong: wrong.into_inner().unwrap_or_default() };
    crate::print(&serde_json::to_string(&deeds)?);
    Ok(())
}

/// Ten thousand sockets need more files than the usual soft limit.
fn raise_files_max() -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}
