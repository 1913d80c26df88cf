//! How values are spread, to three digits in a few KiB. Not what the values are.

use hdrhistogram::Histogram;

/// Larger values are counted as this; nothing that is measured reaches it.
const VALUE_MAX: u64 = 1 << 62;

/// Counts values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValueCounts {
    counts: Histogram<u64>,
    /// Exact, unlike what the histogram remembers.
    range: (u64, u64),
}

/// All 0 where there is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    pub mean: f64,
    pub min: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}

impl Default for ValueCounts {
    fn default() -> ValueCounts {
        let counts = Histogram::new(3).expect("three digits are a precision");
        ValueCounts { counts, range: (u64::MAX, 0) }
    }
}

impl ValueCounts {
    pub(super) fn record(&mut self, value: u64, times: u64) {
        let value = value.min(VALUE_MAX);
        self.range = (self.range.0.min(value), self.range.1.max(value));
        self.counts.record_n(value, times).expect("it grows to hold any value below 2^63");
    }

    pub(super) fn quantiles(&self) -> Quantiles {
        let (min, max) = self.range;
        if min > max {
            return Quantiles::default();
        }
        // Values in one bucket count as its smallest, which sizes that are multiples of powers of two are.
        let at = |share| self.counts.lowest_equivalent(self.counts.value_at_quantile(share)).clamp(min, max);
        Quantiles {
            mean: self.counts.mean(),
            min,
            p10: at(0.1),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max,
        }
    }

    /// How many values there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.counts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_is_counted() {
        let mut spread = ValueCounts::default();
        spread.record(u64::MAX, 1);
        spread.record(0, 3);
        spread.record(5_000_000_000, 96);
        let quantiles = spread.quantiles();
        assert_eq!((spread.count(), quantiles.min), (100, 0));
        assert!((quantiles.p50 as f64 / 5e9 - 1.0).abs() < 0.001, "{quantiles:?}");
        assert_eq!(quantiles.max, VALUE_MAX);
    }
}
