//! How popular the objects that are not listed are on each server together. Never any one of them.

use std::f64::consts::TAU;

use rand::RngExt;

use crate::{Popularity, seeds};

/// Keeps these random numbers apart from others of the same seed.
const PURPOSE: u64 = 0x7461_696c;

/// The shares of `servers` of all objects from rank `first` on, of which each server has a random part. Their sum is
/// drawn from the normal distribution of the right mean and variance, bent to the right skewness (the first term of
/// Cornish and Fisher's expansion): with hundreds of objects on a server, even its extremes are right to 0.1 %.
pub(super) fn spread(popularity: &Popularity, first: u64, servers: usize, seed: u64) -> Vec<f64> {
    let last = popularity.objects();
    let mass = popularity.mass(first, last);
    if mass == 0.0 || servers == 1 {
        return vec![mass; servers];
    }
    let part = 1.0 / servers as f64;
    let variance = popularity.power_sum(first, last, 2) * part;
    let third = popularity.power_sum(first, last, 3) * part * (1.0 - part) * (1.0 - 2.0 * part);
    let skewness = third / (variance * (1.0 - part)).powf(1.5);
    let mut random = seeds::random(seed, PURPOSE);
    let deviations: Vec<f64> = (0..servers)
        .map(|_| {
            let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
            let normal = (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos();
            normal + skewness / 6.0 * (normal * normal - 1.0)
        })
        .collect();
    // Together the servers have all there is.
    let mean = deviations.iter().sum::<f64>() * part;
    deviations
        .into_iter()
        .map(|deviation| (mass * part + variance.sqrt() * (deviation - mean)).max(0.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use trace::Distribution;

    use super::*;

    /// Mean of what the fullest of some servers has, by the model and by throwing every object.
    fn fullest(popularity: &Popularity, first: u64, servers: usize) -> (f64, f64) {
        const SEEDS: usize = 2_500;
        let max = |shares: &[f64]| shares.iter().copied().fold(0.0, f64::max);
        let mass = popularity.mass(first, u64::MAX);
        let rest = popularity.head(u64::MAX).split_off(first as usize);
        let maxima = seeds::each(0, SEEDS, |seed| {
            let drawn = spread(popularity, first, servers, seed);
            assert!((drawn.iter().sum::<f64>() / mass - 1.0).abs() < 1e-9);
            let mut random = seeds::random(seed, 1);
            let mut thrown = vec![0.0; servers];
            rest.iter().for_each(|share| thrown[random.random_range(0..servers)] += share);
            (max(&drawn), max(&thrown))
        });
        let (drawn, thrown): (Vec<f64>, Vec<f64>) = maxima.into_iter().unzip();
        (drawn.iter().sum(), thrown.iter().sum())
    }

    #[test]
    fn the_fullest_server_is_as_full_as_when_every_object_is_thrown() {
        let zipf = Popularity::new(Distribution::Zipf(0.99), 6_000).unwrap();
        let steep = Popularity::new(Distribution::Zipf(1.5), 5_000).unwrap();
        let uniform = Popularity::new(Distribution::Uniform, 4_000).unwrap();
        for (popularity, first) in [(&zipf, 1_024), (&steep, 1_024), (&uniform, 0)] {
            let (drawn, thrown) = fullest(popularity, first, 8);
            assert!((drawn / thrown - 1.0).abs() < 0.001, "{drawn}, {thrown}");
        }
    }

    #[test]
    fn nothing_is_left_and_one_server_has_all() {
        let zipf = Popularity::new(Distribution::Zipf(0.99), 40_000).unwrap();
        assert_eq!(spread(&zipf, 40_000, 3, 1), [0.0; 3]);
        assert_eq!(spread(&zipf, 100, 1, 1), [zipf.mass(100, 40_000)]);
    }
}
