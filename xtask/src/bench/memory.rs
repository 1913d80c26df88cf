//! Resident memory: a node full of small objects, a router with many idle clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use super::load::{final_status, load};
use crate::cluster::{Layer, Layout, ProcessCluster};

const CLIENTS: usize = 10_000;
/// Connections to one listening port that this side can have: more would need more addresses.
const OBJECTS: &str = "10000";

pub(super) fn run(binary: &Path) -> anyhow::Result<Value> {
    let layout = Layout {
        racks: 1,
        layers: vec![Layer::spines(1)],
        tables: "[limits]\nclients_max = 20000\n".to_owned(),
        ..Layout::default()
    };
    let cluster = ProcessCluster::start(binary, layout, 0)?;
    let address = cluster.router(0);
    let distribution = format!("adversary:{OBJECTS}");
    let arguments = ["--keys", OBJECTS, "--dist", &distribution, "--value-bytes", "64", "--seconds", "20"];
    load(binary, address.port(), &[&arguments[..], &["--connections", "50", "--pipeline", "16"]].concat())?;
    let objects = final_status(&cluster)?["nodes"][0]["objects"].clone();
    let node = cluster.process("spine-0")?.resident_bytes()?;
    raise_files_max()?;
    let router = cluster.process("router-0")?;
    let before = router.resident_bytes()?;
    let mut clients = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        clients.push(TcpStream::connect(address).context("a client could not connect")?);
    }
    let mut pong = [0; 7];
    for client in &mut clients {
        client.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        client.read_exact(&mut pong)?;
        anyhow::ensure!(&pong == b"+PONG\r\n", "a client got {pong:?}");
    }
    let after = router.resident_bytes()?;
    Ok(json!({
        "node_objects": objects,
        "node_resident_mib": mib(node),
        "router_clients": clients.len(),
        "router_resident_mib": mib(after),
        "router_resident_mib_before": mib(before),
    }))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Ten thousand sockets need more files than the usual soft limit.
fn raise_files_max() -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}
