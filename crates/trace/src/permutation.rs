//! A seeded bijection of `0..n`, so that neighbours in popularity are not neighbours by number. Not cryptography.

/// A Feistel network over the next power of four, walked until it comes out below n.
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    n: u64,
    /// Bits of each half.
    half: u32,
    round_keys: [u64; ROUNDS],
}

/// Four rounds of a good mixing function leave no visible order.
const ROUNDS: usize = 4;

impl Permutation {
    /// `n` is at least 1 and at most 2^62.
    pub(crate) fn new(n: u64, seed: u64) -> Permutation {
        assert!((1..=1 << 62).contains(&n), "no permutation of {n} numbers");
        let bits = n.next_power_of_two().trailing_zeros().max(2);
        let round_keys = std::array::from_fn(|round| mix(seed ^ mix(round as u64 + 1)));
        Permutation { n, half: bits.div_ceil(2), round_keys }
    }

    /// The image of `number`, which is below n. Takes fewer than four passes on average.
    pub(crate) fn apply(&self, number: u64) -> u64 {
        debug_assert!(number < self.n);
        let mut image = self.pass(number);
        while image >= self.n {
            image = self.pass(image);
        }
        image
    }

    fn pass(&self, number: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for key in self.round_keys {
            (left, right) = (right, left ^ mix(right ^ key) & mask);
        }
        left << self.half | right
    }
}

/// SplitMix64's finalizer.
pub(crate) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_exactly_one_image() {
        for n in [1, 2, 3, 4, 5, 15, 16, 17, 100, 1023, 1024, 1025, 100_000] {
            for seed in [0, 1, u64::MAX] {
                let permutation = Permutation::new(n, seed);
                let mut seen = vec![false; n as usize];
                for number in 0..n {
                    let image = permutation.apply(number);
                    assert!(
                        !std::mem::replace(&mut seen[image as usize], true),
                        "{image} twice, n {n}, seed {seed}"
                    );
                }
            }
        }
    }

    #[test]
    fn large_ranges_stay_in_range() {
        for n in [(1 << 40) + 1, 1_000_000_000_000, 1 << 62] {
            let permutation = Permutation::new(n, 3);
            for number in [0, 1, n / 2, n - 1] {
                assert!(permutation.apply(number) < n);
            }
        }
    }

    /// The hottest keys must not lie together: their images are spread evenly over ten parts of the range.
    #[test]
    fn neighbours_are_torn_apart() {
        for seed in 0..20 {
            let permutation = Permutation::new(100_000, seed);
            let mut parts = [0u32; 10];
            for number in 0..1000 {
                parts[(permutation.apply(number) / 10_000) as usize] += 1;
            }
            let statistic: f64 = parts.iter().map(|&count| (f64::from(count) - 100.0).powi(2) / 100.0).sum();
            assert!(
                statistic < 33.7,
                "seed {seed}: {parts:?}, chi-square {statistic} with 9 degrees of freedom"
            );
        }
    }

    #[test]
    fn seeds_give_different_orders() {
        let images = |seed| (0..100).map(|n| Permutation::new(100, seed).apply(n)).collect::<Vec<_>>();
        assert_ne!(images(1), images(2));
        assert_eq!(images(1), images(1));
    }
}
