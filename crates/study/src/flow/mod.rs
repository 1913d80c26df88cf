//! What nodes of given capacities can carry when each object may only go to its own places: exact, by maximum flow.
//! Not how requests find their way.
//!
//! Rates are whole multiples of 2^-60 of all rates together, so that flows add up exactly and the search ends for sure;
//! a result is good to 1e-9, and in practice to rounding. The nodes that limit a flow are found as its minimum cut, and
//! the largest factor by Dinkelbach's method: from a bound that is too high, each cut gives the next lower one.

mod network;
mod push;
#[cfg(test)]
mod tests;

use network::FlowNetwork;

/// Nodes and the objects that go to them.
#[derive(Clone, Debug)]
pub struct Graph {
    capacities: Vec<f64>,
    /// The places of all objects, one object after the other, and where each object's end.
    places: Vec<u32>,
    ends: Vec<usize>,
    rates: Vec<f64>,
    network: Option<FlowNetwork>,
}

/// How far all rates can grow together.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowScale {
    /// The largest number by which all rates can be multiplied; infinite if there are none.
    pub factor: f64,
    /// Nodes that are full then, with nothing in them that could go elsewhere; ascending.
    pub binding: Vec<u32>,
}

/// The most that the nodes can carry of given rates.
#[derive(Clone, Debug, PartialEq)]
pub struct CarriedFlow {
    pub carried: f64,
    /// Load of each node.
    pub loads: Vec<f64>,
}

impl Graph {
    /// A node of capacity 0 is there and carries nothing.
    pub fn new(capacities: Vec<f64>) -> Graph {
        let valid = |capacity: &f64| capacity.is_finite() && *capacity >= 0.0;
        assert!(capacities.iter().all(valid), "capacities are numbers from 0");
        Graph { capacities, places: Vec::new(), ends: Vec::new(), rates: Vec::new(), network: None }
    }

    /// An object that any of `places` can serve. A place that is named twice counts once.
    pub fn add(&mut self, places: &[u32], rate: f64) {
        assert!(rate.is_finite() && rate >= 0.0, "rates are numbers from 0");
        assert!(!places.is_empty(), "an object has a place");
        let start = self.places.len();
        self.places.extend_from_slice(places);
        self.places[start..].sort_unstable();
        assert!((self.places[self.places.len() - 1] as usize) < self.capacities.len(), "places are nodes");
        let mut end = start + 1;
        for index in start + 1..self.places.len() {
            if self.places[index] != self.places[end - 1] {
                self.places[end] = self.places[index];
                end += 1;
            }
        }
        self.places.truncate(end);
        self.ends.push(end);
        self.rates.push(rate);
        self.network = None;
    }

    /// All rates together.
    pub fn rate(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// The largest factor by which all rates can be multiplied and still be carried.
    pub fn max_scale(&mut self) -> FlowScale {
        let (capacities, network) = self.network();
        let Some(mut best) = first_bound(capacities, network) else {
            return FlowScale { factor: f64::INFINITY, binding: Vec::new() };
        };
        while best.factor > 0.0 {
            network.set_capacities(capacities, best.factor);
            push::run(network);
            let Some(set) = push::tightest(network) else { break };
            let factor = ratio(capacities, network, &set);
            // Below this, a cut differs from the last one by rounding alone.
            if factor >= best.factor * (1.0 - 1e-13) {
                break;
            }
            best = FlowScale { factor, binding: set };
        }
        best
    }

    /// The most that can be carried when all rates are multiplied by `scale`, and one way to carry it.
    pub fn max_flow(&mut self, scale: f64) -> CarriedFlow {
        assert!(scale.is_finite() && scale >= 0.0, "a scale is a number from 0");
        let (capacities, network) = self.network();
        if scale == 0.0 || network.whole == 0.0 {
            return CarriedFlow { carried: 0.0, loads: vec![0.0; capacities.len()] };
        }
        network.set_capacities(capacities, scale);
        push::run(network);
        let load = |(load, capacity): (&i64, &i64)| *load.min(capacity) as f64 / network.units * scale;
        let loads: Vec<f64> = network.loads.iter().zip(&network.capacities).map(load).collect();
        CarriedFlow { carried: loads.iter().sum(), loads }
    }

    fn network(&mut self) -> (&[f64], &mut FlowNetwork) {
        if self.network.is_none() {
            let mut network = FlowNetwork::new(self.capacities.len(), &self.places, &self.ends, &self.rates);
            network.balance(&self.capacities);
            self.network = Some(network);
        }
        (&self.capacities, self.network.as_mut().expect("there is one now"))
    }
}

/// What the places of one object, or all nodes together, allow; none if nothing is asked for.
fn first_bound(capacities: &[f64], network: &FlowNetwork) -> Option<FlowScale> {
    if network.whole == 0.0 {
        return None;
    }
    let asked = |node: &u32| !network.slots_of(*node as usize).is_empty();
    let all: Vec<u32> = (0..capacities.len() as u32).filter(asked).collect();
    let factor = capacity(capacities, &all) / network.whole;
    let mut best = FlowScale { factor, binding: all };
    for object in 0..network.objects() {
        let (places, rate) = (network.places(object), network.rates[object]);
        if rate > 0.0 && capacity(capacities, places) < best.factor * rate {
            best = FlowScale { factor: capacity(capacities, places) / rate, binding: places.to_vec() };
        }
    }
    Some(best)
}

fn capacity(capacities: &[f64], nodes: &[u32]) -> f64 {
    nodes.iter().map(|&node| capacities[node as usize]).sum()
}

/// The capacity of the nodes by the rate of all objects that can go nowhere else.
fn ratio(capacities: &[f64], network: &FlowNetwork, set: &[u32]) -> f64 {
    let mut inside = vec![false; capacities.len()];
    set.iter().for_each(|&node| inside[node as usize] = true);
    let only = |&object: &usize| network.places(object).iter().all(|&place| inside[place as usize]);
    let rate: f64 = (0..network.objects()).filter(only).map(|object| network.rates[object]).sum();
    capacity(capacities, set) / rate
}
