//! SIPQ, section 4.4: one insertion point, and a logical queue that decides what is written again. Not the queue itself.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{cache, settings};
use crate::ripq::{Ripq, RipqSettings, RipqStatistics};

const VALUE_BYTES: usize = 400;

fn sipq(policy: &str, theta: f64) -> Ripq {
    cache(64, RipqSettings { theta: Some(theta), ..settings(policy) })
}

/// Few objects are requested again and again, many of them once.
fn requests() -> impl Iterator<Item = u64> {
    let mut random = SmallRng::seed_from_u64(7);
    (0..30_000).map(move |number| {
        let skewed = random.random::<f64>().powi(4) * 4000.0;
        if random.random_bool(0.6) { skewed as u64 } else { 10_000 + number }
    })
}

fn replay(ripq: &Ripq, mut each: impl FnMut(u64, bool)) -> RipqStatistics {
    for object in requests() {
        let key = object.to_le_bytes();
        let hit = ripq.get(&key).expect("healthy").is_some();
        if !hit {
            ripq.insert(&key, &[object as u8; VALUE_BYTES]).expect("healthy");
        }
        each(object, hit);
    }
    ripq.verify().expect("it agrees with itself");
    ripq.statistics()
}

/// "theta = 1 would mean we try to keep all the items in the priority order, while theta = 0.5 would mean half of the items
/// on a device are not ordered and can be evicted without reinsertion" (section 4.4.1).
#[test]
fn theta_trades_writes_for_fidelity() {
    for policy in ["slru:3", "gdsf:3"] {
        let [low, middle, high] = [0.1, 0.5, 0.9].map(|theta| replay(&sipq(policy, theta), |_, _| ()));
        assert!(low.reinserted < middle.reinserted && middle.reinserted < high.reinserted, "{policy}");
        assert!(low.hits < middle.hits && middle.hits < high.hits, "{policy}: {low:?} {middle:?} {high:?}");
        assert_eq!(low.splits + middle.splits + high.splits, 0, "one insertion point");
    }
}

/// Without a logical queue it is a cyclic log: what was inserted first goes first, whatever was requested.
#[test]
fn theta_of_nothing_is_fifo() {
    for policy in ["slru:3", "fifo"] {
        let ripq = sipq(policy, 0.0);
        let mut log = VecDeque::new();
        let statistics = replay(&ripq, |object, hit| {
            if !hit {
                // Evicted, so everything that came before its last insertion is, too.
                if let Some(place) = log.iter().position(|other| *other == object) {
                    log.drain(..=place);
                }
                log.push_back(object);
            } else {
                assert!(log.contains(&object), "object {object} came back after older ones had gone");
            }
        });
        assert_eq!(statistics.reinserted, 0);
    }
}

/// Every object that comes round is one that the logical queue holds, again and again.
#[test]
fn a_block_of_nothing_but_wanted_objects_makes_room_in_the_end() {
    let ripq = sipq("slru:1", 0.95);
    for object in 0..2000_u64 {
        let key = object.to_le_bytes();
        ripq.insert(&key, &[1; VALUE_BYTES]).expect("healthy");
        for _ in 0..3 {
            ripq.get(&key).expect("healthy");
        }
    }
    ripq.verify().expect("it agrees with itself");
    assert!(ripq.get(&1999_u64.to_le_bytes()).expect("healthy").is_some());
}

/// A cache of RIPQ may be opened as SIPQ: its sections become one log, and it writes no more than one that was never else.
#[test]
fn a_log_is_made_of_sections() {
    use std::sync::Arc;

    use crate::device::Device;

    let settings = RipqSettings { alpha: 0.05, ..settings("slru:3") };
    let mut written = Vec::new();
    for before in [None, Some(0.9)] {
        let device: Arc<dyn Device> = Arc::new(super::device(200, &settings));
        let former = RipqSettings { theta: before, ..settings.clone() };
        let ripq = Ripq::create(Arc::clone(&device), former).expect("empty");
        replay(&ripq, |_, _| {});
        ripq.close().expect("healthy");
        let ripq = Ripq::open(device, RipqSettings { theta: Some(0.9), ..settings.clone() }).expect("closed");
        assert!(ripq.contents().sections <= 2);
        written.push(replay(&ripq, |_, _| {}).blocks_written);
    }
    assert!(written[0] * 10 < written[1] * 12, "{written:?} blocks");
}

/// Who replaces an object keeps its standing, whatever its size.
#[test]
fn a_larger_value_stands_where_the_former_stood() {
    let ripq = sipq("slru:3", 0.5);
    let replaced = b"key";
    ripq.insert(replaced, &[1; VALUE_BYTES]).expect("healthy");
    assert!((0..4).all(|_| ripq.get(replaced).is_ok_and(|value| value.is_some())));
    ripq.insert(replaced, &[2; VALUE_BYTES + 16]).expect("healthy");
    for other in 0..2000u64 {
        ripq.insert(&other.to_le_bytes(), &[3; VALUE_BYTES]).expect("healthy");
    }
    assert!(
        ripq.get(replaced).expect("healthy").is_some(),
        "requested five times, then pushed out by newcomers"
    );
}
