//! What members have done between two moments, in units of one server's rate. Not how much they are asked for.

use super::Scenario;
use super::cluster::{ScaleCluster, Totals};

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

/// What came of a rate, or of the largest one at which nobody is overloaded. Rates are in units of one server's.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleOutcome {
    pub throughput: f64,
    /// In the last measurement.
    pub offered: f64,
    pub refused: f64,
    /// Who was the busiest, and how busy.
    pub binding: Binding,
    pub load_max: f64,
    /// Share of the reads that leaves answer.
    pub hit_ratio_leaf: f64,
    pub hit_ratio_spine: f64,
    pub distinct_objects: usize,
    /// All copies, and those of the object that has most.
    pub copies: usize,
    pub copies_most: usize,
    /// That were carried out in all measurements.
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
    totals: Totals,
    hits: Vec<u64>,
    served: Vec<u64>,
    copies: Vec<u64>,
}

/// Between two of them: loads of members as parts of what they can do.
struct ScaleLoads {
    seconds: f64,
    /// Busiest leaf, spine and server.
    leaf: f64,
    spine: f64,
    server: f64,
    nodes: Vec<f64>,
    offered: u64,
    served: u64,
    refused: u64,
    hit_ratio_leaf: f64,
    hit_ratio_spine: f64,
}

impl ScaleCluster {
    pub(super) fn snapshot(&self) -> Snapshot {
        let copies = |own: &super::members::ScaleServer| own.shim.statistics().invalidated_copies;
        Snapshot {
            now: self.now,
            totals: self.totals,
            hits: self.nodes.iter().map(|own| own.hits()).collect(),
            served: self.servers.iter().map(|own| own.shim.statistics().requests).collect(),
            copies: self.servers.iter().map(copies).collect(),
        }
    }

    /// Only what is asked of a member counts, hits at nodes and everything at servers, however long it takes them.
    fn loads_since(&self, before: &Snapshot) -> ScaleLoads {
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
        let servers = served
            .zip(copies)
            .map(|(served, copies)| per_second(served) + per_second(copies) * coherence_cost);
        let most = |loads: &[f64]| loads.iter().copied().fold(0.0, f64::max);
        let offered = after.totals.offered - before.totals.offered;
        let reads = (offered.max(1) as f64) * (1.0 - self.scenario.write_ratio);
        let ratio = |hits: &[u64]| hits.iter().sum::<u64>() as f64 / reads;
        ScaleLoads {
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

    /// The outcome of a measurement since `before`, in which `rate` was asked for.
    pub(super) fn outcome(&self, before: &Snapshot, rate: f64) -> ScaleOutcome {
        let loads = self.loads_since(before);
        let units = |count: u64| count as f64 / loads.seconds / self.server_rate();
        let copies = self.copies();
        ScaleOutcome {
            copies: copies.iter().sum(),
            copies_most: copies.into_iter().max().unwrap_or(0),
            throughput: units(loads.served),
            offered: units(loads.offered),
            refused: units(loads.refused),
            binding: self.binding(&loads, rate),
            load_max: loads.max(),
            hit_ratio_leaf: loads.hit_ratio_leaf,
            hit_ratio_spine: loads.hit_ratio_spine,
            distinct_objects: self.copies().len(),
            requests: self.totals.offered,
        }
    }

    /// Who is the busiest, and whether that is one object's doing.
    fn binding(&self, loads: &ScaleLoads, rate: f64) -> Binding {
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

impl ScaleLoads {
    fn max(&self) -> f64 {
        self.leaf.max(self.spine).max(self.server)
    }
}
