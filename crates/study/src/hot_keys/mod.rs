//! MBalancer's analysis: how unevenly keys of Zipf's law load memcached servers, and what copies of the hottest keys on all
//! servers of a group change. Probabilities are exact; only where keys are is drawn.

mod balance;
mod keys;

use protocol::placement::MapError;

use crate::popularity::{Popularity, PopularityError};
use crate::seeds;
use balance::{ServerLoads, mean};
pub use keys::HotKeysPlacing;
use keys::KeyServers;

/// Hot keys are meant to be few, because each takes rules in a switch; the search for a threshold ends here.
pub const HOT_SEARCHED_MAX: u64 = 1 << 16;
/// Numbers of servers fit into the identifiers of the product.
const SERVERS_MAX: u32 = 1 << 15;
const RUNS_MAX: u32 = 1 << 20;

/// What is examined.
#[derive(Clone, Debug)]
pub struct HotKeysSetting {
    /// n.
    pub servers: u32,
    /// Popularity of the N keys.
    pub popularity: Popularity,
    /// H, the most popular keys, of which all servers of a group have copies.
    pub hot: u64,
    /// G, parts of the servers, of equal size or one apart.
    pub groups: u32,
    /// The imbalance factor to reach with as few hot keys as possible.
    pub threshold: f64,
    pub placing: HotKeysPlacing,
    pub runs: u32,
    pub seed: u64,
}

/// Means over all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKeysOutcome {
    pub with_copies: Balance,
    pub plain: Balance,
    /// The hot keys are moved, each to the server that has the least load then, and none is copied.
    pub moved: Balance,
    /// The share of all requests that are for hot keys.
    pub hot_share: f64,
    /// The fewest hot keys that reach the threshold; `None` where no number up to HOT_SEARCHED_MAX does.
    pub hot_min: Option<u64>,
    /// Servers that take parts of the busiest ones' load until none is busier than with copies, which is when they serve
    /// as much: the factor as a normalised throughput. None where that never is.
    pub servers_to_add: Option<f64>,
    /// The same until the factor with the average over all servers, added ones too, is that of copies.
    pub servers_to_add_for_factor: Option<f64>,
}

/// How even the servers' loads are (section III).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    /// The average load over the largest.
    pub imbalance_factor: f64,
    /// Its standard deviation over the runs.
    pub imbalance_factor_sd: f64,
    /// Jain's fairness index.
    pub jain: f64,
    /// The coefficient of variation.
    pub cv: f64,
}

/// Why there is nothing to examine.
#[derive(Debug, thiserror::Error)]
pub enum HotKeysError {
    #[error(transparent)]
    Popularity(#[from] PopularityError),
    #[error("{0} servers; there must be 1 to {SERVERS_MAX}")]
    Servers(u32),
    #[error("{groups} groups of {servers} servers; there must be 1 to {servers}")]
    Groups { groups: u32, servers: u32 },
    #[error("a threshold of {0}; an imbalance factor is above 0 and at most 1")]
    Threshold(f64),
    #[error("{0} runs; there must be 1 to {RUNS_MAX}")]
    Runs(u32),
    #[error("the product's pool cannot be built: {0}")]
    Pool(#[from] MapError),
}

impl HotKeysSetting {
    pub fn evaluate(&self) -> Result<HotKeysOutcome, HotKeysError> {
        self.check()?;
        let runs = seeds::each(self.seed, self.runs as usize, |seed| self.run(seed));
        let runs = runs.into_iter().collect::<Result<Vec<HotKeysRun>, HotKeysError>>()?;
        let added = |added: fn(&HotKeysRun) -> Option<u64>| {
            let all: Option<Vec<f64>> = runs.iter().map(|run| added(run).map(|added| added as f64)).collect();
            all.map(|all| mean(all.into_iter()))
        };
        Ok(HotKeysOutcome {
            with_copies: Balance::of(&runs, |run| &run.with_copies),
            plain: Balance::of(&runs, |run| &run.plain),
            moved: Balance::of(&runs, |run| &run.moved),
            hot_share: self.popularity.mass(0, self.hot),
            hot_min: self.hot_min()?,
            servers_to_add: added(|run| run.added),
            servers_to_add_for_factor: added(|run| run.added_for_factor),
        })
    }

    /// The fewest hot keys whose mean imbalance factor is the threshold or more.
    pub fn hot_min(&self) -> Result<Option<u64>, HotKeysError> {
        self.check()?;
        let runs = seeds::each(self.seed, self.runs as usize, |seed| {
            let keys = KeyServers::new(self, seed)?;
            Ok((ServerLoads::plain(self, keys.clone()), keys))
        });
        let mut runs = runs.into_iter().collect::<Result<Vec<_>, HotKeysError>>()?;
        for hot in 0..=self.popularity.objects().min(HOT_SEARCHED_MAX) {
            // Sums in another order must not hide what is reached exactly.
            if mean(runs.iter().map(|(loads, _)| loads.factor())) >= self.threshold - 1e-12 {
                return Ok(Some(hot));
            }
            for (loads, keys) in &mut runs {
                loads.copy(keys.next_server(), self.popularity.of(hot));
            }
        }
        Ok(None)
    }

    fn run(&self, seed: u64) -> Result<HotKeysRun, HotKeysError> {
        let keys = KeyServers::new(self, seed)?;
        let plain = ServerLoads::plain(self, keys.clone());
        let (mut with_copies, mut servers) = (plain.clone(), keys.clone());
        for rank in 0..self.hot.min(self.popularity.objects()) {
            with_copies.copy(servers.next_server(), self.popularity.of(rank));
        }
        let moved = self.moved(&plain, keys);
        let added = plain.servers_to_add(with_copies.largest());
        let added_for_factor = plain.servers_to_add_for_factor(with_copies.factor());
        Ok(HotKeysRun { with_copies, plain, moved, added, added_for_factor })
    }

    /// Takes the hot keys away and puts each, the hottest first, where there is least load.
    fn moved(&self, plain: &ServerLoads, mut keys: KeyServers) -> ServerLoads {
        let mut moved = plain.clone();
        let hot = self.popularity.head(self.hot);
        hot.iter().for_each(|rate| moved.take(keys.next_server(), *rate));
        hot.iter().for_each(|rate| moved.give(*rate));
        moved
    }

    fn check(&self) -> Result<(), HotKeysError> {
        let servers = self.servers;
        if servers == 0 || servers > SERVERS_MAX {
            return Err(HotKeysError::Servers(servers));
        }
        if self.groups == 0 || self.groups > servers {
            return Err(HotKeysError::Groups { groups: self.groups, servers });
        }
        if !(self.threshold > 0.0 && self.threshold <= 1.0) {
            return Err(HotKeysError::Threshold(self.threshold));
        }
        if self.runs == 0 || self.runs > RUNS_MAX {
            return Err(HotKeysError::Runs(self.runs));
        }
        Ok(())
    }
}

struct HotKeysRun {
    with_copies: ServerLoads,
    plain: ServerLoads,
    moved: ServerLoads,
    added: Option<u64>,
    added_for_factor: Option<u64>,
}

impl Balance {
    fn of(runs: &[HotKeysRun], loads: impl Fn(&HotKeysRun) -> &ServerLoads) -> Balance {
        let factors: Vec<f64> = runs.iter().map(|run| loads(run).factor()).collect();
        let imbalance_factor = mean(factors.iter().copied());
        let square: f64 = factors.iter().map(|factor| (factor - imbalance_factor).powi(2)).sum();
        let freedom = (factors.len() as f64 - 1.0).max(1.0);
        Balance {
            imbalance_factor,
            imbalance_factor_sd: (square / freedom).sqrt(),
            jain: mean(runs.iter().map(|run| loads(run).jain())),
            cv: mean(runs.iter().map(|run| loads(run).cv())),
        }
    }
}

#[cfg(test)]
mod tests;
