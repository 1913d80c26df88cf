//! A workload: which keys are asked for how often, and how many of the requests write. Not how they are sent.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::distribution::{Distribution, DistributionError};
use crate::permutation::{Permutation, mix};
use crate::zipf::Zipf;

/// Most keys: names have twelve digits.
pub const KEYS_MAX: u64 = 1_000_000_000_000;

/// What a load consists of. The same workload gives the same requests on every run and every machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    pub keys: u64,
    pub distribution: Distribution,
    /// The share of requests that are writes, 0 to 1. It does not change which keys are asked for.
    pub write_ratio: f64,
    pub value_bytes: usize,
    /// Decides which keys are the popular ones, and the order of requests.
    pub seed: u64,
}

/// Why a workload makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    #[error("{0} keys; there must be 1 to {KEYS_MAX}")]
    Keys(u64),
    #[error("write ratio {0}; it must be between 0 and 1")]
    WriteRatio(f64),
    #[error("adversary:{wanted} needs at least {wanted} keys, but there are {keys}")]
    FewKeys { wanted: u64, keys: u64 },
    #[error(transparent)]
    Distribution(#[from] DistributionError),
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadRequest {
    /// Below the workload's `keys`; `key_name` names it.
    pub key: u64,
    pub write: bool,
}

/// An endless stream of a workload's requests.
#[derive(Clone, Debug)]
pub struct WorkloadRequests {
    random: Xoshiro256PlusPlus,
    ranks: RequestRanks,
    permutation: Permutation,
    write_ratio: f64,
}

#[derive(Clone, Debug)]
enum RequestRanks {
    Equal(u64),
    Zipf(Zipf),
}

impl Workload {
    /// Stream number `stream`: all streams of a workload have the same popular keys, in independent order, so that
    /// every connection or thread can have its own.
    pub fn requests(&self, stream: u64) -> Result<WorkloadRequests, WorkloadError> {
        if !(1..=KEYS_MAX).contains(&self.keys) {
            return Err(WorkloadError::Keys(self.keys));
        }
        if !(0.0..=1.0).contains(&self.write_ratio) {
            return Err(WorkloadError::WriteRatio(self.write_ratio));
        }
        self.distribution.check()?;
        let ranks = match self.distribution {
            Distribution::Uniform => RequestRanks::Equal(self.keys),
            Distribution::Zipf(exponent) => RequestRanks::Zipf(Zipf::new(self.keys, exponent)),
            Distribution::Adversary(wanted) if wanted > self.keys => {
                return Err(WorkloadError::FewKeys { wanted, keys: self.keys });
            }
            Distribution::Adversary(wanted) => RequestRanks::Equal(wanted),
        };
        Ok(WorkloadRequests {
            random: Xoshiro256PlusPlus::seed_from_u64(mix(self.seed) ^ mix(mix(stream))),
            ranks,
            permutation: Permutation::new(self.keys, self.seed),
            write_ratio: self.write_ratio,
        })
    }
}

impl WorkloadRequests {
    /// The next request; the stream never ends.
    pub fn next_request(&mut self) -> WorkloadRequest {
        let rank = match &self.ranks {
            RequestRanks::Equal(keys) => self.random.random_range(0..*keys),
            RequestRanks::Zipf(zipf) => zipf.sample(&mut self.random),
        };
        // Drawn whatever the ratio is, so that the keys are the same for all ratios. It is below 1.
        let coin: f64 = self.random.random();
        WorkloadRequest { key: self.permutation.apply(rank), write: coin < self.write_ratio }
    }

    /// The key of a popularity rank, counted from zero. Panics if there are not so many keys.
    pub fn key_of_rank(&self, rank: u64) -> u64 {
        self.permutation.apply(rank)
    }
}

impl Iterator for WorkloadRequests {
    type Item = WorkloadRequest;

    fn next(&mut self) -> Option<WorkloadRequest> {
        Some(self.next_request())
    }
}

/// `key:%012d`. Panics on numbers that have more digits.
pub fn key_name(key: u64) -> [u8; 16] {
    assert!(key < KEYS_MAX, "key {key} has more than twelve digits");
    let mut name = *b"key:000000000000";
    let mut rest = key;
    for digit in name[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(distribution: &str) -> Workload {
        let distribution = distribution.parse().unwrap();
        Workload { keys: 1000, distribution, write_ratio: 0.1, value_bytes: 64, seed: 7 }
    }

    fn keys(workload: Workload, stream: u64, count: usize) -> Vec<u64> {
        workload.requests(stream).unwrap().take(count).map(|request| request.key).collect()
    }

    /// These numbers may change only with a note in the changelog: results of different versions compare no more.
    #[test]
    fn requests_are_pinned() {
        let check = |distribution, expected: [u64; 8]| {
            assert_eq!(keys(workload(distribution), 0, 8), expected, "{distribution}");
        };
        check("uniform", [110, 434, 287, 131, 983, 598, 841, 6]);
        check("zipf:0.99", [7, 778, 987, 475, 779, 987, 379, 7]);
        check("zipf:1", [7, 504, 987, 773, 889, 987, 379, 7]);
        check("adversary:3", [379, 575, 379, 575, 575, 379, 379, 379]);
    }

    #[test]
    fn streams_share_their_popular_keys_but_not_their_order() {
        let zipf = workload("zipf:1.2");
        assert_eq!(keys(zipf, 3, 100), keys(zipf, 3, 100));
        assert_ne!(keys(zipf, 3, 100), keys(zipf, 4, 100));
        for stream in 0..4 {
            let requests = zipf.requests(stream).unwrap();
            let hottest = requests.key_of_rank(0);
            let share = requests.take(20_000).filter(|request| request.key == hottest).count();
            // 1 / sum of r^-1.2 for 1000 ranks is 0.2306.
            assert!(share.abs_diff(4612) < 300, "{share} of 20000 for the hottest key in stream {stream}");
        }
        assert_ne!(keys(zipf, 0, 100), keys(Workload { seed: 8, ..zipf }, 0, 100));
    }

    #[test]
    fn writes_come_at_their_ratio_and_leave_the_keys_alone() {
        for ratio in [0.0, 0.1, 0.5, 1.0] {
            let workload = Workload { write_ratio: ratio, ..workload("zipf:0.99") };
            let writes = workload.requests(0).unwrap().take(50_000).filter(|request| request.write).count();
            assert!((writes as f64 - 50_000.0 * ratio).abs() < 600.0, "{writes} writes at ratio {ratio}");
            assert!(ratio != 0.0 || writes == 0);
            assert!(ratio != 1.0 || writes == 50_000);
            assert_eq!(keys(workload, 0, 1000), keys(super::tests::workload("zipf:0.99"), 0, 1000));
        }
    }

    #[test]
    fn an_adversary_asks_for_exactly_its_keys_equally() {
        let mut counts = std::collections::BTreeMap::new();
        for request in workload("adversary:5").requests(0).unwrap().take(50_000) {
            *counts.entry(request.key).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 5);
        assert!(counts.values().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
        assert!(counts.keys().max() > Some(&100), "the keys are not just the first five: {counts:?}");
    }

    #[test]
    fn uniform_reaches_every_key_equally() {
        let mut counts = vec![0u32; 1000];
        for request in workload("uniform").requests(0).unwrap().take(100_000) {
            counts[request.key as usize] += 1;
        }
        let statistic: f64 = counts.iter().map(|&count| (f64::from(count) - 100.0).powi(2) / 100.0).sum();
        assert!(statistic < 1203.0, "chi-square {statistic} with 999 degrees of freedom");
    }

    #[test]
    fn wrong_workloads_are_named() {
        let good = workload("uniform");
        let check = |workload: Workload, expected: &str| {
            assert_eq!(workload.requests(0).unwrap_err().to_string(), expected);
        };
        check(Workload { keys: 0, ..good }, "0 keys; there must be 1 to 1000000000000");
        check(
            Workload { keys: KEYS_MAX + 1, ..good },
            "1000000000001 keys; there must be 1 to 1000000000000",
        );
        check(Workload { write_ratio: 1.1, ..good }, "write ratio 1.1; it must be between 0 and 1");
        check(Workload { write_ratio: f64::NAN, ..good }, "write ratio NaN; it must be between 0 and 1");
        let few = Distribution::Adversary(1001);
        check(
            Workload { distribution: few, ..good },
            "adversary:1001 needs at least 1001 keys, but there are 1000",
        );
        assert!(Workload { distribution: Distribution::Zipf(3.0), ..good }.requests(0).is_err());
    }

    #[test]
    fn names_have_twelve_digits() {
        assert_eq!(&key_name(0), b"key:000000000000");
        assert_eq!(&key_name(42), b"key:000000000042");
        assert_eq!(&key_name(KEYS_MAX - 1), b"key:999999999999");
    }
}
