//! What one seed caches where, and how popular the rest is on each server. Not how reads are divided among copies.

use super::elastic::{BASE, ElasticDegrees};
use super::places::CapacityPlaces;
use super::{Accounting, CapacityMetric, CapacityModel, CoherenceUnit, Mechanism, tail};
use crate::Popularity;

/// Ranks that are placed one by one even if nothing of them is cached: the sum of a server's other objects is then
/// close enough to normal for [`tail`].
const LISTED_MIN: u64 = 1 << 16;
const LISTED_PER_SERVER: u64 = 128;

/// Popularities are shares of all requests.
#[derive(Clone, Debug)]
pub struct CopyLayout {
    /// Capacities of the leaves, and then of the spines; of replicated spines together, because they are all alike.
    pub capacities: Vec<f64>,
    /// From the most popular on.
    pub objects: Vec<CachedObject>,
    /// What is not cached, by server.
    pub uncached: Vec<f64>,
    /// What is cached, by server.
    pub cached: Vec<f64>,
    /// The same times what a write to it costs.
    pub write_cost: Vec<f64>,
    /// Live ones.
    pub copies: u64,
    /// What of these is besides an elastic object's leaf and spine.
    pub copies_extra: u64,
    /// Most copies of an object.
    pub degree_max: u32,
    places: Vec<u32>,
}

/// An object with a copy at least.
#[derive(Clone, Copy, Debug)]
pub struct CachedObject {
    pub popularity: f64,
    pub server: u32,
    /// The share of its reads that goes to failed spines as long as nobody knows.
    pub lost: f64,
    places: (u32, u32),
}

/// The copies of one object.
#[derive(Default)]
struct Copies {
    leaves: u32,
    spines: u32,
    /// On failed spines; a write does not reach them.
    failed: u32,
    /// Besides its leaf and its spine.
    extra: u32,
    /// Where it may be read.
    places: Vec<u32>,
    lost: f64,
}

/// The slots that are free.
struct FreeSlots {
    /// By node, leaves before spines.
    free: Vec<u64>,
    left: u64,
}

impl CopyLayout {
    /// `listed` ranks are placed one by one at least.
    pub(super) fn new(
        model: &CapacityModel,
        popularity: &Popularity,
        places: &CapacityPlaces,
        degrees: &ElasticDegrees,
        listed: u64,
    ) -> CopyLayout {
        let servers = model.servers() as usize;
        let mut layout = CopyLayout {
            capacities: capacities(model),
            objects: Vec::new(),
            uncached: vec![0.0; servers],
            cached: vec![0.0; servers],
            write_cost: vec![0.0; servers],
            copies: 0,
            copies_extra: 0,
            degree_max: 0,
            places: Vec::new(),
        };
        let mut slots = FreeSlots::new(model);
        let replicated = replicated(model);
        let mut rank = 0;
        while rank < popularity.objects() && (rank < listed || rank < replicated || slots.left > 0) {
            let (share, server) = (popularity.of(rank), places.server(rank));
            if rank < replicated || slots.left > 0 {
                let copies = slots.fill(model, places, rank, server, degrees.of(share));
                layout.push(model, share, server, &copies);
            } else {
                layout.uncached[server as usize] += share;
            }
            rank += 1;
        }
        let rest = tail::spread(popularity, rank, &places.parts(), places.seed);
        layout.uncached.iter_mut().zip(rest).for_each(|(share, rest)| *share += rest);
        layout
    }

    fn push(&mut self, model: &CapacityModel, share: f64, server: u32, copies: &Copies) {
        if copies.leaves + copies.spines + copies.failed == 0 {
            self.uncached[server as usize] += share;
            return;
        }
        let live = copies.leaves + copies.spines;
        let visits = match model.coherence_unit {
            CoherenceUnit::Copy => live,
            CoherenceUnit::Path => copies.leaves.max(copies.spines),
        };
        self.cached[server as usize] += share;
        self.write_cost[server as usize] += share * (1.0 + model.coherence_cost * f64::from(visits));
        self.copies += u64::from(live);
        self.copies_extra += u64::from(copies.extra);
        self.degree_max = self.degree_max.max(live);
        let start = self.places.len() as u32;
        self.places.extend_from_slice(&copies.places);
        let places = (start, self.places.len() as u32);
        self.objects.push(CachedObject { popularity: share, server, lost: copies.lost, places });
    }

    /// The nodes that may serve reads of a cached object; none if its only copy has failed.
    pub fn places(&self, object: &CachedObject) -> &[u32] {
        &self.places[object.places.0 as usize..object.places.1 as usize]
    }

    /// What each server has to serve, and what that costs it, of one request to the cluster.
    pub fn server_loads(&self, model: &CapacityModel) -> Vec<(f64, f64)> {
        let writes = model.write_ratio;
        let mut loads: Vec<(f64, f64)> = (0..self.uncached.len())
            .map(|server| {
                let uncached = self.uncached[server];
                (uncached + writes * self.cached[server], uncached + writes * self.write_cost[server])
            })
            .collect();
        let stranded = self.objects.iter().filter(|object| object.places.0 == object.places.1);
        for object in stranded {
            // Under accounting C, `lost` says where these reads go as long as nobody knows.
            let lost = if loses_by_copy(model) { object.lost } else { 0.0 };
            let reads = (1.0 - writes) * object.popularity * (1.0 - lost);
            let load = &mut loads[object.server as usize];
            *load = (load.0 + reads, load.1 + reads);
        }
        loads
    }

    /// What crosses each rack's leaf on its way to a server, of one request to the cluster.
    pub fn transit(&self, model: &CapacityModel) -> Vec<f64> {
        let loads = self.server_loads(model);
        let racks = loads.chunks(model.servers_per_rack as usize);
        racks.map(|servers| servers.iter().map(|load| load.0).sum()).collect()
    }
}

/// Whether reads are lost in proportion to copies that failed; see the module's own page.
pub(super) fn loses_by_copy(model: &CapacityModel) -> bool {
    model.metric == CapacityMetric::Goodput && !model.remap && model.accounting == Accounting::C
}

/// How many ranks are to be placed one by one.
pub(super) fn listed(model: &CapacityModel) -> u64 {
    LISTED_MIN.max(LISTED_PER_SERVER * u64::from(model.servers()))
}

/// How many of the hottest objects every spine has.
fn replicated(model: &CapacityModel) -> u64 {
    match model.mechanism {
        Mechanism::ReplicationSlots => model.slots_spine,
        Mechanism::ReplicationDistinct => model.slots_spine.saturating_mul(u64::from(model.spines)),
        _ => 0,
    }
}

fn capacities(model: &CapacityModel) -> Vec<f64> {
    let mut capacities = vec![model.leaf_rate; model.racks as usize];
    match model.mechanism {
        Mechanism::ReplicationSlots | Mechanism::ReplicationDistinct => {
            capacities.push(model.spine_rate * f64::from(model.spines_live()));
        }
        _ => {
            let live = |spine| if spine < model.spines_live() { model.spine_rate } else { 0.0 };
            capacities.extend((0..model.spines).map(live));
        }
    }
    capacities
}

impl FreeSlots {
    fn new(model: &CapacityModel) -> FreeSlots {
        let leaf = if model.mechanism == Mechanism::NoCache { 0 } else { model.slots_leaf };
        let spine = match model.mechanism {
            Mechanism::PartitionSpine | Mechanism::DistCache => model.slots_spine,
            _ => 0,
        };
        let mut free = vec![leaf; model.racks as usize];
        let gone = |index| model.remap && index >= model.spines_live();
        free.extend((0..model.spines).map(|index| if gone(index) { 0 } else { spine }));
        let left = free.iter().fold(0u64, |sum, slots| sum.saturating_add(*slots));
        FreeSlots { free, left }
    }

    fn take(&mut self, node: u32) -> bool {
        let free = &mut self.free[node as usize];
        let there = *free > 0;
        *free -= u64::from(there);
        self.left -= u64::from(there);
        there
    }

    /// The copies of the next object, which is colder than all before it.
    fn fill(
        &mut self,
        model: &CapacityModel,
        places: &CapacityPlaces,
        rank: u64,
        server: u32,
        degree: u32,
    ) -> Copies {
        let leaf = server / model.servers_per_rack;
        let mut copies = Copies::default();
        if self.take(leaf) {
            copies.leaves = 1;
            copies.places.push(leaf);
        }
        match model.mechanism {
            Mechanism::NoCache | Mechanism::PartitionLeaf => {}
            Mechanism::ReplicationSlots | Mechanism::ReplicationDistinct if rank < replicated(model) => {
                copies.places.push(model.racks);
                copies.spines = model.spines_live();
                copies.failed = if model.remap { 0 } else { model.failed_spines };
            }
            Mechanism::ReplicationSlots | Mechanism::ReplicationDistinct => {}
            Mechanism::PartitionSpine | Mechanism::DistCache => {
                let spine = places.spine(rank);
                if self.take(model.racks + spine) {
                    copies.push_spine(model, spine);
                }
                let further = (degree - BASE) as usize;
                for node in if further > 0 { places.further(rank, leaf, spine, further) } else { vec![] } {
                    if self.take(node) {
                        copies.push_further(model, node);
                    }
                }
            }
        }
        let all = copies.leaves + copies.spines + copies.failed;
        if copies.failed > 0 {
            copies.lost = f64::from(copies.failed) / f64::from(all);
        }
        if model.mechanism == Mechanism::PartitionSpine {
            copies.try_spine_first();
        }
        copies
    }
}

impl Copies {
    /// One of an elastic object, in a live node.
    fn push_further(&mut self, model: &CapacityModel, node: u32) {
        let layer = if node < model.racks { &mut self.leaves } else { &mut self.spines };
        *layer += 1;
        self.extra += 1;
        self.places.push(node);
    }

    fn push_spine(&mut self, model: &CapacityModel, spine: u32) {
        if spine >= model.spines_live() {
            self.failed += 1;
            return;
        }
        self.spines += 1;
        self.places.push(model.racks + spine);
    }

    /// The leaf is read if there is no copy in a spine, or none that lives.
    fn try_spine_first(&mut self) {
        if self.spines > 0 && self.leaves > 0 {
            self.places.remove(0);
        }
        self.lost = if self.failed > 0 { 1.0 } else { 0.0 };
    }
}
