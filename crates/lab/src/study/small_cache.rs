//! `distcache study small-cache`: what a front-end cache guarantees, and what simulation makes of it. It computes nothing itself.

use serde::Serialize;
use study::small_cache::{Backends, BinsOutcome, Experiment};
use study::{Popularity, PopularitySpec};
use trace::Distribution;

use super::{bad_input, positive, print_json};
use crate::terminal::print;

/// Show how large a cache in front of a cluster must be, and which throughput it guarantees whatever is asked for
/// (Small Cache, Big Effect)
#[derive(Debug, clap::Args)]
pub(crate) struct SmallCacheArguments {
    #[command(subcommand)]
    part: SmallCachePart,
}

#[derive(Debug, clap::Subcommand)]
enum SmallCachePart {
    /// The bounds: load of the most loaded node, throughput, the adversary's best choice (Eq. 10, 12, 14)
    Bound(Common),
    /// Place keys on the nodes at random, again and again: load of the most loaded node, idle nodes (figures 4, 8)
    Simulate(Common),
    /// What cache and nodes serve together before a node is overloaded (figures 7, 9 to 11)
    Throughput(Common),
}

#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
struct Common {
    /// Back-end nodes: n (section 4.1)
    #[arg(long, value_name = "N", default_value_t = 85)]
    n: u64,

    /// Objects in the cache: c (section 4.1)
    #[arg(long, value_name = "OBJECTS", conflicts_with = "k")]
    c: Option<u64>,

    /// The cache's size as a factor: c = k n ln n + 1, with --v as in Eq. 17 [default: 8]
    #[arg(long, value_name = "K", value_parser = positive)]
    k: Option<f64>,

    /// Confidence of the bounds: alpha, without unit, above 1 in the paper (Eq. 6)
    #[arg(long, value_name = "ALPHA", default_value_t = 2.0, value_parser = positive)]
    alpha: f64,

    /// Keys that are asked for at one rate: x (section 4.2) [default: the adversary's best choice, Eq. 14; if c is below 2: c + 1]
    #[arg(long, value_name = "KEYS", conflicts_with = "dist", value_parser = clap::value_parser!(u64).range(1..))]
    x: Option<u64>,

    /// Virtual nodes of a node on average, where capacities differ and the weakest node has one: v (section 4.4)
    #[arg(long, value_name = "V", default_value_t = 1.0, value_parser = positive)]
    v: f64,

    /// Placements for each seed [default: simulate 1000, else 1]
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    runs: Option<u32>,

    /// Objects in all: m (section 4.1)
    #[arg(long, value_name = "M", default_value_t = 8_500_000)]
    keys: u64,

    /// Requests/s that a node of average capacity serves: r (section 4.1) [default: 1, so that rates are in node rates]
    #[arg(long, value_name = "RATE", value_parser = positive)]
    node_rate: Option<f64>,

    /// What is asked for: uniform, zipf:A, adversary:X or file:F (one weight per line) [default: --x]
    #[arg(long, value_name = "D")]
    dist: Option<PopularitySpec>,

    /// Seeds, each with its own placements [default: throughput 10, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    seeds: Option<u32>,

    /// First seed of everything random: the same seed gives the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Bound {
    cache_objects: f64,
    normalized_load: f64,
    throughput: f64,
    /// The adversary's best number of keys; `None` where there is one node: then no choice is worst.
    worst_x: Option<f64>,
    /// The k that the cache amounts to; none where one node makes every k the same.
    factor: Option<f64>,
    /// Eq. 8 at --x.
    normalized_load_at_x: Option<f64>,
}

#[derive(Serialize)]
struct SimulationRow {
    max_load_mean: f64,
    max_load_min: f64,
    max_load_max: f64,
    idle_nodes_mean: f64,
    idle_nodes_min: usize,
    idle_nodes_max: usize,
    /// The share that the cache answers.
    hit_ratio: f64,
    /// Eq. 8 where keys are asked for at one rate and Eq. 10 elsewhere; none for a cache of one object or less.
    bound: Option<f64>,
    runs: usize,
}

#[derive(Serialize)]
struct ThroughputRow {
    /// Mean throughput of the cluster; `None` where the cache answers everything.
    throughput: Option<f64>,
    cache_throughput: Option<f64>,
    backend_throughput: Option<f64>,
    throughput_min: Option<f64>,
    throughput_max: Option<f64>,
    hit_ratio: f64,
    /// Eq. 12.
    guaranteed: Option<f64>,
    runs: usize,
}

pub(crate) fn run(arguments: &SmallCacheArguments) -> anyhow::Result<()> {
    match &arguments.part {
        SmallCachePart::Bound(common) => bound(common),
        SmallCachePart::Simulate(common) => simulate(common),
        SmallCachePart::Throughput(common) => throughput(common),
    }
}

impl Common {
    fn backends(&self) -> anyhow::Result<Backends> {
        Backends::new(self.n, self.v, self.alpha).map_err(bad_input)
    }

    /// As the equations take it; a cache has whole objects.
    fn cache(&self, backends: Backends) -> f64 {
        self.c.map_or_else(|| backends.cache(self.k.unwrap_or(8.0)), |c| c as f64)
    }

    fn experiment(&self, backends: Backends) -> anyhow::Result<(Experiment, String)> {
        let cache = self.cache(backends);
        let spec = match (&self.dist, self.x) {
            (Some(spec), _) => spec.clone(),
            (None, Some(x)) => PopularitySpec::Law(Distribution::Adversary(x)),
            (None, None) => {
                let worst = backends.worst_x(cache).ok().filter(|x| x.is_finite());
                let x = worst.map_or(cache + 1.0, |x| x.round());
                PopularitySpec::Law(Distribution::Adversary((x as u64).min(self.keys).max(1)))
            }
        };
        let popularity: Popularity = spec.popularity(self.keys).map_err(bad_input)?;
        let what = format!("{spec} of {} keys", self.keys);
        Ok((Experiment::new(backends, popularity, cache.ceil() as u64), what))
    }

    fn outcomes(&self, experiment: &Experiment, runs: u32, seeds: u32) -> anyhow::Result<Vec<BinsOutcome>> {
        let count = u64::from(self.runs.unwrap_or(runs)) * u64::from(self.seeds.unwrap_or(seeds));
        if count > 10_000_000 {
            return Err(bad_input(format!("{count} placements; --runs times --seeds is at most 10000000")));
        }
        Ok(experiment.runs(self.seed, count as usize))
    }

    fn rate(&self) -> f64 {
        self.node_rate.unwrap_or(1.0)
    }

    fn unit(&self) -> &'static str {
        if self.node_rate.is_some() { "requests/s" } else { "node rates" }
    }

    /// What Eq. 8 or Eq. 10 says about the same experiment.
    fn load_bound(&self, backends: Backends) -> Option<f64> {
        let cache = self.cache(backends).ceil();
        let keys = match &self.dist {
            Some(PopularitySpec::Law(Distribution::Adversary(keys))) => Some(*keys),
            Some(_) => None,
            None => self.x,
        };
        match keys.filter(|keys| *keys > 1) {
            Some(keys) => Some(backends.load_at(cache, keys as f64)),
            None => backends.load(cache).ok(),
        }
    }
}

fn bound(common: &Common) -> anyhow::Result<()> {
    let backends = common.backends()?;
    let cache = common.cache(backends);
    // One node has n ln n = 0, so its cache of any factor is one object, and there is nothing to balance.
    let alone = backends.bins() == 1.0 && common.c.is_none();
    let load = if alone { 1.0 } else { backends.load(cache).map_err(bad_input)? };
    let worst = backends.worst_x(cache).ok().filter(|x| x.is_finite());
    let result = Bound {
        cache_objects: cache,
        normalized_load: load,
        throughput: common.n as f64 / load * common.rate(),
        worst_x: worst,
        factor: (backends.bins() > 1.0).then(|| (cache - 1.0) / (backends.cache(1.0) - 1.0)),
        normalized_load_at_x: common.x.map(|x| backends.load_at(cache, x as f64)),
    };
    if common.json {
        return print_json(&result);
    }
    let unit = common.unit();
    print(&format!("{} nodes, alpha {}, {} virtual nodes each", common.n, common.alpha, common.v));
    let factor = result.factor.map_or("any k".to_owned(), |factor| format!("k = {factor:.3}"));
    print(&format!("cache            {:14.0} objects  {factor} (Eq. 17)", cache.ceil()));
    print(&format!("normalized load  {load:14.4}          most loaded node at most (Eq. 10)"));
    print(&format!("throughput       {:14.1} {unit}, at least (Eq. 12)", result.throughput));
    if let Some(x) = worst {
        print(&format!("worst x          {x:14.0} keys     (Eq. 14)"));
    }
    if let Some((x, load)) = common.x.zip(result.normalized_load_at_x) {
        print(&format!("load at x        {load:14.4}          with x = {x} (Eq. 8)"));
    }
    Ok(())
}

fn simulate(common: &Common) -> anyhow::Result<()> {
    let backends = common.backends()?;
    let (experiment, what) = common.experiment(backends)?;
    let outcomes = common.outcomes(&experiment, 1000, 1)?;
    let loads: Vec<f64> = outcomes.iter().map(BinsOutcome::max_load).collect();
    let idle: Vec<usize> = outcomes.iter().map(BinsOutcome::idle).collect();
    let result = SimulationRow {
        max_load_mean: mean(&loads),
        max_load_min: loads.iter().copied().fold(f64::INFINITY, f64::min),
        max_load_max: loads.iter().copied().fold(0.0, f64::max),
        idle_nodes_mean: idle.iter().sum::<usize>() as f64 / idle.len() as f64,
        idle_nodes_min: idle.iter().copied().min().unwrap_or(0),
        idle_nodes_max: idle.iter().copied().max().unwrap_or(0),
        hit_ratio: experiment.hit_ratio(),
        bound: common.load_bound(backends),
        runs: outcomes.len(),
    };
    if common.json {
        return print_json(&result);
    }
    print(&format!("{} nodes, {what}, {} runs", common.n, result.runs));
    print("                      mean        min        max      bound");
    let bound = result.bound.map_or("-".to_owned(), |bound| format!("{bound:.4}"));
    let (low, high) = (result.max_load_min, result.max_load_max);
    print(&format!("normalized load {:10.4} {low:10.4} {high:10.4} {bound:>10}", result.max_load_mean));
    let (low, high) = (result.idle_nodes_min, result.idle_nodes_max);
    print(&format!("idle nodes      {:10.1} {low:10} {high:10}", result.idle_nodes_mean));
    print(&format!("the cache answers {:.3} % of the requests", 100.0 * result.hit_ratio));
    Ok(())
}

fn throughput(common: &Common) -> anyhow::Result<()> {
    let backends = common.backends()?;
    let (experiment, what) = common.experiment(backends)?;
    let outcomes = common.outcomes(&experiment, 1, 10)?;
    let served: Option<Vec<_>> =
        outcomes.iter().map(|outcome| experiment.throughput(outcome, common.rate())).collect();
    let all: Option<Vec<f64>> =
        served.as_ref().map(|served| served.iter().map(|one| one.cache + one.backends).collect());
    let part = |part: fn(&study::small_cache::Throughput) -> f64| {
        served.as_ref().map(|served| served.iter().map(part).sum::<f64>() / served.len() as f64)
    };
    let cache = common.cache(backends).ceil();
    let result = ThroughputRow {
        throughput: all.as_deref().map(mean),
        cache_throughput: part(|one| one.cache),
        backend_throughput: part(|one| one.backends),
        throughput_min: all.as_ref().map(|all| all.iter().copied().fold(f64::INFINITY, f64::min)),
        throughput_max: all.as_ref().map(|all| all.iter().copied().fold(0.0, f64::max)),
        hit_ratio: experiment.hit_ratio(),
        guaranteed: backends.throughput(cache).ok().map(|nodes| nodes * common.rate()),
        runs: outcomes.len(),
    };
    if common.json {
        return print_json(&result);
    }
    let unit = common.unit();
    print(&format!("{} nodes, a cache of {cache} objects, {what}, {} runs", common.n, result.runs));
    let Some((all, (cache, nodes))) =
        result.throughput.zip(result.cache_throughput.zip(result.backend_throughput))
    else {
        print("every request is a hit, so no node limits the throughput");
        return Ok(());
    };
    print(&format!("throughput {all:14.1} {unit}"));
    print(&format!("  cache    {cache:14.1}"));
    print(&format!("  nodes    {nodes:14.1}"));
    if let Some(guaranteed) = result.guaranteed {
        print(&format!("guaranteed {guaranteed:14.1} whatever is asked for (Eq. 12)"));
    }
    Ok(())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
