//! Which key each request of a synthetic trace is for: by a law, or as a production system was measured. Not its size.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::distribution::{Distribution, DistributionError};
use crate::generate::cachebench::{Buckets, CacheBenchError};
use crate::permutation::{Permutation, mix};
use crate::workload::{Workload, WorkloadError, WorkloadRequests};

/// `uniform`, `zipf:A`, `adversary:X`, or `cachebench:FILE` (a pop.json).
#[derive(Clone, Debug, PartialEq)]
pub enum TracePopularity {
    Law { distribution: Distribution, objects: u64 },
    CacheBench(Arc<Buckets>),
}

#[derive(Debug, thiserror::Error)]
pub enum TracePopularityError {
    #[error("unknown distribution {0:?}; use uniform, zipf:A, adversary:X or cachebench:FILE")]
    Unknown(String),
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    #[error(transparent)]
    CacheBench(#[from] CacheBenchError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

impl TracePopularity {
    /// As the command line writes it; `objects` is for laws, a file has its own number.
    pub fn parse(text: &str, objects: u64) -> Result<TracePopularity, TracePopularityError> {
        match text.strip_prefix("cachebench:") {
            Some(path) => Ok(TracePopularity::CacheBench(Arc::new(Buckets::read(path.as_ref())?))),
            None => match Distribution::from_str(text) {
                Err(DistributionError::Unknown(text)) => Err(TracePopularityError::Unknown(text)),
                distribution => Ok(TracePopularity::Law { distribution: distribution?, objects }),
            },
        }
    }

    pub(super) fn ranks(&self, seed: u64) -> Result<KeyRanks, TracePopularityError> {
        match self {
            &TracePopularity::Law { distribution, objects } => {
                let workload =
                    Workload { keys: objects, distribution, write_ratio: 0.0, value_bytes: 0, seed };
                Ok(KeyRanks::Law { requests: workload.requests(0)?, keys: objects })
            }
            TracePopularity::CacheBench(buckets) => Ok(KeyRanks::CacheBench {
                permutation: Permutation::new(buckets.keys(), seed),
                buckets: Arc::clone(buckets),
                random: Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ 1)),
            }),
        }
    }
}

impl fmt::Display for TracePopularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TracePopularity::Law { distribution, objects } => {
                write!(f, "{distribution} over {objects} objects")
            }
            TracePopularity::CacheBench(buckets) => write!(f, "CacheBench over {} objects", buckets.keys()),
        }
    }
}

/// Draws keys.
#[derive(Clone, Debug)]
pub(super) enum KeyRanks {
    Law { requests: WorkloadRequests, keys: u64 },
    CacheBench { buckets: Arc<Buckets>, permutation: Permutation, random: Xoshiro256PlusPlus },
}

impl KeyRanks {
    /// The key of the next request; `None` where its object is never asked for again.
    pub(super) fn next_key(&mut self) -> Option<u64> {
        match self {
            KeyRanks::Law { requests, .. } => Some(requests.next_request().key),
            KeyRanks::CacheBench { buckets, permutation, random } => {
                let [single, bucket, within]: [f64; 3] = random.random();
                let rank = buckets.rank(bucket, within);
                (single >= buckets.one_hits()).then(|| permutation.apply(rank))
            }
        }
    }

    /// All keys are below this.
    pub(super) fn keys(&self) -> u64 {
        match self {
            KeyRanks::Law { keys, .. } => *keys,
            KeyRanks::CacheBench { buckets, .. } => buckets.keys(),
        }
    }
}
