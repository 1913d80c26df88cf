//! From a few facts about a cluster to its layers, their sizes and what they guarantee. It starts nothing and writes no file.

mod shape;
mod warnings;

use protocol::node::OBJECT_OVERHEAD_BYTES;
use trace::Distribution;

use crate::capacity::{
    Bottleneck, CapacityError, CapacityModel, CapacityOutcome, CapacityPlacing, Mechanism,
};
use crate::popularity::{Popularity, PopularityError, PopularitySpec};
use crate::small_cache::{Backends, SmallCacheError};
pub use shape::{CONFIDENCE, ClusterShape, FACTOR};

/// What a key and the framing of its reply may take; longer ones need more memory.
const KEY_BYTES: u64 = 80;
/// A node process without objects: 18.4 MiB with 10,000 of 64 bytes (benches/README.md), less what those count.
const NODE_BYTES: u64 = 15 << 20;
/// D, what a write costs a server more for each copy, in requests: `study capacity` takes the same.
const COHERENCE_COST: f64 = 1.0;
/// The means settle quickly, and large clusters take seconds for each.
pub const SEEDS: usize = 3;
const SERVERS_MAX: u32 = 1 << 16;
/// The rings of more servers take longer to build than their few per cent are worth.
const RING_SERVERS_MAX: u32 = 1 << 12;

/// What an operator knows. Rates are in requests/s.
#[derive(Clone, Debug)]
pub struct OperatorFacts {
    pub servers: u32,
    /// As many as there are leaf nodes, if none are given.
    pub racks: Option<u32>,
    pub server_rate: f64,
    pub node_rate: f64,
    /// How popular the objects are; `None` where anything may be asked for.
    pub popularity: Option<PopularitySpec>,
    pub objects: u64,
    pub write_ratio: f64,
    pub value_bytes: u64,
    /// The share of every rate that is to stay free.
    pub headroom: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedLayer {
    pub name: &'static str,
    pub nodes: u32,
    pub objects_per_node: u64,
}

/// What to build, and what it does.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    pub shape: ClusterShape,
    /// Bytes of a cached object, with what the product adds to it.
    pub object_bytes: u64,
    /// What a node of the layer with the largest nodes takes.
    pub memory_bytes: u64,
    /// R of the theorem: what all servers can do together with their headroom.
    pub target: f64,
    /// The share of the hottest object.
    pub hottest: f64,
    /// Copies that the hottest object has at that throughput: two for each half of a node that it takes, by the product's steps.
    pub degree: u32,
    /// With as many copies of each object as its heat takes and its writes allow, placed as the product places them.
    pub throughput: f64,
    /// What keeps it from more: server, leaf, spine or object.
    pub limit: &'static str,
    /// How the model placed objects: as the product does, but for very many servers.
    pub placing: CapacityPlacing,
    /// Whether that throughput is what Eq. 12 promises, because the model serves more of what it was tried with.
    pub is_bound: bool,
    /// Small Cache's promise for servers alone, without writes (Eq. 12).
    pub bound: f64,
    /// Keys that the worst of the adversaries asks for, where the popularity is unknown.
    pub worst_x: Option<u64>,
    /// Where more of the requests write, a copy in each layer costs the servers more than it takes off them. Further copies end
    /// before: each of them answers four reads per write.
    pub write_ratio_max: f64,
    pub warnings: Vec<String>,
}

/// What a shape serves.
struct Served {
    throughput: f64,
    binding: Bottleneck,
    degree_max: u32,
    worst_x: Option<u64>,
    is_bound: bool,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Popularity(#[from] PopularityError),
    #[error(transparent)]
    Bound(#[from] SmallCacheError),
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    #[error("--{flag} {given}: {why}")]
    Wrong { flag: &'static str, given: String, why: &'static str },
}

impl OperatorFacts {
    pub fn plan(&self) -> Result<ClusterPlan, PlanError> {
        self.check()?;
        let facts = self.with_headroom();
        let popularity = match &facts.popularity {
            Some(spec) => spec.popularity(facts.objects)?,
            None => Popularity::new(Distribution::Adversary(1), facts.objects)?,
        };
        let objects = if facts.popularity.is_some() { popularity.objects() } else { facts.objects };
        let shape = ClusterShape::new(&facts, objects)?;
        let hottest = popularity.of(0);
        let target = f64::from(facts.servers) * facts.server_rate;
        let served = facts.served(&shape, &popularity)?;
        let object_bytes = OBJECT_OVERHEAD_BYTES + KEY_BYTES + facts.value_bytes;
        let objects_most = shape.layers.iter().map(|layer| layer.objects_per_node).max().unwrap_or(0);
        let mut plan = ClusterPlan {
            object_bytes,
            memory_bytes: NODE_BYTES + objects_most.saturating_mul(object_bytes),
            target,
            hottest,
            degree: served.degree_max,
            throughput: served.throughput,
            limit: match served.binding.name() {
                "leaf" if shape.layers.len() == 1 => "spine",
                name => name,
            },
            placing: facts.model(&shape).placing,
            is_bound: served.is_bound,
            bound: target / shape.load_max,
            worst_x: served.worst_x,
            write_ratio_max: 1.0 / (1.0 + COHERENCE_COST * shape.layers.len() as f64),
            warnings: Vec::new(),
            shape,
        };
        plan.warnings = warnings::of(&facts, &plan);
        Ok(plan)
    }

    /// Where the popularity is unknown, what the worst of several adversaries leaves, and no more than Eq. 12 promises
    /// whatever is asked for.
    fn served(&self, shape: &ClusterShape, popularity: &Popularity) -> Result<Served, PlanError> {
        let model = self.model(shape);
        if self.popularity.is_some() {
            return Ok(Served::of(&model.evaluate_for(popularity)?, None));
        }
        let mut worst: Option<Served> = None;
        let mut degree_max = 0;
        for x in self.adversaries(shape) {
            let outcome = model.evaluate_for(&Popularity::new(Distribution::Adversary(x), self.objects)?)?;
            degree_max = degree_max.max(outcome.degree_max);
            if worst.as_ref().is_none_or(|least| outcome.throughput < least.throughput) {
                worst = Some(Served::of(&outcome, Some(x)));
            }
        }
        let worst = Served { degree_max, ..worst.expect("one key at least is asked for") };
        let throughput = model.ideal() / shape.load_max;
        if throughput < worst.throughput {
            let (binding, worst_x) = (Bottleneck::Server, Some(self.worst_x(shape)));
            return Ok(Served { throughput, binding, worst_x, is_bound: true, ..worst });
        }
        Ok(worst)
    }

    /// Numbers of keys among which the worst is: one key, as many as are cached, Small Cache's (Eq. 14), and between.
    fn adversaries(&self, shape: &ClusterShape) -> Vec<u64> {
        let cached = shape.cached as u64;
        let all = [1, u64::from(shape.nodes()), cached / 4, cached, self.worst_x(shape)];
        let mut all: Vec<u64> = all.into_iter().map(|x| x.clamp(1, self.objects)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Small Cache's worst number of keys for servers alone (Eq. 14).
    fn worst_x(&self, shape: &ClusterShape) -> u64 {
        let bounds = Backends::new(u64::from(self.servers), 1.0, CONFIDENCE);
        let x = bounds.and_then(|bounds| bounds.worst_x(shape.cached)).unwrap_or(shape.cached + 1.0);
        (x.round() as u64).clamp(1, self.objects)
    }

    fn model(&self, shape: &ClusterShape) -> CapacityModel {
        let leaf = &shape.layers[0];
        let spine = shape.layers.get(1);
        // A leaf has the keys of its own servers here also where several share a rack. Whole numbers of servers may
        // come to more than there are, each of them slower.
        let servers_per_rack = self.servers.div_ceil(leaf.nodes);
        let modelled = f64::from(servers_per_rack) * f64::from(leaf.nodes);
        CapacityModel {
            racks: leaf.nodes,
            spines: spine.map_or(1, |spine| spine.nodes),
            servers_per_rack,
            server_rate: self.server_rate * f64::from(self.servers) / modelled,
            leaf_rate: self.node_rate,
            spine_rate: self.node_rate,
            objects: self.objects,
            slots_leaf: leaf.objects_per_node,
            slots_spine: spine.map_or(1, |spine| spine.objects_per_node),
            mechanism: if spine.is_some() { Mechanism::DistCache } else { Mechanism::PartitionLeaf },
            write_ratio: self.write_ratio,
            coherence_cost: COHERENCE_COST,
            elastic: spine.is_some(),
            placing: if self.servers > RING_SERVERS_MAX {
                CapacityPlacing::Uniform
            } else {
                CapacityPlacing::Ring
            },
            seeds: SEEDS,
            ..CapacityModel::default()
        }
    }

    fn with_headroom(&self) -> OperatorFacts {
        let left = 1.0 - self.headroom;
        OperatorFacts {
            server_rate: self.server_rate * left,
            node_rate: self.node_rate * left,
            ..self.clone()
        }
    }

    fn check(&self) -> Result<(), PlanError> {
        let wrong = |flag, given: &dyn std::fmt::Display, why| {
            Err(PlanError::Wrong { flag, given: given.to_string(), why })
        };
        if self.servers == 0 || self.servers > SERVERS_MAX {
            return wrong("servers", &self.servers, "there must be 1 to 65536");
        }
        if let Some(racks) = self.racks.filter(|racks| *racks == 0 || *racks > self.servers) {
            return wrong("racks", &racks, "there must be 1 to as many as there are servers");
        }
        for (flag, rate) in [("server-rate", self.server_rate), ("node-rate", self.node_rate)] {
            if !(rate > 0.0 && rate.is_finite()) {
                return wrong(flag, &rate, "a rate is above 0");
            }
        }
        if self.server_rate / self.node_rate > 1000.0 {
            return wrong(
                "node-rate",
                &self.node_rate,
                "a node that serves a thousandth of a server is no cache",
            );
        }
        if !(0.0..=1.0).contains(&self.write_ratio) {
            return wrong("write-ratio", &self.write_ratio, "a share is 0 to 1");
        }
        if !(0.0..1.0).contains(&self.headroom) {
            return wrong("headroom", &self.headroom, "write 0 up to but not including 1");
        }
        Ok(())
    }
}

impl Served {
    fn of(outcome: &CapacityOutcome, worst_x: Option<u64>) -> Served {
        let CapacityOutcome { throughput, binding, degree_max, .. } = *outcome;
        Served { throughput, binding, degree_max, worst_x, is_bound: false }
    }
}

#[cfg(test)]
mod tests;
