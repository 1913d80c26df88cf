//! What a device was asked to do, and what it did on flash. Not how long it took.

use std::sync::atomic::{AtomicU64, Ordering};

/// Since the device was opened. Only what succeeded is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub discarded_bytes: u64,
    /// What the flash below has done; `None` where the device does not tell.
    pub flash: Option<FlashCounts>,
}

/// What a flash translation layer did to carry out what the host wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounts {
    pub programmed_bytes: u64,
    pub erases: u64,
}

impl DeviceCounts {
    /// Bytes programmed per byte the host wrote (dissertation, section 4.2); none before the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        let programmed = self.flash?.programmed_bytes;
        (self.written_bytes > 0).then(|| programmed as f64 / self.written_bytes as f64)
    }

    /// What came after `earlier`.
    pub fn since(&self, earlier: &DeviceCounts) -> DeviceCounts {
        let flash = self.flash.map(|flash| {
            let before = earlier.flash.unwrap_or_default();
            FlashCounts {
                programmed_bytes: flash.programmed_bytes - before.programmed_bytes,
                erases: flash.erases - before.erases,
            }
        });
        DeviceCounts {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            discarded_bytes: self.discarded_bytes - earlier.discarded_bytes,
            flash,
        }
    }
}

/// The counters behind it, for many threads.
#[derive(Debug, Default)]
pub(super) struct DeviceCounters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    discarded_bytes: AtomicU64,
}

impl DeviceCounters {
    pub(super) fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn write(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn discard(&self, bytes: u64) {
        self.discarded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> DeviceCounts {
        DeviceCounts {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            discarded_bytes: self.discarded_bytes.load(Ordering::Relaxed),
            flash: None,
        }
    }
}
