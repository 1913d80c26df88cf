//! Clusters whose members may serve only so many requests per second each, so that two cores can overload them.

use std::path::Path;

use anyhow::Context;

use super::load::ShownLoad;
use crate::cluster::{Layer, Layout, ProcessCluster};

/// Skewed, as caches see it; the nodes hold the hot tenth.
pub(super) const WORKLOAD: [&str; 4] = ["--keys", "10000", "--dist", "zipf:0.99"];
pub(super) const OBJECTS_MAX: usize = 250;
/// An open loop must be able to have all its requests in flight, or it would become a closed one.
pub(super) const OPEN: [&str; 5] = ["--connections", "128", "--pipeline", "256", "--no-load"];
/// While the nodes find the hot keys.
const HEATING: [&str; 6] = ["--connections", "64", "--pipeline", "8", "--seconds", "8"];
/// Parts of the sum of all rates, of which the cluster may or may not be capable.
const STEPS: [f64; 6] = [0.6, 0.75, 0.9, 1.05, 1.2, 1.35];
const STEP: [&str; 6] = ["--warmup", "2", "--seconds", "4", "--slice-ms", "500"];

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

/// Writes the keys, lets the nodes find the hot ones, and raises the load in steps: the most that was answered in time
/// and without errors, per second.
pub(super) fn peak(
    binary: &Path,
    cluster: &ProcessCluster,
    folder: &Path,
    workload: &[&str],
) -> anyhow::Result<f64> {
    let (router, layout) = (cluster.router(0), &cluster.layout);
    ShownLoad::start(binary, router, folder, "heating", &[workload, &HEATING].concat())?.finish()?;
    let nodes: usize =
        layout.layers.iter().map(|layer| layer.nodes * if layer.by_rack { layout.racks } else { 1 }).sum();
    let shims = layout.racks * layout.servers_per_rack;
    let all = nodes as f64 * layout.node_rate_max as f64 + shims as f64 * layout.shim_rate_max as f64;
    let mut peak = 0.0f64;
    for step in STEPS {
        let rate = format!("{:.0}", all * step);
        let arguments = [workload, &OPEN, &["--rate", &rate], &STEP].concat();
        let done = ShownLoad::start(binary, router, folder, "peak", &arguments)?.finish()?;
        let good = done.slices.iter().map(|slice| slice.in_time).sum::<u64>() as f64;
        let seconds = done.slices.iter().filter(|slice| slice.due > 0).count() as f64 / 2.0;
        eprintln!("offered {rate}/s, answered in time {:.0}/s", good / seconds);
        peak = peak.max(good / seconds);
    }
    anyhow::ensure!(peak > 0.0, "nothing was answered in time");
    Ok(peak)
}

/// The epoch of the map that the controller has published last.
pub(super) fn epoch(cluster: &ProcessCluster) -> anyhow::Result<u64> {
    cluster.status()?["epoch"].as_u64().context("a status has an epoch")
}
