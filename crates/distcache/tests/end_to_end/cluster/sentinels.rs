//! A Redis server with a replica and three sentinels that watch them, for one test. Not what DistCache does with them.

use std::net::SocketAddr;
use std::process::Command;

use wire::resp::Value;

use super::{Client, Directory, Process, RedisServer, free_port, ok, text, until};

const SENTINELS: usize = 3;

/// Killed when dropped.
pub(crate) struct Sentinels {
    /// The first primary and its replica.
    pub(crate) servers: Vec<RedisServer>,
    ports: Vec<u16>,
    sentinels: Vec<SocketAddr>,
    /// Where sentinels talk TLS, if they do.
    secured: Vec<SocketAddr>,
    _processes: Vec<Process>,
    _directory: Directory,
}

impl Sentinels {
    pub(crate) fn start() -> Sentinels {
        Sentinels::with(&[])
    }

    /// Whose servers talk only TLS, and to whom sentinels do so; the options of TLS for each of them.
    pub(crate) fn with(tls: &[&str]) -> Sentinels {
        let (port_option, replication): (_, &[&str]) = match tls {
            [] => ("--port", &[]),
            _ => ("--tls-port", &["--tls-replication", "yes"]),
        };
        let ports = vec![free_port(), free_port()];
        let server = |port: u16, more: &[&str]| {
            let port = port.to_string();
            let own = [
                port_option,
                &port,
                "--bind",
                "127.0.0.1",
                "--repl-diskless-sync-delay",
                "0",
                "--appendonly",
                "no",
            ];
            RedisServer::with(&[&own[..], more, tls, replication].concat())
        };
        let replica_of = format!("127.0.0.1 {}", ports[0]);
        let servers = vec![server(ports[0], &[]), server(ports[1], &["--replicaof", &replica_of])];
        let directory = Directory::new();
        let (mut sentinels, mut secured, mut processes) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..SENTINELS {
            let (port, tls_port) = (free_port(), free_port());
            let file = directory.join(&format!("sentinel-{number}.conf"));
            let primary = ports[0];
            // A primary that a busy machine keeps for a while is not given up.
            let settings = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {primary} 2\n\
                 sentinel down-after-milliseconds main 5000\nsentinel failover-timeout main 4000\n",
                directory.path().display()
            );
            std::fs::write(&file, settings).expect("the configuration is written");
            let mut command = Command::new("redis-server");
            let log = directory.join(&format!("sentinel-{number}.log"));
            command.arg(&file).arg("--sentinel").arg("--logfile").arg(&log).args(tls).args(replication);
            if !tls.is_empty() {
                command.args(["--tls-port", &tls_port.to_string()]);
                secured.push(SocketAddr::from(([127, 0, 0, 1], tls_port)));
            }
            processes.push(Process::start("sentinel", command, &log));
            sentinels.push(SocketAddr::from(([127, 0, 0, 1], port)));
        }
        let (_processes, _directory) = (processes, directory);
        let group = Sentinels { servers, ports, sentinels, secured, _processes, _directory };
        group.wait_whole();
        group
    }

    /// Until the sentinels know each other and a replica that could take over.
    pub(crate) fn wait_whole(&self) {
        until("the sentinels know each other and the replica", || {
            let whole = |sentinel: &SocketAddr| {
                let mut client = Client::try_tcp(*sentinel).ok()?;
                // By itself a sentinel hears of replicas every ten seconds.
                client.call(&["SENTINEL", "DEBUG", "INFO-PERIOD", "300", "PUBLISH-PERIOD", "300"]);
                let Value::Array(others) = client.call(&["SENTINEL", "SENTINELS", "main"]) else {
                    return None;
                };
                let Value::Array(replicas) = client.call(&["SENTINEL", "REPLICAS", "main"]) else {
                    return None;
                };
                let good = |replica: &Value| {
                    let words = replica.elements().unwrap_or_default().iter().map(text).collect::<Vec<_>>();
                    words.contains(&"slave".to_owned()) && words.join(" ").contains("master-link-status ok")
                };
                (others.len() == SENTINELS - 1 && replicas.iter().any(good)).then_some(())
            };
            self.sentinels.iter().all(|sentinel| whole(sentinel).is_some()).then_some(())
        });
        // Four such periods after a replica was promoted, a sentinel that has not heard of it turns it back: 8 s and not
        // 1.2 s, for which a busy machine may keep the one that promoted it.
        for sentinel in &self.sentinels {
            ok(&mut Client::tcp(*sentinel), &["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "2000"]);
        }
    }

    /// As `storage` names the primary.
    pub(crate) fn url(&self) -> String {
        let places: Vec<String> = self.sentinels.iter().map(SocketAddr::to_string).collect();
        format!("redis+sentinel://{}/main", places.join(","))
    }

    pub(crate) fn url_with_tls(&self) -> String {
        let places: Vec<String> = self.secured.iter().map(SocketAddr::to_string).collect();
        format!("rediss+sentinel://{}/main", places.join(","))
    }

    /// The server that the first sentinel takes for the primary.
    pub(crate) fn primary(&self) -> usize {
        let mut client = Client::tcp(self.sentinels[0]);
        let Value::Array(place) = client.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]) else {
            panic!("no address")
        };
        let port = text(&place[1]);
        self.ports.iter().position(|known| known.to_string() == port).expect("one of the servers")
    }

    /// Has the replica take over while the primary is well. A sentinel gives up where it has not heard from the replica
    /// of late, and is asked again.
    pub(crate) fn fail_over(&self) {
        let mut client = Client::tcp(self.sentinels[0]);
        let before = self.primary();
        until("a fail-over has ended well", || {
            let state = client.call(&["SENTINEL", "MASTER", "main"]);
            let is_under_way = text(&state).contains("failover_in_progress");
            if self.primary() != before {
                return Some(());
            }
            if !is_under_way {
                client.call(&["SENTINEL", "FAILOVER", "main"]);
            }
            None
        });
    }
}
