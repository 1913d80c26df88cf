//! A real etcd for one test. Not what controllers keep in it.

use std::process::Command;

use super::{Directory, Process, free_port, until};

/// Killed when dropped.
pub(crate) struct Etcd {
    process: Option<Process>,
    client: u16,
    peer: u16,
    directory: Directory,
}

impl Etcd {
    pub(crate) fn start() -> Etcd {
        let directory = Directory::new();
        let mut etcd = Etcd { process: None, client: free_port(), peer: free_port(), directory };
        etcd.run();
        etcd
    }

    /// Starts it, or starts it again with what it held.
    pub(crate) fn run(&mut self) {
        let (client, peer) =
            (format!("http://127.0.0.1:{}", self.client), format!("http://127.0.0.1:{}", self.peer));
        let mut command = Command::new("etcd");
        command.args(["--name", "e", "--logger", "zap", "--log-level", "error", "--data-dir"]);
        command.arg(self.directory.join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("e={peer}")]);
        self.process = Some(Process::start("etcd", command, &self.directory.join("etcd.log")));
        until("etcd answers", || self.members());
    }

    /// kill -9
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// As `store` names it.
    pub(crate) fn store(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.client)
    }

    /// How many members of the cluster `test` have a lease.
    pub(crate) fn members(&self) -> Option<u64> {
        let url = format!("http://127.0.0.1:{}/v3/kv/range", self.client);
        // From `/distcache/test/members/` to `/distcache/test/members0`.
        let body = r#"{"key":"L2Rpc3RjYWNoZS90ZXN0L21lbWJlcnMv","range_end":"L2Rpc3RjYWNoZS90ZXN0L21lbWJlcnMw",
            "count_only":true}"#;
        let mut reply = ureq::post(url).send(body).ok()?;
        let reply: serde_json::Value = serde_json::from_str(&reply.body_mut().read_to_string().ok()?).ok()?;
        Some(reply["count"].as_str().map_or(0, |count| count.parse().expect("a number")))
    }
}
