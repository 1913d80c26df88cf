//! Power cuts, damage and full devices: what is served is what was written, and what was removed stays away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{device, settings};
use crate::FlashError;
use crate::block::{BlockHeader, Builder};
use crate::device::{AlignedBuffer, Device, DeviceFault, FaultRates, FaultyDevice, MemoryDevice, SECTOR};
use crate::journal::Journal;
use crate::record::ObjectRecord;
use crate::ripq::state::RipqState;
use crate::ripq::{Ripq, RipqSettings};

type Faulty = FaultyDevice<MemoryDevice>;

/// Tells key and version, whatever its length.
fn value(key: u16, version: u32, bytes: usize) -> Vec<u8> {
    let word = u64::from(key) << 32 | u64::from(version);
    word.to_le_bytes().into_iter().cycle().take(bytes.max(8)).collect()
}

fn version(value: &[u8]) -> (u16, u32) {
    let word = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
    assert!(value.iter().zip(word.to_le_bytes().iter().cycle()).all(|(byte, known)| byte == known), "torn");
    ((word >> 32) as u16, word as u32)
}

/// What each key may have: the oldest version that is not known to be gone. None was ever written before the first.
#[derive(Default)]
struct History {
    /// The last version written, by key.
    last: BTreeMap<u16, u32>,
    /// Versions below this were removed or replaced by a call that has returned.
    gone_below: BTreeMap<u16, u32>,
    next: u32,
}

impl History {
    fn check(&self, ripq: &Ripq, when: &str) -> usize {
        let mut found = 0;
        for key in 0..KEYS {
            let Ok(Some(value)) = ripq.get(&key.to_le_bytes()) else { continue };
            let (known, version) = version(&value);
            assert_eq!(known, key, "{when}: the value of another key");
            let written = self.last.get(&key).is_some_and(|last| version <= *last);
            assert!(written, "{when}: version {version} of {key} was never written");
            let gone = self.gone_below.get(&key).is_some_and(|below| version < *below);
            assert!(!gone, "{when}: version {version} of {key} has come back");
            found += 1;
        }
        found
    }

    /// Random requests until one fails.
    fn run(&mut self, ripq: &Ripq, random: &mut SmallRng, steps: u32) {
        let mut now = BTreeMap::new();
        for _ in 0..steps {
            let key = random.random_range(0..KEYS);
            let name = key.to_le_bytes();
            match random.random_range(0..10) {
                0 => {
                    if ripq.remove(&name).is_err() {
                        return;
                    }
                    self.gone_below.insert(key, self.next + 1);
                    now.remove(&key);
                }
                1..5 => {
                    self.next += 1;
                    self.last.insert(key, self.next);
                    let bytes = random.random_range(0..2500);
                    if ripq.insert(&name, &value(key, self.next, bytes)).is_err() {
                        return;
                    }
                    self.gone_below.insert(key, self.next);
                    now.insert(key, self.next);
                }
                _ => {
                    if let Ok(Some(found)) = ripq.get(&name) {
                        let (known, version) = version(&found);
                        let least = self.gone_below.get(&key).copied().unwrap_or(0);
                        let newest = now.get(&key).is_none_or(|newest| version == *newest);
                        assert!(known == key && version >= least && newest, "{version} of {known} for {key}");
                    }
                }
            }
        }
    }
}

const KEYS: u16 = 300;

fn faulty(seed: u64, settings: &RipqSettings) -> Arc<Faulty> {
    Arc::new(FaultyDevice::new(device(40, settings), seed))
}

fn shared(device: &Arc<Faulty>) -> Arc<dyn Device> {
    Arc::clone(device) as Arc<dyn Device>
}

/// A hundred lives, each ended by a power cut that tears and loses what was not synced.
#[test]
fn power_cuts_bring_nothing_back_and_lose_little() {
    for (case, policy) in cases::seeds(2).zip(["slru:3", "gdsf:2"].into_iter().cycle()) {
        let settings = settings(policy);
        let device = faulty(case.seed, &settings);
        let mut random = SmallRng::seed_from_u64(case.seed);
        let mut history = History::default();
        drop(Ripq::create(shared(&device), settings.clone()).expect("healthy"));
        let mut found = 0;
        for life in 0..100 {
            let ripq = Ripq::open(shared(&device), settings.clone()).expect("a cut damages no journal");
            found += history.check(&ripq, &format!("{policy}, life {life}"));
            ripq.verify().unwrap_or_else(|wrong| panic!("{policy}, life {life}: {wrong}"));
            let cut = device.operations() + random.random_range(0..400);
            device.plan(cut, DeviceFault::PowerCut);
            history.run(&ripq, &mut random, 500);
            drop(ripq);
            device.cut_power().expect("the store is healthy");
            while device.operations() <= cut {
                device.sync().expect_err("there is no power");
            }
            device.restart();
        }
        assert!(found > 2000, "{policy}: only {found} objects survived in all");
    }
}

fn sectors(device: &Faulty) -> Vec<Vec<u8>> {
    let mut bytes = AlignedBuffer::new(device.bytes() as usize);
    device.store().read(0, &mut bytes).expect("the store is healthy");
    bytes.chunks_exact(SECTOR).map(<[u8]>::to_vec).collect()
}

/// Bits flip anywhere but in what the last requests wrote, which nobody can tell from a torn write.
#[test]
fn damage_between_two_lives_brings_nothing_back() {
    let settings = settings("slru:2");
    let mut found = 0;
    for case in cases::seeds(100) {
        let seed = case.seed;
        let device = faulty(seed, &settings);
        let (mut random, mut history) = (SmallRng::seed_from_u64(seed), History::default());
        let ripq = Ripq::create(shared(&device), settings.clone()).expect("healthy");
        history.run(&ripq, &mut random, 3000);
        let before = sectors(&device);
        history.run(&ripq, &mut random, 40);
        let first_block = (ripq.layout.block(0) / SECTOR as u64) as usize;
        drop(ripq);
        let after = sectors(&device);
        let older = |sector: &usize| before[*sector] == after[*sector] && after[*sector] != [0; SECTOR];
        let journal: Vec<usize> = (2..first_block).filter(older).collect();
        let all: Vec<usize> = (0..after.len()).filter(older).collect();
        for number in 0..random.random_range(1..=6) {
            let places = if number % 2 == 0 { &journal } else { &all };
            let sector = places[random.random_range(0..places.len())];
            device.corrupt((sector * SECTOR) as u64, SECTOR as u64).expect("the store is healthy");
        }
        let ripq = Ripq::open(shared(&device), settings.clone()).expect("one superblock is left");
        found += history.check(&ripq, &format!("seed {seed}"));
        ripq.verify().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    assert!(cases::alone() || found > 1000, "only {found} objects were served in all");
}

/// A process that ends without notice loses what was buffered, and nothing else.
#[test]
fn what_was_sealed_survives_a_kill() {
    for case in cases::seeds(1).after(&[7_425_078_849_432_003_353]) {
        let settings = settings("slru:3");
        let device: Arc<dyn Device> = Arc::new(device(64, &settings));
        let ripq = Ripq::create(Arc::clone(&device), settings.clone()).expect("empty");
        let (mut random, mut history) = (SmallRng::seed_from_u64(case.seed), History::default());
        history.run(&ripq, &mut random, 5000);
        let keys = |ripq: &Ripq, wanted: &dyn Fn(&RipqState, u64) -> bool| -> BTreeSet<u16> {
            let state = ripq.state();
            (0..KEYS).filter(|key| wanted(&state, ripq.digest(&key.to_le_bytes()))).collect()
        };
        let sealed = keys(&ripq, &|state, digest| {
            state.index.get(digest).is_some_and(|place| state.stored(place.block).sequence > 0)
        });
        // The journal may not know yet that they were evicted, or written again where it was not sealed.
        let maybe =
            keys(&ripq, &|state, digest| state.evicted.contains(digest) || state.index.get(digest).is_some());
        drop(ripq);
        let ripq = Ripq::open(device, settings).expect("it was there");
        let found = keys(&ripq, &|state, digest| state.index.get(digest).is_some());
        assert!(sealed.is_subset(&found), "{sealed:?} {found:?}");
        assert!(found.is_subset(&maybe), "{maybe:?} {found:?}");
        assert!(history.check(&ripq, "after the kill") == found.len());
    }
}

#[test]
fn a_faulty_device_gives_misses_and_errors_but_no_wrong_value() {
    let (settings, mut met) = (settings("slru:2"), 0);
    for case in cases::seeds(8) {
        let seed = case.seed;
        let device = faulty(seed, &settings);
        let ripq = Ripq::create(shared(&device), settings.clone()).expect("healthy");
        let (mut random, mut history) = (SmallRng::seed_from_u64(seed), History::default());
        let rates =
            FaultRates { error: 0.01, torn: 0.01, torn_unnoticed: 0.01, corrupted: 0.02, full: 0.005 };
        device.set_rates(rates);
        for _ in 0..40 {
            history.run(&ripq, &mut random, 50);
            ripq.verify().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        }
        device.set_rates(FaultRates::default());
        history.check(&ripq, "after the faults");
        let statistics = ripq.statistics();
        met += statistics.damaged + statistics.read_errors + statistics.write_errors;
    }
    assert!(met > 0 || cases::alone(), "no fault was met");
}

/// Writes that fail and say so, then a restart: what was removed stays away, though blocks were given up half way.
#[test]
fn failed_writes_bring_nothing_back() {
    for case in cases::seeds(12) {
        let seed = case.seed;
        let settings = settings(if seed % 2 == 0 { "slru:3" } else { "gdsf" });
        let device = faulty(seed, &settings);
        drop(Ripq::create(shared(&device), settings.clone()).expect("healthy"));
        let (mut random, mut history) = (SmallRng::seed_from_u64(seed), History::default());
        for life in 0..6 {
            let ripq = Ripq::open(shared(&device), settings.clone()).expect("healthy by now");
            history.check(&ripq, &format!("seed {seed}, life {life}"));
            history.run(&ripq, &mut random, 500);
            device.set_rates(FaultRates { error: 0.05, torn: 0.05, full: 0.02, ..FaultRates::default() });
            for _ in 0..20 {
                history.run(&ripq, &mut random, 50);
            }
            ripq.verify().unwrap_or_else(|wrong| panic!("seed {seed}, life {life}: {wrong}"));
            device.set_rates(FaultRates::default());
        }
    }
}

#[test]
fn a_device_that_takes_no_more_is_a_clear_error_and_is_still_read() {
    let settings = settings("lru");
    let device = faulty(1, &settings);
    let ripq = Ripq::create(shared(&device), settings).expect("healthy");
    for key in 0..60u16 {
        ripq.insert(&key.to_le_bytes(), &value(key, 1, 1500)).expect("healthy");
    }
    device.set_rates(FaultRates { full: 1.0, ..FaultRates::default() });
    let error = (100..200u16).find_map(|key| ripq.insert(&key.to_le_bytes(), &[0; 1500]).err());
    let error = error.expect("three blocks in a row fail").to_string();
    assert!(error.starts_with("nothing is written any more") && error.contains("no space left"), "{error}");
    let error = ripq.remove(&3u16.to_le_bytes()).expect_err("the journal cannot be written").to_string();
    assert_eq!(error, "writing the journal: injected: no space left");
    device.set_rates(FaultRates::default());
    let served = (0..60u16).filter(|key| ripq.get(&key.to_le_bytes()).expect("reads work").is_some()).count();
    assert!(served > 20, "{served} objects of what is on the device");
}

#[test]
fn other_settings_and_other_devices_are_refused() {
    let settings = settings("lru");
    let device: Arc<dyn Device> = Arc::new(device(20, &settings));
    assert!(matches!(Ripq::open(Arc::clone(&device), settings.clone()), Err(FlashError::Empty)));
    let ripq = Ripq::create(Arc::clone(&device), settings.clone()).expect("empty");
    ripq.close().expect("healthy");
    assert!(matches!(Ripq::create(Arc::clone(&device), settings.clone()), Err(FlashError::InUse)));
    let larger = RipqSettings { block_bytes: 4 * SECTOR as u64, ..settings.clone() };
    let error = Ripq::open(Arc::clone(&device), larger).err().expect("refused").to_string();
    assert_eq!(error, "block_bytes = 16384: the cache on this device was created with 8192");
    for wrong in [RipqSettings { alpha: 0.0, ..settings.clone() }, RipqSettings { skip: 1.0, ..settings }] {
        assert!(matches!(Ripq::open(Arc::clone(&device), wrong), Err(FlashError::Settings(_))));
    }
}

/// Blocks whose checksums fit, whatever wrote them.
#[test]
fn numbers_that_nobody_reaches_are_refused() {
    let settings = settings("lru");
    for number in [1 << 40, (1 << 62) + 1, u64::MAX] {
        for of_block in [true, false] {
            let device: Arc<dyn Device> = Arc::new(device(20, &settings));
            let ripq = Ripq::create(Arc::clone(&device), settings.clone()).expect("empty");
            let layout = ripq.layout;
            ripq.close().expect("healthy");
            if of_block {
                let mut builder = Builder::new(AlignedBuffer::new(settings.block_bytes as usize));
                builder.append(&ObjectRecord::new(b"key", b"value", 7).expect("short"), 1);
                let (identity, sequence) = (layout.identity, number);
                let header =
                    BlockHeader { identity, sequence, objects: 0, used_units: 0, rank: 1.0, lowest: 0.0 };
                let (block, _) = builder.seal(header);
                device.write(layout.block(3), &block).expect("healthy");
            } else {
                Journal::new(&layout, number - 1).checkpoint(&*device, b"").expect("healthy");
            }
            let opened = Ripq::open(device, settings.clone());
            match number == 1 << 40 {
                true => assert!(opened.is_ok_and(|ripq| ripq.verify().is_ok())),
                false => assert!(matches!(opened, Err(FlashError::Damaged(_))), "{number}, {of_block}"),
            }
        }
    }
}

/// The journal was not told of the removal, which was an error. Whoever has inserted the key anew may rely on it.
#[test]
fn what_could_not_be_removed_does_not_come_back_once_it_is_replaced() {
    let settings = settings("lru");
    let device = faulty(1, &settings);
    let ripq = Ripq::create(shared(&device), settings.clone()).expect("healthy");
    let name = 7u16.to_le_bytes();
    ripq.insert(&name, &value(7, 1, 100)).expect("healthy");
    ripq.flush().expect("healthy");
    device.plan(device.operations(), DeviceFault::Error);
    assert!(ripq.remove(&name).is_err(), "the journal cannot be written");
    ripq.insert(&name, &value(7, 2, 100)).expect("healthy again");
    drop(ripq);
    device.cut_power().expect("the store is healthy");
    device.restart();
    let ripq = Ripq::open(shared(&device), settings).expect("healthy");
    let found = ripq.get(&name).expect("readable");
    assert!(found.is_none_or(|found| version(&found) == (7, 2)), "the first is back");
}

/// Lives in which any operation may fail, and of which two in three end with a power cut.
#[test]
fn errors_before_a_power_cut_bring_nothing_back() {
    for case in cases::seeds(40) {
        let seed = case.seed;
        let policy = ["slru:3", "gdsf", "lru", "fifo"][(seed % 4) as usize];
        let theta = (seed % 5 == 4).then_some(0.8);
        let settings = RipqSettings { theta, ..settings(policy) };
        let device = faulty(seed, &settings);
        drop(Ripq::create(shared(&device), settings.clone()).expect("healthy"));
        let (mut random, mut history) = (SmallRng::seed_from_u64(seed), History::default());
        for life in 0..40 {
            let when = format!("seed {seed}, life {life}");
            let ripq = Ripq::open(shared(&device), settings.clone()).expect("healthy");
            history.check(&ripq, &when);
            ripq.verify().unwrap_or_else(|wrong| panic!("{when}: {wrong}"));
            let error = [0.0, 0.03, 0.1][random.random_range(0..3)];
            device.set_rates(FaultRates { error, torn: 0.02, full: 0.01, ..FaultRates::default() });
            for _ in 0..random.random_range(1..30) {
                history.run(&ripq, &mut random, 40);
                if random.random_bool(0.2) {
                    drop(ripq.flush());
                }
            }
            device.set_rates(FaultRates::default());
            drop(ripq);
            if life % 3 != 0 {
                device.cut_power().expect("the store is healthy");
                device.restart();
            }
        }
    }
}
