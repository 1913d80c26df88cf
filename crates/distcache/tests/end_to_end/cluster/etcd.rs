//! Real etcds for one test. Not what controllers keep in them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value as Json, json};

use super::{Directory, Process, free_port, until};

/// Killed when dropped.
pub(crate) struct Etcd {
    process: Option<Process>,
    name: String,
    client: SocketAddr,
    /// Where this test asks it: there it speaks no TLS.
    plain: SocketAddr,
    peer: SocketAddr,
    /// All servers of its cluster, as etcd wants them named.
    cluster: String,
    /// Its options for TLS.
    tls: Vec<String>,
    /// `new`, or `existing` of one that joins others.
    state: &'static str,
    directory: Directory,
}

impl Etcd {
    /// One server alone.
    pub(crate) fn start() -> Etcd {
        let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut etcds = Etcd::cluster(&[(here(free_port()), here(free_port()))], &[]);
        let etcd = etcds.remove(0);
        etcd.wait();
        etcd
    }

    /// Servers that elect a leader among them, by where clients and where the others reach each; those with TLS take the port
    /// below that of clients, too. They are started, and nobody has waited for them.
    pub(crate) fn cluster(places: &[(SocketAddr, SocketAddr)], tls: &[String]) -> Vec<Etcd> {
        let names = places.iter().enumerate().map(|(index, (_, peer))| format!("e{index}=http://{peer}"));
        let cluster = names.collect::<Vec<_>>().join(",");
        let etcd = |(index, (client, peer)): (usize, &(SocketAddr, SocketAddr))| {
            let (name, cluster, tls) = (format!("e{index}"), cluster.clone(), tls.to_vec());
            let directory = Directory::new();
            let mut plain = *client;
            plain.set_port(client.port() - u16::from(!tls.is_empty()));
            let (client, peer, state) = (*client, *peer, "new");
            let mut etcd = Etcd { process: None, name, client, plain, peer, cluster, tls, state, directory };
            etcd.launch();
            etcd
        };
        places.iter().enumerate().map(etcd).collect()
    }

    /// Starts it, or starts it again with what it held.
    pub(crate) fn run(&mut self) {
        self.launch();
        self.wait();
    }

    /// As `run`, but does not wait.
    pub(crate) fn launch(&mut self) {
        let scheme = if self.tls.is_empty() { "http" } else { "https" };
        let (client, peer) = (format!("{scheme}://{}", self.client), format!("http://{}", self.peer));
        let listen = match self.tls.is_empty() {
            true => client.clone(),
            false => format!("{client},http://{}", self.plain),
        };
        let mut command = Command::new("etcd");
        command.args(["--name", &self.name, "--logger", "zap", "--log-level", "error", "--data-dir"]);
        command.arg(self.data()).args(&self.tls);
        command.args(["--listen-client-urls", &listen, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.cluster, "--initial-cluster-state", self.state]);
        self.process = Some(Process::start("etcd", command, &self.directory.join("etcd.log")));
    }

    fn wait(&self) {
        until("etcd answers", || self.members());
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        self.process.as_ref().expect("etcd runs").signal(signal);
    }

    /// kill -9
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// The folder with all that it holds; somebody may take it away or put another one there while it does not run.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// As `store` names it.
    pub(crate) fn store(&self) -> String {
        format!("etcd://{}", self.client)
    }

    /// How many members of the cluster `test` have a lease.
    pub(crate) fn members(&self) -> Option<u64> {
        // From `/distcache/test/members/` to `/distcache/test/members0`.
        let range = json!({
            "key": "L2Rpc3RjYWNoZS90ZXN0L21lbWJlcnMv", "range_end": "L2Rpc3RjYWNoZS90ZXN0L21lbWJlcnMw", "count_only": true,
        });
        let reply = self.ask("kv/range", &range)?;
        Some(reply["count"].as_str().map_or(0, |count| count.parse().expect("a number")))
    }

    /// As `etcdctl del /distcache/test/map`.
    pub(crate) fn forget_map(&self) {
        let key = json!({ "key": "L2Rpc3RjYWNoZS90ZXN0L21hcA==" });
        let done = until("the map is forgotten", || self.ask("kv/deleterange", &key));
        assert_eq!(done["deleted"], "1", "{done}");
    }

    /// Another machine with its name and address, which has nothing: `other` is told, and it joins.
    pub(crate) fn replace(&mut self, other: &Etcd) {
        self.kill();
        std::fs::remove_dir_all(self.data()).expect("it had data");
        let listed = until("the others answer", || other.ask("cluster/member/list", &json!({})));
        let members = listed["members"].as_array().expect("a list");
        let own =
            members.iter().find(|member| member["name"] == self.name.as_str()).expect("it is one of them");
        let own = json!({ "ID": own["ID"] });
        until("it is removed", || other.ask("cluster/member/remove", &own));
        let peer = json!({ "peerURLs": [format!("http://{}", self.peer)] });
        until("it is added", || other.ask("cluster/member/add", &peer));
        self.state = "existing";
        self.launch();
    }

    fn ask(&self, path: &str, body: &Json) -> Option<Json> {
        let mut reply = ureq::post(format!("http://{}/v3/{path}", self.plain)).send(body.to_string()).ok()?;
        serde_json::from_str(&reply.body_mut().read_to_string().ok()?).ok()
    }
}
