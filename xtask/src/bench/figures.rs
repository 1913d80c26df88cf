//! Balance and coherence cost, from the counters of a cluster before and after a load.

use std::path::Path;

use serde_json::{Value, json};

use super::load::{final_status, load};
use crate::cluster::{Layer, Layout, ProcessCluster};

const WARMUP_SECONDS: &str = "30";

fn layout(cached: bool) -> Layout {
    Layout {
        racks: 4,
        servers_per_rack: 2,
        layers: vec![Layer::leaves(1), Layer::spines(4)],
        // Nodes that may hold nothing leave a plain sharding proxy.
        objects_max: if cached { 1000 } else { 0 },
        separate: false,
        ..Layout::default()
    }
}

/// Requests per node and per storage server under Zipf 0.99 over 100,000 keys, and one key alone.
pub(super) fn balance(binary: &Path, seconds: u64) -> anyhow::Result<Value> {
    let plain = ProcessCluster::start(binary, layout(false), 0)?;
    let without = measure(binary, &plain, "zipf:0.99", "0", seconds)?;
    drop(plain);
    let cluster = ProcessCluster::start(binary, layout(true), 0)?;
    let with = measure(binary, &cluster, "zipf:0.99", "0", seconds)?;
    let one_key = measure(binary, &cluster, "adversary:1", "0", seconds.min(10))?;
    let counts = |key: &str, name: &str, deltas: &Value| -> Vec<f64> {
        let members = deltas[key].as_array().map_or(&[][..], Vec::as_slice);
        members.iter().filter_map(|member| member[name].as_f64()).collect()
    };
    let nodes = counts("nodes", "requests_total", &with);
    let (reads, requests) = (counts("shims", "storage_reads_total", &with), nodes.iter().sum::<f64>());
    let total = with["requests"].as_f64().unwrap_or(0.0);
    let hits: f64 = counts("nodes", "hits_total", &with).iter().sum();
    Ok(json!({
        "seconds": seconds,
        "node_max_over_avg": max_over_avg(&nodes),
        "storage_max_over_avg": max_over_avg(&reads),
        "storage_max_over_avg_without_cache": max_over_avg(&counts("shims", "storage_reads_total", &without)),
        "hit_ratio": hits / total,
        "reads_at_nodes": requests / total,
        "reads_at_storage": reads.iter().sum::<f64>() / total,
        "node_requests": nodes,
        "storage_reads": reads,
        "throughput_with_cache": with["throughput"],
        "throughput_without_cache": without["throughput"],
        "one_key_node_requests": counts("nodes", "requests_total", &one_key),
    }))
}

/// Messages per invalidated copy with one write in ten.
pub(super) fn coherence(binary: &Path, seconds: u64) -> anyhow::Result<Value> {
    let cluster = ProcessCluster::start(binary, layout(true), 0)?;
    let deltas = measure(binary, &cluster, "zipf:0.99", "0.1", seconds)?;
    let sum = |name: &str| -> f64 {
        let shims = deltas["shims"].as_array().map_or(&[][..], Vec::as_slice);
        shims.iter().filter_map(|shim| shim[name].as_f64()).sum()
    };
    let copies = sum("invalidated_copies_total");
    anyhow::ensure!(copies > 0.0, "no copy was invalidated");
    Ok(json!({
        "seconds": seconds,
        "writes": sum("storage_writes_total"),
        "invalidated_copies": copies,
        "messages_per_copy": sum("coherence_messages_total") / copies,
        "commits_per_copy": sum("commits_total") / copies,
        "throughput": deltas["throughput"],
    }))
}

/// Warms up, then runs the load and returns by how much every counter grew.
fn measure(
    binary: &Path,
    cluster: &ProcessCluster,
    dist: &str,
    writes: &str,
    seconds: u64,
) -> anyhow::Result<Value> {
    let base = ["--keys", "100000", "--dist", dist, "--write-ratio", writes, "--connections", "50"];
    let port = cluster.router(0).port();
    load(binary, port, &[&base[..], &["--seconds", WARMUP_SECONDS]].concat())?;
    let before = final_status(cluster)?;
    let seconds = seconds.to_string();
    let summary = load(binary, port, &[&base[..], &["--no-load", "--seconds", &seconds]].concat())?;
    let after = final_status(cluster)?;
    let mut deltas = json!({ "requests": summary["requests"], "throughput": summary["throughput"] });
    for role in ["nodes", "shims", "routers"] {
        deltas[role] = difference(&before[role], &after[role]);
    }
    Ok(deltas)
}

/// After minus before, member by member, for every number.
fn difference(before: &Value, after: &Value) -> Value {
    match (before, after) {
        (Value::Array(before), Value::Array(after)) => {
            before.iter().zip(after).map(|(before, after)| difference(before, after)).collect()
        }
        (Value::Object(before), Value::Object(after)) => {
            let fields = after.iter().map(|(name, after)| {
                let before = before.get(name).unwrap_or(&Value::Null);
                (name.clone(), difference(before, after))
            });
            Value::Object(fields.collect())
        }
        (before, Value::Number(after)) => {
            json!(after.as_f64().unwrap_or(0.0) - before.as_f64().unwrap_or(0.0))
        }
        (_, after) => after.clone(),
    }
}

fn max_over_avg(counts: &[f64]) -> f64 {
    let average = counts.iter().sum::<f64>() / counts.len() as f64;
    counts.iter().copied().fold(0.0, f64::max) / average
}
