//! Section 4.2's experiments on a device as it is, by the clock. What it does inside stays unknown, unless it tells.

use std::io;
use std::time::{Duration, Instant};

use flash::device::{AlignedBuffer, Device};
use rand::RngExt;

use super::{AskedCell, Cell, MIB, Pattern, Surface, TABLE_BYTES, asked, used};
use crate::seeds;

#[derive(Clone, Debug)]
pub struct MeasuredSurface {
    /// Each divides the largest.
    pub write_bytes: Vec<u64>,
    pub utilisations: Vec<f64>,
    /// For all cells together, without filling the device before.
    pub time: Duration,
    pub seed: u64,
}

impl MeasuredSurface {
    pub fn cells_count(&self) -> usize {
        self.asked().len()
    }

    /// Overwrites the device; `done` is called after each cell.
    pub fn evaluate(&self, device: &dyn Device, mut done: impl FnMut()) -> io::Result<Surface> {
        let bad_input = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        for share in &self.utilisations {
            used(device.bytes(), *share, &self.write_bytes).map_err(bad_input)?;
        }
        let asked = self.asked();
        let time = self.time / (asked.len() + 1) as u32;
        let largest = self.write_bytes.iter().copied().max().unwrap_or(TABLE_BYTES).max(TABLE_BYTES);
        let buffer = noise(self.seed, largest as usize, device);
        let mut run = SurfaceRun { device, buffer, seed: self.seed, time, used: 0 };
        let mut cells = Vec::new();
        for cell in asked {
            let used = used(device.bytes(), cell.utilisation, &self.write_bytes).map_err(bad_input)?;
            if run.used != used {
                device.discard(0, device.bytes())?;
                fill(device, used, &run.buffer[..largest as usize])?;
                run.used = used;
            }
            cells.push(run.write(cell)?);
            done();
        }
        let read_mib_per_s = Some(run.read()?);
        Ok(Surface { cells, read_mib_per_s })
    }

    fn asked(&self) -> Vec<AskedCell> {
        asked(&self.write_bytes, &self.utilisations, &self.write_bytes)
    }
}

/// What all cells of one evaluation have in common.
struct SurfaceRun<'a> {
    device: &'a dyn Device,
    buffer: AlignedBuffer,
    seed: u64,
    /// How long a cell is measured, at least.
    time: Duration,
    /// Bytes of the device that are filled, from its start on.
    used: u64,
}

impl SurfaceRun<'_> {
    fn write(&mut self, AskedCell { pattern, write_bytes, utilisation }: AskedCell) -> io::Result<Cell> {
        let SurfaceRun { device, time, .. } = *self;
        let slots = self.used / write_bytes;
        let mut random = seeds::random(self.seed, write_bytes);
        let before = device.counts();
        let begun = Instant::now();
        let mut written = 0;
        while written == 0 || begun.elapsed() < time {
            let slot = match pattern {
                Pattern::Sequential => written / write_bytes % slots,
                Pattern::Random => random.random_range(0..slots),
            };
            // So that no two writes are equal, and nothing below can save one.
            self.buffer[..8].copy_from_slice(&written.to_le_bytes());
            device.write(slot * write_bytes, &self.buffer[..write_bytes as usize])?;
            written += write_bytes;
        }
        device.sync()?;
        let seconds = begun.elapsed().as_secs_f64();
        let counts = device.counts().since(&before);
        Ok(Cell {
            pattern,
            write_bytes,
            utilisation,
            write_amplification: counts.write_amplification(),
            mib_per_s: written as f64 / MIB / seconds,
        })
    }

    fn read(&mut self) -> io::Result<f64> {
        let SurfaceRun { device, used, .. } = *self;
        let mut random = seeds::random(self.seed, 0);
        let begun = Instant::now();
        let mut read = 0;
        while read == 0 || begun.elapsed() < self.time {
            let slot = random.random_range(0..(used / TABLE_BYTES).max(1));
            let bytes = TABLE_BYTES.min(used) as usize;
            device.read(slot * TABLE_BYTES, &mut self.buffer[..bytes])?;
            read += bytes as u64;
        }
        Ok(read as f64 / MIB / begun.elapsed().as_secs_f64())
    }
}

/// Bytes that do not compress.
fn noise(seed: u64, bytes: usize, device: &dyn Device) -> AlignedBuffer {
    let mut buffer = device.buffers(bytes, 1).take();
    seeds::random(seed, 1).fill(&mut buffer[..]);
    buffer
}

fn fill(device: &dyn Device, bytes: u64, buffer: &[u8]) -> io::Result<()> {
    let mut place = 0;
    while place < bytes {
        let part = (bytes - place).min(buffer.len() as u64);
        device.write(place, &buffer[..part as usize])?;
        place += part;
    }
    device.sync()
}
