//! Where an engine keeps its bytes: one trait over files, memory, simulated flash and faults. Not what the bytes mean.

mod buffer;
mod counts;
mod faulty;
mod file;
mod ftl;
mod memory;

use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use buffer::{AlignedBuffer, BufferPool};
pub use counts::{DeviceCounts, FlashCounts};
pub use faulty::{DeviceFault, FaultRates, FaultyDevice};
pub use file::{FileDevice, FileOptions, TransferCalls};
pub use ftl::{Ftl, FtlDevice, FtlOptions, Timings, Wear};
pub use memory::MemoryDevice;

/// The unit of every offset and length: the page of today's flash and of memory, and what O_DIRECT asks for at most.
pub const SECTOR: usize = 4096;

/// A row of sectors. Calls block; many threads may call at once.
///
/// Offsets and lengths are whole sectors within the device, or the call is refused (`InvalidInput`). Memory may be
/// anywhere; what is not an [`AlignedBuffer`] may cost a copy. A read that meets a write of the same sectors may see
/// any mix of old and new. After a write that failed each of its sectors holds what it held before or what was
/// written. What is synced survives a loss of power. After a sync that failed nobody knows what it covered, and a later one
/// need not cover it: it has to be written again.
pub trait Device: Send + Sync {
    fn bytes(&self) -> u64;

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Offsets and memory of many reads, which may be in flight together. After an error some may not be done.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(offset, buffer)| self.read(*offset, buffer))
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> io::Result<()>;

    fn sync(&self) -> io::Result<()>;

    /// Says that nobody needs these sectors; what they hold afterwards is undefined. A hint.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()>;

    fn counts(&self) -> DeviceCounts;

    /// For people: what it is and how it is reached.
    fn description(&self) -> String;

    /// A pool whose buffers this device reads and writes with the least work.
    fn buffers(&self, bytes: usize, count: usize) -> Arc<BufferPool> {
        BufferPool::new(bytes, count)
    }
}

/// The range as what `Device` allows, or why it is not.
fn check(device_bytes: u64, offset: u64, bytes: u64) -> io::Result<Range<u64>> {
    let sector = SECTOR as u64;
    let refuse = |why: String| {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{bytes} bytes at offset {offset}: {why}")))
    };
    if !offset.is_multiple_of(sector) || !bytes.is_multiple_of(sector) {
        return refuse(format!("not whole sectors of {SECTOR} bytes"));
    }
    match offset.checked_add(bytes) {
        Some(end) if end <= device_bytes => Ok(offset..end),
        _ => refuse(format!("beyond the device's {device_bytes} bytes")),
    }
}

/// So many values, or an error where there is no memory for them.
fn filled<T>(count: u64, value: impl FnMut() -> T) -> io::Result<Vec<T>> {
    let mut values = Vec::new();
    let reserved = usize::try_from(count).map(|count| values.try_reserve_exact(count));
    match reserved {
        Ok(Ok(())) => values.resize_with(count as usize, value),
        Ok(Err(_)) | Err(_) => {
            let bytes = u128::from(count) * size_of::<T>() as u128;
            let why = format!("no memory for {bytes} bytes: make the device smaller");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
        }
    }
    Ok(values)
}

/// The size of a device as `Device` allows it, or why it is not.
fn check_size(bytes: u64) -> io::Result<u64> {
    if bytes > 0 && bytes.is_multiple_of(SECTOR as u64) {
        return Ok(bytes);
    }
    let sectors = (bytes / SECTOR as u64).max(1) * SECTOR as u64;
    let why =
        format!("a device of {bytes} bytes: must be whole sectors of {SECTOR} bytes, such as {sectors}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}
