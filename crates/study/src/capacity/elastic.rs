//! How many copies the hottest objects get, by the product's rule, and the rate at which rule and capacity agree. Not where they are.

use protocol::placement::elastic::{COHERENCE_SHARE, Demand, places_of};

use super::places::CapacityPlaces;
use super::saturation::saturate;
use super::{CapacityMetric, CapacityModel, CopyLayout, SeedOutcome, layout};
use crate::Popularity;

/// One copy in each layer.
pub(super) const BASE: u32 = 2;
/// Rounds in which the rate that comes out is tried next; it settles in two to five, where it settles at all.
const ROUNDS: u32 = 8;
/// Where a step more makes it carry less than it was made for, the rate is known to this proportion.
const NEAR: f64 = 1e-3;

/// How many places an object has when the cluster serves some rate: a step of the product's ladder and no more than there are
/// nodes. Those that have failed are found to be none later.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElasticDegrees {
    /// How many nodes one object would keep busy that had all requests; nothing where no copies are elastic.
    nodes_busy: f64,
    write_ratio: f64,
    /// Invalidations of copies for which its server has time, for each request to one object that had all.
    invalidations_max: f64,
    nodes: usize,
}

impl ElasticDegrees {
    pub(super) fn at(model: &CapacityModel, rate: f64) -> ElasticDegrees {
        let node_rate = model.leaf_rate.min(model.spine_rate);
        let reads = if model.elastic { rate * (1.0 - model.write_ratio) } else { 0.0 };
        ElasticDegrees {
            nodes_busy: reads / node_rate,
            write_ratio: model.write_ratio,
            invalidations_max: COHERENCE_SHARE * model.server_rate / (model.coherence_cost * rate),
            nodes: (model.racks + model.spines) as usize,
        }
    }

    pub(super) fn of(&self, popularity: f64) -> u32 {
        let demand = Demand {
            nodes: popularity * self.nodes_busy,
            hits: 1.0 - self.write_ratio,
            invalidations: self.write_ratio,
            invalidations_max: self.invalidations_max / popularity,
        };
        let degree = demand.degree(BASE as usize, usize::MAX);
        (places_of(degree).min(self.nodes) as u32).max(BASE)
    }

    /// Whether no object has another number of places.
    fn are(&self, other: &ElasticDegrees, popularity: &Popularity) -> bool {
        let both = |rank| {
            let share = popularity.of(rank);
            (self.of(share), other.of(share))
        };
        let mut all = (0..popularity.objects()).map(both).take_while(|both| *both != (BASE, BASE));
        all.all(|(own, other)| own == other)
    }
}

/// One seed's layout and what it saturates at, with the copies for the offered rate or, if there is none, for that very
/// throughput.
pub(super) fn settle(
    model: &CapacityModel,
    popularity: &Popularity,
    places: &CapacityPlaces,
) -> (CopyLayout, SeedOutcome) {
    let saturation = CapacityModel { metric: CapacityMetric::Saturation, ..model.clone() };
    let run = |rate: f64| {
        let degrees = ElasticDegrees::at(model, rate);
        let layout = CopyLayout::new(model, popularity, places, &degrees, layout::listed(model));
        let outcome = saturate(&saturation, &layout);
        (layout, outcome)
    };
    if !model.elastic || model.offered.is_some() || model.metric == CapacityMetric::Goodput {
        return run(model.target());
    }
    let base = run(0.0);
    // The rate of a fixed point if there is one: more copies carry more, until colder objects have lost too many slots.
    let (mut rate, mut low, mut high) = (base.1.bound, 0.0, model.capacity());
    let mut best = base;
    for round in 0.. {
        let found = run(rate);
        let carried = found.1.throughput;
        if ElasticDegrees::at(model, rate).are(&ElasticDegrees::at(model, carried), popularity) {
            return found;
        }
        if carried < rate {
            high = rate;
        } else {
            (low, best) = (rate, found);
        }
        if high <= low * (1.0 + NEAR) {
            break;
        }
        let repeats = round < ROUNDS && low < carried && carried < high;
        rate = if repeats { carried } else { (low + high) / 2.0 };
    }
    best.1.throughput = low;
    best
}
