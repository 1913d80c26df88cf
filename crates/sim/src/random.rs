//! The one source of chance in a run, by integers alone so that every machine draws alike. Not who draws what.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[derive(Clone, Debug)]
pub(crate) struct SimRandom(SmallRng);

impl SimRandom {
    pub(crate) fn new(seed: u64) -> SimRandom {
        SimRandom(SmallRng::seed_from_u64(seed))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Less than `count`, which is not zero.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(count)) >> 64) as u64
    }

    pub(crate) fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn per_mille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.index(among.len())]
    }

    /// Around `mean`, at most four times it, mostly less: waiting times of network and clients.
    pub(crate) fn wait(&mut self, mean: u64) -> u64 {
        let (a, b) = (self.below(2001), self.below(2001));
        mean * a / 1000 * b / 1000
    }
}
