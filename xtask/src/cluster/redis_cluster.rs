//! A real Redis Cluster as storage: how it is formed, how its slots move and its replicas are promoted. Not its
//! processes, and not when that happens.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use redis::{Connection, Value};

use super::{LayoutMember, POLL, START_MAX};

/// How long a server is waited for that may stand still.
const REPLY_MAX: Duration = Duration::from_millis(1500);
/// Redis gives a failover by hand up after five seconds.
const FAILOVER_MAX: Duration = Duration::from_secs(6);
/// A slot is handed over again until it works: after a pause the servers need some seconds to trust each other.
const MOVE_MAX: Duration = Duration::from_secs(30);
const SLOTS: usize = 16_384;
/// Pauses are rarely longer, so that a server that stands still is seldom given up by the others.
const NODE_TIMEOUT_MS: &str = "2000";

/// One server of it.
#[derive(Clone, Debug)]
struct ClusterServer {
    id: String,
    listen: SocketAddr,
    /// By the name that the servers have for it.
    node: String,
}

/// Servers with slots, and behind them a replica of each.
#[derive(Clone, Debug)]
pub(crate) struct StartedRedisCluster {
    servers: Vec<ClusterServer>,
}

/// A slot on its way from one server to another, by the ids of the members.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) slot: u16,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// Options of a server that others find at `announced`. What it acknowledged survives `kill -9`: it is in the file
/// before the reply is sent, and the kernel keeps the file. No replica takes over by itself, because it may lack
/// acknowledged writes; in order it may.
pub(crate) fn options(command: &mut Command, bus: u16, announced: SocketAddr) {
    let (bus, port) = (bus.to_string(), announced.port().to_string());
    command.args(["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-announce-ip", "127.0.0.1"]);
    command.args(["--cluster-announce-port", &port, "--cluster-announce-bus-port", &bus]);
    command.args(["--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-replica-no-failover", "yes"]);
    command.args(["--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0"]);
    command.args(["--appendonly", "yes", "--appendfsync", "no"]);
}

impl StartedRedisCluster {
    /// Forms a cluster of running servers that do not know each other, the first half of which get the slots.
    pub(crate) fn form(
        members: &[&LayoutMember],
        announced: impl Fn(&LayoutMember) -> SocketAddr,
    ) -> anyhow::Result<StartedRedisCluster> {
        let mut servers = Vec::new();
        for member in members {
            let mut server = connect(member.listen)?;
            let node = redis::cmd("CLUSTER").arg("MYID").query(&mut server)?;
            servers.push(ClusterServer { id: member.id.clone(), listen: member.listen, node });
        }
        let cluster = StartedRedisCluster { servers };
        let primaries = members.len() / 2;
        for (index, member) in members.iter().enumerate() {
            let mut server = connect(member.listen)?;
            cluster_command(&mut server, &["SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
            if index < primaries {
                let border = |index: usize| (SLOTS * index + primaries / 2) / primaries;
                let (first, last) = (border(index).to_string(), (border(index + 1) - 1).to_string());
                cluster_command(&mut server, &["ADDSLOTSRANGE", &first, &last])?;
            }
        }
        let mut first = connect(members[0].listen)?;
        for member in &members[1..] {
            let (port, bus) = (announced(member).port().to_string(), member.admin.port().to_string());
            cluster_command(&mut first, &["MEET", "127.0.0.1", &port, &bus])?;
        }
        cluster.wait("the servers of the Redis Cluster do not find each other", |server| {
            let nodes: String = redis::cmd("CLUSTER").arg("NODES").query(server)?;
            let known =
                nodes.lines().filter(|line| line.contains(" connected") && !line.contains("handshake"));
            Ok(known.count() == members.len())
        })?;
        for (replica, primary) in members[primaries..].iter().zip(&cluster.servers) {
            cluster_command(&mut connect(replica.listen)?, &["REPLICATE", &primary.node])?;
        }
        cluster.wait("the Redis Cluster does not become whole", |server| {
            let info: String = redis::cmd("CLUSTER").arg("INFO").query(server)?;
            let replication = information(server, "replication")?;
            let follows =
                replication.contains("role:master") || replication.contains("master_link_status:up");
            Ok(info.contains("cluster_state:ok") && follows)
        })?;
        Ok(cluster)
    }

    fn wait(&self, what: &str, good: impl Fn(&mut Connection) -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_MAX;
        for server in &self.servers {
            while !connect(server.listen).and_then(|mut server| good(&mut server)).unwrap_or(false) {
                ensure!(Instant::now() < deadline, "{what}: {}", server.id);
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }

    fn server(&self, id: &str) -> anyhow::Result<&ClusterServer> {
        self.servers.iter().find(|server| server.id == id).with_context(|| format!("there is no {id}"))
    }

    fn reach(&self, id: &str) -> anyhow::Result<Connection> {
        connect(self.server(id)?.listen)
    }

    /// Servers that answer and have slots now. A server that has just become a replica and then a primary again is one
    /// of them once its data are in its file.
    pub(crate) fn primaries(&self) -> Vec<String> {
        let is_primary = |server: &&ClusterServer| {
            connect(server.listen).and_then(|mut server| is_safe_primary(&mut server)).unwrap_or(false)
        };
        self.servers.iter().filter(is_primary).map(|server| server.id.clone()).collect()
    }

    /// The replicas that follow a primary, each with that primary.
    pub(crate) fn replicas(&self) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for server in &self.servers {
            let Ok(nodes) = connect(server.listen).and_then(|mut server| {
                let replication = information(&mut server, "replication")?;
                ensure!(replication.contains("master_link_status:up"), "it follows nobody");
                Ok(redis::cmd("CLUSTER").arg("NODES").query::<String>(&mut server)?)
            }) else {
                continue;
            };
            let own = nodes.lines().find(|line| line.contains("myself,slave"));
            let followed = own.and_then(|line| line.split(' ').nth(3)).unwrap_or_default();
            let primary = self.servers.iter().find(|server| server.node == followed);
            pairs.extend(primary.map(|primary| (server.id.clone(), primary.id.clone())));
        }
        pairs
    }

    /// In order: the primary stands still until its replica has all it has. False where that did not come about.
    pub(crate) fn fail_over(&self, replica: &str) -> anyhow::Result<bool> {
        let mut server = self.reach(replica)?;
        if cluster_command(&mut server, &["FAILOVER"]).is_err() {
            return Ok(false);
        }
        let deadline = Instant::now() + FAILOVER_MAX;
        while Instant::now() < deadline {
            if information(&mut server, "replication").is_ok_and(|text| text.contains("role:master")) {
                return Ok(true);
            }
            std::thread::sleep(POLL);
        }
        Ok(false)
    }

    /// A slot of `from` that has keys.
    pub(crate) fn slot_with_keys(&self, from: &str) -> Option<u16> {
        let mut server = self.reach(from).ok()?;
        let key: Option<String> = redis::cmd("RANDOMKEY").query(&mut server).ok()?;
        redis::cmd("CLUSTER").arg("KEYSLOT").arg(key?).query(&mut server).ok()
    }

    /// Commands on keys that have moved are answered ASK from here on.
    pub(crate) fn begin_move(&self, part: &Move) -> anyhow::Result<()> {
        let slot = part.slot.to_string();
        let (from, to) = (self.server(&part.from)?, self.server(&part.to)?);
        cluster_command(&mut connect(to.listen)?, &["SETSLOT", &slot, "IMPORTING", &from.node])?;
        cluster_command(&mut connect(from.listen)?, &["SETSLOT", &slot, "MIGRATING", &to.node])
    }

    /// Moves some of the slot's keys, at most `count`; whether there were any.
    pub(crate) fn move_keys(&self, part: &Move, count: usize) -> anyhow::Result<bool> {
        let mut source = self.reach(&part.from)?;
        let mut list = redis::cmd("CLUSTER");
        let keys: Vec<String> = list.arg("GETKEYSINSLOT").arg(part.slot).arg(count).query(&mut source)?;
        let target = self.server(&part.to)?.listen;
        for key in &keys {
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(target.port()).arg(key).arg(0).arg(1000);
            // One that was copied and not deleted: the source still has the word.
            migrate.arg("REPLACE").query::<Value>(&mut source)?;
        }
        Ok(!keys.is_empty())
    }

    /// Moves what is left, and tells everybody whose the slot is now: its new owner first, as redis-cli does.
    pub(crate) fn end_move(&self, part: &Move) -> anyhow::Result<()> {
        let deadline = Instant::now() + MOVE_MAX;
        loop {
            match self.try_to_end_move(part) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    bail!("slot {} does not get from {} to {}: {error:#}", part.slot, part.from, part.to)
                }
                Err(_) => std::thread::sleep(POLL * 5),
            }
        }
    }

    fn try_to_end_move(&self, part: &Move) -> anyhow::Result<()> {
        while self.move_keys(part, 10)? {}
        let node = &self.server(&part.to)?.node;
        for id in [&part.to, &part.from] {
            let mut server = self.reach(id)?;
            cluster_command(&mut server, &["SETSLOT", &part.slot.to_string(), "NODE", node])?;
        }
        Ok(())
    }
}

/// One whose file holds all it has: while a server rewrites it after a resynchronisation, it would come back from
/// `kill -9` without.
fn is_safe_primary(server: &mut Connection) -> anyhow::Result<bool> {
    let persistence = information(server, "persistence")?;
    let written =
        ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "loading:0", "rdb_bgsave_in_progress:0"]
            .iter()
            .all(|line| persistence.contains(line));
    Ok(written && information(server, "replication")?.contains("role:master"))
}

fn connect(address: SocketAddr) -> anyhow::Result<Connection> {
    let client = redis::Client::open(format!("redis://{address}/"))?;
    let connection = client.get_connection_with_timeout(REPLY_MAX).with_context(|| address.to_string())?;
    connection.set_read_timeout(Some(REPLY_MAX))?;
    connection.set_write_timeout(Some(REPLY_MAX))?;
    Ok(connection)
}

fn information(server: &mut Connection, section: &str) -> anyhow::Result<String> {
    Ok(redis::cmd("INFO").arg(section).query(server)?)
}

fn cluster_command(server: &mut Connection, arguments: &[&str]) -> anyhow::Result<()> {
    redis::cmd("CLUSTER")
        .arg(arguments)
        .exec(server)
        .with_context(|| format!("CLUSTER {}", arguments.join(" ")))
}

#[cfg(test)]
mod tests {
    use crate::cluster::{Layout, LayoutRole, LayoutStorage, ProcessCluster};

    /// On real servers: a slot goes and comes back with its keys, and a replica changes places with its primary.
    #[test]
    fn slots_move_and_replicas_take_over() {
        let layout =
            Layout { racks: 3, storage: LayoutStorage::RedisCluster, proxied: true, ..Layout::default() };
        let cluster = ProcessCluster::storage_alone(layout).unwrap();
        let storage = cluster.redis_cluster().unwrap();
        assert_eq!(cluster.ids(LayoutRole::Redis).len(), 6);
        // One that does not answer at once, on a busy machine, is none of them.
        while storage.primaries() != ["redis-0", "redis-1", "redis-2"] {
            std::thread::yield_now();
        }
        let mut first = storage.reach("redis-0").unwrap();
        // In slot 0.
        redis::cmd("SET").arg("{06S}a").arg("1").exec(&mut first).unwrap();
        assert_eq!(storage.slot_with_keys("redis-0"), Some(0));
        let part = super::Move { slot: 0, from: "redis-0".into(), to: "redis-2".into() };
        storage.begin_move(&part).unwrap();
        storage.end_move(&part).unwrap();
        assert_eq!(storage.slot_with_keys("redis-0"), None);
        assert_eq!(storage.slot_with_keys("redis-2"), Some(0));
        assert!(storage.replicas().contains(&("redis-4".to_owned(), "redis-1".to_owned())));
        // Servers that have not heard of the move yet do not vote.
        assert!((0..10).any(|_| storage.fail_over("redis-4").unwrap()));
        while !storage.primaries().contains(&"redis-4".to_owned()) {
            std::thread::yield_now();
        }
    }
}
