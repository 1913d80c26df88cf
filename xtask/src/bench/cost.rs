//! CPU time per GET over all server-side processes, DistCache against twemproxy before the same Redis servers.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::load::load;
use super::twemproxy::twemproxy;
use crate::cluster::{Folder, Layer, Layout, LayoutRole, MemberProcess, ProcessCluster, free_address};

/// Each figure is the median of so many runs, the two proxies taking turns.
const ROUNDS: usize = 5;

pub(super) fn run(binary: &Path, seconds: u64) -> anyhow::Result<Value> {
    let folder = Folder::new("bench")?;
    let layout = Layout {
        racks: 1,
        servers_per_rack: 2,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        tables: "[limits]\nclients_max = 20000\n".to_owned(),
        ..Layout::default()
    };
    let cluster = ProcessCluster::start(binary, layout, 0)?;
    let servers = cluster.ids(LayoutRole::Redis);
    let addresses = servers.iter().map(|id| cluster.member(id).map(|member| member.listen.port()));
    let other = free_address()?;
    let nutcracker = twemproxy(other, &addresses.collect::<anyhow::Result<Vec<u16>>>()?, folder.path())?;
    let (router, other) = (cluster.router(0).port(), other.port());
    let redis = servers.iter().map(|id| cluster.process(id)).collect::<anyhow::Result<Vec<_>>>()?;
    let ours: Vec<&MemberProcess> =
        cluster.processes().map(|(_, process)| process).chain(redis.iter().copied()).collect();
    let theirs: Vec<&MemberProcess> = std::iter::once(&nutcracker).chain(redis).collect();
    // A hot set that both nodes hold, and a key space too wide for anything to be hot.
    let workloads = [("hot", "16", "adversary:16"), ("cold", "1000000", "uniform")];
    let mut results = Vec::new();
    for (name, keys, dist) in workloads {
        for port in [router, other] {
            load(binary, port, &["--keys", keys, "--dist", dist, "--seconds", "3", "--connections", "50"])?;
        }
        for pipeline in ["1", "16"] {
            let arguments = [
                "--keys",
                keys,
                "--dist",
                dist,
                "--no-load",
                "--connections",
                "50",
                "--pipeline",
                pipeline,
                "--seconds",
                &seconds.to_string(),
                "--warmup",
                "0",
            ];
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                a.push(microseconds(&ours, || load(binary, router, &arguments))?);
                b.push(microseconds(&theirs, || load(binary, other, &arguments))?);
            }
            let ratios = a.iter().zip(&b).map(|(a, b)| a / b).collect::<Vec<f64>>();
            results.push(json!({
                "workload": name,
                "pipeline": pipeline,
                "distcache_us": median(&a),
                "twemproxy_us": median(&b),
                "ratio": median(&ratios),
                "distcache_runs_us": a,
                "twemproxy_runs_us": b,
            }));
        }
    }
    Ok(Value::Array(results))
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
