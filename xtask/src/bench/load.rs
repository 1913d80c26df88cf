//! The load that `distcache bench` puts on a port, and the counters of a cluster that has come to rest after it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

use crate::cluster::ProcessCluster;

/// Members report every half second; the counters of a quiet cluster are final after this.
const REST: Duration = Duration::from_millis(1500);

/// Runs `distcache bench` against a port of this machine and returns its summary.
pub(super) fn load(binary: &Path, port: u16, arguments: &[&str]) -> anyhow::Result<Value> {
    let target = format!("redis://127.0.0.1:{port}");
    load_target(binary, &[&["--target", &target], arguments].concat())
}

/// The same, with the target among the arguments.
pub(super) fn load_target(binary: &Path, arguments: &[&str]) -> anyhow::Result<Value> {
    let mut command = Command::new(binary);
    command.args(["bench", "--json"]).args(arguments).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?} failed");
    }
    let summary: Value = serde_json::from_slice(&output.stdout)?;
    if summary["errors"] != 0 {
        bail!("{command:?}: {} errors", summary["errors"]);
    }
    Ok(summary)
}

pub(super) fn final_status(cluster: &ProcessCluster) -> anyhow::Result<Value> {
    std::thread::sleep(REST);
    cluster.status()
}
