//! The hottest of the keys that were reported of late, for people to see. Decides nothing.

use std::time::Duration;

use wire::Key;

use crate::time::Time;

/// Looked through at every report, of which each key makes at most one per window.
const KEYS_MAX: usize = 64;
/// A report says nothing any more when it is older: two windows of the default length, and a little.
const LIFE: Duration = Duration::from_millis(2500);

#[derive(Clone, Debug, Default)]
pub struct Hottest {
    reports: Vec<Report>,
}

#[derive(Clone, Debug)]
struct Report {
    key: Key,
    heat: u32,
    at: Time,
}

impl Hottest {
    /// `key` was asked for so many times per second.
    pub fn report(&mut self, now: Time, key: &Key, heat: u32) {
        if let Some(known) = self.reports.iter_mut().find(|known| known.key == *key) {
            (known.heat, known.at) = (heat, now);
            return;
        }
        if self.reports.len() == KEYS_MAX {
            let worth = |report: &Report| if now.since(report.at) > LIFE { 0 } else { report.heat };
            let coldest = (0..KEYS_MAX).min_by_key(|index| worth(&self.reports[*index])).unwrap_or_default();
            if worth(&self.reports[coldest]) >= heat {
                return;
            }
            self.reports.swap_remove(coldest);
        }
        // The key outlives the read buffer that it arrived in.
        let key = Key { bytes: bytes::Bytes::copy_from_slice(&key.bytes), ..*key };
        self.reports.push(Report { key, heat, at: now });
    }

    /// At most `count` keys with their requests per second, hottest first.
    pub fn top(&self, now: Time, count: usize) -> Vec<(&Key, u32)> {
        let fresh = self.reports.iter().filter(|report| now.since(report.at) <= LIFE);
        let mut top: Vec<(&Key, u32)> = fresh.map(|report| (&report.key, report.heat)).collect();
        top.sort_unstable_by_key(|(key, heat)| (std::cmp::Reverse(*heat), key.digest));
        top.truncate(count);
        top
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::{Digest, Key};

    use super::{Hottest, KEYS_MAX};
    use crate::time::Time;

    fn key(number: u32) -> Key {
        let bytes = Bytes::from(number.to_string());
        Key { digest: Digest(u128::from(number)), database: 0, bytes }
    }

    fn top(hottest: &Hottest, now: u64, count: usize) -> Vec<u32> {
        hottest.top(Time(now), count).into_iter().map(|(_, heat)| heat).collect()
    }

    #[test]
    fn the_hottest_stay_and_the_old_go() {
        let mut hottest = Hottest::default();
        for number in 0..KEYS_MAX as u32 + 10 {
            hottest.report(Time(0), &key(number), number + 1);
        }
        assert_eq!(top(&hottest, 0, 2), [74, 73]);
        hottest.report(Time(0), &key(1000), 1);
        assert_eq!(top(&hottest, 0, 100).last(), Some(&11), "colder than all of them");
        hottest.report(Time(1), &key(73), 5);
        assert_eq!(top(&hottest, 1, 1), [73], "the last report of a key counts");
        hottest.report(Time(3_000_000), &key(1000), 1);
        assert_eq!(top(&hottest, 3_000_000, 100), [1], "old reports make room and are not shown");
    }
}
