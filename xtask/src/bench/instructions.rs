//! User instructions of a router and of a node per hot GET, counted by callgrind in a cluster of real processes: no clock and no
//! neighbour matters. Not what the kernel does for them.

use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::load::{final_status, load};
use crate::cluster::{Layer, Layout, ProcessCluster};

/// What one GET takes, as it was measured last. Whoever makes it better writes the new figure here; more than a tenth above it is a fault.
const PINNED: [PinnedCost; 6] = [
    PinnedCost { member: "router-0", pipeline: "1", near: false, instructions: 7_600.0 },
    PinnedCost { member: "router-0", pipeline: "16", near: false, instructions: 6_800.0 },
    PinnedCost { member: "router-0", pipeline: "1", near: true, instructions: 4_300.0 },
    PinnedCost { member: "router-0", pipeline: "16", near: true, instructions: 3_000.0 },
    PinnedCost { member: "leaf-0", pipeline: "1", near: false, instructions: 1_850.0 },
    PinnedCost { member: "leaf-0", pipeline: "16", near: false, instructions: 1_850.0 },
];
const TOLERANCE: f64 = 1.1;
/// A few and many requests: the difference is theirs alone, without start, warm-up and end.
const REQUESTS: [u64; 2] = [2_000, 42_000];

struct PinnedCost {
    member: &'static str,
    pipeline: &'static str,
    /// The router holds the keys itself.
    near: bool,
    instructions: f64,
}

pub(super) fn run(binary: &Path) -> anyhow::Result<Value> {
    let (mut rows, mut worse) = (Vec::new(), Vec::new());
    for cost in PINNED {
        let PinnedCost { member, pipeline, near, instructions: pinned } = cost;
        let [few, many] = REQUESTS.map(|requests| count(binary, &cost, requests));
        let (few, many) = (few?, many?);
        let each = (many.instructions - few.instructions) as f64 / (many.answered - few.answered) as f64;
        rows.push(json!({
            "member": member,
            "pipeline": pipeline,
            "near": near,
            "instructions_per_get": each.round(),
            "pinned": pinned,
        }));
        if each > pinned * TOLERANCE {
            let held = if near { " with near copies" } else { "" };
            worse.push(format!("{member}{held}, pipeline {pipeline}: {each:.0} instead of {pinned}"));
        }
    }
    println!("{}", serde_json::to_string_pretty(&rows)?);
    ensure!(worse.is_empty(), "a hot GET takes a tenth more instructions than it did: {}", worse.join("; "));
    Ok(Value::Array(rows))
}

/// Instructions of a whole process, and the GETs that it has answered.
struct CallgrindCount {
    instructions: u64,
    answered: u64,
}

fn count(binary: &Path, cost: &PinnedCost, requests: u64) -> anyhow::Result<CallgrindCount> {
    let PinnedCost { member, pipeline, near, .. } = *cost;
    let layout = Layout {
        racks: 1,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        // A member whose instructions are counted takes fifty times as long.
        cluster_lines: "lease_ms = 5000\n".to_owned(),
        counted: Some(member.to_owned()),
        tables: if near { "[near]\nobjects_max = 64\nheat_min = 10".to_owned() } else { String::new() },
        ..Layout::default()
    };
    let mut cluster = ProcessCluster::start(binary, layout, 0)?;
    let port = cluster.router(0).port();
    let hot = ["--keys", "16", "--dist", "adversary:16", "--value-bytes", "64", "--warmup", "0"];
    let warm = ["--connections", "8", "--pipeline", "8", "--requests", "20000"];
    load(binary, port, &[&hot[..], &warm].concat())?;
    let requests = requests.to_string();
    let measured = ["--no-load", "--connections", "50", "--pipeline", pipeline, "--requests", &requests];
    load(binary, port, &[&hot[..], &measured].concat())?;
    let answered = answered(&final_status(&cluster)?, member)?;
    cluster.terminate(member)?;
    let log = cluster.log(member);
    let collected = log.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    let instructions =
        collected.with_context(|| format!("callgrind does not say what it has counted: {log}"))?;
    Ok(CallgrindCount { instructions, answered })
}

/// Reads that the router got, or hits of the node.
fn answered(status: &Value, id: &str) -> anyhow::Result<u64> {
    let of = |list: &str, counter: &str| {
        let members = status[list].as_array()?;
        members.iter().find(|member| member["id"] == id)?[counter].as_u64()
    };
    let count = of("routers", "requests_total").or_else(|| of("nodes", "hits_total"));
    count.with_context(|| format!("{id} is not in the status"))
}
