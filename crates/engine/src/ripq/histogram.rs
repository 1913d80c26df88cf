//! From an absolute priority to a rank: a histogram whose bins split and merge by their bytes. Not the queue's order.
//!
//! Section 4.3.5: the histogram returns approximate percentiles, and its bins are kept of similar size in the way
//! sections are. Values are summed up for as long as a cache lives and never renormalised: the lowest value rises by at
//! most the largest c/s per turnover of the cache, so an f64 still tells neighbours apart after millions of turnovers.

#[derive(Clone, Copy, Debug)]
struct Bin {
    /// Holds the values from here to the next bin's lowest.
    low: f64,
    bytes: u64,
    /// Of values, weighted by bytes: where the bin is cut when it grows.
    mean: f64,
}

#[derive(Debug)]
pub(super) struct Histogram {
    bins: Vec<Bin>,
    /// The largest value there ever was: the end of the last bin.
    high: f64,
    bytes: u64,
    bins_max: usize,
}

impl Histogram {
    pub(super) fn new(bins_max: usize) -> Histogram {
        assert!(bins_max >= 2, "one bin tells no ranks");
        Histogram { bins: Vec::with_capacity(bins_max + 1), high: 0.0, bytes: 0, bins_max }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bin_of(&self, value: f64) -> usize {
        self.bins.partition_point(|bin| bin.low <= value).saturating_sub(1)
    }

    fn end(&self, index: usize) -> f64 {
        self.bins.get(index + 1).map_or(self.high, |next| next.low)
    }

    pub(super) fn add(&mut self, value: f64, bytes: u64) {
        self.high = self.high.max(value);
        match self.bins.first_mut() {
            None => self.bins.push(Bin { low: value, bytes: 0, mean: value }),
            Some(first) => first.low = first.low.min(value),
        }
        let index = self.bin_of(value);
        let bin = &mut self.bins[index];
        bin.bytes += bytes;
        bin.mean += (value - bin.mean) * bytes as f64 / bin.bytes as f64;
        self.bytes += bytes;
        if bin.bytes * self.bins_max as u64 > 2 * self.bytes {
            self.split(index);
        }
    }

    /// What was added with about this value goes. Whatever its bin lacks, its neighbours give.
    pub(super) fn remove(&mut self, value: f64, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "more than there is");
        if self.bins.is_empty() {
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

    /// The value of a rank: the inverse of `rank`; 0 if there is none.
    pub(super) fn value(&self, rank: f64) -> f64 {
        let target = rank * self.bytes as f64;
        let mut below = 0.0;
        for (index, bin) in self.bins.iter().enumerate().filter(|(_, bin)| bin.bytes > 0) {
            let inside = (target - below) / bin.bytes as f64;
            below += bin.bytes as f64;
            if inside <= 1.0 {
                return match inside < 0.5 {
                    true => bin.low + 2.0 * inside * (bin.mean - bin.low),
                    false => bin.mean + (2.0 * inside - 1.0) * (self.end(index) - bin.mean),
                };
            }
        }
        self.high
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
            let lower = &mut self.bins[pair];
            lower.bytes += upper.bytes;
            lower.mean += (upper.mean - lower.mean) * upper.bytes as f64 / lower.bytes.max(1) as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Exact ranks of the same values.
    fn twin_rank(values: &[(f64, u64)], value: f64) -> f64 {
        let total: u64 = values.iter().map(|(_, bytes)| bytes).sum();
        let below: u64 = values.iter().filter(|(known, _)| *known <= value).map(|(_, bytes)| bytes).sum();
        below as f64 / total as f64
    }

    proptest! {
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
            prop_assert_eq!(histogram.bytes(), window.iter().map(|(_, bytes)| bytes).sum::<u64>());
            prop_assert_eq!(histogram.bins.iter().map(|bin| bin.bytes).sum::<u64>(), histogram.bytes());
            prop_assert!(histogram.bins.len() <= 80);
            for (value, _) in window.iter().step_by(37) {
                let (rank, exact) = (histogram.rank(*value), twin_rank(&window, *value));
                prop_assert!((rank - exact).abs() < 0.08, "rank {} instead of {}", rank, exact);
            }
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
        histogram.remove(0.5, 1000);
        assert_eq!(histogram.rank(0.6), 0.0);
        assert_eq!(histogram.value(0.3), 0.5);
    }
}
