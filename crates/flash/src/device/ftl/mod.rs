//! A device behind a simulated flash translation layer, which counts what flash would have to do. The bytes are elsewhere.

mod mapping;
mod timings;
mod victims;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::counts::DeviceCounters;
use super::{BufferPool, Device, DeviceCounts, SECTOR, check};
pub use mapping::{Ftl, FtlOptions, Wear};
pub use timings::Timings;

/// Keeps its bytes in another device, at the same offsets.
#[derive(Debug)]
pub struct FtlDevice<D> {
    store: D,
    ftl: Mutex<Ftl>,
    counters: DeviceCounters,
}

impl<D: Device> FtlDevice<D> {
    pub fn new(store: D, options: &FtlOptions) -> io::Result<FtlDevice<D>> {
        let ftl = Ftl::new(store.bytes(), options)?;
        Ok(FtlDevice { store, ftl: Mutex::new(ftl), counters: DeviceCounters::default() })
    }

    pub fn wear(&self) -> Wear {
        self.ftl().wear()
    }

    fn ftl(&self) -> MutexGuard<'_, Ftl> {
        self.ftl.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Device> Device for FtlDevice<D> {
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.store.read(offset, buffer)?;
        self.counters.read(buffer.len());
        Ok(())
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        self.store.read_many(reads)?;
        reads.iter().for_each(|(_, buffer)| self.counters.read(buffer.len()));
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> io::Result<()> {
        self.store.write(offset, buffer)?;
        self.ftl().write(offset, buffer.len() as u64);
        self.counters.write(buffer.len());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.store.sync()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        check(self.bytes(), offset, bytes)?;
        self.store.discard(offset, bytes)?;
        self.ftl().discard(offset, bytes);
        self.counters.discard(bytes);
        Ok(())
    }

    fn counts(&self) -> DeviceCounts {
        DeviceCounts { flash: Some(self.ftl().counts()), ..self.counters.counts() }
    }

    fn description(&self) -> String {
        format!("{} over {}", self.ftl().description(), self.store.description())
    }

    fn buffers(&self, bytes: usize, count: usize) -> Arc<BufferPool> {
        self.store.buffers(bytes, count)
    }
}

/// Flash pages that hold any of the bytes.
fn touched(offset: u64, bytes: u64, page_bytes: u64) -> std::ops::Range<u32> {
    (offset / page_bytes) as u32..(offset + bytes).div_ceil(page_bytes) as u32
}

const _: () = assert!(mapping::PAGE_BYTES_MIN as usize == SECTOR);
