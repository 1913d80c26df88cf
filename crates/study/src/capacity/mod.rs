//! How much a cluster of a given shape can serve, in the model of the paper's section 6. Not how requests find their
//! way: routing is taken as the best that there is, which the power of two choices comes close to (lemma 2).
//!
//! One seed is one drawing of where objects are: a server uniformly at random, which gives the rack and so the leaf,
//! and a spine by an independent hash. Each node caches the hottest objects of its own partition. What the paper
//! leaves open is decided so:
//! - Reads of a cached object are served by its copies alone, all others by its server. Writes go to the server.
//! - A write to an object with c copies costs its server 1 + D c, or 1 + D for each path that it takes to visit
//!   them, where a path has one leaf and one spine on it. Messages of coherence do not count at the nodes.
//! - Under accounting A and B a request crosses one spine, which is any live one unless that spine serves it, so
//!   transit fills the spines evenly; under A all of a rack's requests that no spine serves cross its leaf. Without
//!   caches there are no nodes, only servers.
//! - CacheReplication reads whichever is less loaded of the object's leaf, if that has it, and any spine.
//! - Spines that fail and are not remapped: to find the saturation, routers know of it and use what is left. Goodput
//!   shows the moment before they know (figure 11): under A and B each failed spine loses its part of all requests,
//!   under C reads are lost in proportion to the copies that failed.
//! - Goodput: misses and writes pass a full leaf before hits do, because hits can go to a spine; the rest is a
//!   maximum flow. Servers drop in proportion. What binds is still what binds at saturation.
//! - Hit ratios are those of one of the best ways to route, of which there are many.
//! - With elastic copies, an object that takes more than half of a node has two places for each half, which is the theorem's
//!   condition, at the rate that comes out (or at the offered one): those of the paper, and then other nodes that are up in the
//!   product's order of preference. Their number is the next step of the product's ladder, not the least that would do: it is
//!   what a cluster has, at most half more places than needed. Like the product's, copies are no more than a fourth of their
//!   reads per write, and the invalidations of an object take no more than half of what its server can do; the product counts all
//!   objects of a server together. All nodes are alike to the rule, with the rate of the slower layer.
//! - The bound is what all nodes could serve of the reads that go to them, or all servers of the rest, if all were equally full.

mod elastic;
mod goodput;
mod layout;
mod outcome;
mod places;
mod saturation;
mod tail;

use std::fmt;

use protocol::placement::MapError;

use crate::{Popularity, PopularityError, PopularitySpec, seeds};
pub use layout::{CachedObject, CopyLayout};
pub use outcome::{Bottleneck, CapacityOutcome, SeedOutcome};
use places::CapacityPlaces;

/// What is cached where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    NoCache,
    /// Leaves alone.
    PartitionLeaf,
    /// Both layers; the spine's copy serves all reads if there is one.
    PartitionSpine,
    /// Every spine has the same hottest objects, as many as it has slots.
    ReplicationSlots,
    /// Every spine has as many of the hottest objects as all spines have slots.
    ReplicationDistinct,
    DistCache,
}

/// What counts towards a node's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// Every request that crosses it.
    A,
    /// At a spine every request that crosses it, at a leaf the hits.
    B,
    /// Hits.
    C,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityMetric {
    /// The largest rate at which nobody is overloaded.
    Saturation,
    /// What gets through of an offered rate.
    Goodput,
}

/// What a write pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoherenceUnit {
    Copy,
    Path,
}

/// How objects come to servers and spines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityPlacing {
    /// By the product's hash functions, to equal shares.
    Uniform,
    /// By the product's rings of virtual nodes too, whose shares stray by some per cent.
    Ring,
}

/// A cluster and its load. Rates are in any one unit; the paper's is a server's.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityModel {
    pub racks: u32,
    pub spines: u32,
    pub servers_per_rack: u32,
    pub server_rate: f64,
    pub leaf_rate: f64,
    pub spine_rate: f64,
    pub objects: u64,
    pub popularity: PopularitySpec,
    pub slots_leaf: u64,
    pub slots_spine: u64,
    pub mechanism: Mechanism,
    pub accounting: Accounting,
    pub metric: CapacityMetric,
    /// For goodput, ideal if there is none, and for the number of elastic copies.
    pub offered: Option<f64>,
    /// The share of all requests that write.
    pub write_ratio: f64,
    /// D: what one copy's (or path's) two phases cost a server, in requests.
    pub coherence_cost: f64,
    pub coherence_unit: CoherenceUnit,
    pub failed_spines: u32,
    /// Whether the failed spines' partitions have moved to the others.
    pub remap: bool,
    pub elastic: bool,
    pub placing: CapacityPlacing,
    pub seeds: usize,
    pub seed: u64,
}

/// Why there is nothing to compute. Flags are named as on the command line.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    #[error(transparent)]
    Popularity(#[from] PopularityError),
    #[error("--{flag} {given}: {why}")]
    Wrong { flag: &'static str, given: String, why: String },
    #[error("the product's rings cannot be built: {0}")]
    Rings(#[from] MapError),
}

/// Most members of a kind, so that their loads fit into memory many times over.
const MEMBERS_MAX: u64 = 1 << 22;
/// Most nodes of a layer. The flow over them is what takes time.
const NODES_MAX: u64 = 1 << 16;
/// Most slots of all nodes; a cached object takes about 100 bytes, in as many seeds at once as there are cores.
const SLOTS_MAX: u64 = 1 << 25;

impl Default for CapacityModel {
    fn default() -> CapacityModel {
        CapacityModel {
            racks: 32,
            spines: 32,
            servers_per_rack: 32,
            server_rate: 1.0,
            leaf_rate: 32.0,
            spine_rate: 32.0,
            objects: 100_000_000,
            popularity: PopularitySpec::Law(trace::Distribution::Zipf(0.99)),
            slots_leaf: 100,
            slots_spine: 100,
            mechanism: Mechanism::DistCache,
            accounting: Accounting::C,
            metric: CapacityMetric::Saturation,
            offered: None,
            write_ratio: 0.0,
            coherence_cost: 1.0,
            coherence_unit: CoherenceUnit::Copy,
            failed_spines: 0,
            remap: false,
            elastic: false,
            placing: CapacityPlacing::Uniform,
            seeds: 10,
            seed: 1,
        }
    }
}

impl CapacityModel {
    /// What all servers together can serve.
    pub fn ideal(&self) -> f64 {
        f64::from(self.racks) * f64::from(self.servers_per_rack) * self.server_rate
    }

    pub fn servers(&self) -> u32 {
        self.racks * self.servers_per_rack
    }

    /// The offered rate, or the ideal one.
    pub fn target(&self) -> f64 {
        self.offered.unwrap_or_else(|| self.ideal())
    }

    /// Spines that are up.
    pub fn spines_live(&self) -> u32 {
        self.spines - self.failed_spines
    }

    pub fn nodes_live(&self) -> u32 {
        self.racks + self.spines_live()
    }

    /// What all nodes that are up and all servers can serve, if every request takes one of them.
    fn capacity(&self) -> f64 {
        let nodes = f64::from(self.racks) * self.leaf_rate + f64::from(self.spines_live()) * self.spine_rate;
        nodes + self.ideal()
    }

    /// The means over all seeds.
    pub fn evaluate(&self) -> Result<CapacityOutcome, CapacityError> {
        self.check()?;
        self.evaluate_for(&self.popularity.popularity(self.objects)?)
    }

    /// As `evaluate`, for a popularity that is there already, whatever the model says of it.
    pub fn evaluate_for(&self, popularity: &Popularity) -> Result<CapacityOutcome, CapacityError> {
        self.check()?;
        let outcomes = seeds::each(self.seed, self.seeds, |seed| self.run(popularity, seed));
        Ok(CapacityOutcome::mean(self.ideal(), &outcomes.into_iter().collect::<Result<Vec<_>, _>>()?))
    }

    /// Where one seed puts the objects, and what is cached then.
    pub fn layout(&self, popularity: &Popularity, seed: u64) -> Result<CopyLayout, CapacityError> {
        self.check()?;
        Ok(elastic::settle(self, popularity, &CapacityPlaces::new(self, seed)?).0)
    }

    /// One seed alone.
    pub fn run(&self, popularity: &Popularity, seed: u64) -> Result<SeedOutcome, CapacityError> {
        self.check()?;
        let (layout, outcome) = elastic::settle(self, popularity, &CapacityPlaces::new(self, seed)?);
        Ok(match self.metric {
            CapacityMetric::Saturation => outcome,
            CapacityMetric::Goodput => goodput::get_through(self, &layout, outcome),
        })
    }

    /// Whether the numbers make sense together; the popularity's own are checked where it is made.
    pub fn check(&self) -> Result<(), CapacityError> {
        let wrong = |flag, given: &dyn fmt::Display, why: &str| {
            Err(CapacityError::Wrong { flag, given: given.to_string(), why: why.to_owned() })
        };
        let counts =
            [("racks", self.racks), ("spines", self.spines), ("servers-per-rack", self.servers_per_rack)];
        for (flag, count) in counts {
            if count == 0 || u64::from(count) > NODES_MAX {
                return wrong(flag, &count, &format!("there must be 1 to {NODES_MAX}"));
            }
        }
        if u64::from(self.racks) * u64::from(self.servers_per_rack) > MEMBERS_MAX {
            return wrong("racks", &self.racks, &format!("more than {MEMBERS_MAX} servers in all"));
        }
        let rates = [
            ("server-rate", self.server_rate),
            ("leaf-rate", self.leaf_rate),
            ("spine-rate", self.spine_rate),
        ];
        for (flag, rate) in rates.into_iter().chain(self.offered.map(|rate| ("offered", rate))) {
            if !(rate > 0.0 && rate.is_finite()) {
                return wrong(flag, &rate, "a rate is above 0");
            }
        }
        if !(0.0..=1.0).contains(&self.write_ratio) {
            return wrong("write-ratio", &self.write_ratio, "a share is 0 to 1");
        }
        if !(self.coherence_cost >= 0.0 && self.coherence_cost.is_finite()) {
            return wrong("coherence-cost", &self.coherence_cost, "a cost is a number from 0");
        }
        if self.failed_spines >= self.spines {
            return wrong("fail-spines", &self.failed_spines, "at least one spine must be left");
        }
        if self.elastic && self.mechanism != Mechanism::DistCache {
            return wrong("elastic", &"true", "only distcache has elastic copies");
        }
        if self.seeds == 0 {
            return wrong("seeds", &self.seeds, "at least one is needed");
        }
        self.check_slots()
    }

    fn check_slots(&self) -> Result<(), CapacityError> {
        let leaves = self.slots_leaf.min(self.objects).saturating_mul(u64::from(self.racks));
        let spines = self.slots_spine.min(self.objects).saturating_mul(u64::from(self.spines));
        let slots = match self.mechanism {
            Mechanism::NoCache => 0,
            Mechanism::PartitionLeaf => leaves,
            _ => leaves.saturating_add(spines),
        };
        if slots <= SLOTS_MAX {
            return Ok(());
        }
        let flag = if leaves > spines { "slots-leaf" } else { "slots-spine" };
        let given = self.slots_leaf.max(self.slots_spine).to_string();
        let why = format!("{slots} slots in all; at most {SLOTS_MAX} can be computed");
        Err(CapacityError::Wrong { flag, given, why })
    }
}

#[cfg(test)]
mod tests;
