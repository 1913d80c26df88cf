//! How popular the objects that are not listed are on each server together. Never any one of them.

use std::f64::consts::TAU;

use rand::RngExt;

use crate::{Popularity, seeds};

/// Keeps these random numbers apart from others of the same seed.
const PURPOSE: u64 = 0x7461_696c;

/// What each server has of all objects from rank `first` on, of which so many parts of their number fall on it at random.
/// Their popularity is drawn from the normal distribution of the right mean and covariance, bent to the right skewness
/// (the first term of Cornish and Fisher's expansion): with hundreds of objects on a server, even its extremes are right
/// to 0.1 %.
pub(super) fn spread(popularity: &Popularity, first: u64, parts: &[f64], seed: u64) -> Vec<f64> {
    let last = popularity.objects();
    let mass = popularity.mass(first, last);
    if mass == 0.0 || parts.len() == 1 {
        return vec![mass; parts.len()];
    }
    let squares = popularity.power_sum(first, last, 2);
    let cubes = popularity.power_sum(first, last, 3);
    let mut random = seeds::random(seed, PURPOSE);
    let deviations: Vec<f64> = parts
        .iter()
        .map(|part| {
            let third = cubes * part * (1.0 - part) * (1.0 - 2.0 * part);
            let skewness = third / (squares * part * (1.0 - part)).powf(1.5);
            let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
            let normal = (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos();
            normal + skewness / 6.0 * (normal * normal - 1.0)
        })
        .collect();
    // Together the servers have all there is.
    let all: f64 = parts.iter().zip(&deviations).map(|(part, deviation)| part.sqrt() * deviation).sum();
    let share = |(part, deviation): (&f64, f64)| {
        (mass * part + (squares * part).sqrt() * (deviation - part.sqrt() * all)).max(0.0)
    };
    parts.iter().zip(deviations).map(share).collect()
}

#[cfg(test)]
mod tests {
    use trace::Distribution;

    use super::*;

    /// Mean of what the fullest server has, by the model and by throwing every object; a server has as many of the `owners`
    /// as it is named.
    fn fullest(popularity: &Popularity, first: u64, owners: &[usize]) -> (f64, f64) {
        const SEEDS: usize = 2_500;
        let mut parts = [0.0; 8];
        owners.iter().for_each(|server| parts[*server] += 1.0 / owners.len() as f64);
        let max = |shares: &[f64]| shares.iter().copied().fold(0.0, f64::max);
        let mass = popularity.mass(first, u64::MAX);
        let rest = popularity.head(u64::MAX).split_off(first as usize);
        let maxima = seeds::each(0, SEEDS, |seed| {
            let drawn = spread(popularity, first, &parts, seed);
            assert!((drawn.iter().sum::<f64>() / mass - 1.0).abs() < 1e-9);
            let mut random = seeds::random(seed, 1);
            let mut thrown = [0.0; 8];
            rest.iter().for_each(|share| thrown[owners[random.random_range(0..owners.len())]] += share);
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
        let equal = [0, 1, 2, 3, 4, 5, 6, 7];
        for (popularity, first) in [(&zipf, 1_024), (&steep, 1_024), (&uniform, 0)] {
            let (drawn, thrown) = fullest(popularity, first, &equal);
            assert!((drawn / thrown - 1.0).abs() < 0.001, "{drawn}, {thrown}");
        }
        let unequal = [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7];
        let (drawn, thrown) = fullest(&zipf, 1_024, &unequal);
        assert!((drawn / thrown - 1.0).abs() < 0.003, "{drawn}, {thrown}");
    }

    #[test]
    fn nothing_is_left_and_one_server_has_all() {
        let zipf = Popularity::new(Distribution::Zipf(0.99), 40_000).unwrap();
        assert_eq!(spread(&zipf, 40_000, &[0.2, 0.3, 0.5], 1), [0.0; 3]);
        assert_eq!(spread(&zipf, 100, &[1.0], 1), [zipf.mass(100, 40_000)]);
    }
}
