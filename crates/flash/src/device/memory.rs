//! A device in memory, for tests and for caches that need not survive. Nothing of it is on disk.

use std::io;
use std::sync::{PoisonError, RwLock};

use super::counts::DeviceCounters;
use super::{Device, DeviceCounts, check, check_size, filled};

/// Small enough that readers seldom meet the writer, large enough that a write takes few locks.
const CHUNK: usize = 1 << 20;

/// Memory is taken when it is first written.
#[derive(Debug)]
pub struct MemoryDevice {
    bytes: u64,
    /// An empty chunk is all zeros.
    chunks: Vec<RwLock<Vec<u8>>>,
    counters: DeviceCounters,
}

impl MemoryDevice {
    pub fn new(bytes: u64) -> io::Result<MemoryDevice> {
        let bytes = check_size(bytes)?;
        let chunks = filled(bytes.div_ceil(CHUNK as u64), RwLock::default)?;
        Ok(MemoryDevice { bytes, chunks, counters: DeviceCounters::default() })
    }

    /// The chunks a range touches: index, first byte within the chunk, first and last byte within the range.
    fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let place = offset + done as u64;
            let (chunk, inside) = ((place / CHUNK as u64) as usize, (place % CHUNK as u64) as usize);
            let length = (CHUNK - inside).min(bytes - done);
            let part = (chunk, inside, done..done + length);
            done += length;
            (length > 0).then_some(part)
        })
    }
}

impl Device for MemoryDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check(self.bytes, offset, buffer.len() as u64)?;
        for (chunk, inside, part) in MemoryDevice::parts(offset, buffer.len()) {
            let chunk = self.chunks[chunk].read().unwrap_or_else(PoisonError::into_inner);
            let target = &mut buffer[part];
            match chunk.get(inside..inside + target.len()) {
                Some(source) => target.copy_from_slice(source),
                None => target.fill(0),
            }
        }
        self.counters.read(buffer.len());
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> io::Result<()> {
        check(self.bytes, offset, buffer.len() as u64)?;
        for (chunk, inside, part) in MemoryDevice::parts(offset, buffer.len()) {
            let mut chunk = self.chunks[chunk].write().unwrap_or_else(PoisonError::into_inner);
            if chunk.is_empty() {
                *chunk = vec![0; CHUNK];
            }
            let source = &buffer[part];
            chunk[inside..inside + source.len()].copy_from_slice(source);
        }
        self.counters.write(buffer.len());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Gives the memory of whole chunks back.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let range = check(self.bytes, offset, bytes)?;
        let first = range.start.div_ceil(CHUNK as u64) as usize;
        let end = (range.end / CHUNK as u64) as usize;
        for chunk in self.chunks.get(first..end).unwrap_or_default() {
            *chunk.write().unwrap_or_else(PoisonError::into_inner) = Vec::new();
        }
        self.counters.discard(bytes);
        Ok(())
    }

    fn counts(&self) -> DeviceCounts {
        self.counters.counts()
    }

    fn description(&self) -> String {
        format!("memory, {} MiB", self.bytes >> 20)
    }
}
