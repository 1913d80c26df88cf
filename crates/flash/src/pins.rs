//! Which blocks of the device are being read, so that none is overwritten meanwhile. Takes no lock to read.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// One count per block of the device.
#[derive(Debug)]
pub struct Pins {
    counts: Vec<AtomicU32>,
    /// Held to wait and to wake up.
    waiting: Mutex<()>,
    released: Condvar,
    /// Writers that wait; readers wake them only then.
    has_waiting: AtomicU32,
}

/// Keeps a block from being overwritten.
#[derive(Debug)]
pub struct Pin<'a> {
    pins: &'a Pins,
    slot: u32,
}

impl Pins {
    pub fn new(blocks: usize) -> Pins {
        Pins {
            counts: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
            waiting: Mutex::new(()),
            released: Condvar::new(),
            has_waiting: AtomicU32::new(0),
        }
    }

    /// To be called under the lock under which blocks are freed, so that none is pinned after it was.
    pub fn pin(&self, slot: u32) -> Pin<'_> {
        self.counts[slot as usize].fetch_add(1, Ordering::SeqCst);
        Pin { pins: self, slot }
    }

    pub fn is_pinned(&self, slot: u32) -> bool {
        self.counts[slot as usize].load(Ordering::SeqCst) > 0
    }

    /// Waits until one of these, which nobody pins anew, is free of pins; its position.
    pub fn wait_for_any(&self, slots: &[u32]) -> usize {
        let unpinned = || slots.iter().position(|slot| !self.is_pinned(*slot));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_waiting.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if let Some(found) = unpinned() {
                break found;
            }
            waiting = self.released.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        };
        self.has_waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let last = self.pins.counts[self.slot as usize].fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.pins.has_waiting.load(Ordering::SeqCst) > 0 {
            let _waiting = self.pins.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            self.pins.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_the_last_reader() {
        let pins = Pins::new(3);
        assert_eq!(pins.wait_for_any(&[2, 1]), 0);
        let (first, second) = (pins.pin(2), pins.pin(2));
        assert!(pins.is_pinned(2) && !pins.is_pinned(1));
        assert_eq!(pins.wait_for_any(&[2, 1]), 1);
        drop(first);
        assert!(pins.is_pinned(2));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| pins.wait_for_any(&[2]));
            while pins.has_waiting.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            drop(second);
            assert_eq!(writer.join().expect("no panic"), 0);
        });
    }
}
