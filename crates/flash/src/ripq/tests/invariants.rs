//! Random steps against a map, with everything checked after each. Not against a policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{cache, device, settings};
use crate::device::{Device, SECTOR};
use crate::ripq::{Ripq, RipqSettings};

#[derive(Clone, Debug)]
enum Step {
    Get(u16),
    Insert(u16, usize),
    Remove(u16),
    Flush,
    Reopen,
    Coalesce,
}

fn key() -> impl Strategy<Value = u16> {
    prop_oneof![0..30u16, 0..400u16]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => key().prop_map(Step::Get),
        20 => (key(), prop_oneof![4 => 0..400usize, 2 => 400..3000usize, 1 => 7000..8090usize])
            .prop_map(|(key, bytes)| Step::Insert(key, bytes)),
        2 => key().prop_map(Step::Remove),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        1 => Just(Step::Coalesce),
    ]
}

/// What key and version give; nothing else is ever a value.
fn value(key: u16, version: u32, bytes: usize) -> Vec<u8> {
    let word = u64::from(key) << 32 | u64::from(version);
    word.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

fn run(policy: &str, theta: Option<f64>, steps: &[Step]) -> Result<(), TestCaseError> {
    let settings = RipqSettings { theta, ..settings(policy) };
    let device: Arc<dyn Device> = Arc::new(device(24, &settings));
    let mut ripq = Ripq::create(Arc::clone(&device), settings.clone()).expect("empty");
    let mut written: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    for (version, step) in steps.iter().enumerate() {
        match step {
            Step::Get(key) => {
                if let Some(found) = ripq.get(&key.to_le_bytes()).expect("a healthy device") {
                    prop_assert_eq!(Some(&found[..]), written.get(key).map(Vec::as_slice));
                }
            }
            Step::Insert(key, bytes) => {
                let value = value(*key, version as u32, *bytes);
                ripq.insert(&key.to_le_bytes(), &value).expect("a healthy device");
                written.insert(*key, value);
            }
            Step::Remove(key) => {
                ripq.remove(&key.to_le_bytes()).expect("a healthy device");
                written.remove(key);
            }
            Step::Flush => ripq.flush().expect("a healthy device"),
            Step::Coalesce => ripq.state().coalesce(),
            Step::Reopen => {
                ripq.flush().expect("a healthy device");
                let before = ripq.contents().objects;
                drop(ripq);
                ripq = Ripq::open(Arc::clone(&device), settings.clone()).expect("it was flushed");
                prop_assert_eq!(ripq.contents().objects, before);
            }
        }
        ripq.verify().map_err(|wrong| TestCaseError::fail(format!("after {step:?}: {wrong}")))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases::proptest(24))]

    #[test]
    fn hold_under_slru(steps in prop::collection::vec(step(), 1..400)) {
        run("slru:3", None, &steps)?;
    }

    #[test]
    fn hold_under_gdsf(steps in prop::collection::vec(step(), 1..400)) {
        run("gdsf:3", None, &steps)?;
    }

    #[test]
    fn hold_under_lru_and_fifo(steps in prop::collection::vec(step(), 1..400), fifo: bool) {
        run(if fifo { "fifo" } else { "lru" }, None, &steps)?;
    }

    #[test]
    fn hold_with_a_logical_queue(steps in prop::collection::vec(step(), 1..400), theta in 0.0..0.95, gdsf: bool) {
        run(if gdsf { "gdsf:3" } else { "slru:3" }, Some(theta), &steps)?;
    }
}

#[test]
fn an_object_that_fits_no_block_is_refused() {
    let ripq = cache(16, settings("lru"));
    let error = ripq.insert(b"key", &[0; 8192]).expect_err("too large").to_string();
    assert_eq!(error, "an object of 8195 bytes does not fit a block, which takes 8096");
    ripq.insert(b"key", &[7; 8093]).expect("the largest");
    assert_eq!(ripq.get(b"key").expect("healthy").expect("there")[..], [7; 8093]);
}

/// More removals than the journal has room for, of objects that share their blocks with others that stay.
#[test]
fn blocks_of_mostly_dead_objects_are_written_again() {
    let settings = settings("lru");
    let device: Arc<dyn Device> = Arc::new(device(400, &settings));
    let ripq = Ripq::create(Arc::clone(&device), settings.clone()).expect("empty");
    let name = |key: u32| key.to_le_bytes();
    for key in 0..30_000u32 {
        ripq.insert(&name(key), b"as short as can be").expect("healthy");
    }
    let mut kept = Vec::new();
    for key in 0..30_000u32 {
        match key % 3 {
            0 => kept.extend(ripq.get(&name(key)).expect("healthy").map(|_| key)),
            _ => drop(ripq.remove(&name(key)).expect("healthy")),
        }
    }
    ripq.verify().expect("consistent");
    let statistics = ripq.statistics();
    assert!(statistics.blocks_compacted > 0 && statistics.removed > 15_000, "{statistics:?}");
    ripq.close().expect("healthy");
    let ripq = Ripq::open(device, settings).expect("it was closed");
    assert_eq!(ripq.contents().objects, kept.len());
    assert!(kept.iter().all(|key| ripq.get(&name(*key)).expect("healthy").is_some()));
}

/// A large block is read only for its table and what is kept.
#[test]
fn large_blocks_are_reclaimed_in_parts() {
    let ripq = cache(12, RipqSettings { block_bytes: 1 << 20, ..settings("slru:2") });
    for key in 0..400u16 {
        ripq.insert(&key.to_le_bytes(), &value(key, 1, 50_000)).expect("healthy");
        for wanted in (0..key).step_by(37) {
            if let Some(found) = ripq.get(&wanted.to_le_bytes()).expect("healthy") {
                assert_eq!(found, value(wanted, 1, 50_000));
            }
        }
    }
    ripq.verify().expect("consistent");
    let statistics = ripq.statistics();
    assert!(statistics.reinserted > 0 && statistics.damaged == 0, "{statistics:?}");
}

/// Table 4.3's blocks; memory is taken for what is written of them.
#[test]
fn blocks_of_256_mib_are_written_and_opened() {
    let settings = RipqSettings { block_bytes: 256 << 20, ..settings("slru:3") };
    let device: Arc<dyn Device> = Arc::new(device(9, &settings));
    let ripq = Ripq::create(Arc::clone(&device), settings.clone()).expect("empty");
    ripq.insert(b"key", &value(1, 1, 3 << 20)).expect("healthy");
    ripq.close().expect("healthy");
    let ripq = Ripq::open(device, settings).expect("it was closed");
    assert_eq!(ripq.get(b"key").expect("healthy").expect("there"), value(1, 1, 3 << 20));
    ripq.verify().expect("consistent");
}

/// Requests alone, of ever other objects, leave virtual blocks with few objects behind.
#[test]
fn virtual_blocks_are_joined_without_a_single_write() {
    let ripq = cache(16, RipqSettings { block_bytes: SECTOR as u64, ..settings("lru") });
    for key in 0..800u16 {
        ripq.insert(&key.to_le_bytes(), b"short").expect("healthy");
    }
    let mut random = SmallRng::seed_from_u64(5);
    let mut most = 0;
    for step in 0..400_000u32 {
        let key = if step % 50 == 0 { random.random_range(0..800) } else { random.random_range(0..80u16) };
        ripq.get(&key.to_le_bytes()).expect("healthy");
        most = most.max(ripq.state().queue.blocks.len());
    }
    ripq.verify().expect("consistent");
    ripq.state().coalesce();
    ripq.verify().expect("consistent");
    assert!(ripq.state().queue.blocks.len() < most, "{most}");
}

/// Readers never see anything but what a writer wrote under the key they ask for, and what they read is not
/// overwritten under them.
#[test]
fn eight_readers_and_a_writer_agree() {
    let ripq = cache(24, settings("slru:2"));
    let (done, found) = (AtomicBool::new(false), AtomicU64::new(0));
    let case = cases::one();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8u64)
            .map(|number| {
                let (ripq, done, found, seed) = (&ripq, &done, &found, case.seed.rotate_left(8) ^ number);
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed);
                    let mut newest = BTreeMap::new();
                    while !done.load(Ordering::Relaxed) {
                        let key = random.random_range(0..300u16);
                        let Some(read) = ripq.get(&key.to_le_bytes()).expect("healthy") else { continue };
                        let version = u32::from_le_bytes(read[..4].try_into().expect("four bytes"));
                        assert_eq!(read, value(key, version, read.len()), "key {key}");
                        let before = newest.insert(key, version);
                        assert!(before.is_none_or(|before| before <= version), "key {key} has grown older");
                        found.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut random = SmallRng::seed_from_u64(case.seed);
        for version in 0..2_000_000u32 {
            // On a loaded machine the readers may not even have begun by then.
            if version >= 6000 && found.load(Ordering::Relaxed) > 1000 {
                break;
            }
            let key = random.random_range(0..300u16);
            if version % 17 == 0 {
                ripq.remove(&key.to_le_bytes()).expect("healthy");
            } else {
                let bytes = random.random_range(8..2000);
                ripq.insert(&key.to_le_bytes(), &value(key, version, bytes)).expect("healthy");
            }
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("no wrong value"));
    });
    let found = found.into_inner();
    assert!(found > 1000, "{found} reads found something");
    ripq.verify().expect("consistent");
    let statistics = ripq.statistics();
    assert_eq!((statistics.damaged, statistics.read_errors), (0, 0), "{statistics:?}");
}

/// Blocks that are not full take their room, but buffers share them: a flush evicts hardly anything.
#[test]
fn a_flush_evicts_little() {
    for (policy, blocks, alpha) in
        [("slru:3", 64, 0.05), ("slru:3", 24, 0.1), ("gdsf", 64, 0.05), ("slru:3", 12, 0.05)]
    {
        let ripq = cache(blocks, RipqSettings { alpha, ..settings(policy) });
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..20_000 {
            let key = (random.random::<f64>().powi(2) * 1000.0) as u16;
            if ripq.get(&key.to_le_bytes()).expect("healthy").is_none() {
                ripq.insert(&key.to_le_bytes(), &[key as u8; 500]).expect("healthy");
            }
        }
        let before = ripq.contents().objects;
        ripq.flush().expect("healthy");
        ripq.verify().expect("consistent");
        let after = ripq.contents().objects;
        assert!(after * 100 >= before * 85, "{policy}, {blocks} blocks: {after} of {before} objects");
    }
}
