//! Clusters whose members may serve only so many requests per second each, so that two cores can overload them.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;

use super::load::Load;
use crate::cluster::{Cluster, Layer, Layout};

/// Skewed, as caches see it; the nodes hold the hot tenth.
pub(super) const WORKLOAD: [&str; 4] = ["--keys", "10000", "--dist", "zipf:0.99"];
const OBJECTS_MAX: usize = 250;
/// Enough requests in flight to keep every member busy, few enough that none waits for long.
const CLOSED: [&str; 4] = ["--connections", "64", "--pipeline", "8"];
/// An open loop must be able to have all its requests in flight, or it would become a closed one.
pub(super) const OPEN: [&str; 5] = ["--connections", "128", "--pipeline", "256", "--no-load"];
const WARMUP_SECONDS: &str = "8";
const PEAK_SECONDS: &str = "6";

/// As many leaves as spines and servers, all of the same rate.
pub(super) fn layout(width: usize, rate_max: u64) -> Layout {
    Layout {
        racks: width,
        layers: vec![Layer::leaves(1), Layer::spines(width)],
        objects_max: OBJECTS_MAX,
        node_rate_max: rate_max,
        shim_rate_max: rate_max,
        ..Layout::default()
    }
}

/// Writes the keys, lets the nodes find the hot ones, and measures what the cluster can do at most.
pub(super) fn peak(
    binary: &Path,
    router: SocketAddr,
    folder: &Path,
    workload: &[&str],
) -> anyhow::Result<f64> {
    let arguments = [workload, &CLOSED, &["--warmup", WARMUP_SECONDS, "--seconds", PEAK_SECONDS]].concat();
    let done = Load::start(binary, router, folder, "peak", &arguments)?.finish()?;
    let (requests, errors) = (done.summary["requests"].as_f64(), done.summary["errors"].as_f64());
    let (requests, errors) = (requests.context("requests")?, errors.context("errors")?);
    let good = (requests - errors) / requests * done.summary["throughput"].as_f64().context("throughput")?;
    anyhow::ensure!(good > 0.0, "nothing was answered without an error");
    Ok(good)
}

/// The epoch of the map that the controller has published last.
pub(super) fn epoch(cluster: &Cluster) -> anyhow::Result<u64> {
    cluster.status()?["epoch"].as_u64().context("a status has an epoch")
}
