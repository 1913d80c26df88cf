//! The keys that clients ask for most, from counts by key. Not how often caches or servers see them.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::FRAMES_PER_RATE;
use super::picture::HOTTEST_MAX;

/// Counts of the last second, oldest first, with their times in microseconds.
#[derive(Default)]
pub(crate) struct Hottest(VecDeque<(u64, Vec<u32>)>);

impl Hottest {
    /// Takes the next counts; the hottest keys and their requests per second over the last second.
    pub(crate) fn frame(&mut self, now_us: u64, counts: Vec<u32>) -> Vec<(String, u64)> {
        self.0.push_back((now_us, counts));
        if self.0.len() > FRAMES_PER_RATE + 1 {
            self.0.pop_front();
        }
        let (Some((from_us, before)), Some((_, after))) = (self.0.front(), self.0.back()) else {
            return Vec::new();
        };
        let passed_us = now_us - from_us;
        let mut keys: Vec<(u32, u64)> = after
            .iter()
            .zip(before)
            .zip(0..)
            .map(|((after, before), key)| (after.wrapping_sub(*before), key))
            .collect();
        if passed_us == 0 || keys.len() <= HOTTEST_MAX {
            return Vec::new();
        }
        keys.select_nth_unstable_by_key(HOTTEST_MAX, |(count, _)| Reverse(*count));
        keys.truncate(HOTTEST_MAX);
        keys.sort_unstable_by_key(|(count, _)| Reverse(*count));
        let named = |(count, key): (u32, u64)| {
            let name = String::from_utf8_lossy(&trace::key_name(key)).into_owned();
            (name, u64::from(count) * 1_000_000 / passed_us)
        };
        keys.into_iter().filter(|(count, _)| *count > 0).map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_second_counts_and_the_hottest_come_first() {
        let mut hottest = Hottest::default();
        assert_eq!(hottest.frame(0, vec![0; 100]), []);
        let mut counts = vec![0; 100];
        (counts[7], counts[42]) = (100, 300);
        let keys = hottest.frame(500_000, counts.clone());
        assert_eq!(keys, [("key:000000000042".to_owned(), 600), ("key:000000000007".to_owned(), 200)]);
        for frame in 1..=FRAMES_PER_RATE as u64 {
            counts[3] += 1;
            hottest.frame(500_000 + frame * 250_000, counts.clone());
        }
        counts[3] += 1;
        let keys = hottest.frame(1_750_000, counts);
        assert_eq!(keys, [("key:000000000003".to_owned(), 4)]);
    }
}
