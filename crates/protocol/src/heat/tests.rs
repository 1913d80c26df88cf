//! Tests of heat: the sketch against exact counts, once-per-window reports, renewal.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

const SECOND: u64 = 1_000_000;
const NEVER: u32 = u32::MAX;

fn hitters() -> HeavyHitters {
    HeavyHitters::new(HeatConfig::default(), 1)
}

/// A sketch small enough to collide all the time.
fn crowded() -> HeatConfig {
    HeatConfig { counters: 256, filter_bits: 1024, ..HeatConfig::default() }
}

fn repeat(hitters: &mut HeavyHitters, now: u64, item: u64, times: u32, threshold: u32) -> Vec<u32> {
    (0..times).filter_map(|_| hitters.record(Time(now), item, threshold)).collect()
}

/// The naive twin: a map of exact counts. Skewed items, far more of them than counters.
#[test]
fn estimates_are_never_below_exact_counts_and_rarely_far_above() {
    let mut rng = SmallRng::seed_from_u64(11);
    let mut sketch = Sketch::new(4, 256, 9);
    let mut exact = BTreeMap::new();
    const REQUESTS: u32 = 100_000;
    for _ in 0..REQUESTS {
        let item = mix((1.0 / rng.random_range(0.0005..1.0f64)) as u64);
        let count = exact.entry(item).or_insert(0u32);
        *count += 1;
        let (estimate, _) = sketch.record(item);
        assert!(estimate >= *count, "{estimate} below {count}");
    }
    // Count-Min's bound: more than e/width of all requests above the truth with probability e^-rows.
    let bound = (std::f64::consts::E / 256.0 * f64::from(REQUESTS)) as u32;
    let far = exact.iter().filter(|&(&item, &count)| sketch.record(item).0 - 1 > count + bound).count();
    assert!(far as f64 <= 0.0183 * exact.len() as f64, "{far} of {} estimates are far off", exact.len());
}

#[test]
fn at_the_default_size_a_hundred_thousand_cold_items_do_not_look_warm() {
    let mut hitters = hitters();
    for item in 0..100_000 {
        hitters.record(Time(0), mix(item), NEVER);
    }
    let reports = (0..1000).filter_map(|item| hitters.record(Time(0), mix(item), 4));
    assert_eq!(reports.count(), 0, "each was asked for twice");
}

#[test]
fn an_item_is_reported_when_it_reaches_the_threshold_once_per_window() {
    let mut hitters = hitters();
    assert_eq!(repeat(&mut hitters, 0, 42, 99, 100), [0u32; 0]);
    assert_eq!(repeat(&mut hitters, 0, 42, 1000, 100), [100]);
    assert_eq!(repeat(&mut hitters, SECOND - 1, 42, 10, 100), [0u32; 0]);
    assert_eq!(repeat(&mut hitters, SECOND, 42, 10, 100).len(), 1, "again in the next window");
    assert_eq!(repeat(&mut hitters, SECOND, 7, 1, 1), [1]);
}

#[test]
fn the_estimate_slides_from_one_window_into_the_next() {
    let mut hitters = hitters();
    repeat(&mut hitters, 0, 42, 1000, NEVER);
    let heat_at = |now: u64| hitters.clone().record(Time(now), 42, 1).unwrap();
    assert!(heat_at(SECOND).abs_diff(1001) <= 1, "{}", heat_at(SECOND));
    assert!(heat_at(SECOND + SECOND / 4).abs_diff(751) <= 1);
    assert!(heat_at(SECOND + SECOND / 2).abs_diff(501) <= 1);
    assert!(heat_at(2 * SECOND - 1).abs_diff(1) <= 1);
    assert_eq!(heat_at(2 * SECOND), 1, "two windows on nothing is left");
    assert_eq!(heat_at(1000 * SECOND + 5), 1);
}

#[test]
fn a_steady_item_is_estimated_steadily_across_many_windows() {
    let mut hitters = hitters();
    let mut reports = BTreeSet::new();
    for n in 0..10_000u64 {
        let now = n * 1000 + 500;
        if let Some(heat) = hitters.record(Time(now), 42, 900) {
            assert!((900..=1000).contains(&heat), "{heat} at {now}");
            assert!(reports.insert(now / SECOND), "twice in window {}", now / SECOND);
        }
    }
    assert_eq!(reports.len(), 10, "in every window, {reports:?}");
}

#[test]
fn heat_is_per_second_whatever_the_window() {
    let mut hitters = HeavyHitters::new(HeatConfig { window: Duration::from_millis(250), ..crowded() }, 1);
    assert_eq!(repeat(&mut hitters, 0, 42, 25, 100), [100]);
}

#[test]
fn counters_stop_at_their_top() {
    let mut hitters = hitters();
    repeat(&mut hitters, 0, 42, 70_000, NEVER);
    assert_eq!(hitters.record(Time(0), 42, 65_535), Some(65_535));
    let heat = hitters.record(Time(SECOND), 42, 1).unwrap();
    assert!(
        heat.abs_diff(65_536) <= 16,
        "{heat} after the flip: the previous window did not overflow into it"
    );
}

#[test]
fn a_clock_that_steps_back_does_no_harm() {
    let mut hitters = hitters();
    repeat(&mut hitters, 5 * SECOND, 42, 10, NEVER);
    assert_eq!(hitters.record(Time(3 * SECOND), 42, 1), Some(11));
}

#[test]
fn the_filter_takes_no_seen_item_for_new_and_few_new_ones_for_seen() {
    let mut filter = Filter::new(3, 262_144, 5);
    let wrong = (0..10_000).filter(|&item| !filter.insert(mix(item))).count();
    assert!(wrong <= 3, "{wrong} new items taken for seen");
    assert!((0..10_000).all(|item| !filter.insert(mix(item))));
    filter.clear();
    assert!(filter.insert(mix(1)));
}

#[test]
fn odd_sizes_work() {
    for (rows, counters, filter_rows, filter_bits) in
        [(0, 0, 0, 0), (1, 1, 1, 1), (3, 7, 2, 65), (99, 10, 99, 10)]
    {
        let config = HeatConfig { rows, counters, filter_rows, filter_bits, ..HeatConfig::default() };
        let mut hitters = HeavyHitters::new(config, 3);
        assert_eq!(repeat(&mut hitters, 0, 42, 5, 5), [5]);
        for item in 0..1000 {
            hitters.record(Time(item * 5000), mix(item), 2);
        }
    }
}
