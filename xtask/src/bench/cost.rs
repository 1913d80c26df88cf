//! CPU time per request over all server-side processes: DistCache, twemproxy before the same Redis servers, and Redis asked
//! directly.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::load::load;
use super::twemproxy::twemproxy;
use crate::cluster::{Folder, Layer, Layout, LayoutRole, MemberProcess, ProcessCluster, free_address, redis};

/// Each figure is the median of so many runs, the servers taking turns.
const ROUNDS: usize = 5;
const PIPELINES: [&str; 2] = ["1", "16"];
/// The table of a cluster with near copies.
pub(super) const NEAR: &str = "\n[near]\nobjects_max = 64\n";

/// What is asked for, and of whom.
struct CostWorkload {
    name: &'static str,
    load: &'static [&'static str],
    servers: &'static [&'static str],
}

/// A hot set that both nodes hold, or the router itself; and a key space too wide for anything to be hot, read or written.
const WORKLOADS: [CostWorkload; 4] = [
    CostWorkload {
        name: "hot",
        load: &["--keys", "16", "--dist", "adversary:16"],
        servers: &["distcache", "near", "twemproxy", "redis"],
    },
    CostWorkload {
        name: "mget",
        load: &["--keys", "16", "--dist", "adversary:16", "--mget", "10"],
        servers: &["distcache", "near", "twemproxy", "redis"],
    },
    CostWorkload {
        name: "cold",
        load: &["--keys", "1000000", "--dist", "uniform"],
        servers: &["distcache", "twemproxy", "redis"],
    },
    CostWorkload {
        name: "set",
        load: &["--keys", "1000000", "--dist", "uniform", "--write-ratio", "1"],
        servers: &["distcache", "twemproxy", "redis"],
    },
];

/// Whom the load asks, and every process that has a part in its answers.
struct CostServer<'a> {
    name: &'static str,
    port: u16,
    processes: Vec<&'a MemberProcess>,
}

pub(super) fn run(binary: &Path, seconds: u64) -> anyhow::Result<Value> {
    let folder = Folder::new("bench")?;
    let (cluster, near) = (small_cluster(binary, "")?, small_cluster(binary, NEAR)?);
    let ports = cluster.ids(LayoutRole::Redis).into_iter().map(|id| Ok(cluster.member(&id)?.listen.port()));
    let listen = free_address()?;
    let nutcracker = twemproxy(listen, &ports.collect::<anyhow::Result<Vec<u16>>>()?, folder.path())?;
    let (alone, address) = redis(folder.path())?;
    let servers = [
        CostServer { name: "distcache", port: cluster.router(0).port(), processes: processes(&cluster)? },
        CostServer { name: "near", port: near.router(0).port(), processes: processes(&near)? },
        CostServer {
            name: "twemproxy",
            port: listen.port(),
            processes: [storage(&cluster)?, vec![&nutcracker]].concat(),
        },
        CostServer { name: "redis", port: address.port(), processes: vec![&alone] },
    ];
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        let asked: Vec<&CostServer<'_>> =
            servers.iter().filter(|server| workload.servers.contains(&server.name)).collect();
        for server in &asked {
            let warm = ["--seconds", "3", "--connections", "50"];
            load(binary, server.port, &[workload.load, &warm].concat())?;
        }
        for pipeline in PIPELINES {
            let runs =
                measure(binary, &asked, &[workload.load, &["--pipeline", pipeline]].concat(), seconds)?;
            rows.extend(told(&workload, pipeline, &asked, &runs));
        }
    }
    Ok(Value::Array(rows))
}

/// One rack with two storage servers and a node in each of two layers.
pub(super) fn small_cluster(binary: &Path, tables: &str) -> anyhow::Result<ProcessCluster> {
    let layout = Layout {
        racks: 1,
        servers_per_rack: 2,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        tables: format!("[limits]\nclients_max = 20000\n{tables}"),
        ..Layout::default()
    };
    ProcessCluster::start(binary, layout, 0)
}

/// All members and storage servers.
pub(super) fn processes(cluster: &ProcessCluster) -> anyhow::Result<Vec<&MemberProcess>> {
    Ok(cluster.processes().map(|(_, process)| process).chain(storage(cluster)?).collect())
}

fn storage(cluster: &ProcessCluster) -> anyhow::Result<Vec<&MemberProcess>> {
    cluster.ids(LayoutRole::Redis).iter().map(|id| cluster.process(id)).collect()
}

/// CPU microseconds per request of a load, in rounds, for each server.
fn measure(
    binary: &Path,
    servers: &[&CostServer<'_>],
    arguments: &[&str],
    seconds: u64,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let seconds = seconds.to_string();
    let rest = ["--no-load", "--connections", "50", "--seconds", &seconds, "--warmup", "0"];
    let arguments = [arguments, &rest].concat();
    let mut runs = vec![Vec::new(); servers.len()];
    for _ in 0..ROUNDS {
        for (server, runs) in servers.iter().zip(&mut runs) {
            runs.push(microseconds(&server.processes, || load(binary, server.port, &arguments))?);
        }
    }
    Ok(runs)
}

/// A row for each server, with the median of its ratios to twemproxy and to Redis in the same round.
fn told(
    workload: &CostWorkload,
    pipeline: &str,
    servers: &[&CostServer<'_>],
    runs: &[Vec<f64>],
) -> Vec<Value> {
    let over = |own: &[f64], other: &str| {
        let other = servers.iter().position(|server| server.name == other).map(|at| &runs[at]);
        let ratios =
            |other: &Vec<f64>| own.iter().zip(other).map(|(own, other)| own / other).collect::<Vec<f64>>();
        other.map(|other| median(&ratios(other)))
    };
    let row = |(server, runs): (&&CostServer<'_>, &Vec<f64>)| {
        json!({
            "workload": workload.name,
            "pipeline": pipeline,
            "server": server.name,
            "us": median(runs),
            "over_twemproxy": over(runs, "twemproxy"),
            "over_redis": over(runs, "redis"),
            "runs_us": runs,
        })
    };
    servers.iter().zip(runs).map(row).collect()
}

/// CPU microseconds per request of a load, summed over the processes.
pub(super) fn microseconds(
    processes: &[&MemberProcess],
    load: impl FnOnce() -> anyhow::Result<Value>,
) -> anyhow::Result<f64> {
    let total = || processes.iter().map(|process| process.cpu()).sum::<anyhow::Result<Duration>>();
    let before = total()?;
    let summary = load()?;
    let used = total()? - before;
    let requests = summary["requests"].as_f64().unwrap_or(0.0);
    anyhow::ensure!(requests > 0.0, "no request was answered");
    Ok(used.as_secs_f64() * 1e6 / requests)
}

pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
