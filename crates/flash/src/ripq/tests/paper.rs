//! The dissertation's sentences about RIPQ, section by section. Not its measurements.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{cache, settings};
use crate::index::IndexPlace;
use crate::priority::QueuePriority;
use crate::ripq::queue::{RipqQueue, bytes, counted_in};
use crate::ripq::section::{BlockKind, Section};
use crate::ripq::{Ripq, RipqSettings};

/// Sections with so many sealed blocks each; a block has one object of one unit per percent. The segments are full.
fn queue(alpha: f64, sections: &[&[u32]]) -> RipqQueue {
    let mut queue = RipqQueue::new("slru:3".parse().expect("a policy"), alpha, 1 << 20, bytes(100));
    queue.segments.restore(&[]);
    queue.sections = sections.iter().map(|_| Section::default()).collect();
    for (section, blocks) in sections.iter().enumerate() {
        for units in *blocks {
            let block = queue.push_sealed(section);
            queue.blocks[block].residents += 1;
            queue.count(block, *units, 1);
        }
        queue.recount(section);
    }
    queue
}

fn shares(queue: &RipqQueue) -> Vec<u64> {
    queue.sections.iter().map(|section| section.bytes * 100 / queue.bytes).collect()
}

/// Section 4.3.2: of sections [0, 0.3), [0.3, 0.7) and [0.7, 1.0] the second takes "an item with priority value 0.5". It
/// is inserted at a section's head, so what is nearer to the head below goes there, where section 4.3.4 does not.
#[test]
fn an_object_goes_to_the_head_that_is_nearest_to_its_priority() {
    let queue = queue(0.3, &[&[30], &[20, 20], &[30]]);
    let places =
        [(0.0, 0), (0.29, 0), (0.3, 0), (0.49, 0), (0.5, 1), (0.7, 1), (0.84, 1), (0.86, 2), (1.0, 2)];
    for (rank, section) in places {
        assert_eq!(queue.locate(QueuePriority::Relative(rank)), section, "priority {rank}");
    }
}

/// Section 4.3.4: "if alpha = 0.3 then a section from [0.4, 1.0] would be split into [0.4, 0.7) and [0.7, 1.0]".
#[test]
fn a_section_of_twice_alpha_is_split_in_halves() {
    let mut split = queue(0.3, &[&[20, 20], &[15, 15, 15, 15]]);
    split.balance();
    assert_eq!(shares(&split), [40, 30, 30]);
    assert_eq!(split.splits, 1);
    let mut smaller = queue(0.3, &[&[20, 21], &[15, 15, 15, 14]]);
    smaller.balance();
    assert_eq!(shares(&smaller), [41, 59]);
}

/// Section 4.3.4: "RIPQ merges two consecutive sections if the sum of their sizes is smaller than alpha".
#[test]
fn neighbours_with_less_than_alpha_are_merged() {
    let mut merged = queue(0.3, &[&[35], &[14], &[15], &[36]]);
    let order = |queue: &RipqQueue| -> Vec<u32> {
        queue.sections.iter().flat_map(Section::blocks).filter(|id| queue.blocks[*id].objects > 0).collect()
    };
    let before = order(&merged);
    merged.balance();
    assert_eq!(shares(&merged), [35, 29, 36]);
    assert_eq!((merged.merges, order(&merged)), (1, before));
    let mut larger = queue(0.3, &[&[35], &[15], &[15], &[35]]);
    larger.balance();
    assert_eq!(shares(&larger), [35, 15, 15, 35]);
}

/// Section 4.3.4: sections are at most 2 / alpha, however the bytes are spread.
#[test]
fn there_are_at_most_two_over_alpha_sections() {
    for (alpha, most) in [(0.3, 7), (0.25, 8), (0.1, 20), (0.05, 40)] {
        let ones = vec![1; 200];
        let sections: Vec<&[u32]> = ones.chunks(1).collect();
        let mut queue = queue(alpha, &sections);
        queue.balance();
        assert!(queue.sections.len() <= most, "{} sections at {alpha}", queue.sections.len());
        let largest = shares(&queue).into_iter().max().expect("there are some");
        assert!(largest as f64 <= 200.0 * alpha + 1.0, "{largest} percent at {alpha}");
    }
}

/// Section 4.3.4, figure 4.3b: an update counts the object at the head of its new section, and never lower.
#[test]
fn an_update_only_raises() {
    let mut queue = queue(0.3, &[&[30], &[20, 20], &[30]]);
    let lowest = queue.lowest_device().expect("there are blocks");
    let mut place = IndexPlace { block: lowest, offset: 4, units: 30, moved_to: None, frequency: 1 };
    queue.request(&mut place);
    let moved = place.moved_to.expect("from the first third to the second");
    assert_eq!((queue.blocks[moved].kind, queue.blocks[moved].section), (BlockKind::Virtual, 1));
    assert_eq!((queue.blocks[lowest].objects, queue.blocks[lowest].residents), (0, 1));
    let head = queue.sections[2].sealed[0];
    let mut top = IndexPlace { block: head, ..place };
    (top.moved_to, top.frequency) = (None, 1);
    let before = queue.rank(head);
    queue.request(&mut top);
    let moved = top.moved_to.expect("to the head of its section");
    assert!(queue.rank(moved) >= before && queue.blocks[moved].section == 2, "priorities only rise");
}

/// A queue whose blocks have one object each, driven as a cache of objects of one size; what is in it, and where.
struct Single {
    queue: RipqQueue,
    places: BTreeMap<u32, IndexPlace>,
    objects_max: usize,
}

impl Single {
    fn put(&mut self, object: u32, section: usize, frequency: u8) {
        let block = self.queue.open(section, BlockKind::Device);
        self.queue.blocks[block].residents += 1;
        self.queue.count(block, 1, frequency);
        self.places.insert(object, IndexPlace { block, offset: 4, units: 1, moved_to: None, frequency });
        self.queue.seal(section);
        self.queue.balance();
    }

    /// Whether it was a hit.
    fn request(&mut self, object: u32) -> bool {
        if let Some(place) = self.places.get_mut(&object) {
            self.queue.request(place);
            return true;
        }
        self.put(object, self.queue.locate(self.queue.on_miss(1)), 1);
        while self.places.len() > self.objects_max {
            self.delete_min();
        }
        false
    }

    fn delete_min(&mut self) {
        let block = self.queue.lowest_device().expect("there are objects");
        let (object, place) = self.places.iter().find(|(_, place)| place.block == block).expect("it has one");
        let (object, place) = (*object, *place);
        let section = place.moved_to.map(|moved| self.queue.blocks[moved].section);
        self.queue.discount(counted_in(&place), 1, place.frequency);
        self.queue.blocks[block].residents -= 1;
        self.queue.remove(block);
        self.places.remove(&object);
        if let Some(section) = section {
            self.put(object, section, place.frequency);
        }
    }
}

/// Section 4.3.2: "the insertion error is bounded by O(1/K)": with as many sections as objects there is none, and the
/// queue is an exact one. Sections are taken to be so small that each has one object.
#[test]
fn with_a_section_for_each_object_the_queue_is_exact() {
    for case in cases::seeds(20) {
        let seed = case.seed;
        let mut random = SmallRng::seed_from_u64(seed);
        let objects_max = 30;
        let queue = RipqQueue::new("lru".parse().expect("a policy"), 0.001, bytes(1), bytes(30));
        let mut single = Single { queue, places: BTreeMap::new(), objects_max };
        let mut twin: Vec<u32> = Vec::new();
        for step in 0..3000 {
            let object = random.random_range(0..80u32).min(random.random_range(0..80));
            let position = twin.iter().position(|known| *known == object);
            assert_eq!(single.request(object), position.is_some(), "seed {seed}, step {step}: {object}");
            match position {
                Some(position) => drop(twin.remove(position)),
                None if twin.len() == objects_max => drop(twin.remove(0)),
                None => {}
            }
            twin.push(object);
        }
    }
}

fn filled(settings: RipqSettings, requested: u16) -> Ripq {
    let ripq = cache(30, settings);
    for key in 0..2000u16 {
        ripq.insert(&key.to_le_bytes(), &[key as u8; 1000]).expect("healthy");
        ripq.get(&requested.to_le_bytes()).expect("healthy");
    }
    ripq.verify().expect("consistent");
    ripq
}

/// Section 4.3.4, figure 4.3c: delete-min overwrites the lowest block and materialises what was requested meanwhile.
#[test]
fn what_was_updated_survives_the_eviction_of_its_block() {
    let ripq = filled(settings("slru:1"), 3);
    let statistics = ripq.statistics();
    assert!(ripq.get(&3u16.to_le_bytes()).expect("healthy").is_some());
    assert!(ripq.get(&4u16.to_le_bytes()).expect("healthy").is_none());
    assert!(statistics.reinserted > 2, "once per turnover: {statistics:?}");
    assert_eq!(statistics.evicted + ripq.contents().objects as u64, 2000);
}

/// Section 4.3.4: "not reinserting items whose priority is smaller than a given threshold".
#[test]
fn the_last_part_of_the_queue_is_not_written_again() {
    for (skip, kept) in [(0.0, true), (0.5, false)] {
        let ripq = cache(30, RipqSettings { skip, ..settings("slru:1") });
        for key in 0..400u16 {
            ripq.insert(&key.to_le_bytes(), &[key as u8; 1000]).expect("healthy");
            if key == 60 {
                ripq.get(&3u16.to_le_bytes()).expect("healthy").expect("it is still there");
            }
        }
        let statistics = ripq.statistics();
        assert_eq!((statistics.reinserted > 0, statistics.skipped > 0), (kept, !kept), "skip {skip}");
    }
}
