//! Where in the queue the segments of SLRU end. Not where sections do.
//!
//! Table 4.2 has segment l of L at the ranks from (l - 1) / L to l / L. There it is once hits have filled the segments
//! above the lowest. Until then those are smaller, and the lowest has what they leave: if l / L were a rank from the
//! beginning, what comes first would stand above all that comes later, requested or not, until hits push it down.

#[derive(Debug)]
pub(super) struct Segments {
    /// Bytes of all but the lowest segment, from the second up.
    upper: Vec<u64>,
    /// What a full cache holds.
    capacity: u64,
}

impl Segments {
    pub(super) fn new(segments: u8, capacity: u64) -> Segments {
        Segments { upper: vec![0; usize::from(segments.max(1)) - 1], capacity }
    }

    /// Bytes of the upper segments, for a checkpoint.
    pub(super) fn upper(&self) -> &[u64] {
        &self.upper
    }

    /// What a checkpoint has saved. Of another number of segments it says nothing, and all count as full.
    pub(super) fn restore(&mut self, upper: &[u64]) {
        match upper.len() == self.upper.len() {
            true => self.upper.copy_from_slice(upper),
            false => self.upper.fill(u64::MAX),
        }
        self.settle();
    }

    pub(super) fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
        self.settle();
    }

    /// The rank of a priority, in a queue of so many bytes.
    pub(super) fn rank(&self, priority: f64, bytes: u64) -> f64 {
        let mut segments = priority * self.count();
        let (mut below, mut all) = (0.0, 0.0);
        for size in self.sizes(bytes) {
            below += size * segments.clamp(0.0, 1.0);
            segments -= 1.0;
            all += size;
        }
        if all > 0.0 { below / all } else { priority }
    }

    /// The priority of a rank, in a queue of so many bytes: the inverse of `rank`.
    pub(super) fn priority(&self, rank: f64, bytes: u64) -> f64 {
        let mut below = rank * self.sizes(bytes).sum::<f64>();
        let mut segments = 0.0;
        for size in self.sizes(bytes) {
            if below < size {
                segments += below / size;
                break;
            }
            below -= size;
            segments += 1.0;
        }
        segments / self.count()
    }

    /// Bytes leave the segment of this priority.
    pub(super) fn leave(&mut self, priority: f64, bytes: u64) {
        if let Some(upper) = self.upper_of(priority) {
            self.upper[upper] = self.upper[upper].saturating_sub(bytes);
        }
    }

    /// Bytes enter the segment of this priority; what it cannot hold moves to the next lower one.
    pub(super) fn enter(&mut self, priority: f64, bytes: u64) {
        if let Some(upper) = self.upper_of(priority) {
            self.upper[upper] += bytes;
            self.settle();
        }
    }

    pub(super) fn verify(&self) -> Result<(), String> {
        let most = self.most();
        match self.upper.iter().all(|size| *size <= most) {
            true => Ok(()),
            false => Err(format!("segments of {:?} bytes, each of at most {most}", self.upper)),
        }
    }

    fn count(&self) -> f64 {
        (self.upper.len() + 1) as f64
    }

    fn most(&self) -> u64 {
        self.capacity / (self.upper.len() as u64 + 1)
    }

    /// From the lowest up.
    fn sizes(&self, bytes: u64) -> impl Iterator<Item = f64> {
        let lowest = bytes.saturating_sub(self.upper.iter().sum());
        std::iter::once(lowest).chain(self.upper.iter().copied()).map(|size| size as f64)
    }

    /// Which of the upper segments, if it is one, that of Table 4.2 with this priority is.
    fn upper_of(&self, priority: f64) -> Option<usize> {
        let segment = (priority * self.count()).ceil() as usize;
        segment.min(self.upper.len() + 1).checked_sub(2)
    }

    fn settle(&mut self) {
        let most = self.most();
        let mut over = 0;
        for size in self.upper.iter_mut().rev() {
            let all = size.saturating_add(over);
            *size = all.min(most);
            over = all - *size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Three segments in a cache of 300 bytes, of which the upper ones have these.
    fn segments(upper: [u64; 2]) -> Segments {
        let mut segments = Segments::new(3, 300);
        segments.restore(&upper);
        segments
    }

    /// Table 4.2 itself: in a cache whose segments are full, priorities are ranks.
    #[test]
    fn full_segments_end_at_their_shares() {
        for segments in [segments([100, 100]), segments([100, 4000]), Segments::new(1, 300)] {
            for step in 0..=30 {
                let priority = f64::from(step) / 30.0;
                assert!((segments.rank(priority, 300) - priority).abs() < 1e-12);
                assert!((segments.priority(priority, 300) - priority).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn what_comes_first_is_below_what_was_requested() {
        let mut segments = segments([0, 0]);
        assert_eq!(segments.rank(1.0 / 3.0, 200), 1.0, "nothing was requested: the newest is the highest");
        segments.enter(2.0 / 3.0, 40);
        assert_eq!(segments.rank(1.0 / 3.0, 200), 0.8, "below what was");
        assert_eq!(segments.rank(2.0 / 3.0, 200), 1.0);
        segments.leave(0.5, 10);
        segments.enter(1.0, 10);
        assert_eq!(segments.upper(), [30, 10]);
        assert_eq!(segments.rank(2.0 / 3.0, 200), 0.95);
    }

    #[test]
    fn what_a_segment_cannot_hold_moves_down() {
        let mut segments = segments([90, 95]);
        segments.enter(1.0, 20);
        assert_eq!(segments.upper(), [100, 100], "and 5 bytes to the lowest");
        segments.set_capacity(240);
        assert_eq!(segments.upper(), [80, 80]);
        let mut others = Segments::new(2, 300);
        others.restore(segments.upper());
        assert_eq!(others.upper(), [150], "another policy's segments tell nothing");
    }

    proptest! {
        #![proptest_config(cases::proptest(256))]

        /// Also where the queue has lost more than its lowest segment had.
        #[test]
        fn rank_and_priority_are_inverse(upper: [u16; 2], bytes in 1..500u64, priority in 0.0..=1.0f64) {
            let segments = segments(upper.map(|size| u64::from(size) % 101));
            let rank = segments.rank(priority, bytes);
            prop_assert!((0.0..=1.0 + 1e-9).contains(&rank), "{}", rank);
            let again = segments.rank(segments.priority(rank, bytes), bytes);
            prop_assert!((rank - again).abs() < 1e-9, "{} and {}", rank, again);
        }
    }
}
