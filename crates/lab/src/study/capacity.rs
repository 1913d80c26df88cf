//! `distcache study capacity`: how much a cluster of a given shape can serve, and what keeps it from more. The model is
//! the library's.

use serde::Serialize;
use study::PopularitySpec;
use study::capacity::{
    Accounting, CapacityMetric, CapacityModel, CapacityOutcome, CapacityPlacing, CoherenceUnit, Mechanism,
};

use super::{bad_input, print_json};
use crate::terminal::print;

/// Compute the throughput of a cluster: the largest without overload, or what gets through
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct CapacityArguments {
    /// Racks of storage servers, each with one leaf node (m; paper, section 6.2)
    #[arg(long, value_name = "N", default_value_t = 32)]
    racks: u32,

    /// Nodes of the spine layer (m; section 6.2)
    #[arg(long, value_name = "N", default_value_t = 32)]
    spines: u32,

    /// Storage servers of each rack (l; sections 3.1 and 6.2)
    #[arg(long, value_name = "N", default_value_t = 32)]
    servers_per_rack: u32,

    /// Requests/s of a storage server, or 1 to count in servers (T; section 2.1)
    #[arg(long, value_name = "RATE", default_value_t = 1.0)]
    server_rate: f64,

    /// Requests/s of a leaf node, in the same unit (T~; section 3.2)
    #[arg(long, value_name = "RATE", default_value_t = 32.0)]
    leaf_rate: f64,

    /// Requests/s of a spine node, in the same unit (T~; section 3.2)
    #[arg(long, value_name = "RATE", default_value_t = 32.0)]
    spine_rate: f64,

    /// Objects in all; a file of popularities has its own number (section 6.1)
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    objects: u64,

    /// Popularity (P; section 3.2): uniform, zipf:A, adversary:X or file:F (one weight per line)
    #[arg(long, value_name = "D", default_value = "zipf:0.99")]
    dist: PopularitySpec,

    /// Objects that each node caches, in both layers (section 6.2)
    #[arg(long, value_name = "N", default_value_t = 100)]
    slots: u64,

    /// Objects that each leaf caches [default: --slots]
    #[arg(long, value_name = "N")]
    slots_leaf: Option<u64>,

    /// Objects that each spine caches [default: --slots]
    #[arg(long, value_name = "N")]
    slots_spine: Option<u64>,

    /// What is cached where (sections 2.2, 3.1 and 6.1)
    #[arg(long, value_name = "M", value_enum, default_value_t = MechanismName::Distcache)]
    mechanism: MechanismName,

    /// What counts at a node: A all that crosses it; B the same at spines, hits at leaves; C hits
    #[arg(long, value_name = "A", value_enum, ignore_case = true, default_value_t = AccountingName::C)]
    accounting: AccountingName,

    /// The largest rate at which nobody is overloaded, or what gets through of --offered (R; section 3.2)
    #[arg(long, value_name = "M", value_enum, default_value_t = MetricName::Saturation)]
    metric: MetricName,

    /// Offered requests/s, in the servers' unit [default: what all servers can serve together] (R; section 3.2); elastic copies are
    /// for this rate
    #[arg(long, value_name = "RATE")]
    offered: Option<f64>,

    /// Share of the requests that write, 0 to 1 (section 6.3)
    #[arg(long, value_name = "W", default_value_t = 0.0)]
    write_ratio: f64,

    /// What coherence costs a server for each copy or path of a write, in requests (D; sections 4.3 and 6.3)
    #[arg(long, value_name = "D", default_value_t = 1.0)]
    coherence_cost: f64,

    /// Whether a write pays for each copy, or for each path, which visits one leaf and one spine (section 4.3)
    #[arg(long, value_name = "UNIT", value_enum, default_value_t = UnitName::Copy)]
    coherence_unit: UnitName,

    /// Spines that have failed (section 6.4)
    #[arg(long, value_name = "K", default_value_t = 0)]
    fail_spines: u32,

    /// The partitions of failed spines have moved to the others (section 4.4)
    #[arg(long)]
    remap: bool,

    /// An object has two copies for each half of a node that it takes, at the rate that comes out or at --offered, as the product
    /// places them (beyond the paper; theorem 1)
    #[arg(long)]
    elastic: bool,

    /// Equal shares for all servers and spines, or the shares of the product's rings
    #[arg(long, value_name = "P", value_enum, default_value_t = CapacityPlacementName::Uniform)]
    placement: CapacityPlacementName,

    /// Drawings of all places, to take the mean of
    #[arg(long, value_name = "N", default_value_t = 10)]
    seeds: usize,

    /// The first of them
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MechanismName {
    Nocache,
    PartitionLeaf,
    PartitionSpine,
    ReplicationSlots,
    ReplicationDistinct,
    Distcache,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
enum AccountingName {
    A,
    B,
    C,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MetricName {
    Saturation,
    Goodput,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum UnitName {
    Copy,
    Path,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CapacityPlacementName {
    Uniform,
    Ring,
}

/// With shares, not per cent.
#[derive(Serialize)]
struct CapacityRow {
    throughput: f64,
    throughput_min: f64,
    throughput_max: f64,
    ideal: f64,
    /// What all nodes and servers together allow, and how much of it comes out.
    bound: f64,
    bound_share: f64,
    binding: &'static str,
    hit_ratio_leaf: f64,
    hit_ratio_spine: f64,
    distinct_objects: f64,
    copies: f64,
    copies_extra: f64,
    copies_extra_per_node: f64,
    degree_max: u32,
    write_cost: f64,
    /// For elastic copies: plain DistCache and CacheReplication with the same load.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    beside: Vec<Beside>,
}

#[derive(Serialize)]
struct Beside {
    mechanism: &'static str,
    throughput: f64,
    binding: &'static str,
    copies: f64,
    degree_max: u32,
    write_cost: f64,
}

pub(crate) fn run(arguments: &CapacityArguments) -> anyhow::Result<()> {
    let model = model(arguments);
    model.check().map_err(bad_input)?;
    let popularity = model.popularity.popularity(model.objects).map_err(bad_input)?;
    let outcome = model.evaluate_for(&popularity).map_err(bad_input)?;
    let mut beside = Vec::new();
    if model.elastic {
        let others = [
            ("distcache", Mechanism::DistCache),
            ("replication-slots", Mechanism::ReplicationSlots),
            ("replication-distinct", Mechanism::ReplicationDistinct),
        ];
        for (name, mechanism) in others {
            let other = CapacityModel { elastic: false, mechanism, ..model.clone() };
            beside.push(compared(name, &other.evaluate_for(&popularity).map_err(bad_input)?));
        }
    }
    if arguments.json {
        return print_json(&row(&model, &outcome, beside));
    }
    print_outcome(arguments, &model, &outcome, &beside);
    Ok(())
}

fn model(arguments: &CapacityArguments) -> CapacityModel {
    CapacityModel {
        racks: arguments.racks,
        spines: arguments.spines,
        servers_per_rack: arguments.servers_per_rack,
        server_rate: arguments.server_rate,
        leaf_rate: arguments.leaf_rate,
        spine_rate: arguments.spine_rate,
        objects: arguments.objects,
        popularity: arguments.dist.clone(),
        slots_leaf: arguments.slots_leaf.unwrap_or(arguments.slots),
        slots_spine: arguments.slots_spine.unwrap_or(arguments.slots),
        mechanism: match arguments.mechanism {
            MechanismName::Nocache => Mechanism::NoCache,
            MechanismName::PartitionLeaf => Mechanism::PartitionLeaf,
            MechanismName::PartitionSpine => Mechanism::PartitionSpine,
            MechanismName::ReplicationSlots => Mechanism::ReplicationSlots,
            MechanismName::ReplicationDistinct => Mechanism::ReplicationDistinct,
            MechanismName::Distcache => Mechanism::DistCache,
        },
        accounting: match arguments.accounting {
            AccountingName::A => Accounting::A,
            AccountingName::B => Accounting::B,
            AccountingName::C => Accounting::C,
        },
        metric: match arguments.metric {
            MetricName::Saturation => CapacityMetric::Saturation,
            MetricName::Goodput => CapacityMetric::Goodput,
        },
        offered: arguments.offered,
        write_ratio: arguments.write_ratio,
        coherence_cost: arguments.coherence_cost,
        coherence_unit: match arguments.coherence_unit {
            UnitName::Copy => CoherenceUnit::Copy,
            UnitName::Path => CoherenceUnit::Path,
        },
        failed_spines: arguments.fail_spines,
        remap: arguments.remap,
        elastic: arguments.elastic,
        placing: match arguments.placement {
            CapacityPlacementName::Uniform => CapacityPlacing::Uniform,
            CapacityPlacementName::Ring => CapacityPlacing::Ring,
        },
        seeds: arguments.seeds,
        seed: arguments.seed,
    }
}

fn row(model: &CapacityModel, outcome: &CapacityOutcome, beside: Vec<Beside>) -> CapacityRow {
    CapacityRow {
        throughput: outcome.throughput,
        throughput_min: outcome.throughput_min,
        throughput_max: outcome.throughput_max,
        ideal: outcome.ideal,
        bound: outcome.bound,
        bound_share: outcome.throughput / outcome.bound,
        binding: outcome.binding.name(),
        hit_ratio_leaf: outcome.hit_ratio_leaf,
        hit_ratio_spine: outcome.hit_ratio_spine,
        distinct_objects: outcome.distinct_objects,
        copies: outcome.copies,
        copies_extra: outcome.copies_extra,
        copies_extra_per_node: outcome.copies_extra / f64::from(model.nodes_live()),
        degree_max: outcome.degree_max,
        write_cost: outcome.write_cost,
        beside,
    }
}

fn compared(mechanism: &'static str, outcome: &CapacityOutcome) -> Beside {
    Beside {
        mechanism,
        throughput: outcome.throughput,
        binding: outcome.binding.name(),
        copies: outcome.copies,
        degree_max: outcome.degree_max,
        write_cost: outcome.write_cost,
    }
}

fn print_outcome(
    arguments: &CapacityArguments,
    model: &CapacityModel,
    outcome: &CapacityOutcome,
    beside: &[Beside],
) {
    let CapacityModel { racks, spines, servers_per_rack, .. } = model;
    let metric = match model.metric {
        CapacityMetric::Saturation => "without overload".to_owned(),
        CapacityMetric::Goodput => format!("of {:.1} offered", model.target()),
    };
    print(&format!(
        "{racks} racks of {servers_per_rack} servers, {spines} spines; {} of {} objects",
        arguments.dist, model.objects
    ));
    print(&format!(
        "throughput  {:.1} {metric}, {:.1} % of ideal; {:.1} to {:.1} over {} seeds",
        outcome.throughput,
        100.0 * outcome.throughput / outcome.ideal,
        outcome.throughput_min,
        outcome.throughput_max,
        model.seeds
    ));
    if model.elastic {
        print(&format!(
            "bound       {:.1} is what all nodes and servers together allow; {:.1} % of it comes out",
            outcome.bound,
            100.0 * outcome.throughput / outcome.bound
        ));
    }
    print(&format!("limit       {}", outcome.binding));
    print(&format!(
        "hit ratio   leaves {:.1} %, spines {:.1} %",
        100.0 * outcome.hit_ratio_leaf,
        100.0 * outcome.hit_ratio_spine
    ));
    print(&format!(
        "cached      {:.0} objects in {:.0} copies, at most {} of one",
        outcome.distinct_objects, outcome.copies, outcome.degree_max
    ));
    if model.elastic {
        print(&format!(
            "elastic     {} copies of the hottest object; {:.0} more in all than one in each layer, {:.2} per node",
            outcome.degree_max,
            outcome.copies_extra,
            outcome.copies_extra / f64::from(model.nodes_live())
        ));
    }
    print(&format!("a write     costs its server {:.3} requests in the mean", outcome.write_cost));
    if beside.is_empty() {
        return;
    }
    print("beside it             throughput  limit     copies  of one  a write");
    for other in beside {
        print(&format!(
            "{:20}  {:10.1}  {:6}  {:8.0}  {:6}  {:7.3}",
            other.mechanism,
            other.throughput,
            other.binding,
            other.copies,
            other.degree_max,
            other.write_cost
        ));
    }
}
