//! The logical queue against obvious lists, on random requests.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Objects with their sizes and what orders them; the lowest first.
#[derive(Default)]
struct Twin {
    segments: Vec<Vec<(u64, u32)>>,
    ranks: Vec<(u64, u32, f64, u8)>,
    lowest: f64,
}

impl Twin {
    fn request_segmented(&mut self, digest: u64, bytes: u32, bytes_max: u64) {
        let found =
            self.segments.iter().position(|segment| segment.iter().any(|(known, _)| *known == digest));
        self.remove(digest);
        let to = found.map_or(0, |segment| (segment + 1).min(self.segments.len() - 1));
        self.segments[to].push((digest, bytes));
        let each = bytes_max / self.segments.len() as u64;
        let sum = |segment: &[(u64, u32)]| segment.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>();
        for upper in (1..=to).rev() {
            while sum(&self.segments[upper]) > each {
                let tail = self.segments[upper].remove(0);
                self.segments[upper - 1].push(tail);
            }
        }
        while self.segments.iter().map(|segment| sum(segment)).sum::<u64>() > bytes_max {
            self.segments[0].remove(0);
        }
    }

    fn request_ranked(&mut self, digest: u64, bytes: u32, bytes_max: u64, frequency_max: u8) {
        let found = self.ranks.iter().find(|(known, ..)| *known == digest);
        let requests = found.map_or(0, |(.., requests)| *requests).saturating_add(1);
        self.remove(digest);
        let rank = self.lowest + f64::from(requests.min(frequency_max)) / f64::from(bytes);
        self.ranks.push((digest, bytes, rank, requests));
        while self.ranks.iter().map(|(_, bytes, ..)| u64::from(*bytes)).sum::<u64>() > bytes_max {
            let order = |(_, bytes, rank, _): &(u64, u32, f64, u8)| (*rank, std::cmp::Reverse(*bytes));
            self.ranks.sort_by(|one, other| order(one).partial_cmp(&order(other)).expect("finite"));
            self.lowest = self.ranks.remove(0).2;
        }
    }

    fn remove(&mut self, digest: u64) {
        self.segments.iter_mut().for_each(|segment| segment.retain(|(known, _)| *known != digest));
        self.ranks.retain(|(known, ..)| *known != digest);
    }

    fn contains(&self, digest: u64) -> bool {
        self.segments.iter().flatten().any(|(known, _)| *known == digest)
            || self.ranks.iter().any(|(known, ..)| *known == digest)
    }
}

fn request(logical: &mut Logical, held: &mut BTreeSet<u64>, digest: u64, bytes: u32) {
    held.insert(digest);
    logical.request(digest, bytes, |gone, _| assert!(held.remove(&gone), "{gone} was not held"));
}

fn check(policy: FlashPolicy, steps: &[(u64, u32, bool)]) -> Result<(), TestCaseError> {
    const BYTES_MAX: u64 = 1000;
    let mut logical = Logical::new(policy, BYTES_MAX);
    let mut twin = Twin::default();
    // As told by the queue.
    let mut held = BTreeSet::new();
    if let FlashPolicy::SegmentedLru { segments } = policy {
        twin.segments = vec![Vec::new(); usize::from(segments)];
    }
    for (digest, bytes, removes) in steps {
        // No two objects have one size, which decides between equal ranks.
        let bytes = bytes * 64 + *digest as u32 + 1;
        match (policy, removes) {
            (_, true) => {
                logical.remove(*digest);
                held.remove(digest);
                twin.remove(*digest);
            }
            (FlashPolicy::SegmentedLru { .. }, _) => {
                request(&mut logical, &mut held, *digest, bytes);
                twin.request_segmented(*digest, bytes, BYTES_MAX);
            }
            (FlashPolicy::Gdsf { frequency_max }, _) => {
                request(&mut logical, &mut held, *digest, bytes);
                twin.request_ranked(*digest, bytes, BYTES_MAX, frequency_max);
            }
            (FlashPolicy::Fifo, _) => logical.request(*digest, bytes, |_, _| {}),
        }
        for digest in 0..40 {
            prop_assert_eq!(logical.contains(digest), twin.contains(digest), "object {}", digest);
            prop_assert_eq!(logical.contains(digest), held.contains(&digest), "told of {}", digest);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases::proptest(256))]

    #[test]
    fn segments_are_lists(
        segments in 1..5u8,
        steps in prop::collection::vec((0..40u64, 0..4u32, prop::bool::weighted(0.1)), 0..400),
    ) {
        check(FlashPolicy::SegmentedLru { segments }, &steps)?;
    }

    #[test]
    fn ranks_are_an_order(
        frequency_max in 1..5u8,
        steps in prop::collection::vec((0..40u64, 0..4u32, prop::bool::weighted(0.1)), 0..400),
    ) {
        check(FlashPolicy::Gdsf { frequency_max }, &steps)?;
    }
}

#[test]
fn nothing_is_worth_writing_again_for_fifo() {
    let mut logical = Logical::new(FlashPolicy::Fifo, 1000);
    logical.request(1, 10, |_, _| {});
    assert!(!logical.contains(1));
}

#[test]
fn takes_little_memory() {
    let mut logical = Logical::new(FlashPolicy::SegmentedLru { segments: 3 }, u64::MAX);
    (0..100_000).for_each(|number| {
        logical.request(crate::record::digest(&u64::to_le_bytes(number), 1), 100, |_, _| {})
    });
    let each = logical.memory_bytes() as f64 / 100_000.0;
    assert!(each < 56.0, "{each} bytes per object");
}
