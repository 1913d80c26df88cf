//! The model of DistCache's section 3.2: layers of nodes, hot objects, one hash per layer. Not how requests choose.
//!
//! The unit of rates is the throughput T of a node of layer 0, and alpha = R / (m T) is counted by that layer's m nodes.
//! So two equal layers can carry an alpha of 2 at the very most.

mod optimum;
#[cfg(test)]
mod tests;

use rand::RngExt;

use crate::{Popularity, PopularityError, seeds};

pub use optimum::{Constraint, alpha_max};

/// Most nodes in all, because the product numbers them with 16 bits.
pub const NODES_MAX: u64 = 65_535;
/// Most objects. Each has an entry in memory per layer.
pub const OBJECTS_MAX: u64 = 10_000_000;
/// The condition of the theorem: no object has more than this part of a node's throughput.
pub const HALF: f64 = 0.5;

/// What decides at which of its places a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingPolicy {
    /// The best that there is: a perfect matching.
    Matching,
    /// The place with the shortest queue, of as many as there are layers.
    TwoChoices,
    /// Any place, each as often.
    RandomOfTwo,
    /// The place in layer 0.
    OneHash,
    /// One place among the nodes of all layers, as in the proof of lemma 3.
    OneHashOverAll,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelLayer {
    pub nodes: u32,
    /// Throughput of each, in those of a node of layer 0.
    pub rate: f64,
}

/// Layers and how popular each object is, from the hottest on.
#[derive(Clone, Debug)]
pub struct LayeredModel {
    layers: Vec<ModelLayer>,
    probabilities: Vec<f64>,
    /// What each rank and all behind it have together.
    tails: Vec<f64>,
    cap_half: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("{0} layers; there must be 1 to 4")]
    Layers(usize),
    #[error("a layer has {0} nodes; each needs at least one, and all together may have {NODES_MAX}")]
    Nodes(u64),
    #[error("a node's rate of {0}; it must be above 0")]
    NodeRate(f64),
    #[error("{0} objects; there must be 1 to {OBJECTS_MAX}")]
    Objects(u64),
    #[error(
        "a rate of {alpha}: {objects} objects of at most T/2 each cannot have more than {most} m T together; \
         take more objects, a lower rate or no cap"
    )]
    Capped { alpha: f64, objects: usize, most: f64 },
    #[error(transparent)]
    Popularity(#[from] PopularityError),
}

impl LayeredModel {
    /// `cap_half` clips every object's rate to T/2 and gives the excess to the others in proportion.
    pub fn new(
        layers: Vec<ModelLayer>,
        popularity: &Popularity,
        cap_half: bool,
    ) -> Result<LayeredModel, ModelError> {
        if !(1..=4).contains(&layers.len()) {
            return Err(ModelError::Layers(layers.len()));
        }
        let all: u64 = layers.iter().map(|layer| u64::from(layer.nodes)).sum();
        if all > NODES_MAX || layers.iter().any(|layer| layer.nodes == 0) {
            return Err(ModelError::Nodes(if all > NODES_MAX { all } else { 0 }));
        }
        if let Some(layer) = layers.iter().find(|layer| !layer.rate.is_finite() || layer.rate <= 0.0) {
            return Err(ModelError::NodeRate(layer.rate));
        }
        if popularity.objects() > OBJECTS_MAX {
            return Err(ModelError::Objects(popularity.objects()));
        }
        let probabilities = popularity.head(OBJECTS_MAX);
        let mut tails = probabilities.clone();
        for rank in (1..tails.len()).rev() {
            tails[rank - 1] += tails[rank];
        }
        Ok(LayeredModel { layers, probabilities, tails, cap_half })
    }

    pub fn layers(&self) -> &[ModelLayer] {
        &self.layers
    }

    pub fn objects(&self) -> usize {
        self.probabilities.len()
    }

    /// Throughput of every node, layer after layer.
    pub fn capacities(&self) -> Vec<f64> {
        let of = |layer: &ModelLayer| std::iter::repeat_n(layer.rate, layer.nodes as usize);
        self.layers.iter().flat_map(of).collect()
    }

    /// What no policy can exceed: all nodes busy, or all objects at their cap.
    pub fn alpha_bound(&self) -> f64 {
        let whole: f64 = self.layers.iter().map(|layer| f64::from(layer.nodes) * layer.rate).sum();
        let capped = if self.cap_half { HALF * self.objects() as f64 } else { f64::INFINITY };
        whole.min(capped) / f64::from(self.layers[0].nodes)
    }

    /// The rate of each object when all have alpha m T together.
    pub fn rates(&self, alpha: f64) -> Result<Vec<f64>, ModelError> {
        let whole = alpha * f64::from(self.layers[0].nodes);
        if !self.cap_half {
            return Ok(self.probabilities.iter().map(|probability| probability * whole).collect());
        }
        let objects = self.objects();
        let most = HALF * objects as f64;
        if whole > most * (1.0 + 1e-12) {
            return Err(ModelError::Capped { alpha, objects, most: most / f64::from(self.layers[0].nodes) });
        }
        // The hottest are clipped, as many as it takes until the next one stays below.
        let factor = |clipped: usize| (whole - HALF * clipped as f64) / self.tails[clipped];
        let clipped = (0..objects)
            .find(|&clipped| factor(clipped) * self.probabilities[clipped] <= HALF)
            .unwrap_or(objects);
        let rest = if clipped < objects { factor(clipped).max(0.0) } else { 0.0 };
        let rate = |(rank, probability)| if rank < clipped { HALF } else { probability * rest };
        Ok(self.probabilities.iter().enumerate().map(rate).collect())
    }

    /// How many places an object has under a policy.
    pub fn places_count(&self, policy: RoutingPolicy) -> usize {
        match policy {
            RoutingPolicy::OneHash | RoutingPolicy::OneHashOverAll => 1,
            RoutingPolicy::Matching | RoutingPolicy::TwoChoices | RoutingPolicy::RandomOfTwo => {
                self.layers.len()
            }
        }
    }

    /// The places of all objects, one object after the other, by the hashes of one seed. They are the same for all
    /// policies, except that `OneHashOverAll` has a hash of its own.
    pub fn places(&self, policy: RoutingPolicy, seed: u64) -> Vec<u32> {
        let mut random = seeds::random(seed, u64::from(policy == RoutingPolicy::OneHashOverAll));
        if policy == RoutingPolicy::OneHashOverAll {
            let nodes: u32 = self.layers.iter().map(|layer| layer.nodes).sum();
            return self.probabilities.iter().map(|_| random.random_range(0..nodes)).collect();
        }
        let count = self.places_count(policy);
        let mut places = Vec::with_capacity(self.objects() * count);
        for _ in 0..self.objects() {
            let mut first = 0;
            for (index, layer) in self.layers.iter().enumerate() {
                let place = first + random.random_range(0..layer.nodes);
                if index < count {
                    places.push(place);
                }
                first += layer.nodes;
            }
        }
        places
    }
}
