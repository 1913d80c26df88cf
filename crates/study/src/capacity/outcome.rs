//! What a seed, and what all seeds together come to. Computed elsewhere.

use std::fmt;

/// What keeps the rate from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bottleneck {
    Server,
    Leaf,
    Spine,
    /// One object alone asks for most of what its own places can serve: the theorem's condition on the hottest object.
    Object,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SeedOutcome {
    pub throughput: f64,
    pub bound: f64,
    pub binding: Bottleneck,
    /// Shares of the reads.
    pub hit_ratio_leaf: f64,
    pub hit_ratio_spine: f64,
    pub distinct_objects: u64,
    pub copies: u64,
    /// Live ones besides one in each layer.
    pub copies_extra: u64,
    pub degree_max: u32,
    /// Mean cost of a write to its server; 1 without caches.
    pub write_cost: f64,
}

/// Means over the seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityOutcome {
    pub throughput: f64,
    pub throughput_min: f64,
    pub throughput_max: f64,
    pub ideal: f64,
    /// What all nodes and servers together allow, if they are equally full.
    pub bound: f64,
    /// What binds for most seeds.
    pub binding: Bottleneck,
    pub hit_ratio_leaf: f64,
    pub hit_ratio_spine: f64,
    pub distinct_objects: f64,
    /// In all live nodes.
    pub copies: f64,
    /// What of these is besides one in each layer.
    pub copies_extra: f64,
    /// Most copies of one object: the hottest has them.
    pub degree_max: u32,
    pub write_cost: f64,
}

impl CapacityOutcome {
    /// Panics if there are no seeds.
    pub(super) fn mean(ideal: f64, seeds: &[SeedOutcome]) -> CapacityOutcome {
        let mean = |value: fn(&SeedOutcome) -> f64| seeds.iter().map(value).sum::<f64>() / seeds.len() as f64;
        let throughputs = || seeds.iter().map(|seed| seed.throughput);
        let times = |binding: &Bottleneck| seeds.iter().filter(|seed| seed.binding == *binding).count();
        let bindings = [Bottleneck::Object, Bottleneck::Spine, Bottleneck::Leaf, Bottleneck::Server];
        CapacityOutcome {
            throughput: mean(|seed| seed.throughput),
            throughput_min: throughputs().fold(f64::INFINITY, f64::min),
            throughput_max: throughputs().fold(0.0, f64::max),
            ideal,
            bound: mean(|seed| seed.bound),
            binding: bindings.into_iter().max_by_key(times).expect("there are four"),
            hit_ratio_leaf: mean(|seed| seed.hit_ratio_leaf),
            hit_ratio_spine: mean(|seed| seed.hit_ratio_spine),
            distinct_objects: mean(|seed| seed.distinct_objects as f64),
            copies: mean(|seed| seed.copies as f64),
            copies_extra: mean(|seed| seed.copies_extra as f64),
            degree_max: seeds.iter().map(|seed| seed.degree_max).max().expect("there is a seed"),
            write_cost: mean(|seed| seed.write_cost),
        }
    }
}

impl Bottleneck {
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Server => "server",
            Bottleneck::Leaf => "leaf",
            Bottleneck::Spine => "spine",
            Bottleneck::Object => "object",
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
