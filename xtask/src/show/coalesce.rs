//! `show coalesce`: storage reads when a thousand connections ask for a hot key that was just invalidated.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use redis::Connection;
use serde_json::{Value, json};
use wire::resp::{self, Command};

use super::Stage;
use super::finding::Finding;
use crate::cluster::{
    Layer, Layout, ProcessCluster,
    client::{calls, connect},
};
use crate::replies::ReplyConnection;

const READERS: usize = 1000;
const ROUNDS: u64 = 20;
const KEY: &str = "hot";
/// A leaf and a spine node may hold the key.
const NODES: u64 = 2;
/// Readers of a key in no cache meet at its shim: the first one's read has been sent, the next serves all others.
const COLD_READS: u64 = 2 + NODES;
/// Enough for the router to pass a thousand reads on; shorter than the patience with which routers wait for a node until
/// they ask the shim instead, which would be reads of another kind.
const STORAGE_AWAY: Duration = Duration::from_millis(40);
const WAIT_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// The router stands still while the readers ask, and storage for a little longer, so that all of them meet the miss.
pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let layout = Layout { racks: 1, layers: vec![Layer::leaves(1), Layer::spines(1)], ..Layout::default() };
    let cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let mut writer = connect(cluster.router(0))?;
    let mut storage = connect(cluster.member("redis-0")?.listen)?;
    let mut readers = Readers::connect(cluster.router(0))?;
    let (mut rounds, mut cold) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        wait_cached(&cluster, &mut readers)?;
        rounds.push(round(&cluster, KEY, &mut writer, &mut storage, &mut readers)?);
    }
    for number in 0..ROUNDS {
        cold.push(round(&cluster, &format!("cold-{number}"), &mut writer, &mut storage, &mut readers)?);
    }
    let largest = |reads: &[u64]| reads.iter().max().copied().unwrap_or(0);
    let (worst, worst_cold) = (largest(&rounds), largest(&cold));
    let mut finding = Finding::default();
    finding.bound(
        worst <= NODES,
        format!(
            "{READERS} connections read a hot key right after each of {ROUNDS} writes: at most {worst} reads of \
             storage per write (one per node is {NODES})"
        ),
    );
    finding.bound(
        worst_cold <= COLD_READS,
        format!(
            "and a key that nobody has cached: at most {worst_cold} reads of storage per write (bound: {COLD_READS}, the \
             first reader's, the one of all who came after it, and one per node that takes the key on)"
        ),
    );
    finding.figure("cold_storage_reads_per_write", json!(cold));
    finding.figure("cold_storage_reads_max", worst_cold);
    finding.figure("readers", READERS);
    finding.figure("nodes", NODES);
    finding.figure("storage_reads_per_invalidation", json!(rounds));
    finding.figure("storage_reads_max", worst);
    Ok(finding)
}

/// The GETs that storage saw between a write and the last of the readers' replies.
fn round(
    cluster: &ProcessCluster,
    key: &str,
    writer: &mut Connection,
    storage: &mut Connection,
    readers: &mut Readers,
) -> anyhow::Result<u64> {
    let before = calls(storage, "get")?;
    // Its value does not travel with the INV, so each copy is gone.
    let value: u64 = redis::cmd("INCR").arg(key).query(writer)?;
    cluster.pause("router-0")?;
    cluster.pause("redis-0")?;
    let asked = readers.ask(key);
    cluster.resume("router-0")?;
    std::thread::sleep(STORAGE_AWAY);
    cluster.resume("redis-0")?;
    asked?;
    readers.expect(value)?;
    Ok(calls(storage, "get")? - before)
}

/// Until both nodes hold the key, which only reads bring about.
fn wait_cached(cluster: &ProcessCluster, readers: &mut Readers) -> anyhow::Result<()> {
    let holds = |id: &str| -> anyhow::Result<bool> {
        let status: Value = cluster.member_status(id)?;
        Ok(status["objects"] == 1 && status["leases"][0]["held"] == true)
    };
    wait_for(|| {
        readers.ask(KEY)?;
        readers.expect_any()?;
        Ok(holds("leaf-0")? && holds("spine-0")?)
    })
    .context("the nodes do not cache the key")
}

fn wait_for(mut condition: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !condition()? {
        anyhow::ensure!(Instant::now() < deadline, "it took longer than {WAIT_MAX:?}");
        std::thread::sleep(POLL);
    }
    Ok(())
}

struct Readers(Vec<ReplyConnection<TcpStream>>);

impl Readers {
    fn connect(router: SocketAddr) -> anyhow::Result<Readers> {
        let connect = |_| -> anyhow::Result<ReplyConnection<TcpStream>> {
            let stream = TcpStream::connect(router).context("a reader cannot connect")?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(WAIT_MAX))?;
            Ok(ReplyConnection::new(stream))
        };
        Ok(Readers((0..READERS).map(connect).collect::<anyhow::Result<_>>()?))
    }

    /// Each asks once; nobody reads a reply yet.
    fn ask(&mut self, key: &str) -> anyhow::Result<()> {
        let command = Command::from_args(&["GET", key]);
        Ok(self.0.iter_mut().try_for_each(|reader| reader.send(command.frame()))?)
    }

    fn expect_any(&mut self) -> anyhow::Result<()> {
        self.0.iter_mut().try_for_each(|reader| reply(reader).map(drop))
    }

    /// Each gets this value and no older one.
    fn expect(&mut self, value: u64) -> anyhow::Result<()> {
        for reader in &mut self.0 {
            let reply = reply(reader)?;
            anyhow::ensure!(reply == Some(value), "a reader got {reply:?} instead of {value}");
        }
        Ok(())
    }
}

/// A number in a bulk string, or nil.
fn reply(reader: &mut ReplyConnection<TcpStream>) -> anyhow::Result<Option<u64>> {
    match reader.receive().context("a reader got no reply")? {
        resp::Value::Null => Ok(None),
        resp::Value::Bulk(text) => Ok(Some(std::str::from_utf8(&text)?.parse()?)),
        other => anyhow::bail!("a reader got {other:?}"),
    }
}
