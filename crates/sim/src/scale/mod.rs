//! The paper's evaluation (section 6) with the production machines on virtual time, at the paper's scale. Without faults and
//! checkers: those are the rest of this crate's.
//!
//! Rates are scaled down: a server of the paper does a million requests per second, one of these some hundred per second
//! of virtual time. What is measured is told in units of one server's rate, as the paper does.

mod cluster;
mod control;
mod layout;
mod measure;
mod members;
mod search;
mod storage;
#[cfg(test)]
mod tests;
mod workload;

pub use measure::{Binding, ScaleOutcome, Second};
pub use protocol::router::Routing;
pub use search::{closed_loop, goodput, saturation, series};
pub use workload::{ScalePopularity, Tail};

/// A cluster, what is asked of it and how it is watched. Rates are in units of one server's.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub racks: u16,
    /// Only with both layers.
    pub spines: u16,
    pub servers_per_rack: u16,
    pub leaf_rate: f64,
    pub spine_rate: f64,
    pub layers: Layers,
    /// Objects per node.
    pub slots: usize,
    pub popularity: ScalePopularity,
    pub placing: Placing,
    pub write_ratio: f64,
    /// What the invalidation of one copy costs its server, in requests.
    pub coherence_cost: f64,
    /// Failed nodes of the spine layer, from its last on; they are down from the start, or when a series says so.
    pub spines_failed: u16,
    /// Whether their partitions have gone to the others.
    pub remap: bool,
    /// Routers are not told that nodes are gone: only what they notice by themselves counts.
    pub silent: bool,
    pub routing: Routing,
    pub population: Population,
    /// Whether keys that are hotter than a node per layer can bear get more copies.
    pub elastic: bool,
    pub routers: u16,
    /// Requests per second of virtual time that one server does.
    pub server_rate: u32,
    /// How long is measured, in seconds of virtual time.
    pub seconds: u32,
    pub seed: u64,
}

/// Where objects are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Nowhere: NoCache.
    None,
    /// CachePartition.
    Leaf,
    /// DistCache.
    Both,
}

/// How objects come to servers. Spines always have rings of virtual nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// By hash slots, of which servers have equal parts, as the paper's servers have of the objects.
    Slots,
    /// By the ring of a plain list of servers, whose parts differ by some per cent.
    Ring,
}

/// Who decides what is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Population {
    /// Every node is given the hottest objects of its partition and keeps them, as in section 6.2.
    Given,
    /// The nodes' own agents, from what is asked of them; they begin with the hottest objects.
    Found,
}

/// What happens in a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleTurn {
    /// One more spine fails.
    Fail,
    /// The controller gives the partitions of those that failed to the others.
    Remap,
    /// All are back, empty.
    Return,
}

/// Why there is no such cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(pub String);

impl std::fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// What all nodes and servers can do together.
    pub fn capacity(&self) -> f64 {
        let nodes = match self.layers {
            Layers::None => 0.0,
            Layers::Leaf => f64::from(self.racks) * self.leaf_rate,
            Layers::Both => f64::from(self.racks) * self.leaf_rate + f64::from(self.spines) * self.spine_rate,
        };
        nodes + self.servers() as f64
    }

    /// Whether the numbers make sense together.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let wrong = |text: String| Err(ScenarioError(text));
        let servers = u32::from(self.racks) * u32::from(self.servers_per_rack);
        if servers == 0 || servers > u32::from(protocol::placement::slot::SLOTS) {
            return wrong(format!("{servers} servers; the machines place 1 to 16384"));
        }
        if self.layers == Layers::Both && self.spines == 0 {
            return wrong("a spine layer without nodes".to_owned());
        }
        if self.layers == Layers::Both && self.spines_failed >= self.spines {
            return wrong(format!("{} of {} spines fail; one must be left", self.spines_failed, self.spines));
        }
        if u32::from(self.racks) + u32::from(self.spines) > 1 << 12 {
            return wrong("more than 4096 nodes".to_owned());
        }
        for (name, value) in [("leaf rate", self.leaf_rate), ("spine rate", self.spine_rate)] {
            if !(value > 0.0 && value <= 1e6) {
                return wrong(format!("a {name} of {value}; it must be above 0 and at most 1e6"));
            }
        }
        if !(0.0..1.0).contains(&self.write_ratio) {
            return wrong(format!(
                "a write ratio of {}; it must be at least 0 and below 1",
                self.write_ratio
            ));
        }
        if !(0.0..=1e3).contains(&self.coherence_cost) {
            return wrong(format!("a coherence cost of {}; it must be 0 to 1000", self.coherence_cost));
        }
        if self.routers == 0 || self.seconds == 0 || self.server_rate == 0 || self.server_rate > 100_000 {
            return wrong("routers, seconds and a server's rate (up to 100000/s) must be above 0".to_owned());
        }
        let tail = self.popularity.tail.as_ref();
        let ranks = tail.is_none_or(|tail| tail.ranks.len() > 1 && tail.ranks.is_sorted());
        let head = &self.popularity.head;
        let any = head.iter().any(|p| *p > 0.0) || tail.is_some_and(|tail| tail.probability > 0.0);
        if !any || !ranks || head.iter().any(|p| !p.is_finite() || *p < 0.0) {
            return wrong("a popularity without objects".to_owned());
        }
        Ok(())
    }
}
