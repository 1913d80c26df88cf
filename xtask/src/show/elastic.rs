//! `show elastic`: one key, and a skew that two nodes for each key cannot bear, on nodes that do so many requests a second each.
//! How much of what all nodes allow is served, how soon, what a write costs then, and how soon the copies are gone.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::Stage;
use super::finding::Finding;
use super::load::{LoadSlice, ShownLoad};
use super::rated;
use crate::cluster::{
    LayoutRole, ProcessCluster, ask,
    client::{calls, connect},
    mortal,
};

/// Racks, and as many spines; each with as many nodes.
const WIDTHS: [usize; 2] = [4, 8];
const RATE: u64 = 400;
/// Requests that clients have under way, all together.
const UNDER_WAY: usize = 400;
/// Requests that each of them sends before it reads.
const PIPELINES: [usize; 2] = [2, 16];
const SLICE_MS: u64 = 250;
const SECONDS: u64 = 14;
/// The last of them count as what goes on for ever.
const STEADY: usize = 20;
const ONE_KEY: [&str; 4] = ["--keys", "100", "--dist", "adversary:1"];
const SHARE_MIN: f64 = 0.95;
const SOON: f64 = 5.0;
const GONE: Duration = Duration::from_secs(60);
const MESSAGES_PER_COPY_MAX: f64 = 2.05;
const WRITES: u64 = 40;
const POLL: Duration = Duration::from_millis(100);

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    for width in WIDTHS {
        one_key(stage, width, &mut finding)?;
        skewed(stage, width, &mut finding)?;
    }
    for pipeline in PIPELINES {
        pipelined(stage, pipeline, &mut finding)?;
    }
    Ok(finding)
}

fn load(
    stage: &Stage<'_>,
    cluster: &ProcessCluster,
    name: &str,
    workload: &[&str],
    pipeline: usize,
) -> anyhow::Result<Vec<LoadSlice>> {
    let (seconds, slice) = (SECONDS.to_string(), SLICE_MS.to_string());
    let (connections, pipeline) = ((UNDER_WAY / pipeline).to_string(), pipeline.to_string());
    let clients = ["--connections", &connections, "--pipeline", &pipeline];
    let length = ["--warmup", "0", "--seconds", &seconds, "--slice-ms", &slice];
    let arguments = [workload, &clients, &length].concat();
    Ok(ShownLoad::start(stage.binary, cluster.router(0), stage.runs, name, &arguments)?.finish()?.slices)
}

/// Requests per second at the end of the series.
fn steady(slices: &[LoadSlice]) -> f64 {
    // The last slice may be cut off.
    let end = &slices[..slices.len().saturating_sub(1)];
    let last = &end[end.len().saturating_sub(STEADY)..];
    let served: u64 = last.iter().map(|slice| slice.replies - slice.error_replies).sum();
    served as f64 * 1000.0 / (last.len().max(1) as u64 * SLICE_MS) as f64
}

/// When a second's worth of slices has first had this rate, in seconds from the start.
fn reached(slices: &[LoadSlice], rate: f64) -> Option<f64> {
    let second = (1000 / SLICE_MS) as usize;
    let served = |slices: &[LoadSlice]| -> u64 {
        slices.iter().map(|slice| slice.replies - slice.error_replies).sum()
    };
    let first = slices.windows(second).position(|window| served(window) as f64 >= rate)?;
    Some((first + second) as f64 * SLICE_MS as f64 / 1000.0)
}

/// The same key to clients that send several requests for it at once: each must be answered in its place.
fn pipelined(stage: &Stage<'_>, pipeline: usize, finding: &mut Finding) -> anyhow::Result<()> {
    let width = WIDTHS[WIDTHS.len() - 1];
    let cluster = ProcessCluster::start(stage.binary, rated::layout(width, RATE), 1)?;
    let all = (2 * width) as f64 * RATE as f64;
    let slices = load(stage, &cluster, &format!("elastic-pipeline-{pipeline}"), &ONE_KEY, pipeline)?;
    let (served, soon) = (steady(&slices), reached(&slices, SHARE_MIN * all));
    finding.bound(
        served >= SHARE_MIN * all && soon.is_some_and(|seconds| seconds <= SOON),
        format!(
            "one key, {} nodes, pipeline {pipeline}: {served:.0}/s, {:.3} of what all can do; {SHARE_MIN} of it after {} s",
            2 * width,
            served / all,
            soon.map_or("more than all".to_owned(), |seconds| format!("{seconds:.1}")),
        ),
    );
    finding.figure(&format!("pipeline_{pipeline}_share"), served / all);
    finding.figure(&format!("pipeline_{pipeline}_seconds_to_095"), json!(soon));
    Ok(())
}

fn one_key(stage: &Stage<'_>, width: usize, finding: &mut Finding) -> anyhow::Result<()> {
    let cluster = ProcessCluster::start(stage.binary, rated::layout(width, RATE), 1)?;
    let nodes = 2 * width;
    let all = nodes as f64 * RATE as f64;
    let reads_before = storage_reads(&cluster)?;
    let slices = load(stage, &cluster, &format!("elastic-one-key-{nodes}"), &ONE_KEY, 1)?;
    let (served, soon) = (steady(&slices), reached(&slices, SHARE_MIN * all));
    // The load has written each of its keys before.
    let reads = storage_reads(&cluster)? - reads_before;
    finding.bound(
        served >= SHARE_MIN * all,
        format!("one key, {nodes} nodes of {RATE}/s: {served:.0}/s, {:.3} of what all can do", served / all),
    );
    finding.bound(
        soon.is_some_and(|seconds| seconds <= SOON),
        match soon {
            Some(seconds) => format!("  {SHARE_MIN} of it after {seconds:.1} s (bound: {SOON} s)"),
            None => format!("  never {SHARE_MIN} of it (bound: after {SOON} s)"),
        },
    );
    finding.say(format!("  {reads} reads at storage meanwhile"));
    let began = Instant::now();
    while sum(&cluster, "copies")? > 2 && began.elapsed() < GONE * 2 {
        std::thread::sleep(POLL);
    }
    let gone = began.elapsed();
    finding.bound(gone <= GONE, format!("  two copies again after {:.1} s", gone.as_secs_f64()));
    load(stage, &cluster, &format!("elastic-one-key-again-{nodes}"), &ONE_KEY, 1)?;
    let ratio = written(&cluster)?;
    finding.bound(
        ratio.messages <= MESSAGES_PER_COPY_MAX,
        format!(
            "  a write then: {:.1} copies, {:.3} messages for each (bound: {MESSAGES_PER_COPY_MAX})",
            ratio.copies, ratio.messages
        ),
    );
    finding.figure(&format!("one_key_{nodes}_share"), served / all);
    finding.figure(&format!("one_key_{nodes}_seconds_to_095"), json!(soon));
    finding.figure(&format!("one_key_{nodes}_storage_reads"), reads);
    finding.figure(&format!("one_key_{nodes}_messages_per_copy"), ratio.messages);
    finding.figure(&format!("one_key_{nodes}_seconds_to_two_copies"), gone.as_secs_f64());
    Ok(())
}

/// Zipf 1.2 against what `study capacity --elastic` computes for the same cluster.
fn skewed(stage: &Stage<'_>, width: usize, finding: &mut Finding) -> anyhow::Result<()> {
    let cluster = ProcessCluster::start(stage.binary, rated::layout(width, RATE), 1)?;
    let nodes = 2 * width;
    let due = capacity(stage, width)? * RATE as f64;
    let workload = ["--keys", "10000", "--dist", "zipf:1.2"];
    load(stage, &cluster, &format!("elastic-zipf-heating-{nodes}"), &workload, 1)?;
    let workload = [&workload[..], &["--no-load"]].concat();
    let slices = load(stage, &cluster, &format!("elastic-zipf-{nodes}"), &workload, 1)?;
    let served = steady(&slices);
    finding.bound(
        served >= SHARE_MIN * due,
        format!(
            "Zipf 1.2, {nodes} nodes: {served:.0}/s, {:.3} of what `study capacity --elastic` computes ({due:.0}/s)",
            served / due
        ),
    );
    finding.figure(&format!("zipf_{nodes}_share"), served / due);
    Ok(())
}

/// The mean of ten placements, in units of a node's rate.
fn capacity(stage: &Stage<'_>, width: usize) -> anyhow::Result<f64> {
    let (width, slots) = (width.to_string(), rated::OBJECTS_MAX.to_string());
    let mut command = mortal(stage.binary);
    command.args(["study", "capacity", "--elastic", "--json", "--placement", "ring"]);
    command.args(["--racks", &width, "--spines", &width, "--servers-per-rack", "1", "--slots", &slots]);
    command.args(["--server-rate", "1", "--leaf-rate", "1", "--spine-rate", "1"]);
    command.args(["--objects", "10000", "--dist", "zipf:1.2", "--seeds", "10"]);
    let output = command.output().context("study capacity cannot be started")?;
    ensure!(output.status.success(), "study capacity: {}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout)?;
    result["throughput"].as_f64().context("study capacity tells no throughput")
}

struct WriteCost {
    copies: f64,
    /// INV and ACK for each copy.
    messages: f64,
}

/// The key that everybody asks for is written.
fn written(cluster: &ProcessCluster) -> anyhow::Result<WriteCost> {
    let counters = || -> anyhow::Result<[u64; 2]> {
        Ok([sum(cluster, "invalidated_copies_total")?, sum(cluster, "coherence_messages_total")?])
    };
    let before = settled(counters)?;
    let mut client = connect(cluster.router(0))?;
    let key = hottest(cluster.member("controller-0")?.listen)?;
    for number in 0..WRITES {
        redis::cmd("SET").arg(&key).arg(number).exec(&mut client)?;
    }
    let after = settled(counters)?;
    let [copies, messages] = [after[0] - before[0], after[1] - before[1]];
    ensure!(copies > 0, "no write of {key} met a copy");
    Ok(WriteCost { copies: copies as f64 / WRITES as f64, messages: messages as f64 / copies as f64 })
}

/// The counters once they stand still.
fn settled(counters: impl Fn() -> anyhow::Result<[u64; 2]>) -> anyhow::Result<[u64; 2]> {
    let mut last = counters()?;
    loop {
        std::thread::sleep(Duration::from_millis(1200));
        let now = counters()?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
}

fn hottest(controller: SocketAddr) -> anyhow::Result<String> {
    let status = ask::json(controller, "/v1/status")?;
    let nodes = status["nodes"].as_array().context("a status lists nodes")?;
    let mut keys = nodes.iter().filter_map(|node| node["hottest"][0]["key"].as_str());
    Ok(keys.next().context("no node holds a key")?.to_owned())
}

fn sum(cluster: &ProcessCluster, name: &str) -> anyhow::Result<u64> {
    let shims = cluster.ids(LayoutRole::Shim);
    let values = shims.iter().map(|id| Ok(cluster.member_status(id)?[name].as_u64().unwrap_or(0)));
    values.sum()
}

fn storage_reads(cluster: &ProcessCluster) -> anyhow::Result<u64> {
    let servers = cluster.ids(LayoutRole::Redis);
    servers.iter().map(|id| calls(&mut connect(cluster.member(id)?.listen)?, "get")).sum()
}
