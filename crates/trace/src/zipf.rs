//! Exact Zipf samples in constant time by rejection-inversion (Hoermann and Derflinger, 1996). No tables.

use rand::{Rng, RngExt};

/// Ranks 1 to n in proportion to rank^-exponent, for any exponent above zero, 1 included.
///
/// Works on the integral of x^-exponent: a uniform point under it is mapped back to x, rounded to a rank, and
/// accepted if it lies under that rank's bar, as nearly all do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    n: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    /// Points this close below a rank need no further check.
    squeeze: f64,
}

impl Zipf {
    pub(crate) fn new(n: u64, exponent: f64) -> Zipf {
        let unset = Zipf { n: n as f64, exponent, integral_first: 0.0, integral_last: 0.0, squeeze: 0.0 };
        Zipf {
            integral_first: unset.integral(1.5) - 1.0,
            integral_last: unset.integral(n as f64 + 0.5),
            squeeze: 2.0 - unset.integral_inverse(unset.integral(2.5) - unset.bar(2.0)),
            ..unset
        }
    }

    /// A rank, counted from zero.
    pub(crate) fn sample(&self, random: &mut impl Rng) -> u64 {
        loop {
            let uniform: f64 = random.random();
            let area = self.integral_last + uniform * (self.integral_first - self.integral_last);
            let x = self.integral_inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.n);
            if rank - x <= self.squeeze || area >= self.integral(rank + 0.5) - self.bar(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn bar(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// (x^(1 - exponent) - 1) / (1 - exponent), and its limit ln(x) at exponent 1.
    fn integral(&self, x: f64) -> f64 {
        let ln = x.ln();
        expm1_over((1.0 - self.exponent) * ln) * ln
    }

    fn integral_inverse(&self, area: f64) -> f64 {
        // Rounding may push the argument out of the logarithm's domain.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (ln1p_over(scaled) * area).exp()
    }
}

/// Below this the quotients are taken from their series, because they become 0/0.
const SMALL: f64 = 1e-8;

/// expm1(x) / x.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > SMALL { x.exp_m1() / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0)) }
}

/// ln(1 + x) / x.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > SMALL { x.ln_1p() / x } else { 1.0 - x * (0.5 - x * (1.0 / 3.0 - x / 4.0)) }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;

    const SAMPLES: u32 = 200_000;

    /// Chi-square of samples against the exact probabilities of `exponent`, with its degrees of freedom. Ranks
    /// that are due fewer than 20 samples are counted together.
    fn chi_square(n: u64, sampled: f64, exponent: f64) -> (f64, f64) {
        let zipf = Zipf::new(n, sampled);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(42);
        let mut counts = vec![0u32; n as usize];
        for _ in 0..SAMPLES {
            counts[zipf.sample(&mut random) as usize] += 1;
        }
        let weights: Vec<f64> = (1..=n).map(|rank| (rank as f64).powf(-exponent)).collect();
        let whole: f64 = weights.iter().sum();
        let (mut statistic, mut cells) = (0.0, 0.0);
        let (mut due, mut seen) = (0.0, 0.0);
        for (rank, (weight, count)) in weights.iter().zip(&counts).enumerate() {
            due += f64::from(SAMPLES) * weight / whole;
            seen += f64::from(*count);
            if due >= 20.0 || rank + 1 == counts.len() {
                statistic += (seen - due).powi(2) / due.max(1.0);
                (due, seen, cells) = (0.0, 0.0, cells + 1.0);
            }
        }
        (statistic, cells - 1.0)
    }

    /// The value that chi-square exceeds once in 100,000 (Wilson and Hilferty).
    fn limit(freedom: f64) -> f64 {
        let ninth = 2.0 / (9.0 * freedom);
        freedom * (1.0 - ninth + 4.265 * ninth.sqrt()).powi(3)
    }

    #[test]
    fn samples_match_the_exact_probabilities() {
        for exponent in [0.01, 0.5, 0.9, 0.99, 1.0 - 1e-12, 1.0, 1.0 + 1e-9, 1.2, 1.5, 2.0] {
            for n in [2, 10, 1000, 100_000] {
                let (statistic, freedom) = chi_square(n, exponent, exponent);
                assert!(
                    statistic < limit(freedom),
                    "exponent {exponent}, n {n}: {statistic} of {}",
                    limit(freedom)
                );
            }
        }
    }

    /// The check above has power: neighbouring exponents are told apart.
    #[test]
    fn a_slightly_wrong_exponent_is_noticed() {
        for (sampled, exponent) in [(0.97, 0.99), (1.02, 1.0), (0.5, 0.55)] {
            let (statistic, freedom) = chi_square(1000, sampled, exponent);
            assert!(statistic > 1.1 * limit(freedom), "{sampled} passed for {exponent}: {statistic}");
        }
    }

    #[test]
    fn one_key_and_very_many_keys_stay_in_range() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for exponent in [0.01, 1.0, 2.0] {
            for n in [1, 1_000_000_000_000] {
                let zipf = Zipf::new(n, exponent);
                assert!((0..10_000).all(|_| zipf.sample(&mut random) < n));
            }
        }
    }
}
