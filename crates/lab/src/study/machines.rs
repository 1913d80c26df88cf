//! `distcache study machines`: the paper's figures 9 to 11 from the product's own machines in virtual time. It neither
//! simulates nor computes anything itself.

use clap::ValueEnum;
use serde::Serialize;
use sim::scale::{
    self, Layers, Placing, Population, Routing, ScaleOutcome, ScaleTurn, Scenario, Second, Tail,
};
use study::PopularitySpec;

use super::{bad_input, print_json};
use crate::terminal::print;

/// Objects with a place of their own; what is behind them is dealt to servers evenly, as chance would do to a third of a
/// per cent.
const HEAD: u64 = 1 << 20;
/// The tail is divided into so many parts that are asked for equally often.
const TAIL_PARTS: u64 = 1 << 12;

/// Measure the product's machines (router, node, shim) in virtual time at the paper's scale
///
/// Rates are in units of one storage server's rate T, as in section 6.1 of the paper. Only hits count at nodes; reads,
/// writes, fills and invalidations count at servers.
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct MachinesArguments {
    /// What is cached where; replication is not among what the product does
    #[arg(long, value_enum, default_value = "distcache")]
    mechanism: MachinesMechanism,

    /// Storage racks, each with one leaf node (m in section 3)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=2048))]
    racks: u16,

    /// Spine nodes (m in section 3)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=2048))]
    spines: u16,

    /// Storage servers per rack (l in section 3)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=2048))]
    servers_per_rack: u16,

    /// Rate of a leaf node, in servers' rates [default: that of its rack, as in section 6.1]
    #[arg(long, value_name = "RATE")]
    leaf_rate: Option<f64>,

    /// Rate of a spine node, in servers' rates [default: that of a rack, as in section 6.1]
    #[arg(long, value_name = "RATE")]
    spine_rate: Option<f64>,

    /// Objects that each node caches (section 6.2; the paper's "cache size" is that of all nodes together)
    #[arg(long, value_name = "N", default_value_t = 100)]
    slots: usize,

    /// Objects in all (k in section 3); a file has its own number
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    objects: u64,

    /// Popularity p_i: uniform, zipf:A, adversary:X or file:F (one weight per line)
    #[arg(long, value_name = "D", default_value = "zipf:0.99")]
    dist: PopularitySpec,

    /// How objects come to servers: to equal shares by hash slots, which is the paper's model, or by the product's ring of
    /// virtual nodes, whose shares stray by some per cent. Spines have such a ring in any case
    #[arg(long, value_enum, default_value = "uniform")]
    placement: MachinesPlacementName,

    /// Part of the requests that are writes (section 6.3), from 0 to below 1
    #[arg(long, value_name = "W", default_value_t = 0.0)]
    write_ratio: f64,

    /// What the invalidation of one copy costs its server, in requests
    #[arg(long, value_name = "D", default_value_t = 1.0)]
    coherence_cost: f64,

    /// Spine nodes that fail (section 6.4): from the start, or one by one in a series
    #[arg(long, value_name = "K", default_value_t = 0)]
    fail_spines: u16,

    /// The controller has given the partitions of failed spines to the others
    #[arg(long)]
    remap: bool,

    /// Routers are not told that spines have failed; they find out by what is not answered
    #[arg(long)]
    silent: bool,

    /// Look for the largest rate at which no server or node is overloaded [default without --offered]
    #[arg(long, conflicts_with_all = ["offered", "series"])]
    find_max: bool,

    /// Ask for this rate, in servers' rates, of members that do no more than they can
    #[arg(long, value_name = "R")]
    offered: Option<f64>,

    /// With --offered: tell the throughput of every second while spines fail one by one, are remapped and return (fig. 11)
    #[arg(long, requires = "offered", conflicts_with = "remap")]
    series: bool,

    /// Seconds between two turns of a series: failures, remap, return, end
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    step: u32,

    /// Virtual seconds that are measured
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Which reads go to nodes: all of them (the paper, section 4.2), or those that replies said are cached (the product's default)
    #[arg(long, value_enum, default_value = "on-path")]
    routing: Routes,

    /// Who decides what nodes hold: they are given the hottest objects (section 6.2), or find out by themselves (section 4.3)
    #[arg(long, value_enum, default_value = "given")]
    population: Who,

    /// Give keys that take more than half of a node further copies, as the product does (with --offered or --clients)
    #[arg(long)]
    elastic: bool,

    /// So many clients ask for one thing after the other, of members that do no more than they can and let the rest wait
    #[arg(long, value_name = "N", conflicts_with_all = ["offered", "find_max"], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clients: Option<u32>,

    /// Client racks' switches, which choose the node for each read (section 4.2)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    routers: u16,

    /// Requests per virtual second that stand for a server's rate (T); more make a run longer and its figures finer
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    virtual_rate: u32,

    /// Runs, each with another placement; figures are their means
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,

    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MachinesMechanism {
    Nocache,
    PartitionLeaf,
    Distcache,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MachinesPlacementName {
    Uniform,
    Ring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Routes {
    OnPath,
    Learned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    Given,
    Found,
}

#[derive(Serialize)]
struct MachinesRow {
    throughput: f64,
    throughput_min: f64,
    throughput_max: f64,
    ideal: f64,
    copies: f64,
    copies_most: usize,
    offered: f64,
    refused: f64,
    binding: &'static str,
    load_max: f64,
    hit_ratio_leaf: f64,
    hit_ratio_spine: f64,
    distinct_objects: f64,
    requests: u64,
}

#[derive(Serialize)]
struct SecondRow {
    second: u32,
    offered: f64,
    throughput: f64,
    event: Option<&'static str>,
}

pub(crate) fn run(arguments: &MachinesArguments) -> anyhow::Result<()> {
    let scenario = arguments.scenario()?;
    scenario.check().map_err(bad_input)?;
    match arguments.offered {
        Some(offered) if !(offered > 0.0 && offered <= 1e6) => {
            Err(bad_input(format!("--offered {offered}: it must be above 0 and at most 1000000")))
        }
        Some(offered) if arguments.series => arguments.series(&scenario, offered),
        Some(offered) => arguments.show(&arguments.each(|seeded| scale::goodput(seeded, offered))?),
        None if arguments.clients.is_none() && arguments.elastic => Err(bad_input(
            "--elastic: say what is asked for with --offered or --clients; a key gets further copies only under load",
        )),
        None if let Some(clients) = arguments.clients => {
            arguments.show(&arguments.each(|seeded| scale::closed_loop(seeded, clients))?)
        }
        None => arguments.show(&arguments.each(scale::saturation)?),
    }
}

impl MachinesArguments {
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let rack_rate = f64::from(self.servers_per_rack);
        Ok(Scenario {
            racks: self.racks,
            spines: self.spines,
            servers_per_rack: self.servers_per_rack,
            leaf_rate: self.leaf_rate.unwrap_or(rack_rate),
            spine_rate: self.spine_rate.unwrap_or(rack_rate),
            layers: match self.mechanism {
                MachinesMechanism::Nocache => Layers::None,
                MachinesMechanism::PartitionLeaf => Layers::Leaf,
                MachinesMechanism::Distcache => Layers::Both,
            },
            slots: self.slots,
            popularity: popularity(&self.dist, self.objects)?,
            placing: match self.placement {
                MachinesPlacementName::Uniform => Placing::Slots,
                MachinesPlacementName::Ring => Placing::Ring,
            },
            write_ratio: self.write_ratio,
            coherence_cost: self.coherence_cost,
            spines_failed: self.fail_spines,
            remap: self.remap,
            silent: self.silent,
            routing: match self.routing {
                Routes::OnPath => Routing::OnPath,
                Routes::Learned => Routing::Learned,
            },
            elastic: self.elastic,
            population: match self.population {
                Who::Given => Population::Given,
                Who::Found => Population::Found,
            },
            routers: self.routers,
            server_rate: self.virtual_rate,
            seconds: self.seconds,
            seed: self.seed,
        })
    }

    /// One run per seed.
    fn each(
        &self,
        run: impl Fn(&Scenario) -> Result<ScaleOutcome, scale::ScenarioError> + Sync,
    ) -> anyhow::Result<Vec<ScaleOutcome>> {
        let scenario = self.scenario()?;
        let results = study::seeds::each(self.seed, self.seeds as usize, |seed| {
            run(&Scenario { seed, ..scenario.clone() })
        });
        results.into_iter().map(|result| result.map_err(bad_input)).collect()
    }

    fn row(&self, runs: &[ScaleOutcome]) -> MachinesRow {
        let mean = |of: fn(&ScaleOutcome) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let throughputs = || runs.iter().map(|run| run.throughput);
        MachinesRow {
            throughput: mean(|run| run.throughput),
            throughput_min: throughputs().fold(f64::INFINITY, f64::min),
            throughput_max: throughputs().fold(0.0, f64::max),
            copies_most: runs.iter().map(|run| run.copies_most).max().unwrap_or(0),
            copies: mean(|run| run.copies as f64),
            ideal: f64::from(self.racks) * f64::from(self.servers_per_rack),
            offered: mean(|run| run.offered),
            refused: mean(|run| run.refused),
            binding: most_frequent(runs.iter().map(|run| run.binding.name())),
            load_max: mean(|run| run.load_max),
            hit_ratio_leaf: mean(|run| run.hit_ratio_leaf),
            hit_ratio_spine: mean(|run| run.hit_ratio_spine),
            distinct_objects: mean(|run| run.distinct_objects as f64),
            requests: runs.iter().map(|run| run.requests).sum(),
        }
    }

    fn show(&self, runs: &[ScaleOutcome]) -> anyhow::Result<()> {
        let row = self.row(runs);
        if self.json {
            return print_json(&row);
        }
        let MachinesRow { throughput, throughput_min, throughput_max, ideal, binding, .. } = row;
        print(&format!(
            "throughput {throughput:.1} of {ideal:.0} servers' rates ({throughput_min:.1} to {throughput_max:.1} in {} runs)",
            runs.len()
        ));
        if self.offered.is_some() {
            print(&format!("of {:.1} asked for; {:.1} refused", row.offered, row.refused));
        }
        print(&format!(
            "limited by {binding}; the busiest member was at {:.1} %, {} requests",
            100.0 * row.load_max,
            row.requests
        ));
        print(&format!(
            "{:.1} % of the reads were hits in leaves, {:.1} % in spines; {:.0} objects were cached",
            100.0 * row.hit_ratio_leaf,
            100.0 * row.hit_ratio_spine,
            row.distinct_objects
        ));
        if self.elastic {
            print(&format!("{:.0} copies in all, of one object {} at most", row.copies, row.copies_most));
        }
        Ok(())
    }

    /// Steady, failures one by one, remap, return, end: one step each.
    fn series(&self, scenario: &Scenario, offered: f64) -> anyhow::Result<()> {
        let failures = u32::from(self.fail_spines);
        let at = |turn: u32| turn * self.step;
        let mut turns: Vec<(u32, ScaleTurn)> =
            (1..=failures).map(|turn| (at(turn), ScaleTurn::Fail)).collect();
        turns.extend([(at(failures + 1), ScaleTurn::Remap), (at(failures + 2), ScaleTurn::Return)]);
        let scenario = Scenario { seconds: at(failures + 4), ..scenario.clone() };
        let event = |second: u32| {
            let turn = turns.iter().find(|(at, _)| *at == second);
            turn.map(|(_, turn)| match turn {
                ScaleTurn::Fail => "fail",
                ScaleTurn::Remap => "remap",
                ScaleTurn::Return => "return",
            })
        };
        if !self.json {
            print("second   offered  throughput");
        }
        let seconds = scale::series(&scenario, offered, &turns, |Second { second, offered, throughput }| {
            if !self.json {
                let event = event(second).unwrap_or_default();
                print(format!("{second:6}  {offered:8.1}  {throughput:10.1}  {event}").trim_end());
            }
        });
        let seconds = seconds.map_err(bad_input)?;
        if self.json {
            let point = |&Second { second, offered, throughput }: &Second| SecondRow {
                second,
                offered,
                throughput,
                event: event(second),
            };
            print_json(&seconds.iter().map(point).collect::<Vec<SecondRow>>())?;
        }
        Ok(())
    }
}

/// The hottest objects one by one, and parts of the rest that are asked for equally often.
fn popularity(dist: &PopularitySpec, objects: u64) -> anyhow::Result<scale::ScalePopularity> {
    let popularity = dist.popularity(objects).map_err(bad_input)?;
    let (head, objects) = (popularity.head(HEAD), popularity.objects());
    let first = head.len() as u64;
    let probability = popularity.mass(first, objects);
    let tail = (first < objects).then(|| {
        let rank = |part: u64| {
            let due = probability * part as f64 / TAIL_PARTS as f64;
            partition_point(first, objects, |rank| popularity.mass(first, rank) < due)
        };
        Tail { probability, ranks: (0..=TAIL_PARTS).map(rank).collect() }
    });
    Ok(scale::ScalePopularity { head, tail })
}

/// The first rank for which `below` does not hold, or `end`.
fn partition_point(mut first: u64, mut end: u64, below: impl Fn(u64) -> bool) -> u64 {
    while first < end {
        let middle = first + (end - first) / 2;
        if below(middle) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    first
}

/// The first of those that are named most often.
fn most_frequent(names: impl Iterator<Item = &'static str>) -> &'static str {
    let names: Vec<&str> = names.collect();
    let count = |name: &str| names.iter().filter(|other| **other == name).count();
    names.iter().rev().copied().max_by_key(|name| count(name)).unwrap_or_default()
}
