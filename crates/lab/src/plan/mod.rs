//! `distcache plan`: from a few facts to a cluster, with the formula and source of every number. The model is the library's.

mod config;

use std::path::PathBuf;

use protocol::node::OBJECT_OVERHEAD_BYTES;
use serde::Serialize;
use study::PopularitySpec;
use study::capacity::CapacityPlacing;
use study::plan::{CONFIDENCE, ClusterPlan, FACTOR, OperatorFacts, SEEDS};

use crate::terminal::{BadInput, print, say};

/// Recommend layers, nodes and their sizes for a cluster, and say what it guarantees and what limits it
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct PlanArguments {
    /// Storage servers (Small Cache's n, section 4.1; DistCache's m l, section 3.1)
    #[arg(long, value_name = "N")]
    servers: u32,

    /// Racks, parts of the servers with a leaf partition each (m; DistCache, section 3.1)
    /// [default: as many as let one node carry a rack]
    #[arg(long, value_name = "N")]
    racks: Option<u32>,

    /// Requests/s of a storage server (Small Cache's r, section 4.1)
    #[arg(long, value_name = "RATE", default_value_t = 100_000.0)]
    server_rate: f64,

    /// Requests/s of a cache node (T; DistCache, section 3.2); measure yours with distcache bench
    #[arg(long, value_name = "RATE", default_value_t = 400_000.0)]
    node_rate: f64,

    /// Popularity (P; DistCache, section 3.2): uniform, zipf:A, adversary:X, file:F (one weight per line), or unknown,
    /// which promises only what holds for the worst of them
    #[arg(long, value_name = "D", default_value = "unknown", value_parser = dist)]
    dist: Dist,

    /// Objects in all; a file has its own number
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    objects: u64,

    /// Share of the requests that write, 0 to 1 (DistCache, section 6.3)
    #[arg(long, value_name = "W", default_value_t = 0.0)]
    write_ratio: f64,

    /// Bytes of a value, or of the reply that is cached
    #[arg(long, value_name = "B", default_value_t = 1024)]
    value_bytes: u64,

    /// Share of every rate that stays free for your SLO, 0 to below 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    headroom: f64,

    /// Write a configuration of the recommended cluster for distcache up, on loopback and over embedded storage
    #[arg(long, value_name = "FILE")]
    emit_config: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How popular the objects are; `None` is unknown.
#[derive(Clone, Debug)]
struct Dist(Option<PopularitySpec>);

#[derive(Serialize)]
struct PlanRow<'a> {
    layers: Vec<LayerRow>,
    /// Memory of a node; where they differ, of the largest.
    memory_bytes: u64,
    degree: u32,
    throughput: f64,
    limit: &'static str,
    write_ratio_max: f64,
    warnings: &'a [String],
    racks: u32,
    target: f64,
    throughput_bound: f64,
    hottest_share: f64,
    object_bytes: u64,
    worst_x: Option<u64>,
}

#[derive(Serialize)]
struct LayerRow {
    name: &'static str,
    nodes: u32,
    objects_per_node: u64,
}

pub fn run(arguments: &PlanArguments) -> anyhow::Result<()> {
    let facts = OperatorFacts {
        servers: arguments.servers,
        racks: arguments.racks,
        server_rate: arguments.server_rate,
        node_rate: arguments.node_rate,
        popularity: arguments.dist.0.clone(),
        objects: arguments.objects,
        write_ratio: arguments.write_ratio,
        value_bytes: arguments.value_bytes,
        headroom: arguments.headroom,
    };
    let plan = facts.plan().map_err(|error| BadInput(error.to_string()))?;
    if let Some(path) = &arguments.emit_config {
        config::write(path, arguments.servers, &plan)?;
    }
    if arguments.json {
        print(&serde_json::to_string(&row(&plan))?);
        return Ok(());
    }
    print_plan(arguments, &plan);
    if let Some(path) = &arguments.emit_config {
        say(&format!("{} is written: distcache up --config {0}", path.display()));
    }
    Ok(())
}

fn row(plan: &ClusterPlan) -> PlanRow<'_> {
    let layer = |layer: &study::plan::PlannedLayer| LayerRow {
        name: layer.name,
        nodes: layer.nodes,
        objects_per_node: layer.objects_per_node,
    };
    PlanRow {
        layers: plan.shape.layers.iter().map(layer).collect(),
        memory_bytes: plan.memory_bytes,
        degree: plan.degree,
        throughput: plan.throughput,
        limit: plan.limit,
        write_ratio_max: plan.write_ratio_max,
        warnings: &plan.warnings,
        racks: plan.shape.racks,
        target: plan.target,
        throughput_bound: plan.bound,
        hottest_share: plan.hottest,
        object_bytes: plan.object_bytes,
        worst_x: plan.worst_x,
    }
}

fn print_plan(arguments: &PlanArguments, plan: &ClusterPlan) {
    let dist = arguments.dist.0.as_ref().map_or("anything".to_owned(), PopularitySpec::to_string);
    let (servers, rate, free) = (arguments.servers, arguments.server_rate, 100.0 * arguments.headroom);
    print(&format!(
        "{servers} servers of {rate} requests/s, {free} % of every rate kept free; asked for: {dist}"
    ));
    let line = |what: &str, value: String, why: &str| print(&format!("{what:24} {value:>14}  {why}"));
    for layer in &plan.shape.layers {
        let nodes = match (layer.name, plan.shape.layers.len()) {
            (_, 1) => "one node carries all the servers' rate (Small Cache, section 4.1)",
            ("leaf", _) => "by rack, so many that they carry its servers' rate (DistCache, section 3.1)",
            _ => "ceil(servers x server rate / T), 2 at least (DistCache, section 3.1)",
        };
        line(&format!("{} nodes", layer.name), layer.nodes.to_string(), nodes);
        let objects = "the node's part of c: c/M + alpha sqrt(2 c/M ln M), M nodes (Small Cache, Eq. 6)";
        line("  objects on each", layer.objects_per_node.to_string(), objects);
    }
    let why = format!("c = k n ln n + 1, k = {FACTOR}, alpha = {CONFIDENCE} (Small Cache, section 4.3)");
    line("objects in a layer", format!("{:.0}", plan.shape.cached), &why);
    let (bytes, own) = (plan.object_bytes, OBJECT_OVERHEAD_BYTES);
    let why = format!("15 MiB + objects x {bytes} bytes (value, 80 of key, {own} of the node's own)");
    line("memory of a node, MiB", format!("{:.1}", plan.memory_bytes as f64 / f64::from(1 << 20)), &why);
    let hottest = 100.0 * plan.hottest;
    let why = match plan.shape.layers.len() {
        1 => format!("of {hottest:.2} % of the requests: the only node has it (Small Cache, section 4.1)"),
        _ => format!(
            "of {hottest:.2} % of the requests: two for each T/2 of reads (DistCache, theorem 1), up to 2^n or 3 x 2^n, or \
             as many as its writes allow"
        ),
    };
    line("copies of the hottest", plan.degree.to_string(), &why);
    line("servers together", format!("{:.0}", plan.target), "requests/s: servers x server rate");
    let source = if plan.is_bound {
        "the servers' bound; the model serves more of all it was tried with".to_owned()
    } else {
        let placing = match plan.placing {
            CapacityPlacing::Ring => "ring",
            CapacityPlacing::Uniform => "uniform",
        };
        format!("study capacity --placement {placing}, mean of {SEEDS} seeds")
    };
    let copies = if plan.shape.layers.len() == 1 { "a copy" } else { "copies as each object's heat takes" };
    let why = format!("requests/s with {copies}; what limits it: {} ({source})", plan.limit);
    line("throughput", format!("{:.0}", plan.throughput), &why);
    let why = "requests/s from servers with equal parts, whatever is read (Small Cache, Eq. 12)";
    line("servers' bound", format!("{:.0}", plan.bound), why);
    let why = "1 / (1 + D x layers), D = 1: copies take 1 - W off a server and add W D each";
    line("writes at most, %", format!("{:.1}", 100.0 * plan.write_ratio_max), why);
    if let Some(x) = plan.worst_x {
        line("the worst asks for", x.to_string(), "keys at one rate (Small Cache, section 4.2)");
    }
    plan.warnings.iter().for_each(|warning| print(&format!("warning: {warning}")));
}

fn dist(text: &str) -> Result<Dist, String> {
    match text {
        "unknown" => Ok(Dist(None)),
        _ => text.parse().map(|spec| Dist(Some(spec))).map_err(|error| format!("{error}, or unknown")),
    }
}
