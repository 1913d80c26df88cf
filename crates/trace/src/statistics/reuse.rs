//! Reuse distances of a sample of the objects, in bounded memory: SHARDS (Waldspurger et al., FAST '15). Not exact.
//!
//! An access that repeats one with d other objects in between hits in every LRU cache of more than d objects. Only
//! objects whose hash begins with k zero bits are followed, and stand for 2^k objects each; k grows when they become
//! too many, so a trace of few objects is measured exactly.

use rustc_hash::FxHashMap;

use crate::permutation::mix;
use crate::statistics::quantiles::ValueCounts;

/// Objects followed at once. 8,192 already give miss ratios within a few thousandths (section 5.3 of the paper).
pub(super) const FOLLOWED_MAX: usize = 1 << 16;
/// Places in time; when they run out, those in use are moved together.
const PLACES: usize = 4 * FOLLOWED_MAX;
/// Other than that of `Sample`, or the objects of a sampled trace would all hash alike.
const SEED: u64 = 0x7265_7573_6564_6973;

pub(super) struct ReuseDistances {
    /// k: one object in 2^k is followed.
    rate_log2: u32,
    /// Where in time each object was accessed last.
    places: FxHashMap<u64, usize>,
    in_use: PrefixSums,
    next_place: usize,
    spread: ValueCounts,
}

impl Default for ReuseDistances {
    fn default() -> ReuseDistances {
        ReuseDistances {
            rate_log2: 0,
            places: FxHashMap::default(),
            in_use: PrefixSums::new(PLACES),
            next_place: 0,
            spread: ValueCounts::default(),
        }
    }
}

impl ReuseDistances {
    pub(super) fn record(&mut self, object: u64) {
        if !self.follows(object) {
            return;
        }
        if self.next_place == PLACES {
            self.compact();
        }
        let place = self.next_place;
        self.next_place += 1;
        self.in_use.add(place, 1);
        if let Some(last) = self.places.insert(object, place) {
            let between = self.in_use.sum(last + 1..place);
            self.in_use.add(last, -1);
            self.spread.record(between << self.rate_log2, 1 << self.rate_log2);
        } else if self.places.len() > FOLLOWED_MAX {
            self.rate_log2 += 1;
            let rate_log2 = self.rate_log2;
            self.places.retain(|object, _| follows(*object, rate_log2));
            self.compact();
        }
    }

    /// Distances in objects, each as often as it is estimated to have occurred; first accesses are not in it.
    pub(super) fn spread(&self) -> &ValueCounts {
        &self.spread
    }

    fn follows(&self, object: u64) -> bool {
        follows(object, self.rate_log2)
    }

    /// Renumbers the places in use from 0, in their order.
    fn compact(&mut self) {
        let mut order: Vec<(usize, u64)> =
            self.places.iter().map(|(object, place)| (*place, *object)).collect();
        order.sort_unstable();
        self.in_use = PrefixSums::new(PLACES);
        for (place, (_, object)) in order.iter().enumerate() {
            self.places.insert(*object, place);
            self.in_use.add(place, 1);
        }
        self.next_place = order.len();
    }
}

fn follows(object: u64, rate_log2: u32) -> bool {
    mix(object ^ SEED).leading_zeros() >= rate_log2
}

/// Counts by place whose sums over a range take logarithmic time (a Fenwick tree).
struct PrefixSums(Vec<i32>);

impl PrefixSums {
    fn new(places: usize) -> PrefixSums {
        PrefixSums(vec![0; places + 1])
    }

    fn add(&mut self, place: usize, count: i32) {
        let mut at = place + 1;
        while at < self.0.len() {
            self.0[at] += count;
            at += at & at.wrapping_neg();
        }
    }

    fn sum(&self, range: std::ops::Range<usize>) -> u64 {
        let below = |mut at: usize| {
            let mut sum = 0;
            while at > 0 {
                sum += self.0[at];
                at &= at - 1;
            }
            sum
        };
        (below(range.end) - below(range.start)) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// A list with the latest object first; the distance is where an object stands in it.
    fn naive(objects: &[u64]) -> Vec<u64> {
        let mut list: Vec<u64> = Vec::new();
        let mut distances = Vec::new();
        for &object in objects {
            if let Some(at) = list.iter().position(|other| *other == object) {
                distances.push(at as u64);
                list.remove(at);
            }
            list.insert(0, object);
        }
        distances
    }

    fn measured(objects: impl IntoIterator<Item = u64>) -> ReuseDistances {
        let mut reuse = ReuseDistances::default();
        objects.into_iter().for_each(|object| reuse.record(object));
        reuse
    }

    proptest! {
        #![proptest_config(cases::proptest(256))]

        #[test]
        fn few_objects_are_measured_exactly(objects in proptest::collection::vec(0..60u64, 0..600)) {
            let mut expected = ValueCounts::default();
            naive(&objects).into_iter().for_each(|distance| expected.record(distance, 1));
            let reuse = measured(objects);
            prop_assert_eq!(reuse.spread(), &expected);
        }
    }

    /// Places are used up several times over.
    #[test]
    fn places_are_reused_without_a_trace() {
        let reuse = measured((0..3 * PLACES as u64).map(|number| number % 1000));
        let quantiles = reuse.spread().quantiles();
        assert_eq!((quantiles.min, quantiles.max), (999, 999));
        assert_eq!(reuse.spread().count(), 3 * PLACES as u64 - 1000);
    }

    /// Four times more objects than are followed, asked for in a circle and then at random.
    #[test]
    fn many_objects_are_measured_by_a_sample() {
        let objects = 4 * FOLLOWED_MAX as u64;
        let circle = measured((0..3 * objects).map(|number| number % objects));
        assert!(circle.rate_log2 >= 2 && circle.places.len() <= FOLLOWED_MAX);
        let median = circle.spread().quantiles().p50 as f64 / objects as f64;
        assert!((median - 1.0).abs() < 0.02, "{median}");
        let repeats = circle.spread().count() as f64 / (2 * objects) as f64;
        assert!((repeats - 1.0).abs() < 0.03, "{repeats}");
        let mut random = SmallRng::seed_from_u64(1);
        let uniform = measured((0..8 * objects).map(|_| random.random_range(0..objects)));
        // Gaps of x times the objects are seen in proportion to (8 - x) e^-x, because the trace ends; half of them are
        // below 0.603, and an access after such a gap has 1 - e^-0.603 of the objects in between.
        let median = uniform.spread().quantiles().p50 as f64 / objects as f64;
        assert!((median - 0.453).abs() < 0.02, "{median}");
    }
}
