//! The exponent of Zipf's law that fits a trace best, by maximum likelihood. Not whether the law fits.
//!
//! Objects that are ranked by the counts they are fitted to look more skewed than they are, because those that were
//! lucky come first: uniform requests, ten for each object, would give 0.23. So the requests are split into two random
//! halves; each half is fitted in the order that the other one gives, and the exponent is the mean of both. Rarely
//! requested objects, whose order is luck in any half, are left out: the law holds for the first ranks alone as well.

use std::cmp::Reverse;

/// In the half that gives the order. With fewer, order is mostly luck; with many more, little is left of short traces.
const REQUESTS_MIN: u32 = 10;
/// With fewer objects than this, rare ones are better than none.
const OBJECTS_MIN: usize = 10;
const EXPONENT_MAX: f64 = 8.0;
/// Halvings of the range from 0 to `EXPONENT_MAX`.
const STEPS: u32 = 40;

/// From the requests of each object in either half; None for fewer than two objects. They must come in an order that
/// has nothing to do with their counts, because it decides where counts are equal.
pub(super) fn zipf_alpha(objects: &[[u32; 2]]) -> Option<f64> {
    let fitted = |by: usize| {
        let mut objects = objects.to_vec();
        objects.sort_by_key(|halves| Reverse(halves[by]));
        let common = objects.partition_point(|halves| halves[by] >= REQUESTS_MIN);
        let ranked = if common < OBJECTS_MIN { &objects } else { &objects[..common] };
        fit(ranked.iter().map(|halves| f64::from(halves[1 - by])))
    };
    let alphas = [fitted(0)?, fitted(1)?];
    // Digits beyond the fourth mean nothing in a sample.
    Some(((alphas[0] + alphas[1]) / 2.0 * 1e4).round() / 1e4)
}

/// The exponent at which the mean logarithm of the rank is the one that was seen: the likelihood has its maximum there.
fn fit(counts: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut logarithms, mut requests, mut sum) = (Vec::new(), 0.0, 0.0);
    for (rank, count) in (1u64..).zip(counts) {
        let logarithm = (rank as f64).ln();
        requests += count;
        sum += count * logarithm;
        logarithms.push(logarithm);
    }
    if logarithms.len() < 2 || requests == 0.0 {
        return None;
    }
    let expected = |exponent: f64| {
        let weigh = |(weights, sum): (f64, f64), logarithm: &f64| {
            let weight = (-exponent * logarithm).exp();
            (weights + weight, sum + weight * logarithm)
        };
        let (weights, sum) = logarithms.iter().fold((0.0, 0.0), weigh);
        sum / weights
    };
    let (mut low, mut high) = (0.0, EXPONENT_MAX);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if expected(middle) > sum / requests { low = middle } else { high = middle }
    }
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::TraceStatistics;
    use crate::{Synthetic, TracePopularity};

    fn fitted(distribution: &str, objects: u64, requests: usize, seed: u64) -> f64 {
        let synthetic = Synthetic {
            popularity: TracePopularity::parse(distribution, objects).unwrap(),
            sizes: "1".parse().unwrap(),
            write_ratio: 0.0,
            rate: 1.0,
            churn: None,
            flash_crowds: Vec::new(),
            seed,
        };
        let mut statistics = TraceStatistics::default();
        synthetic.accesses().unwrap().take(requests).for_each(|access| statistics.record(&access));
        statistics.summary().zipf_alpha.unwrap()
    }

    #[test]
    fn generated_traces_give_their_exponent_back() {
        for (exponent, objects, requests) in [
            (0.5, 5_000, 200_000),
            (0.7, 10_000, 200_000),
            (0.9, 20_000, 100_000),
            (0.9, 1_000_000, 100_000),
            (0.99, 100_000, 200_000),
            (1.0, 1_000, 200_000),
            (1.2, 100_000, 100_000),
            (1.5, 10_000, 100_000),
            (2.0, 100_000, 100_000),
        ] {
            let alpha = fitted(&format!("zipf:{exponent}"), objects, requests, 3);
            assert!((alpha - exponent).abs() < 0.03, "{alpha}, not {exponent}, of {requests} for {objects}");
        }
    }

    #[test]
    fn equal_popularity_is_not_taken_for_skew() {
        for (objects, requests) in [(1_000, 100_000), (10_000, 100_000), (100_000, 100_000)] {
            let alpha = fitted("uniform", objects, requests, 3);
            assert!(alpha < 0.02, "{alpha} of {requests} for {objects}");
        }
    }

    #[test]
    fn exact_counts_give_the_exact_exponent() {
        for exponent in [0.3, 0.8, 1.0, 1.7] {
            let count = |rank: u32| (1e9 * f64::from(rank).powf(-exponent)) as u32;
            let objects: Vec<[u32; 2]> = (1..=5000).map(|rank| [count(rank); 2]).collect();
            let alpha = zipf_alpha(&objects).unwrap();
            assert!((alpha - exponent).abs() < 2e-4, "{alpha}, not {exponent}");
        }
        assert_eq!(zipf_alpha(&[]), None);
        assert_eq!(zipf_alpha(&[[5, 5]]), None);
    }
}
