//! The largest alpha that a policy can carry for good, computed from rates and places. Not simulated.

use super::{LayeredModel, RoutingPolicy};
use crate::flow::Graph;

/// Nodes that are full, by the objects that must be served there.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// Objects, and which part of each.
    objects: Vec<(usize, f64)>,
    capacity: f64,
}

/// The largest share of all rates for one seed, exact to rounding. Two choices are stationary below what a matching allows (lemma 2), so that both
/// have the same.
pub fn alpha_max(model: &LayeredModel, policy: RoutingPolicy, seed: u64) -> f64 {
    let places = model.places(policy, seed);
    let mut alpha = model.alpha_bound();
    // With rates that grow with alpha, each violated constraint gives a lower alpha, until none is violated. There are
    // finitely many constraints, and without a cap on rates the first one is the last.
    loop {
        let rates = model.rates(alpha).expect("the bound is below the cap of all objects");
        let violated = match policy {
            RoutingPolicy::Matching | RoutingPolicy::TwoChoices => cut(model, &places, &rates),
            RoutingPolicy::RandomOfTwo | RoutingPolicy::OneHash | RoutingPolicy::OneHashOverAll => {
                fullest(model, policy, &places, &rates)
            }
        };
        let Some(constraint) = violated else { return alpha };
        let next = constraint.alpha(model, alpha);
        if !model.cap_half || next >= alpha * (1.0 - 1e-12) {
            return next;
        }
        alpha = next;
    }
}

/// The nodes that limit a maximum flow; none if everything is carried.
fn cut(model: &LayeredModel, places: &[u32], rates: &[f64]) -> Option<Constraint> {
    let capacities = model.capacities();
    let mut graph = Graph::new(capacities.clone());
    let of = places.chunks(places.len() / rates.len());
    of.clone().zip(rates).for_each(|(places, &rate)| graph.add(places, rate));
    let scale = graph.max_scale();
    if scale.factor >= 1.0 - 1e-12 {
        return None;
    }
    let mut inside = vec![false; capacities.len()];
    scale.binding.iter().for_each(|&node| inside[node as usize] = true);
    let only = |places: &[u32]| places.iter().all(|&place| inside[place as usize]);
    let objects = of.enumerate().filter(|(_, places)| only(places)).map(|(object, _)| (object, 1.0));
    let capacity = scale.binding.iter().map(|&node| capacities[node as usize]).sum();
    Some(Constraint { objects: objects.collect(), capacity })
}

/// The fullest node when every object is spread over its places evenly; none if it is not too full.
fn fullest(model: &LayeredModel, policy: RoutingPolicy, places: &[u32], rates: &[f64]) -> Option<Constraint> {
    let count = model.places_count(policy);
    let part = 1.0 / count as f64;
    let capacities = model.capacities();
    let mut loads = vec![0.0; capacities.len()];
    for (&place, index) in places.iter().zip(0..) {
        loads[place as usize] += rates[index / count] * part;
    }
    let fill = |node: &usize| loads[*node] / capacities[*node];
    let node = (0..loads.len()).max_by(|a, b| fill(a).total_cmp(&fill(b)))?;
    if fill(&node) <= 1.0 + 1e-12 {
        return None;
    }
    let there = places.iter().zip(0..).filter(|(place, _)| **place as usize == node);
    let objects = there.map(|(_, index)| (index / count, part)).collect();
    Some(Constraint { objects, capacity: capacities[node] })
}

impl Constraint {
    /// The largest alpha up to `high` at which it holds.
    fn alpha(&self, model: &LayeredModel, high: f64) -> f64 {
        let rate = |alpha: f64| {
            let rates = model.rates(alpha).expect("below one at which there were rates");
            self.objects.iter().map(|&(object, part)| rates[object] * part).sum::<f64>()
        };
        if !model.cap_half {
            return high * self.capacity / rate(high);
        }
        let (mut low, mut high) = (0.0, high);
        while high - low > 1e-13 * high {
            let middle = f64::midpoint(low, high);
            if middle <= low || middle >= high {
                break;
            }
            if rate(middle) <= self.capacity { low = middle } else { high = middle }
        }
        low
    }
}
