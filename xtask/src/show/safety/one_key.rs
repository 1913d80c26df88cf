//! One key that is cached in both layers, written and read all the time. Not what is right to read.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::cluster::{Layer, Layout, ProcessCluster, client};

pub(super) const KEY: &str = "k";
/// A write waits for a minute where leases may be as long.
pub(super) const READY_MAX: Duration = Duration::from_secs(100);
pub(super) const POLL: Duration = Duration::from_millis(20);

/// One read: from when to when, and what there was.
#[derive(Clone, Debug)]
pub(super) struct KeyRead {
    pub(super) begun: Instant,
    pub(super) ended: Instant,
    pub(super) value: Option<String>,
}

/// Reads of the key so far, in the order of their ends.
pub(super) type Reads = Mutex<Vec<KeyRead>>;

/// A leaf and a spine before one server, which cache whatever is read.
pub(super) fn layout() -> Layout {
    Layout {
        racks: 1,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        tables: "[[policy]]\nprefix = \"\"\ncache = \"always\"\n".to_owned(),
        ..Layout::default()
    }
}

/// Reads until it is done. While nobody can serve there is no value that could be wrong.
pub(super) fn read(router: SocketAddr, reads: &Reads, done: &AtomicBool) -> anyhow::Result<()> {
    let mut connection = client::connect(router)?;
    while !done.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let found: Result<Option<String>, _> = redis::cmd("GET").arg(KEY).query(&mut connection);
        if let Ok(value) = found {
            let mut reads = reads.lock().map_err(|_| anyhow::anyhow!("a reader ended badly"))?;
            reads.push(KeyRead { begun, ended: Instant::now(), value });
        }
    }
    Ok(())
}

/// When a write was answered that went well.
pub(super) fn until_written(router: SocketAddr, value: &str) -> anyhow::Result<Instant> {
    let deadline = Instant::now() + READY_MAX;
    let mut connection = client::connect(router)?;
    loop {
        let done: Result<(), _> = redis::cmd("SET").arg(KEY).arg(value).query(&mut connection);
        match done {
            Ok(()) => return Ok(Instant::now()),
            Err(error) if Instant::now() > deadline => return Err(error).context("no write goes well"),
            Err(_) => std::thread::sleep(POLL),
        }
    }
}

/// Until both nodes hold the value under a lease.
pub(super) fn wait_cached(cluster: &ProcessCluster, router: SocketAddr, value: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_MAX;
    let mut connection = client::connect(router)?;
    loop {
        for _ in 0..200 {
            let found: String = redis::cmd("GET").arg(KEY).query(&mut connection)?;
            anyhow::ensure!(found == value, "{found:?} is read where {value:?} was written");
        }
        let holds = |id: &str| -> anyhow::Result<bool> {
            let status = cluster.member_status(id)?;
            Ok(status["objects"] == 1 && status["leases"][0]["held"] == true)
        };
        if holds("leaf-0")? && holds("spine-0")? {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the nodes do not hold the key");
        }
        std::thread::sleep(POLL);
    }
}
