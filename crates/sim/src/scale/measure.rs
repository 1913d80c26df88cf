//! What members have done between two moments, in units of one server's rate. Not how much they are asked for.

use super::Scenario;
use super::cluster::{Cluster, Totals};

/// Two members that differ by less are equally loaded.
const EQUAL: f64 = 0.03;

/// What limits a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    Server,
    Leaf,
    Spine,
    /// All places of one object are full with it.
    Object,
}

impl Binding {
    pub fn name(self) -> &'static str {
        match self {
            Binding::Server => "server",
            Binding::Leaf => "leaf",
            Binding::Spine => "spine",
            Binding::Object => "object",
        }
    }
}

/// The largest rate at which nobody is overloaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Saturation {
    pub throughput: f64,
    pub binding: Binding,
    /// Of all requests.
    pub hit_ratio_leaf: f64,
    pub hit_ratio_spine: f64,
    pub distinct_objects: usize,
    /// The rate of the last measurement, and the load of the busiest member then.
    pub offered: f64,
    pub load_max: f64,
    /// Requests that were carried out in all measurements.
    pub requests: u64,
}

/// What is served of a given rate by members that do no more than they can.
#[derive(Clone, Debug, PartialEq)]
pub struct Goodput {
    pub offered: f64,
    pub throughput: f64,
    pub refused: f64,
    pub hit_ratio_leaf: f64,
    pub hit_ratio_spine: f64,
    pub distinct_objects: usize,
    pub requests: u64,
}

/// One second of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    pub second: u32,
    pub offered: f64,
    pub throughput: f64,
}

/// Counters at one moment.
pub(super) struct Snapshot {
    now: u64,
    pub(super) totals: Totals,
    hits: Vec<u64>,
    served: Vec<u64>,
    copies: Vec<u64>,
}

/// Between two of them: loads of members as parts of what they can do.
pub(super) struct Loads {
    pub(super) seconds: f64,
    /// Busiest leaf, spine and server.
    pub(super) leaf: f64,
    pub(super) spine: f64,
    pub(super) server: f64,
    pub(super) nodes: Vec<f64>,
    pub(super) offered: u64,
    pub(super) served: u64,
    pub(super) refused: u64,
    pub(super) hit_ratio_leaf: f64,
    pub(super) hit_ratio_spine: f64,
}

impl Cluster {
    pub(super) fn snapshot(&self) -> Snapshot {
        let copies = |own: &super::members::Server| own.shim.statistics().invalidated_copies;
        Snapshot {
            now: self.now,
            totals: self.totals,
            hits: self.nodes.iter().map(|own| own.hits()).collect(),
            served: self.servers.iter().map(|own| own.served).collect(),
            copies: self.servers.iter().map(copies).collect(),
        }
    }

    /// Only what is asked of a member counts, hits at nodes and everything at servers, however long it takes them.
    pub(super) fn loads_since(&self, before: &Snapshot) -> Loads {
        let after = self.snapshot();
        let seconds = (after.now - before.now) as f64 / 1e6;
        let Scenario { leaf_rate, spine_rate, coherence_cost, .. } = self.scenario;
        let per_second = |count: u64| count as f64 / seconds / self.server_rate();
        let racks = usize::from(self.scenario.racks);
        let hits: Vec<u64> =
            after.hits.iter().zip(&before.hits).map(|(after, before)| after - before).collect();
        let load = |(node, hits): (usize, &u64)| {
            per_second(*hits) / if node < racks { leaf_rate } else { spine_rate }
        };
        let nodes: Vec<f64> = hits.iter().enumerate().map(load).collect();
        let copies = after.copies.iter().zip(&before.copies).map(|(after, before)| after - before);
        let served = after.served.iter().zip(&before.served).map(|(after, before)| after - before);
        // Under limits, invalidations are among what is served.
        let cost = if self.limited { 0.0 } else { coherence_cost };
        let servers =
            served.zip(copies).map(|(served, copies)| per_second(served) + per_second(copies) * cost);
        let most = |loads: &[f64]| loads.iter().copied().fold(0.0, f64::max);
        let offered = after.totals.offered - before.totals.offered;
        let ratio = |hits: &[u64]| hits.iter().sum::<u64>() as f64 / offered.max(1) as f64;
        Loads {
            seconds,
            leaf: most(&nodes[..racks]),
            spine: most(&nodes[racks..]),
            server: servers.fold(0.0, f64::max),
            offered,
            served: after.totals.served - before.totals.served,
            refused: after.totals.refused - before.totals.refused,
            hit_ratio_leaf: ratio(&hits[..racks]),
            hit_ratio_spine: ratio(&hits[racks..]),
            nodes,
        }
    }

    /// Who is the busiest, and whether that is one object's doing.
    pub(super) fn binding(&self, loads: &Loads, rate: f64) -> Binding {
        let most = loads.max();
        if loads.server >= most {
            return Binding::Server;
        }
        let Some(hottest) = self.scenario.popularity.head.first() else { return Binding::Leaf };
        let key = self.placement.key(0, self.workload.head_name(0));
        let places: Vec<usize> =
            self.placement.places(&key).into_iter().flatten().map(|id| usize::from(id.0)).collect();
        let alive = places.iter().filter(|node| self.nodes[**node].alive);
        let (mut capacity, mut full) = (0.0, true);
        for &node in alive {
            let leaf = self.scenario.is_leaf(node);
            capacity += if leaf { self.scenario.leaf_rate } else { self.scenario.spine_rate };
            full &= loads.nodes[node] >= most * (1.0 - EQUAL);
        }
        let reads = hottest * rate * (1.0 - self.scenario.write_ratio);
        if full && reads >= capacity * most * (1.0 - EQUAL) {
            Binding::Object
        } else if loads.leaf >= loads.spine {
            Binding::Leaf
        } else {
            Binding::Spine
        }
    }
}

impl Loads {
    pub(super) fn max(&self) -> f64 {
        self.leaf.max(self.spine).max(self.server)
    }
}
