//! Caches on a damaged device: one opens or is refused, serves only what was written, and goes on. What damage there is,
//! the input says: with `repair` the checksums fit it, so that what they guard is read as well.

mod damage;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock};

use arbitrary::{Result, Unstructured};
use flash::FlashError;
use flash::device::{AlignedBuffer, BufferPool, Device, DeviceCounts, MemoryDevice};
use flash::layout::DeviceLayout;
use flash::ripq::{Ripq, RipqSettings};

const KEYS: u16 = 150;
const BLOCK_BYTES: u64 = 8192;
const DEVICE_BYTES: u64 = 256 << 10;
/// Enough to fill the device three times.
const STEPS: u32 = 700;
/// After the damage.
const STEPS_LATER: u32 = 60;

/// The last version of each key; every one from 1 on was written.
type Versions = BTreeMap<u16, u32>;

/// A healthy device with a cache on it.
struct Healthy {
    settings: RipqSettings,
    layout: DeviceLayout,
    bytes: Vec<u8>,
    written: Versions,
    /// What a call that returned left no copy of: lower versions than these.
    gone_below: Versions,
}

/// In this many ways.
const CACHES: usize = 6;

pub(crate) fn run(data: &[u8]) {
    // Bytes that are missing are zeros, so what fails here is nothing of interest.
    let _ = check(&mut Unstructured::new(data));
}

fn check(bytes: &mut Unstructured<'_>) -> Result<()> {
    let healthy = healthy(bytes.choose_index(CACHES)?);
    let repair = bytes.arbitrary()?;
    let mut image = healthy.bytes.clone();
    let mut only_blocks = true;
    while !bytes.is_empty() {
        only_blocks &= damage::apply(bytes, &healthy.layout, &mut image)?;
    }
    if repair {
        damage::repair(&healthy.layout, &mut image);
    }
    // What was removed is in the journal, and in what the checksums of blocks guard.
    let gone_below = if only_blocks && !repair { healthy.gone_below.clone() } else { Versions::new() };
    live(healthy, &image, repair, gone_below);
    Ok(())
}

fn live(healthy: &Healthy, image: &[u8], repair: bool, mut gone_below: Versions) {
    let device: Arc<dyn Device> = Arc::new(Shared::new());
    device.write(0, image).expect("in memory");
    let mut written = healthy.written.clone();
    let ripq = match Ripq::open(Arc::clone(&device), healthy.settings.clone()) {
        Ok(ripq) => ripq,
        Err(
            FlashError::Empty
            | FlashError::Foreign
            | FlashError::Version { .. }
            | FlashError::Damaged(_)
            | FlashError::Settings(_),
        ) => {
            return;
        }
        Err(error) => panic!("opening a device that works: {error}"),
    };
    agrees(&ripq);
    look(&ripq, &written, &gone_below);
    requests(&ripq, 77, STEPS_LATER, &mut written, &mut gone_below);
    agrees(&ripq);
    look(&ripq, &written, &gone_below);
    drop(ripq);
    let ripq = match Ripq::open(device, healthy.settings.clone()) {
        Ok(ripq) => ripq,
        // Its numbers were forged to end here.
        Err(FlashError::Damaged(_)) if repair => return,
        Err(error) => panic!("opening what has just been used: {error}"),
    };
    agrees(&ripq);
    look(&ripq, &written, &gone_below);
}

fn agrees(ripq: &Ripq) {
    ripq.verify().unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Every value is one that was written under its key, and nothing that is gone.
fn look(ripq: &Ripq, written: &Versions, gone_below: &Versions) {
    for key in 0..KEYS {
        let Some(value) = ripq.get(&key.to_le_bytes()).expect("reads work") else { continue };
        let (found, version) = version(&value);
        assert_eq!(found, key, "the value of another key");
        let last = written.get(&key).copied().unwrap_or(0);
        assert!((1..=last).contains(&version), "version {version} of {last}");
        let least = gone_below.get(&key).copied().unwrap_or(0);
        assert!(version >= least, "version {version} of key {key} has come back, {least} is the oldest");
    }
}

/// The same ones for the same seed. What they insert must be found as long as it is there.
fn requests(ripq: &Ripq, seed: u64, steps: u32, written: &mut Versions, gone_below: &mut Versions) {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..steps {
        let key = random(u64::from(KEYS)) as u16;
        let name = key.to_le_bytes();
        match random(10) {
            0 => {
                ripq.remove(&name).expect("a healthy device");
                gone_below.insert(key, written.get(&key).copied().unwrap_or(0) + 1);
            }
            1..6 => {
                let version = written.entry(key).or_default();
                *version += 1;
                ripq.insert(&name, &value(key, *version, random(2000) as usize)).expect("a healthy device");
                gone_below.insert(key, *version);
            }
            _ => drop(ripq.get(&name).expect("reads work")),
        }
    }
}

/// Tells key and version, whatever its length.
fn value(key: u16, version: u32, bytes: usize) -> Vec<u8> {
    let word = u64::from(key) << 32 | u64::from(version);
    let mut value = word.to_le_bytes().repeat(bytes.div_ceil(8).max(1));
    value.truncate(bytes.max(8));
    value
}

fn version(found: &[u8]) -> (u16, u32) {
    let word = u64::from_le_bytes(*found.first_chunk().expect("no value is shorter"));
    let (key, version) = ((word >> 32) as u16, word as u32);
    assert!(found == value(key, version, found.len()), "torn");
    (key, version)
}

/// Memory whose readers share their buffers: to clear these anew would take most of the time.
struct Shared(MemoryDevice);

impl Shared {
    fn new() -> Shared {
        Shared(MemoryDevice::new(DEVICE_BYTES).expect("whole sectors"))
    }
}

impl Device for Shared {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> io::Result<()> {
        self.0.write(offset, buffer)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.discard(offset, bytes)
    }

    fn counts(&self) -> DeviceCounts {
        self.0.counts()
    }

    fn description(&self) -> String {
        self.0.description()
    }

    fn buffers(&self, bytes: usize, _count: usize) -> Arc<BufferPool> {
        static SHARED: OnceLock<Arc<BufferPool>> = OnceLock::new();
        Arc::clone(SHARED.get_or_init(|| BufferPool::new(bytes, 1)))
    }
}

/// Three policies, each closed or killed.
fn healthy(number: usize) -> &'static Healthy {
    static ALL: [OnceLock<Healthy>; CACHES] = [const { OnceLock::new() }; CACHES];
    ALL[number].get_or_init(|| {
        let (policy, theta) = [("slru:3", None), ("gdsf:2", None), ("slru:2", Some(0.5))][number / 2];
        let settings = RipqSettings {
            policy: policy.parse().expect("a policy"),
            block_bytes: BLOCK_BYTES,
            alpha: 0.1,
            theta,
            identity: 9,
            recovery_threads: 1,
            ..RipqSettings::default()
        };
        let device: Arc<dyn Device> = Arc::new(Shared::new());
        let ripq = Ripq::create(Arc::clone(&device), settings.clone()).expect("an empty device");
        let (mut written, mut gone_below) = (Versions::new(), Versions::new());
        requests(&ripq, number as u64, STEPS, &mut written, &mut gone_below);
        if number.is_multiple_of(2) {
            ripq.close().expect("a healthy device");
        }
        let layout = DeviceLayout::open(&*device).expect("just created");
        let mut bytes = AlignedBuffer::new(DEVICE_BYTES as usize);
        device.read(0, &mut bytes).expect("in memory");
        Healthy { settings, layout, bytes: bytes.to_vec(), written, gone_below }
    })
}
