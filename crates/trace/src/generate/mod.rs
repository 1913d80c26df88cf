//! Synthetic traces: popularity, how it changes, sizes and rate together give an endless stream of accesses. No files
//! are written here.

mod cachebench;
mod change;
mod popularity;
mod sizes;

#[cfg(test)]
mod tests;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::access::{Access, AccessOperation, NextAccess};
use crate::permutation::mix;
pub use cachebench::CacheBenchError;
pub use change::{Churn, ChurnError, FlashCrowd, FlashCrowdError};
use popularity::KeyRanks;
pub use popularity::{TracePopularity, TracePopularityError};
pub use sizes::{SizeDistribution, SizesError};

/// What a synthetic trace is like. The same description gives the same trace on every run and every machine.
#[derive(Clone, Debug)]
pub struct Synthetic {
    pub popularity: TracePopularity,
    pub sizes: SizeDistribution,
    pub write_ratio: f64,
    /// Requests per second of the trace's own time.
    pub rate: f64,
    pub churn: Option<Churn>,
    pub flash_crowds: Vec<FlashCrowd>,
    pub seed: u64,
}

/// Why there is no such trace.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    #[error(transparent)]
    Popularity(#[from] TracePopularityError),
    #[error("write ratio {0}; it must be between 0 and 1")]
    WriteRatio(f64),
    #[error("a rate of {0} requests/s; it must be above 0")]
    Rate(f64),
}

/// Ids of objects that only a flash crowd asks for, one range per crowd; and of objects that nobody asks for twice.
const CROWD_IDS: u64 = 1 << 62;
const CROWD_IDS_EACH: u64 = 1 << 40;
const SINGLE_IDS: u64 = 1 << 63;

impl Synthetic {
    /// The accesses of the trace, without end.
    pub fn accesses(&self) -> Result<SyntheticAccesses, SyntheticError> {
        if !(0.0..=1.0).contains(&self.write_ratio) {
            return Err(SyntheticError::WriteRatio(self.write_ratio));
        }
        if !(self.rate.is_finite() && self.rate > 0.0) {
            return Err(SyntheticError::Rate(self.rate));
        }
        Ok(SyntheticAccesses {
            ranks: self.popularity.ranks(self.seed)?,
            random: Xoshiro256PlusPlus::seed_from_u64(mix(self.seed)),
            synthetic: self.clone(),
            number: 0,
        })
    }
}

/// A synthetic trace, access by access.
#[derive(Clone, Debug)]
pub struct SyntheticAccesses {
    synthetic: Synthetic,
    ranks: KeyRanks,
    random: Xoshiro256PlusPlus,
    /// Accesses made so far.
    number: u64,
}

impl Iterator for SyntheticAccesses {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let number = self.number;
        self.number += 1;
        // Drawn whatever is switched on, so that the rest of the trace stays the same without it.
        let [crowd, write]: [f64; 2] = self.random.random();
        let usual = self.usual(number);
        let object = self.in_crowd(number, crowd).unwrap_or(usual);
        Some(Access {
            time: (number as f64 / self.synthetic.rate) as u64,
            object,
            bytes: self.synthetic.sizes.of(object, self.synthetic.seed),
            next: NextAccess::Unknown,
            operation: if write < self.synthetic.write_ratio {
                AccessOperation::Write
            } else {
                AccessOperation::Read
            },
        })
    }
}

impl SyntheticAccesses {
    fn usual(&mut self, number: u64) -> u64 {
        let Some(key) = self.ranks.next_key() else { return SINGLE_IDS + number };
        let generation = match &self.synthetic.churn {
            Some(churn) => churn.generation(key, number, self.synthetic.seed),
            None => 0,
        };
        // Below the other ids, whatever a description of astronomical size says.
        key.wrapping_add(generation.wrapping_mul(self.ranks.keys())) % CROWD_IDS
    }

    /// The object that this access is diverted to, if it falls to one of the crowds that are there now.
    fn in_crowd(&self, number: u64, mut coin: f64) -> Option<u64> {
        for (crowd, first_id) in
            self.synthetic.flash_crowds.iter().zip((CROWD_IDS..).step_by(CROWD_IDS_EACH as usize))
        {
            if crowd.is_there(number) {
                if coin < crowd.share {
                    // What is left of the coin is as good as a new one.
                    return Some(first_id + (coin / crowd.share * crowd.objects as f64) as u64);
                }
                coin -= crowd.share;
            }
        }
        None
    }
}
