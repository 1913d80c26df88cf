//! Which uncached items are hot: a Count-Min sketch and a Bloom filter (paper, section 5). Not what is done about it.

mod filter;
mod hottest;
mod sketch;

use std::time::Duration;

use crate::time::Time;
use filter::Filter;
pub use hottest::Hottest;
use sketch::Sketch;

/// Sizes, fixed at construction. The default is the paper's and takes 1.1 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeatConfig {
    /// Rows of the Count-Min sketch, 1 to 8.
    pub rows: usize,
    /// 16-bit counters per row.
    pub counters: usize,
    /// Rows of the Bloom filter, 1 to 8.
    pub filter_rows: usize,
    /// Bits per row of the filter.
    pub filter_bits: usize,
    /// How often both are renewed.
    pub window: Duration,
}

impl Default for HeatConfig {
    fn default() -> HeatConfig {
        HeatConfig {
            rows: 4,
            counters: 65_536,
            filter_rows: 3,
            filter_bits: 262_144,
            window: Duration::from_secs(1),
        }
    }
}

/// Estimates how often each item is asked for, in fixed memory, and names the hot ones once per window.
///
/// The estimate is the count of the current window plus that of the previous one, weighted by the part of it that
/// a sliding window would still cover. Within one window it is never below the true count (up to 65,535, where
/// counters stop); it is above by the items that share all of the item's counters.
#[derive(Clone, Debug)]
pub struct HeavyHitters {
    sketch: Sketch,
    filter: Filter,
    window_us: u64,
    /// When the current window ends.
    window_end: u64,
    /// 2^32 divided by the window, so that weighing needs no division.
    weight_per_us: u64,
}

impl HeavyHitters {
    /// `seed` keys the hash functions; instances with different seeds err on different items.
    pub fn new(config: HeatConfig, seed: u64) -> HeavyHitters {
        let window_us = (config.window.as_micros() as u64).clamp(1, 1 << 32);
        HeavyHitters {
            sketch: Sketch::new(config.rows, config.counters, seed),
            filter: Filter::new(config.filter_rows, config.filter_bits, mix(seed ^ FILTER_SEED)),
            window_us,
            window_end: window_us,
            weight_per_us: (1 << 32) / window_us,
        }
    }

    /// Counts one request for `item`, a keyed hash. Returns its heat in requests per second when it has reached
    /// `threshold`, but for each item at most once per window.
    pub fn record(&mut self, now: Time, item: u64, threshold: u32) -> Option<u32> {
        if now.0 >= self.window_end {
            self.renew(now);
        }
        let (current, previous) = self.sketch.record(item);
        let left = self.window_end.saturating_sub(now.0).min(self.window_us);
        let carried = (u64::from(previous) * (left * self.weight_per_us)) >> 32;
        let heat = self.per_second(u64::from(current) + carried);
        (heat >= threshold && self.filter.insert(item)).then_some(heat)
    }

    fn per_second(&self, requests: u64) -> u32 {
        if self.window_us == 1_000_000 {
            return requests as u32;
        }
        (requests * 1_000_000 / self.window_us).min(u64::from(u32::MAX)) as u32
    }

    fn renew(&mut self, now: Time) {
        let windows = (now.0 - self.window_end) / self.window_us + 1;
        if windows == 1 {
            self.sketch.flip();
        } else {
            self.sketch.clear();
        }
        self.filter.clear();
        self.window_end += windows * self.window_us;
    }
}

/// Sets the filter's hash functions apart from the sketch's.
const FILTER_SEED: u64 = 0x6669_6c74_6572;

/// A bijection of 64-bit words that leaves no visible pattern (SplitMix64's finalizer).
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Most rows of either structure: enough for any error rate in use, and a bound on the work per request.
const ROWS_MAX: usize = 8;

/// One hash function per row, two of 32 bits from each mixed word.
#[derive(Clone, Debug)]
struct RowHashes {
    seeds: [u64; ROWS_MAX / 2],
    width: u64,
}

impl RowHashes {
    fn new(seed: u64, width: usize) -> RowHashes {
        let seeds = std::array::from_fn(|pair| mix(seed.wrapping_add(mix(pair as u64 + 1))));
        RowHashes { seeds, width: width as u64 }
    }

    /// The item's columns in rows `2 * pair` and `2 * pair + 1`.
    fn pair(&self, pair: usize, item: u64) -> [usize; 2] {
        let word = mix(item ^ self.seeds[pair]);
        [word >> 32, word & 0xffff_ffff].map(|half| ((half * self.width) >> 32) as usize)
    }
}

#[cfg(test)]
mod tests;
