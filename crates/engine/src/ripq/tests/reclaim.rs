//! Requests in the midst of a reclaim. Not what a reclaim makes of a block that nobody asks for.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::{device, settings};
use crate::device::{Device, DeviceCounts, MemoryDevice, SECTOR};
use crate::ripq::{Ripq, Settings};

type Interruption = Box<dyn FnOnce() + Send>;

/// A device that has something done before its next long read.
struct Interrupted {
    store: MemoryDevice,
    next: Mutex<Option<Interruption>>,
}

impl Interrupted {
    fn set(&self, interruption: Option<Interruption>) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = interruption;
    }
}

impl Device for Interrupted {
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        // Tables are shorter.
        if buffer.len() > 2 * SECTOR {
            let next = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(interruption) = next {
                interruption();
            }
        }
        self.store.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> io::Result<()> {
        self.store.write(offset, buffer)
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

/// Of a large block only what is wanted by then is read. What is requested during that read is wanted as well.
#[test]
fn an_object_that_is_requested_while_its_block_is_reclaimed_stays() {
    let settings = Settings { block_bytes: 1 << 20, ..settings("lru") };
    let device = Arc::new(Interrupted { store: device(12, &settings), next: Mutex::default() });
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
