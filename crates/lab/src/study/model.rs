//! The flags that `matching` and `stability` have in common: layers, objects, seeds. Not what is computed of them.

use std::str::FromStr;

use study::matching::{LayeredModel, ModelLayer, RoutingPolicy};
use study::{Popularity, PopularitySpec, seeds};
use trace::Distribution;

use super::{bad_input, positive};

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// m: cache nodes in layer 0, each of throughput T (section 3.2)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    m: u32,

    /// k: hot objects; mlogm is m ln m, rounded up (section 3.2)
    #[arg(long, value_name = "N|mlogm", default_value = "mlogm")]
    k: ObjectsFlag,

    /// P: how popular the objects are; uniform, zipf:A, adversary (k equal rates) or file:F (one weight per line)
    #[arg(long, value_name = "D", default_value = "uniform")]
    pub(crate) dist: PopularityFlag,

    /// Clip each object's rate p_i R to T/2, lemma 1's condition, and spread the excess over the others in proportion
    #[arg(long)]
    cap_half: bool,

    /// Layers of cache nodes, each with a hash of its own (section 3.1: power of k choices); 1 to 4
    #[arg(long, value_name = "L", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    layers: u8,

    /// m of the layers above layer 0 (section 3.3: nonuniform number) [default: that of layer 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    m_spine: Option<u32>,

    /// Throughput of each node above layer 0, in T (section 3.3: nonuniform throughput)
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = positive)]
    spine_rate: f64,

    /// Independent choices of the hashes
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) seeds: u32,

    /// The first of them
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug)]
enum ObjectsFlag {
    MLogM,
    Count(u64),
}

impl FromStr for ObjectsFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<ObjectsFlag, String> {
        match text {
            "mlogm" => Ok(ObjectsFlag::MLogM),
            text => text
                .parse()
                .map(ObjectsFlag::Count)
                .map_err(|_| "write a number of objects, or mlogm".to_owned()),
        }
    }
}

/// A popularity; `adversary` alone asks for all k objects alike.
#[derive(Clone, Debug)]
pub(crate) enum PopularityFlag {
    Adversary,
    Spec(PopularitySpec),
}

impl FromStr for PopularityFlag {
    type Err = <PopularitySpec as FromStr>::Err;

    fn from_str(text: &str) -> Result<PopularityFlag, Self::Err> {
        if text == "adversary" {
            Ok(PopularityFlag::Adversary)
        } else {
            text.parse().map(PopularityFlag::Spec)
        }
    }
}

impl std::fmt::Display for PopularityFlag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PopularityFlag::Adversary => f.write_str("adversary"),
            PopularityFlag::Spec(spec) => spec.fmt(f),
        }
    }
}

/// Policies as they are written; `matching` has one that cannot be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PolicyFlag {
    /// The best there is: a perfect matching (definition 1)
    Matching,
    /// The less loaded of the object's own places (section 3.1)
    TwoChoices,
    /// Any of the object's places, each as often
    RandomOfTwo,
    /// The place in layer 0 only
    OneHash,
    /// One place among the nodes of all layers, as in lemma 3's proof
    OneHashOverAll,
}

impl From<PolicyFlag> for RoutingPolicy {
    fn from(choice: PolicyFlag) -> RoutingPolicy {
        match choice {
            PolicyFlag::Matching => RoutingPolicy::Matching,
            PolicyFlag::TwoChoices => RoutingPolicy::TwoChoices,
            PolicyFlag::RandomOfTwo => RoutingPolicy::RandomOfTwo,
            PolicyFlag::OneHash => RoutingPolicy::OneHash,
            PolicyFlag::OneHashOverAll => RoutingPolicy::OneHashOverAll,
        }
    }
}

impl Flags {
    pub(crate) fn model(&self) -> anyhow::Result<LayeredModel> {
        let spine = ModelLayer { nodes: self.m_spine.unwrap_or(self.m), rate: self.spine_rate };
        let mut layers = vec![ModelLayer { nodes: self.m, rate: 1.0 }];
        layers.resize(usize::from(self.layers), spine);
        LayeredModel::new(layers, &self.popularity()?, self.cap_half).map_err(bad_input)
    }

    fn popularity(&self) -> anyhow::Result<Popularity> {
        let m = f64::from(self.m);
        let objects = match self.k {
            ObjectsFlag::MLogM => (m * m.ln()).ceil().max(1.0) as u64,
            ObjectsFlag::Count(objects) => objects,
        };
        let popularity = match &self.dist {
            PopularityFlag::Adversary => Popularity::new(Distribution::Uniform, objects),
            PopularityFlag::Spec(spec) => spec.popularity(objects),
        };
        popularity.map_err(bad_input)
    }

    /// Runs every seed.
    pub(crate) fn each<T: Send>(&self, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
        seeds::each(self.seed, self.seeds as usize, run)
    }

    /// One line on what was asked.
    pub(crate) fn describe(&self, model: &LayeredModel) -> String {
        let layer = |layer: &ModelLayer| match layer.rate {
            1.0 => layer.nodes.to_string(),
            rate => format!("{} x {rate} T", layer.nodes),
        };
        let layers: Vec<String> = model.layers().iter().map(layer).collect();
        let cap = if self.cap_half { ", capped at T/2" } else { "" };
        format!(
            "{} nodes, {} objects, {}{cap}, {} seeds",
            layers.join(" + "),
            model.objects(),
            self.dist,
            self.seeds
        )
    }
}
