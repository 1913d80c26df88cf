//! Drawing an index by weight in constant time, and waiting times, with the same bits on every machine. Not the seeds.

use rand::{Rng, RngExt};

/// Walker's alias method: each cell belongs to its own index up to a threshold, and to another above it.
pub(super) struct Alias {
    cells: Vec<(u64, u32)>,
}

impl Alias {
    /// Weights from 0, at least one of them above.
    pub(super) fn new(weights: &[f64]) -> Alias {
        let whole: f64 = weights.iter().sum();
        let count = weights.len() as f64;
        let mut parts: Vec<f64> = weights.iter().map(|weight| weight / whole * count).collect();
        let mut cells: Vec<(u64, u32)> = (0..weights.len() as u32).map(|index| (u64::MAX, index)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..parts.len()).partition(|&index| parts[index] < 1.0);
        while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
            small.pop();
            cells[low] = ((parts[low] * 2f64.powi(64)) as u64, high as u32);
            parts[high] -= 1.0 - parts[low];
            if parts[high] < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        Alias { cells }
    }

    pub(super) fn draw(&self, random: &mut impl Rng) -> usize {
        let wide = u128::from(random.random::<u64>()) * self.cells.len() as u128;
        let (index, fraction) = ((wide >> 64) as usize, wide as u64);
        let (threshold, other) = self.cells[index];
        if fraction < threshold { index } else { other as usize }
    }
}

/// An exponential waiting time of mean 1.
pub(super) fn exponential(random: &mut impl Rng) -> f64 {
    -ln(((random.random::<u64>() >> 11) + 1) as f64 / 2f64.powi(53))
}

/// The natural logarithm of a positive normal number by basic operations only, which round alike everywhere; libraries
/// differ in the last bit.
fn ln(number: f64) -> f64 {
    let bits = number.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series = (0..11).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    2.0 * ratio * series + exponent as f64 * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    #[test]
    fn indices_come_as_often_as_they_weigh() {
        let mut random = seeds::random(1, 0);
        for weights in [vec![1.0], vec![0.0, 3.0], vec![5.0, 0.1, 1.0, 1.0, 0.9], vec![0.25; 4]] {
            let alias = Alias::new(&weights);
            let mut counts = vec![0u32; weights.len()];
            (0..400_000).for_each(|_| counts[alias.draw(&mut random)] += 1);
            let whole: f64 = weights.iter().sum();
            for (count, weight) in counts.iter().zip(&weights) {
                let (share, due) = (f64::from(*count) / 400_000.0, weight / whole);
                assert!((share - due).abs() < 0.004, "{share}, not {due}");
                assert_eq!(*count == 0, due == 0.0);
            }
        }
    }

    #[test]
    fn the_logarithm_is_one() {
        for number in [1.0, 0.5, 0.75, 1e-16, 0.3, 2f64.sqrt(), 0.999_999_9, 123_456.789] {
            assert!(
                (ln(number) - f64::ln(number)).abs() <= 1e-14 * f64::ln(number).abs().max(1.0),
                "{number}"
            );
        }
        let mut random = seeds::random(1, 0);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..400_000 {
            let time = exponential(&mut random);
            sum += time / 400_000.0;
            squares += time * time / 400_000.0;
        }
        assert!((sum - 1.0).abs() < 0.01 && (squares - 2.0).abs() < 0.04, "{sum}, {squares}");
    }
}
