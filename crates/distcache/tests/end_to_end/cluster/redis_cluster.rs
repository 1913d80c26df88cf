//! A real Redis Cluster of three primaries and three replicas for one test. Not what DistCache does with it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::resp::Value;

use super::{Client, Program, RedisServer, free_port, ok, text, until};

pub(crate) const PRIMARIES: usize = 3;
/// What `redis-cli --cluster create` deals to three primaries.
const SLOTS: [(u16, u16); PRIMARIES] = [(0, 5460), (5461, 10922), (10923, 16383)];

/// A cluster of servers none of which is given up because a busy machine, or a key that moves, keeps it for a while.
const PATIENT: [&str; 6] = [
    "--cluster-node-timeout",
    "5000",
    "--cluster-replica-no-failover",
    "yes",
    "--cluster-require-full-coverage",
    "no",
];

/// Killed when dropped.
pub(crate) struct RedisCluster {
    /// The primaries, then the replica of each.
    pub(crate) servers: Vec<RedisServer>,
    addresses: Vec<SocketAddr>,
    ids: Vec<String>,
}

impl RedisCluster {
    pub(crate) fn start() -> RedisCluster {
        RedisCluster::of(Program::Redis)
    }

    pub(crate) fn of(program: Program) -> RedisCluster {
        RedisCluster::with(program, &PATIENT)
    }

    /// Whose replicas soon take the place of a primary that is silent.
    pub(crate) fn that_fails_over() -> RedisCluster {
        RedisCluster::with(Program::Redis, &["--cluster-node-timeout", "1500"])
    }

    /// Whose servers talk TLS to everybody but their Unix sockets.
    pub(crate) fn with_tls(tls: &[&str]) -> RedisCluster {
        RedisCluster::with(
            Program::Redis,
            &[tls, &PATIENT, &["--tls-cluster", "yes", "--tls-replication", "yes"]].concat(),
        )
    }

    fn with(program: Program, more: &[&str]) -> RedisCluster {
        let port_option = if more.contains(&"--tls-cluster") { "--tls-port" } else { "--port" };
        let ports: Vec<(u16, u16)> = (0..2 * PRIMARIES).map(|_| (free_port(), free_port())).collect();
        let servers = ports.iter().map(|(port, bus)| {
            let (port, bus) = (port.to_string(), bus.to_string());
            let own = [
                port_option,
                &port,
                "--cluster-port",
                &bus,
                "--cluster-enabled",
                "yes",
                "--bind",
                "127.0.0.1",
                "--repl-diskless-sync-delay",
                "0",
                "--appendonly",
                "no",
                "--cluster-allow-replica-migration",
                "no",
            ];
            program.with(&[&own[..], more].concat())
        });
        let servers: Vec<RedisServer> = servers.collect();
        let ids = servers.iter().map(|server| text(&server.connect().call(&["CLUSTER", "MYID"]))).collect();
        let addresses = ports.iter().map(|(port, _)| SocketAddr::from(([127, 0, 0, 1], *port))).collect();
        let cluster = RedisCluster { servers, addresses, ids };
        cluster.form(&ports);
        cluster
    }

    fn form(&self, ports: &[(u16, u16)]) {
        for (index, server) in self.servers.iter().enumerate() {
            let mut client = server.connect();
            ok(&mut client, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if let Some((first, last)) = SLOTS.get(index) {
                ok(&mut client, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            }
        }
        let mut first = self.servers[0].connect();
        for (port, bus) in &ports[1..] {
            ok(&mut first, &["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()]);
        }
        until("every server knows the others", || self.all(|client| self.knows_all(client)));
        for replica in PRIMARIES..self.servers.len() {
            let mut client = self.servers[replica].connect();
            ok(&mut client, &["CLUSTER", "REPLICATE", &self.ids[replica - PRIMARIES]]);
        }
        self.wait_whole();
    }

    /// Until every slot is served and every replica follows.
    pub(crate) fn wait_whole(&self) {
        until("the Redis Cluster is whole", || {
            self.all(|client| {
                let info = text(&client.call(&["CLUSTER", "INFO"]));
                let nodes = text(&client.call(&["CLUSTER", "NODES"]));
                let replicas = nodes.lines().filter(|line| line.contains("slave")).count();
                let replication = text(&client.call(&["INFO", "replication"]));
                // A primary counts its replica only from the first ACK on, up to a second after the link is up.
                let follows = match replication.contains("role:master") {
                    true => replication.contains("state=online"),
                    false => replication.contains("master_link_status:up"),
                };
                let whole = info.contains("cluster_state:ok") && replicas == PRIMARIES && follows;
                whole && self.knows_all(client)
            })
        });
    }

    /// Whether a server has its link to each of the others and knows whose the links to it are: what is published goes
    /// over these, and is lost without one; Valkey drops it also where it does not know yet who sends it.
    fn knows_all(&self, client: &mut Client) -> bool {
        let nodes = text(&client.call(&["CLUSTER", "NODES"]));
        let is_linked =
            |line: &&str| line.split(' ').nth(7) == Some("connected") && !line.contains("handshake");
        let Value::Array(links) = client.call(&["CLUSTER", "LINKS"]) else { return false };
        let others = self.servers.len() - 1;
        nodes.lines().filter(is_linked).count() == self.servers.len() && links.len() == 2 * others
    }

    fn all(&self, mut good: impl FnMut(&mut Client) -> bool) -> Option<()> {
        self.servers.iter().all(|server| good(&mut server.connect())).then_some(())
    }

    /// As `storage` names it: any of the servers will do.
    pub(crate) fn url(&self) -> String {
        format!("redis-cluster://{},{}", self.addresses[1], self.addresses[3])
    }

    pub(crate) fn url_with_tls(&self) -> String {
        self.url().replace("redis-", "rediss-")
    }

    pub(crate) fn slot(&self, key: &str) -> u16 {
        match self.servers[0].connect().call(&["CLUSTER", "KEYSLOT", key]) {
            Value::Integer(slot) => slot as u16,
            other => panic!("{other:?}"),
        }
    }

    /// The server that has a slot, as the first server that answers sees it.
    pub(crate) fn owner(&self, slot: u16) -> usize {
        let first = SLOTS.iter().position(|(first, last)| (*first..=*last).contains(&slot));
        self.owner_as_seen(slot, first.expect("a slot")).unwrap_or_else(|| panic!("nobody has slot {slot}"))
    }

    fn owner_as_seen(&self, slot: u16, by: usize) -> Option<usize> {
        let nodes = text(&self.servers[by].connect().call(&["CLUSTER", "NODES"]));
        let has = |line: &&str| {
            line.split(' ').skip(8).filter(|word| !word.starts_with('[')).any(|word| {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                (first.parse().unwrap_or(u16::MAX)..=last.parse().unwrap_or(0)).contains(&slot)
            })
        };
        let id = nodes.lines().find(has)?.split(' ').next().unwrap_or_default();
        Some(self.ids.iter().position(|known| known == id).expect("one of the servers"))
    }

    /// Until every server knows whose the slot is: moves and failovers that follow too soon meet old epochs.
    pub(crate) fn wait_owner(&self, slot: u16, owner: usize) {
        until("every server knows the owner", || {
            let agrees = |by| self.owner_as_seen(slot, by) == Some(owner);
            (0..self.servers.len()).all(agrees).then_some(())
        });
    }

    /// A replica takes its primary's place without losing anything.
    pub(crate) fn fail_over(&self, replica: usize) {
        // A server that has not heard of the last move yet does not vote, and then nothing comes of it.
        const ATTEMPT_MAX: Duration = Duration::from_secs(6);
        let mut asked: Option<Instant> = None;
        until("the replica is the primary", || {
            if self.is_primary(replica) {
                return Some(());
            }
            if asked.is_none_or(|asked| asked.elapsed() > ATTEMPT_MAX) {
                self.servers[replica].connect().call(&["CLUSTER", "FAILOVER"]);
                asked = Some(Instant::now());
            }
            None
        });
    }

    pub(crate) fn is_primary(&self, server: usize) -> bool {
        text(&self.servers[server].connect().call(&["INFO", "replication"])).contains("role:master")
    }

    /// The first half of moving a slot: commands on keys that have moved are answered ASK from here on.
    pub(crate) fn begin_move(&self, slot: u16, from: usize, to: usize) {
        self.set_slot(to, slot, &["IMPORTING", &self.ids[from]]);
        self.set_slot(from, slot, &["MIGRATING", &self.ids[to]]);
    }

    fn set_slot(&self, server: usize, slot: u16, state: &[&str]) {
        let slot = slot.to_string();
        let command = [&["CLUSTER", "SETSLOT", &slot], state].concat();
        until("the slot's state is taken", || {
            let reply = text(&self.servers[server].connect().call(&command));
            // Valkey asks a replica first, and refuses while none follows.
            assert!(reply == "OK" || reply.starts_with("NOREPLICAS"), "{command:?}: {reply}");
            (reply == "OK").then_some(())
        });
    }

    /// Moves some keys; whether there were any.
    pub(crate) fn move_keys(&self, slot: u16, from: usize, to: usize) -> bool {
        let mut source = self.servers[from].connect();
        let Value::Array(keys) = source.call(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1"]) else {
            panic!("no list of keys")
        };
        let port = self.addresses[to].port().to_string();
        for key in &keys {
            let key = text(key);
            let moved = source.call(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
            assert!(matches!(text(&moved).as_str(), "OK" | "NOKEY"), "{moved:?}");
        }
        !keys.is_empty()
    }

    /// Tells everybody whose the slot is now: its new owner first, as redis-cli does.
    pub(crate) fn end_move(&self, slot: u16, from: usize, to: usize) {
        let primaries =
            [to, from].into_iter().chain((0..PRIMARIES).filter(|index| ![to, from].contains(index)));
        for server in primaries {
            self.set_slot(server, slot, &["NODE", &self.ids[to]]);
        }
    }
}
