//! A cluster of real processes for one test: configuration, start, stop, status. Not what is tested with it.

mod client;
mod control_group;
mod directory;
mod etcd;
mod layout;
mod machine;
mod memcached_client;
mod memcached_server;
mod ports;
mod process;
mod redis_cluster;
mod redis_server;
mod relay;
mod sentinels;

pub(crate) use client::{Client, REPLY_MAX, ok, text};
pub(crate) use control_group::ControlGroup;
pub(crate) use directory::Directory;
pub(crate) use etcd::Etcd;
pub(crate) use layout::{Layout, loopback};
pub(crate) use machine::{alone, installed, python, python_with, shared};
pub(crate) use memcached_client::MemcachedClient;
pub(crate) use memcached_server::MemcachedServer;
pub(crate) use ports::{free_port, loopback_network};
pub(crate) use process::{Process, distcache, until};
pub(crate) use redis_cluster::{PRIMARIES, RedisCluster};
pub(crate) use redis_server::{Program, RedisServer};
pub(crate) use relay::Relay;
pub(crate) use sentinels::Sentinels;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value as Json;
use wire::resp::Value;

/// The members, in one process or each in its own. Killed when dropped.
pub(crate) struct Cluster {
    pub(crate) layout: Layout,
    pub(crate) config: PathBuf,
    processes: BTreeMap<String, Process>,
    directory: Directory,
}

/// The id of the process that holds all members.
pub(crate) const UP: &str = "up";

impl Cluster {
    /// `distcache up`.
    pub(crate) fn up(layout: Layout) -> Cluster {
        let mut cluster = Cluster::unstarted(layout);
        cluster.start(UP);
        cluster.wait_linked();
        cluster
    }

    /// `distcache run` for every member.
    pub(crate) fn apart(layout: Layout) -> Cluster {
        let mut cluster = Cluster::unstarted(layout);
        for id in cluster.layout.ids() {
            cluster.start(&id);
        }
        cluster.wait_linked();
        cluster
    }

    /// Only the configuration file.
    pub(crate) fn unstarted(layout: Layout) -> Cluster {
        let directory = Directory::new();
        let config = directory.join("cluster.toml");
        std::fs::write(&config, layout.toml(&directory)).expect("the configuration is written");
        Cluster { layout, config, processes: BTreeMap::new(), directory }
    }

    /// Starts a member, or all of them with [`UP`], and waits until it is ready.
    pub(crate) fn start(&mut self, id: &str) {
        let process = self.launch(id);
        process.wait_for_line("ready");
        self.processes.insert(id.to_owned(), process);
    }

    /// As `start`, in a control group.
    pub(crate) fn start_within(&mut self, group: &ControlGroup, id: &str) {
        let process = Process::start(id, group.within(&self.command_of(id)), &self.log(id));
        process.wait_for_line("ready");
        self.processes.insert(id.to_owned(), process);
    }

    fn log(&self, id: &str) -> PathBuf {
        self.directory.join(&format!("{id}.log"))
    }

    /// As `start`, but does not wait.
    pub(crate) fn launch(&self, id: &str) -> Process {
        Process::start(id, self.command_of(id), &self.log(id))
    }

    fn command_of(&self, id: &str) -> Command {
        let mut command = distcache();
        match id {
            UP => command.arg("up"),
            id => command.args(["run", "--id", id]),
        };
        command.arg("--config").arg(&self.config).env("DISTCACHE_LOG", "info");
        // Storage is new, but only once.
        if !self.log(id).exists() {
            command.arg("--adopt");
        }
        command
    }

    pub(crate) fn process(&mut self, id: &str) -> &mut Process {
        self.processes.get_mut(id).expect("a process that was started")
    }

    pub(crate) fn signal(&self, id: &str, signal: rustix::process::Signal) {
        self.processes.get(id).expect("a process that was started").signal(signal);
    }

    /// kill -9
    pub(crate) fn kill(&mut self, id: &str) {
        drop(self.processes.remove(id).expect("a process that was started"));
    }

    pub(crate) fn router(&self, index: usize) -> SocketAddr {
        self.layout.routers[index]
    }

    /// The first router's.
    pub(crate) fn unix_socket(&self) -> PathBuf {
        self.directory.join("router-0.sock")
    }

    pub(crate) fn connect(&self, router: usize) -> Client {
        Client::tcp(self.router(router))
    }

    /// Until every router has its peers and every shim its storage.
    pub(crate) fn wait_linked(&self) {
        let nodes = format!("nodes_linked:{}\r\n", self.layout.nodes().len());
        let shims = format!("shims_linked:{}\r\n", self.layout.storage.len());
        if self.layout.protocol == "memcached" {
            return self.wait_linked_memcached();
        }
        for router in 0..self.layout.routers.len() {
            let mut client = self.connect(router);
            if let Some((user, password)) = self.layout.login {
                until("the router knows its users", || {
                    (text(&client.call(&["AUTH", user, password])) == "OK").then_some(())
                });
            }
            until("the members are linked", || {
                let info = text(&client.call(&["INFO", "distcache"]));
                (info.contains(&nodes) && info.contains(&shims)).then_some(())
            });
            until("storage is up", || match client.call(&["DBSIZE"]) {
                Value::Integer(_) => Some(()),
                _ => None,
            });
        }
    }

    fn wait_linked_memcached(&self) {
        let nodes = format!("nodes_linked {}\r\n", self.layout.nodes().len());
        let shims = format!("shims_linked {}\r\n", self.layout.storage.len());
        for router in 0..self.layout.routers.len() {
            let mut client = MemcachedClient::connect(self.router(router));
            if let Some((user, password)) = self.layout.login {
                assert_eq!(client.log_in(user, password), "STORED\r\n");
            }
            until("the members are linked", || {
                let stats = client.text("stats\r\n");
                (stats.contains(&nodes) && stats.contains(&shims)).then_some(())
            });
            // Every server, and a write: one that is up may still wait for earlier leases to end.
            until("storage is up", || (client.text("flush_all\r\n") == "OK\r\n").then_some(()));
        }
    }

    /// What `distcache status --json` prints.
    pub(crate) fn status(&self) -> Json {
        let mut command = distcache();
        let url = format!("http://{}", self.layout.controller);
        let output = command.args(["status", "--json", "--controller", &url]).output().expect("status runs");
        // 3 where a member is lost, which is what some tests are about.
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 3)), "{code:?} {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("status prints JSON")
    }

    /// Runs a command that asks a controller for a change; what it prints, as JSON.
    pub(crate) fn command(&self, controller: SocketAddr, arguments: &[&str]) -> Result<Json, String> {
        let mut command = distcache();
        let url = format!("http://{controller}");
        command.args(arguments).args(["--json", "--controller", &url]);
        let asks = arguments.starts_with(&["storage", "status"]);
        if ["drain", "purge", "reload", "storage"].contains(&arguments[0]) && !asks {
            command.arg("--config").arg(&self.config);
        }
        let output = command.output().expect("the command runs");
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout).expect("it prints JSON")),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// What requests that change something carry.
    pub(crate) fn token(&self) -> String {
        let output = distcache().args(["token", "--config"]).arg(&self.config).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// Adds tables at the end of the configuration file.
    pub(crate) fn append(&self, tables: &str) {
        let text = std::fs::read_to_string(&self.config).expect("the configuration is there");
        std::fs::write(&self.config, text + tables).expect("the configuration is written");
    }

    /// The status once every member has sent at least one heartbeat after now.
    pub(crate) fn fresh_status(&self, is_fresh: impl Fn(&Json) -> bool) -> Json {
        until("the status shows it", || Some(self.status()).filter(&is_fresh))
    }
}

/// The most memory that a member has ever had.
pub(crate) fn peak_kib(cluster: &mut Cluster, id: &str) -> u64 {
    let path = format!("/proc/{}/status", cluster.process(id).id());
    let status = std::fs::read_to_string(path).expect("the status of a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

/// The sum of one counter over the members of a status' list.
pub(crate) fn total(status: &Json, list: &str, counter: &str) -> u64 {
    let members = status[list].as_array().expect("a list of members");
    members.iter().map(|member| member[counter].as_u64().expect("a counter")).sum()
}
