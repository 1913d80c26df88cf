//! From an absolute priority to a rank: a histogram whose bins split and merge by their bytes. Not the queue's order.
//!
//! Section 4.3.5: the histogram returns approximate percentiles, and its bins are kept of similar size in the way
//! sections are. It is that of an exact queue: what was evicted too early stays counted until its value is the lowest,
//! what is still there too late does not count. So the lowest value rises as that of an exact queue, by bytes inserted,
//! and not by what happens to be in one block. Values are summed up for as long as a cache lives and never renormalised:
//! the lowest rises by at most the largest c/s per turnover, so an f64 still tells neighbours apart after millions.

#[derive(Clone, Copy, Debug)]
struct Bin {
    /// Holds the values from here to the next bin's lowest.
    low: f64,
    bytes: u64,
    /// Mean of the values, weighted by bytes: where the bin is cut when it grows.
    mean: f64,
}

impl Bin {
    /// The value below which this share of its bytes is, if the bin ends there.
    fn value(&self, share: f64, end: f64) -> f64 {
        match share < 0.5 {
            true => self.low + 2.0 * share * (self.mean - self.low),
            false => self.mean + (2.0 * share - 1.0) * (end - self.mean),
        }
    }

    /// So many bytes of this mean become a part of the bin, which ends there.
    fn take_in(&mut self, mean: f64, bytes: u64, end: f64) {
        self.bytes += bytes;
        self.mean += (mean - self.mean) * bytes as f64 / self.bytes.max(1) as f64;
        // Rounding may have led out of it.
        self.mean = self.mean.clamp(self.low, end.max(self.low));
    }
}

#[derive(Debug)]
pub(super) struct Histogram {
    bins: Vec<Bin>,
    /// What is below does not count.
    lowest: f64,
    /// The largest value there ever was: the end of the last bin.
    high: f64,
    bytes: u64,
    bins_max: usize,
}

impl Histogram {
    pub(super) fn new(bins_max: usize) -> Histogram {
        assert!(bins_max >= 2, "one bin tells no ranks");
        Histogram { bins: Vec::with_capacity(bins_max + 1), lowest: 0.0, high: 0.0, bytes: 0, bins_max }
    }

    pub(super) fn lowest(&self) -> f64 {
        self.lowest
    }

    /// Sets where an empty histogram begins.
    pub(super) fn set_lowest(&mut self, lowest: f64) {
        self.lowest = lowest;
    }

    fn bin_of(&self, value: f64) -> usize {
        self.bins.partition_point(|bin| bin.low <= value).saturating_sub(1)
    }

    fn end(&self, index: usize) -> f64 {
        self.bins.get(index + 1).map_or(self.high, |next| next.low)
    }

    pub(super) fn add(&mut self, value: f64, bytes: u64) {
        if value < self.lowest {
            return;
        }
        self.high = self.high.max(value);
        match self.bins.first_mut() {
            None => self.bins.push(Bin { low: value, bytes: 0, mean: value }),
            Some(first) => first.low = first.low.min(value),
        }
        let index = self.bin_of(value);
        let end = self.end(index);
        let bin = &mut self.bins[index];
        bin.take_in(value, bytes, end);
        self.bytes += bytes;
        if bin.bytes * self.bins_max as u64 > 2 * self.bytes {
            self.split(index);
        }
    }

    /// What was added with about this value goes. Whatever its bin lacks, its neighbours give.
    pub(super) fn remove(&mut self, value: f64, bytes: u64) {
        if value < self.lowest || self.bins.is_empty() {
            return;
        }
        let index = self.bin_of(value);
        let mut left = bytes.min(self.bytes);
        self.bytes -= left;
        for distance in 0..self.bins.len() {
            for near in [index.checked_add(distance), index.checked_sub(distance)].into_iter().flatten() {
                if let Some(bin) = self.bins.get_mut(near) {
                    let taken = left.min(bin.bytes);
                    bin.bytes -= taken;
                    left -= taken;
                }
            }
            if left == 0 {
                return;
            }
        }
    }

    /// The lowest values stop counting until no more than so many bytes are left.
    pub(super) fn keep_highest(&mut self, bytes_max: u64) {
        while let Some(over) = self.bytes.checked_sub(bytes_max).filter(|over| *over > 0) {
            let (first, end) = (self.bins[0], self.end(0));
            if first.bytes <= over && self.bins.len() > 1 {
                self.bins.remove(0);
                self.bytes -= first.bytes;
                self.lowest = self.lowest.max(end);
                continue;
            }
            let low = first.value(over as f64 / first.bytes as f64, end);
            let left = first.bytes - over;
            let gone = f64::midpoint(first.low, low) * over as f64;
            let mean = (first.mean * first.bytes as f64 - gone) / left.max(1) as f64;
            self.bins[0] = Bin { low, bytes: left, mean: mean.clamp(low, end.max(low)) };
            self.bytes = bytes_max;
            self.lowest = self.lowest.max(low);
        }
    }

    /// Share of the bytes whose value is at most this one: of equals, the older goes first. A bin counts as one value, its
    /// mean.
    pub(super) fn rank(&self, value: f64) -> f64 {
        if self.bytes == 0 || self.bins.first().is_none_or(|first| value < first.low) {
            return 0.0;
        }
        if value >= self.high {
            return 1.0;
        }
        let index = self.bin_of(value);
        let below: u64 = self.bins[..index].iter().map(|bin| bin.bytes).sum();
        let Bin { bytes, mean, .. } = self.bins[index];
        // The mean of equal values differs from them by rounding.
        let inside = if value * (1.0 + 1e-12) >= mean { bytes } else { 0 };
        (below + inside) as f64 / self.bytes as f64
    }

    pub(super) fn verify(&self) -> Result<(), String> {
        let bytes: u64 = self.bins.iter().map(|bin| bin.bytes).sum();
        let ordered = self.bins.is_sorted_by(|one, other| one.low <= other.low);
        let mut bins = self.bins.iter().enumerate();
        let within = bins.all(|(index, bin)| bin.low <= bin.mean && bin.mean <= self.end(index).max(bin.low));
        match bytes == self.bytes && ordered && within && self.bins.len() <= self.bins_max {
            true => Ok(()),
            false => {
                Err(format!("a histogram of {} bytes whose bins have {bytes}: {:?}", self.bytes, self.bins))
            }
        }
    }

    fn split(&mut self, index: usize) {
        let Bin { low, bytes, mean } = self.bins[index];
        let end = self.end(index);
        // One single value cannot be split.
        if !(low < mean && mean < end) {
            return;
        }
        let lower = f64::midpoint(low, mean);
        self.bins[index] = Bin { low, bytes: bytes - bytes / 2, mean: lower };
        let upper = (2.0 * mean - lower).clamp(mean, end);
        self.bins.insert(index + 1, Bin { low: mean, bytes: bytes / 2, mean: upper });
        if self.bins.len() > self.bins_max {
            let sum = |pair: usize| self.bins[pair].bytes + self.bins[pair + 1].bytes;
            let pair = (0..self.bins.len() - 1).min_by_key(|pair| sum(*pair)).expect("at least two bins");
            let upper = self.bins.remove(pair + 1);
            let end = self.end(pair);
            self.bins[pair].take_in(upper.mean, upper.bytes, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    /// Exact ranks of the same values.
    fn twin_rank(values: &[(f64, u64)], value: f64) -> f64 {
        let total: u64 = values.iter().map(|(_, bytes)| bytes).sum();
        let below: u64 = values.iter().filter(|(known, _)| *known <= value).map(|(_, bytes)| bytes).sum();
        below as f64 / total as f64
    }

    proptest! {
        #![proptest_config(cases::proptest(256))]

        /// A sliding window of values that rise in the long run, as those of GDSF do.
        #[test]
        fn ranks_are_close_to_exact(
            sizes in prop::collection::vec((1..200u64, 0..1000u32), 3000),
            rise in 0.0..0.01f64,
        ) {
            let mut histogram = Histogram::new(80);
            let mut window: Vec<(f64, u64)> = Vec::new();
            for (number, (bytes, noise)) in sizes.iter().enumerate() {
                let value = number as f64 * rise + 1.0 / *bytes as f64 + f64::from(*noise) / 1e5;
                histogram.add(value, *bytes);
                window.push((value, *bytes));
                if window.len() > 1000 {
                    let (value, bytes) = window.remove(0);
                    histogram.remove(value, bytes);
                }
            }
            prop_assert_eq!(histogram.bytes, window.iter().map(|(_, bytes)| bytes).sum::<u64>());
            prop_assert_eq!(histogram.bins.iter().map(|bin| bin.bytes).sum::<u64>(), histogram.bytes);
            prop_assert!(histogram.bins.len() <= 80);
            for (value, _) in window.iter().step_by(37) {
                let (rank, exact) = (histogram.rank(*value), twin_rank(&window, *value));
                prop_assert!((rank - exact).abs() < 0.08, "rank {} instead of {}", rank, exact);
            }
        }

        /// Values come at random above the lowest, as in an exact queue of so many bytes: its lowest value is found.
        #[test]
        fn the_lowest_is_that_of_an_exact_queue(sizes in prop::collection::vec(1..200u64, 3000), seed: u64) {
            const BYTES: u64 = 50_000;
            let mut histogram = Histogram::new(160);
            let mut random = SmallRng::seed_from_u64(seed);
            let mut exact: Vec<(f64, u64)> = Vec::new();
            let (mut held, mut lowest) = (0, 0.0);
            for bytes in sizes {
                let value = random.random_range(0.0..1.0);
                histogram.add(histogram.lowest() + value, bytes);
                histogram.keep_highest(BYTES);
                let at = exact.partition_point(|(known, _)| *known > lowest + value);
                exact.insert(at, (lowest + value, bytes));
                held += bytes;
                while held > BYTES {
                    let (value, bytes) = exact.pop().expect("they have bytes");
                    held -= bytes;
                    lowest = value;
                }
                prop_assert!((histogram.lowest() - lowest).abs() < 0.1, "{} not {lowest}", histogram.lowest());
                prop_assert!(histogram.bytes <= BYTES);
            }
            prop_assert!(lowest > 1.0, "it has risen: {}", lowest);
        }

        #[test]
        fn ranks_rise_with_values(values in prop::collection::vec((0.0..1.0f64, 1..100u64), 1..500)) {
            let mut histogram = Histogram::new(20);
            for (value, bytes) in &values {
                histogram.add(*value, *bytes);
            }
            let ranks: Vec<f64> = (0..=100).map(|step| histogram.rank(f64::from(step) / 100.0)).collect();
            prop_assert!(ranks.is_sorted(), "{:?}", ranks);
            prop_assert!(ranks.iter().all(|rank| (0.0..=1.0).contains(rank)));
        }
    }

    #[test]
    fn one_value_only_is_one_bin() {
        let mut histogram = Histogram::new(8);
        for _ in 0..100 {
            histogram.add(0.5, 10);
        }
        assert_eq!((histogram.rank(0.4), histogram.rank(0.5), histogram.rank(0.6)), (0.0, 1.0, 1.0));
        histogram.keep_highest(600);
        assert_eq!((histogram.lowest(), histogram.bytes, histogram.rank(0.5)), (0.5, 600, 1.0));
        histogram.add(0.4, 10);
        assert_eq!(histogram.bytes, 600, "what is below the lowest does not count");
        histogram.remove(0.5, 600);
        assert_eq!(histogram.rank(0.6), 0.0);
    }
}
