//! How much of all requests is about one key, from counts by key. Not how often caches or servers see it.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::time::Time;

const SPAN: Duration = Duration::from_secs(1);

/// Counts of the last second, oldest first, with their times.
#[derive(Default)]
pub(crate) struct HottestCounts(VecDeque<(Time, Vec<u32>)>);

impl HottestCounts {
    /// Takes the next counts; the hottest key's share of the requests of the last second.
    pub(crate) fn frame(&mut self, now: Time, counts: Vec<u32>) -> Option<f64> {
        self.0.push_back((now, counts));
        while self.0.get(1).is_some_and(|(second, _)| second.after(SPAN) <= now) {
            self.0.pop_front();
        }
        let ((_, before), (_, after)) = (self.0.front()?, self.0.back()?);
        let grown = || after.iter().zip(before).map(|(after, before)| u64::from(after.wrapping_sub(*before)));
        let (most, sum): (u64, u64) = (grown().max()?, grown().sum());
        (sum > 0).then(|| most as f64 / sum as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_second_counts() {
        let mut hottest = HottestCounts::default();
        assert_eq!(hottest.frame(Time(0), vec![0; 100]), None);
        let mut counts = vec![0; 100];
        (counts[7], counts[42]) = (100, 300);
        assert_eq!(hottest.frame(Time(500_000), counts.clone()), Some(0.75));
        for frame in 1..=4 {
            counts[3] += 1;
            hottest.frame(Time(500_000 + frame * 250_000), counts.clone());
        }
        counts[3] += 1;
        assert_eq!(hottest.frame(Time(1_750_000), counts), Some(1.0));
    }
}
