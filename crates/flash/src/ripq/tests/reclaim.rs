//! Requests in the midst of a reclaim. Not what a reclaim makes of a block that nobody asks for.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{device, settings};
use crate::device::{Device, DeviceCounts, MemoryDevice, SECTOR};
use crate::ripq::stored::BlockBytes;
use crate::ripq::{Ripq, RipqSettings};

type Interruption = Box<dyn FnOnce() + Send>;

/// A device that has something done before its next long read, or after its next write.
struct Interrupted {
    store: MemoryDevice,
    next: Mutex<Option<Interruption>>,
    at_write: bool,
    fails_to_read: AtomicBool,
    last_long_read: AtomicU64,
}

impl Interrupted {
    fn new(store: MemoryDevice, at_write: bool) -> Interrupted {
        let (fails_to_read, last_long_read) = (AtomicBool::new(false), AtomicU64::new(0));
        Interrupted { store, next: Mutex::default(), at_write, fails_to_read, last_long_read }
    }

    fn set(&self, interruption: Option<Interruption>) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = interruption;
    }

    fn interrupt(&self) {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(interruption) = next {
            interruption();
        }
    }
}

impl Device for Interrupted {
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.fails_to_read.load(Ordering::Relaxed) {
            return Err(io::Error::other("this sector cannot be read"));
        }
        // Tables are shorter.
        if buffer.len() > 2 * SECTOR {
            self.last_long_read.store(offset, Ordering::Relaxed);
            if !self.at_write {
                self.interrupt();
            }
        }
        self.store.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> io::Result<()> {
        self.store.write(offset, buffer)?;
        if self.at_write {
            self.interrupt();
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.store.sync()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.store.discard(offset, bytes)
    }

    fn counts(&self) -> DeviceCounts {
        self.store.counts()
    }

    fn description(&self) -> String {
        self.store.description()
    }
}

fn get(ripq: &Ripq, key: u16) -> bool {
    let found = ripq.get(&key.to_le_bytes()).expect("healthy");
    assert!(found.as_ref().is_none_or(|value| value[..] == [key as u8; 50_000]), "key {key}");
    found.is_some()
}

/// A large block is read only where something is wanted by then. What is requested during that read is wanted as well.
#[test]
fn an_object_that_is_requested_while_its_block_is_reclaimed_stays() {
    let settings = RipqSettings { block_bytes: 1 << 20, ..settings("lru") };
    let device = Arc::new(Interrupted::new(device(12, &settings), false));
    let ripq = Arc::new(Ripq::create(Arc::clone(&device) as Arc<dyn Device>, settings).expect("empty"));
    let requested = Arc::new(Mutex::new(Vec::new()));
    let mut stayed = 0;
    for key in 0..600u16 {
        let (cache, log) = (Arc::clone(&ripq), Arc::clone(&requested));
        device.set(Some(Box::new(move || {
            let found = (0..key).filter(|other| other % 20 == 3 && get(&cache, *other));
            *log.lock().expect("nobody panics") = found.collect();
        })));
        ripq.insert(&key.to_le_bytes(), &[key as u8; 50_000]).expect("healthy");
        device.set(None);
        for other in std::mem::take(&mut *requested.lock().expect("nobody panics")) {
            assert!(get(&ripq, other), "key {other} is gone after {key} was inserted");
            stayed += 1;
        }
        // One object of each block, so that a part of the block is read.
        for other in (11..key).step_by(20) {
            get(&ripq, other);
        }
    }
    ripq.verify().expect("consistent");
    let statistics = ripq.statistics();
    assert!(stayed > 100 && statistics.damaged == 0 && statistics.skipped == 0, "{stayed}: {statistics:?}");
}

/// The keys of the block that was read last, which are lost to read errors; then hits, which may open new blocks.
fn lose_what_is_drained(ripq: &Ripq, device: &Interrupted, keys: u16) {
    let drained = device.last_long_read.load(Ordering::Relaxed);
    let is_drained = |key: &u16| {
        let state = ripq.state();
        let place = state.index.get(ripq.digest(&key.to_le_bytes()));
        place.is_some_and(|place| match state.stored(place.block).held {
            BlockBytes::OnDevice(slot) => ripq.layout.block(slot) == drained,
            BlockBytes::Open(_) | BlockBytes::Writing(_) => false,
        })
    };
    let lost: Vec<u16> = (0..keys).filter(is_drained).collect();
    device.fails_to_read.store(true, Ordering::Relaxed);
    assert!(lost.iter().all(|key| ripq.get(&key.to_le_bytes()).is_err()));
    device.fails_to_read.store(false, Ordering::Relaxed);
    for key in 0..keys {
        assert!(ripq.get(&key.to_le_bytes()).is_ok());
    }
}

/// A block of which readers lose the last object while it is drained stays until the drain ends.
#[test]
fn a_block_is_not_freed_while_it_is_drained() {
    let settings = RipqSettings { block_bytes: 4 * SECTOR as u64, ..settings("lru") };
    let device = Arc::new(Interrupted::new(device(24, &settings), true));
    let ripq = Arc::new(Ripq::create(Arc::clone(&device) as Arc<dyn Device>, settings).expect("empty"));
    for key in 0..1000u16 {
        let (cache, interrupted) = (Arc::clone(&ripq), Arc::clone(&device));
        device.set(Some(Box::new(move || lose_what_is_drained(&cache, &interrupted, key))));
        ripq.insert(&key.to_le_bytes(), &[key as u8; 1500]).expect("healthy");
        device.set(None);
        for other in (0..key).step_by(3) {
            ripq.get(&other.to_le_bytes()).expect("healthy");
        }
        ripq.verify().expect("consistent");
    }
    assert!(ripq.statistics().read_errors > 100);
}
