//! A device that returns errors, and then a crash: what a call has said to be gone stays away. Not crashes alone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{device, settings};
use crate::device::{AlignedBuffer, Device, DeviceCounts, DeviceFault, FaultyDevice, MemoryDevice, SECTOR};
use crate::ripq::{Ripq, RipqSettings};

type Faulty = FaultyDevice<MemoryDevice>;

/// A cache in which `key` has the value 1, on the device.
fn with_one() -> (Arc<Faulty>, Ripq) {
    let device = Arc::new(FaultyDevice::new(device(40, &settings("lru")), 1));
    let ripq = Ripq::create(Arc::clone(&device) as Arc<dyn Device>, settings("lru")).expect("empty");
    ripq.insert(b"key", &[1; 1000]).expect("healthy");
    ripq.flush().expect("healthy");
    (device, ripq)
}

/// What is left of `key` after a crash.
fn left_after_crash(device: Arc<Faulty>, ripq: Ripq) -> Option<u8> {
    drop(ripq);
    device.cut_power().expect("the store is healthy");
    device.restart();
    let ripq = Ripq::open(device, settings("lru")).expect("healthy");
    ripq.get(b"key").expect("healthy").map(|value| value[0])
}

#[test]
fn a_copy_that_could_not_be_read_once_does_not_come_back_over_a_newer_one() {
    let (device, ripq) = with_one();
    device.plan(device.operations(), DeviceFault::Error);
    ripq.get(b"key").expect_err("a read error");
    ripq.insert(b"key", &[2; 1000]).expect("healthy");
    assert_ne!(left_after_crash(device, ripq), Some(1));
}

#[test]
fn a_checkpoint_that_failed_hides_no_later_change() {
    for step in 0..3 {
        let (device, ripq) = with_one();
        // Nothing is buffered: a flush writes a checkpoint, syncs it, and writes an empty sector of changes.
        device.plan(device.operations() + step, DeviceFault::Error);
        ripq.flush().expect_err("a fault");
        assert!(ripq.remove(b"key").expect("healthy"));
        assert_eq!(left_after_crash(device, ripq), None, "step {step}");
    }
}

#[test]
fn a_sync_that_failed_is_not_made_good_by_the_next() {
    let (device, ripq) = with_one();
    device.plan(device.operations() + 1, DeviceFault::Error);
    ripq.remove(b"key").expect_err("the sync of the journal");
    assert!(!ripq.remove(b"key").expect("healthy"), "it is no longer served");
    assert_eq!(left_after_crash(device, ripq), None);
}

/// The error of a device with foreign bytes says to clear its first sectors. A journal that is left behind them is another's.
#[test]
fn the_journal_of_a_former_cache_is_not_believed() {
    let store: Arc<dyn Device> = Arc::new(device(40, &settings("lru")));
    let former = Ripq::create(Arc::clone(&store), settings("lru")).expect("empty");
    for key in 0..2000u16 {
        former.insert(&(key % 50).to_le_bytes(), &[1; 1000]).expect("healthy");
    }
    for _ in 0..6 {
        former.flush().expect("healthy");
    }
    drop(former);
    store.write(0, &AlignedBuffer::new(2 * SECTOR)).expect("healthy");
    let settings = RipqSettings { identity: 2, ..settings("lru") };
    let ripq = Ripq::create(Arc::clone(&store), settings.clone()).expect("cleared");
    for key in 0..30u16 {
        ripq.insert(&key.to_le_bytes(), &[2; 1000]).expect("healthy");
    }
    assert!(ripq.remove(&0u16.to_le_bytes()).expect("healthy"));
    ripq.close().expect("healthy");
    let ripq = Ripq::open(store, settings).expect("healthy");
    assert_eq!(ripq.contents().objects, 29);
    assert!(ripq.get(&0u16.to_le_bytes()).expect("healthy").is_none(), "what was removed has come back");
}

/// A device of which no byte below this can be written.
struct NoJournal {
    store: MemoryDevice,
    from: AtomicU64,
}

impl Device for NoJournal {
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.store.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> io::Result<()> {
        match offset < self.from.load(Ordering::Relaxed) {
            true => Err(io::Error::other("bad sectors")),
            false => self.store.write(offset, buffer),
        }
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

#[test]
fn a_journal_that_cannot_be_written_ends_insertions_and_not_memory() {
    let device = Arc::new(NoJournal { store: device(40, &settings("lru")), from: AtomicU64::new(0) });
    let ripq = Ripq::create(Arc::clone(&device) as Arc<dyn Device>, settings("lru")).expect("empty");
    ripq.insert(b"first", &[1; 500]).expect("healthy");
    device.from.store(ripq.layout.block(0), Ordering::Relaxed);
    let inserted = |key: u32| ripq.insert(&(key % 400).to_le_bytes(), &[1; 500]);
    (0..3000).for_each(|key| drop(inserted(key)));
    let error = inserted(0).expect_err("it has given up").to_string();
    assert!(error.contains("the journal could not be written 3 times in a row"), "{error}");
    assert!(ripq.state().pending.len() < 1000, "{} changes wait", ripq.state().pending.len());
    ripq.verify().expect("consistent");
    assert!(ripq.get(&399u32.to_le_bytes()).is_ok(), "what is there is served");
}
