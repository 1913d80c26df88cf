//! Equations 6 to 18 of Small Cache, Big Effect, with the natural logarithm. Not an experiment.

use super::SmallCacheError;

/// More back ends than any cluster has; with virtual nodes their list takes at most 400 MB.
pub(super) const NODES_MAX: u64 = 1_000_000;
const VIRTUAL_NODES_MAX: f64 = 100.0;

/// The cluster behind a front-end cache. Rates are normalised by R / n, what each node has when all have the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backends {
    /// n.
    pub nodes: u64,
    /// v, the virtual nodes of a node on average; the weakest nodes have one (section 4.4).
    pub virtual_nodes: f64,
    /// alpha, which says with which confidence the bounds hold (Eq. 6).
    pub alpha: f64,
}

impl Backends {
    pub fn new(nodes: u64, virtual_nodes: f64, alpha: f64) -> Result<Backends, SmallCacheError> {
        if nodes == 0 || nodes > NODES_MAX {
            return Err(SmallCacheError::Nodes(nodes));
        }
        if !(1.0..=VIRTUAL_NODES_MAX).contains(&virtual_nodes) {
            return Err(SmallCacheError::VirtualNodes(virtual_nodes));
        }
        if !(alpha > 0.0 && alpha.is_finite()) {
            return Err(SmallCacheError::Alpha(alpha));
        }
        Ok(Backends { nodes, virtual_nodes, alpha })
    }

    /// n' = v n, the bins of the analysis (Appendix C).
    pub fn bins(&self) -> f64 {
        self.virtual_nodes * self.nodes as f64
    }

    /// n' log n'; (v + v log_n v) n log n is the same number.
    fn spread(&self) -> f64 {
        self.bins() * self.bins().ln()
    }

    /// The cache that a factor k asks for: c = k n log n + 1, and with virtual nodes Eq. 17.
    pub fn cache(&self, factor: f64) -> f64 {
        factor * self.spread() + 1.0
    }

    /// Most of `keys` keys that one bin has (Eq. 6 and, with x - c keys, Eq. 7).
    pub fn keys_max(&self, keys: f64) -> f64 {
        let mean = keys / self.bins();
        mean + self.alpha * (2.0 * mean * self.bins().ln()).sqrt()
    }

    /// The load of the most loaded node when x keys are asked for at one rate and c of them are cached (Eq. 8).
    pub fn load_at(&self, cache: f64, keys: f64) -> f64 {
        if keys <= cache {
            return 0.0;
        }
        self.keys_max(keys - cache) * self.bins() / (keys - 1.0)
    }

    /// The load of the most loaded node whatever is asked for (Eq. 10).
    pub fn load(&self, cache: f64) -> Result<f64, SmallCacheError> {
        Ok((1.0 + self.root(cache)?) / 2.0)
    }

    /// What the cluster can promise whatever is asked for, in rates of a node of average capacity (Eq. 12).
    pub fn throughput(&self, cache: f64) -> Result<f64, SmallCacheError> {
        Ok(self.nodes as f64 / self.load(cache)?)
    }

    /// The number of keys that an adversary chooses (Eq. 14); without end where there is one bin only.
    pub fn worst_x(&self, cache: f64) -> Result<f64, SmallCacheError> {
        Ok(1.0 + 2.0 * (cache - 1.0) * (1.0 + 1.0 / (self.root(cache)? - 1.0)))
    }

    /// The square root of Eq. 9, 10, 12 and 14.
    fn root(&self, cache: f64) -> Result<f64, SmallCacheError> {
        if !(cache > 1.0 && cache.is_finite()) {
            return Err(SmallCacheError::Cache(cache));
        }
        Ok((1.0 + 2.0 * self.alpha.powi(2) * self.spread() / (cache - 1.0)).sqrt())
    }
}

/// The load that a cache of factor k leaves, for any number of nodes (Eq. 11, and Eq. 18 with virtual nodes).
pub fn normalized_load(factor: f64, alpha: f64) -> f64 {
    (1.0 + (1.0 + 2.0 * alpha.powi(2) / factor).sqrt()) / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn backends(nodes: u64) -> Backends {
        Backends::new(nodes, 1.0, 2.0).unwrap()
    }

    fn check(own: f64, due: f64) {
        assert!((own / due - 1.0).abs() < 1e-9, "{own:.15}, not {due:.15}");
    }

    /// Numbers that were computed outside of this program, with 30 digits.
    #[test]
    fn equations_give_what_they_give_elsewhere() {
        let hundred = backends(100);
        check(hundred.load(1000.0).unwrap(), 1.582_569_163_236_608);
        check(hundred.throughput(1000.0).unwrap(), 63.188_391_586_933_21);
        check(hundred.worst_x(1000.0).unwrap(), 3_713.817_850_038_281);
        check(hundred.load_at(1000.0, 2_874.0), 1.566_849_955_389_822_8);
        check(hundred.keys_max(1_874.0), 45.015_599_218_349_61);
        check(hundred.cache(8.0), 3_685.136_148_790_473);
        check(Backends::new(85, 2.5, 2.0).unwrap().cache(8.0), 9_111.201_380_219_602);
        check(normalized_load(8.0, 2.0), 1.207_106_781_186_547_5);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(Backends::new(0, 1.0, 2.0), Err(SmallCacheError::Nodes(0)));
        assert_eq!(Backends::new(9, 0.5, 2.0), Err(SmallCacheError::VirtualNodes(0.5)));
        assert_eq!(Backends::new(9, 1.0, 0.0), Err(SmallCacheError::Alpha(0.0)));
        assert!(Backends::new(9, f64::NAN, 2.0).is_err() && Backends::new(9, 1.0, f64::INFINITY).is_err());
        assert_eq!(backends(9).load(1.0), Err(SmallCacheError::Cache(1.0)));
        assert!(backends(9).worst_x(f64::NAN).is_err() && backends(9).throughput(0.0).is_err());
    }

    #[test]
    fn one_node_has_nothing_to_balance() {
        let one = backends(1);
        assert_eq!((one.load(2.0), one.throughput(2.0), one.cache(8.0)), (Ok(1.0), Ok(1.0), 1.0));
        assert_eq!(one.worst_x(2.0), Ok(f64::INFINITY));
    }

    proptest! {
        #![proptest_config(cases::proptest(256))]

        /// Eq. 10 is the largest value of Eq. 8, and Eq. 14 is where it is.
        #[test]
        fn no_other_x_is_worse(n in 2u64..5000, v in 1.0..10.0f64, c in 2.0..1e6f64, other in 1e-3..1e3f64) {
            let backends = Backends::new(n, v, 2.0).unwrap();
            let (load, x) = (backends.load(c).unwrap(), backends.worst_x(c).unwrap());
            prop_assert!((backends.load_at(c, x) / load - 1.0).abs() < 1e-9);
            prop_assert!(backends.load_at(c, c + (x - c) * other) <= load * (1.0 + 1e-12));
        }

        /// Eq. 11 and Eq. 18 are Eq. 10 with the cache of Eq. 17, and Eq. 17 is as the paper writes it.
        #[test]
        fn a_factor_means_the_same_load_for_any_cluster(n in 2u64..5000, v in 1.0..10.0f64, k in 0.1..50.0f64) {
            let backends = Backends::new(n, v, 2.0).unwrap();
            let load = backends.load(backends.cache(k)).unwrap();
            prop_assert!((load / normalized_load(k, 2.0) - 1.0).abs() < 1e-9);
            let nodes = n as f64;
            let written = (v + v * v.ln() / nodes.ln()) * k * nodes * nodes.ln() + 1.0;
            prop_assert!((backends.cache(k) / written - 1.0).abs() < 1e-9);
        }
    }
}
