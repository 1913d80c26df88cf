//! Keys thrown on the back ends at random, with the exact rate of each: no queries are drawn, and no bound is used.

use rand::RngExt;

use super::Backends;
use crate::popularity::Popularity;
use crate::seeds;

/// Keeps placements apart from other random numbers of the same seed.
const PLACES: u64 = 0x534d_414c;
/// Up to so many probabilities are computed once instead of in every run; they take 128 MiB.
const LISTED_MAX: u64 = 1 << 24;

/// A cluster behind a cache, and what it is asked for.
#[derive(Clone, Debug)]
pub struct Experiment {
    backends: Backends,
    popularity: Popularity,
    cached: u64,
    /// Virtual nodes of each node.
    virtual_nodes: Vec<u32>,
    /// The node of each virtual one.
    owners: Vec<u32>,
    /// Probabilities of the first objects that are not cached.
    listed: Vec<f64>,
}

/// One placement of all keys.
#[derive(Clone, Debug, PartialEq)]
pub struct BinsOutcome {
    /// Load of each node, relative to what it would have of all requests if every node had by its capacity.
    pub loads: Vec<f64>,
}

/// What saturates the most loaded node, in requests/s or whatever the nodes' rate was given in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    pub cache: f64,
    pub backends: f64,
}

impl Experiment {
    /// The `cached` most popular objects never reach a node (perfect caching, section 4.1).
    pub fn new(backends: Backends, popularity: Popularity, cached: u64) -> Experiment {
        let virtual_nodes = shares(backends);
        let own = |(node, &count): (usize, &u32)| std::iter::repeat_n(node as u32, count as usize);
        let owners = virtual_nodes.iter().enumerate().flat_map(own).collect();
        let end = popularity.objects().min(cached.saturating_add(LISTED_MAX));
        let listed = (cached..end).map(|rank| popularity.of(rank)).collect();
        Experiment { backends, popularity, cached, virtual_nodes, owners, listed }
    }

    /// Places every object that is not cached on a virtual node of its own choice.
    pub fn run(&self, seed: u64) -> BinsOutcome {
        let mut random = seeds::random(seed, PLACES);
        let mut rates = vec![0.0; self.virtual_nodes.len()];
        let bins = self.owners.len() as u32;
        let mut place = |rate: f64| {
            let bin = random.random_range(0..bins);
            rates[self.owners[bin as usize] as usize] += rate;
        };
        self.listed.iter().for_each(|rate| place(*rate));
        let behind = self.cached.saturating_add(self.listed.len() as u64);
        (behind..self.popularity.objects()).for_each(|rank| place(self.popularity.of(rank)));
        let fair = |&count: &u32| f64::from(count) / f64::from(bins);
        let loads = rates.iter().zip(&self.virtual_nodes).map(|(rate, count)| rate / fair(count)).collect();
        BinsOutcome { loads }
    }

    /// Runs of seeds from `first` on, on every core, in their order.
    pub fn runs(&self, first: u64, count: usize) -> Vec<BinsOutcome> {
        seeds::each(first, count, |seed| self.run(seed))
    }

    /// How much can be asked for before the most loaded node is asked for more than it can; none where no request reaches a node.
    /// `rate` is that of a node of average capacity.
    pub fn throughput(&self, outcome: &BinsOutcome, rate: f64) -> Option<Throughput> {
        let load = outcome.max_load();
        let all = self.backends.nodes as f64 * rate / load;
        let cache = all * self.hit_ratio();
        (load > 0.0).then_some(Throughput { cache, backends: all - cache })
    }

    /// The share of all requests that the cache answers.
    pub fn hit_ratio(&self) -> f64 {
        self.popularity.mass(0, self.cached)
    }
}

impl BinsOutcome {
    pub fn max_load(&self) -> f64 {
        self.loads.iter().copied().fold(0.0, f64::max)
    }

    /// Nodes that nothing is asked of.
    pub fn idle(&self) -> usize {
        self.loads.iter().filter(|load| **load == 0.0).count()
    }
}

/// Virtual nodes of each node: every second one is weakest and has one, the others share the rest.
fn shares(backends: Backends) -> Vec<u32> {
    let nodes = backends.nodes as usize;
    let mut shares = vec![1; nodes];
    let strong: Vec<usize> = (0..nodes).filter(|node| node % 2 == 0).collect();
    let rest = backends.bins().round() as usize - nodes;
    for (place, node) in strong.iter().enumerate() {
        shares[*node] += (rest / strong.len() + usize::from(place < rest % strong.len())) as u32;
    }
    shares
}

#[cfg(test)]
mod tests {
    use trace::Distribution;

    use super::*;

    fn experiment(nodes: u64, virtual_nodes: f64, law: Distribution, keys: u64, cached: u64) -> Experiment {
        let backends = Backends::new(nodes, virtual_nodes, 2.0).unwrap();
        Experiment::new(backends, Popularity::new(law, keys).unwrap(), cached)
    }

    #[test]
    fn all_that_misses_the_cache_is_on_some_node() {
        for (law, cached) in [
            (Distribution::Uniform, 0),
            (Distribution::Zipf(1.01), 100),
            (Distribution::Adversary(500), 499),
            (Distribution::Adversary(500), 500),
        ] {
            for virtual_nodes in [1.0, 2.6] {
                let experiment = experiment(7, virtual_nodes, law, 1000, cached);
                let bins: u32 = experiment.virtual_nodes.iter().sum();
                assert_eq!(f64::from(bins), (7.0 * virtual_nodes).round());
                let outcome = experiment.run(1);
                let share = |(load, &count): (&f64, &u32)| load * f64::from(count) / f64::from(bins);
                let rate: f64 = outcome.loads.iter().zip(&experiment.virtual_nodes).map(share).sum();
                assert!((rate + experiment.hit_ratio() - 1.0).abs() < 1e-9, "{law:?}: {rate}");
            }
        }
    }

    #[test]
    fn one_key_saturates_one_node_and_a_cached_one_none() {
        let one = experiment(10, 1.0, Distribution::Adversary(1), 1000, 0);
        let outcome = one.run(3);
        assert_eq!((outcome.max_load(), outcome.idle()), (10.0, 9));
        assert_eq!(one.throughput(&outcome, 500.0), Some(Throughput { cache: 0.0, backends: 500.0 }));
        let cached = experiment(10, 1.0, Distribution::Adversary(1), 1000, 1);
        assert_eq!((cached.run(3).max_load(), cached.run(3).idle()), (0.0, 10));
        assert_eq!(cached.throughput(&cached.run(3), 500.0), None);
    }

    #[test]
    fn weak_nodes_have_one_virtual_node_and_a_load_of_their_capacity() {
        let shares = |nodes, v| shares(Backends::new(nodes, v, 2.0).unwrap());
        assert_eq!(shares(4, 1.0), [1, 1, 1, 1]);
        assert_eq!(shares(4, 3.0), [5, 1, 5, 1]);
        assert_eq!(shares(3, 2.0), [3, 1, 2]);
        let outcome = experiment(4, 3.0, Distribution::Uniform, 1_000_000, 0).run(1);
        assert!(outcome.loads.iter().all(|load| (load - 1.0).abs() < 0.02), "{outcome:?}");
    }

    #[test]
    fn placements_depend_on_the_seed_and_nothing_else() {
        let experiment = experiment(5, 1.0, Distribution::Adversary(20), 1000, 3);
        let runs = experiment.runs(9, 8);
        assert_eq!(runs, experiment.runs(9, 8));
        assert_ne!(runs[0], runs[1]);
        let counts: Vec<u32> = runs[0].loads.iter().map(|load| (load * 4.0).round() as u32).collect();
        assert_eq!(counts, [5, 4, 5, 1, 2]);
    }
}
