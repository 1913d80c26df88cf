//! One etcd of its own, for the controllers of a cluster. Not what they keep there.

use std::net::SocketAddr;
use std::path::Path;

use super::{MemberProcess, accepting, free_address, mortal};

/// It is killed when this goes out of scope.
pub(super) struct StartedEtcd {
    _process: MemberProcess,
    pub(super) address: SocketAddr,
}

impl StartedEtcd {
    /// With its files in `folder`.
    pub(super) fn start(folder: &Path) -> anyhow::Result<StartedEtcd> {
        let (address, peers) = (free_address()?, free_address()?);
        let (client, peer) = (format!("http://{address}"), format!("http://{peers}"));
        let mut command = mortal("etcd");
        command.args(["--name", "e", "--logger", "zap", "--log-level", "error", "--data-dir"]);
        command.arg(folder.join("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("e={peer}")]);
        let process = MemberProcess::start(command, Some(&folder.join("etcd.log")))?;
        accepting(address)?;
        Ok(StartedEtcd { _process: process, address })
    }
}
