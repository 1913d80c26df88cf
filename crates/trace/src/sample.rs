//! Spatial sampling: all accesses of some objects, chosen by a hash, so that a sample behaves like a smaller trace.
//! Never some accesses of all objects.

use crate::permutation::mix;

/// Keeps the same objects on every machine; at a lower rate and the same seed, a part of them (SHARDS, FAST '15).
#[derive(Clone, Copy, Debug)]
pub struct ObjectSample {
    seed: u64,
    /// The largest hash that is kept.
    hash_max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a rate of {0}; it must be above 0 and at most 1")]
pub struct RateError(f64);

impl ObjectSample {
    pub fn new(rate: f64, seed: u64) -> Result<ObjectSample, RateError> {
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(RateError(rate));
        }
        // 2^64 times the rate; a rate of 1 saturates to the largest hash there is.
        Ok(ObjectSample { seed: mix(seed), hash_max: (rate * 2f64.powi(64)) as u64 })
    }

    pub fn keeps(&self, object: u64) -> bool {
        mix(object ^ self.seed) <= self.hash_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(rate: f64, seed: u64) -> Vec<u64> {
        let sample = ObjectSample::new(rate, seed).unwrap();
        (0..100_000).filter(|object| sample.keeps(*object)).collect()
    }

    #[test]
    fn a_share_of_the_objects_is_kept_always_the_same() {
        for rate in [0.01, 0.1, 0.5] {
            let count = kept(rate, 0).len() as f64;
            assert!((count - 100_000.0 * rate).abs() < 5.0 * (100_000.0 * rate).sqrt(), "{count} at {rate}");
        }
        assert_eq!(kept(1.0, 7).len(), 100_000);
        let (tenth, hundredth) = (kept(0.1, 3), kept(0.01, 3));
        assert!(hundredth.iter().all(|object| tenth.contains(object)), "samples are nested");
        assert_ne!(kept(0.1, 3), kept(0.1, 4));
        assert_eq!(kept(0.0001, 0), PINNED, "the same on every machine");
    }

    const PINNED: [u64; 6] = [1526, 31135, 76798, 77684, 80182, 82250];

    #[test]
    fn rates_beyond_their_range_are_refused() {
        for rate in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            assert!(ObjectSample::new(rate, 0).is_err());
        }
    }
}
