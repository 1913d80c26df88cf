//! `show coalesce`: storage reads when a thousand connections ask for a hot key that was just invalidated.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use redis::Connection;
use serde_json::{Value, json};

use super::Stage;
use super::client::{calls, connect};
use super::finding::Finding;
use crate::cluster::{Cluster, Layer, Layout};

const READERS: usize = 1000;
const ROUNDS: u64 = 20;
const KEY: &str = "hot";
/// A leaf and a spine node may hold the key.
const NODES: u64 = 2;
const WAIT_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// Storage stands still while the readers ask, so that all of them meet the miss.
pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let layout = Layout { racks: 1, layers: vec![Layer::leaves(1), Layer::spines(1)], ..Layout::default() };
    let cluster = Cluster::start(stage.binary, layout, 1)?;
    let mut writer = connect(cluster.router(0))?;
    let mut storage = connect(cluster.member("redis-0")?.listen)?;
    let mut readers = Readers::connect(cluster.router(0))?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        wait_cached(&cluster, &mut readers)?;
        rounds.push(round(&cluster, &mut writer, &mut storage, &mut readers)?);
    }
    let worst = rounds.iter().max().copied().unwrap_or(0);
    let mut finding = Finding::default();
    finding.bound(
        worst <= NODES,
        format!(
            "{READERS} connections read a hot key right after each of {ROUNDS} writes: at most {worst} reads of \
             storage per write (one per node is {NODES})"
        ),
    );
    finding.figure("readers", READERS);
    finding.figure("nodes", NODES);
    finding.figure("storage_reads_per_invalidation", json!(rounds));
    finding.figure("storage_reads_max", worst);
    Ok(finding)
}

/// The GETs that storage saw between a write and the last of the readers' replies.
fn round(
    cluster: &Cluster,
    writer: &mut Connection,
    storage: &mut Connection,
    readers: &mut Readers,
) -> anyhow::Result<u64> {
    let before = calls(storage, "get")?;
    // Its value does not travel with the INV, so each copy is gone.
    let value: u64 = redis::cmd("INCR").arg(KEY).query(writer)?;
    cluster.pause("redis-0")?;
    readers.ask()?;
    let waiting = wait_for(|| {
        let status = cluster.member_status("router-0")?;
        Ok(status["queue_depth"].as_u64() >= Some(READERS as u64))
    });
    cluster.resume("redis-0")?;
    waiting.context("the readers' requests do not arrive")?;
    readers.expect(value)?;
    Ok(calls(storage, "get")? - before)
}

/// Until both nodes hold the key, which only reads bring about.
fn wait_cached(cluster: &Cluster, readers: &mut Readers) -> anyhow::Result<()> {
    let holds = |id: &str| -> anyhow::Result<bool> {
        let status: Value = cluster.member_status(id)?;
        Ok(status["objects"] == 1 && status["leases"][0]["held"] == true)
    };
    wait_for(|| {
        readers.ask()?;
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

struct Readers(Vec<BufReader<TcpStream>>);

impl Readers {
    fn connect(router: SocketAddr) -> anyhow::Result<Readers> {
        let connect = |_| -> anyhow::Result<BufReader<TcpStream>> {
            let stream = TcpStream::connect(router).context("a reader cannot connect")?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(WAIT_MAX))?;
            Ok(BufReader::with_capacity(64, stream))
        };
        Ok(Readers((0..READERS).map(connect).collect::<anyhow::Result<_>>()?))
    }

    /// Each asks once; nobody reads a reply yet.
    fn ask(&mut self) -> anyhow::Result<()> {
        let frame = format!("*2\r\n$3\r\nGET\r\n${}\r\n{KEY}\r\n", KEY.len());
        for reader in &mut self.0 {
            reader.get_mut().write_all(frame.as_bytes())?;
        }
        Ok(())
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
fn reply(reader: &mut BufReader<TcpStream>) -> anyhow::Result<Option<u64>> {
    let head = line(reader)?;
    match head.strip_prefix('$') {
        Some("-1") => Ok(None),
        Some(_) => Ok(Some(line(reader)?.parse()?)),
        None => anyhow::bail!("a reader got {head:?}"),
    }
}

fn line(reader: &mut BufReader<TcpStream>) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    while byte != *b"\n" {
        reader.read_exact(&mut byte).context("a reader got no reply")?;
        text.push(byte[0]);
    }
    Ok(String::from_utf8(text)?.trim_end().to_owned())
}
