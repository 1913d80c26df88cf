//! RIPQ: a priority queue on flash with a few insertion points and large writes (dissertation, chapter 4). No network.
//!
//! `queue`, `section`, `segments`, `balance` and `histogram` decide the order and touch no device; `state` and `stored` join
//! them with the index and the buffers; `write`, `commit`, `reclaim` and `recovery` carry decisions out. `docs/ripq.md`
//! has the whole design.

mod balance;
mod coalesce;
mod commit;
mod evicted;
mod histogram;
mod queue;
mod reclaim;
mod recovery;
mod section;
mod segments;
mod settings;
mod state;
mod statistics;
mod stored;
#[cfg(test)]
mod tests;
mod verify;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

pub use self::settings::RipqSettings;
pub use self::statistics::{Contents, MemoryBytes, RipqStatistics};
use crate::device::{BufferPool, Device, SECTOR};
use crate::index::IndexPlace;
use crate::layout::{BLOCKS_COUNT_MIN, DeviceLayout};
use crate::pins::Pins;
use crate::record::{self, UNIT};
use crate::{FlashError, block};
use state::{Lookup, RipqState};
use write::RipqWriter;

/// Reads up to this long use memory that the device knows.
const READ_BYTES: usize = 128 << 10;
/// As many readers as use it at once; others allocate.
const READ_BUFFERS: usize = 16;

/// A cache on a device. Many threads may read while one writes; writers take turns.
pub struct Ripq {
    device: Arc<dyn Device>,
    settings: RipqSettings,
    layout: DeviceLayout,
    pins: Pins,
    read_buffers: Arc<BufferPool>,
    /// Taken before `state`, and held while the device is written.
    writer: Mutex<RipqWriter>,
    /// Never held while the device works.
    state: Mutex<RipqState>,
}

impl Ripq {
    /// Makes an empty cache of a device whose first sectors are zero.
    pub fn create(device: Arc<dyn Device>, settings: RipqSettings) -> Result<Ripq, FlashError> {
        settings.check()?;
        let layout = DeviceLayout::plan(device.bytes(), settings.block_bytes, settings.identity)?;
        Ripq::check_blocks(&layout)?;
        layout.create(&*device)?;
        Ripq::start(device, settings, layout, None)
    }

    /// Opens the cache that is on a device, with what was in it.
    pub fn open(device: Arc<dyn Device>, settings: RipqSettings) -> Result<Ripq, FlashError> {
        settings.check()?;
        let layout = DeviceLayout::open(&*device)?;
        Ripq::check_blocks(&layout)?;
        if layout.block_bytes != settings.block_bytes {
            return Err(FlashError::Settings(format!(
                "block_bytes = {}: the cache on this device was created with {}",
                settings.block_bytes, layout.block_bytes
            )));
        }
        let recovered = recovery::recover(&*device, &settings, &layout)?;
        Ripq::start(device, settings, layout, Some(recovered))
    }

    fn check_blocks(layout: &DeviceLayout) -> Result<(), FlashError> {
        if layout.blocks < BLOCKS_COUNT_MIN {
            return Err(FlashError::Settings(format!(
                "block_bytes = {}: the device has room for {} blocks, and {BLOCKS_COUNT_MIN} are the least",
                layout.block_bytes, layout.blocks
            )));
        }
        Ok(())
    }

    fn start(
        device: Arc<dyn Device>,
        settings: RipqSettings,
        layout: DeviceLayout,
        recovered: Option<recovery::Recovered>,
    ) -> Result<Ripq, FlashError> {
        let (state, generation) = match recovered {
            Some(recovered) => (recovered.state, recovered.generation),
            None => {
                let mut state = RipqState::new(&settings, layout);
                state.free.extend(0..layout.blocks as u32);
                (state, 0)
            }
        };
        let ripq = Ripq {
            pins: Pins::new(layout.blocks as usize),
            read_buffers: device.buffers(READ_BYTES, READ_BUFFERS),
            writer: Mutex::new(RipqWriter::new(&layout, generation)),
            state: Mutex::new(state),
            device,
            settings,
            layout,
        };
        {
            let mut writer = ripq.writer();
            ripq.checkpoint(&mut writer)?;
            ripq.balance(&mut writer)?;
            ripq.make_room(&mut writer, 0)?;
        }
        Ok(ripq)
    }

    /// The object's value. A hit raises its priority. A read that fails is an error the first time, then a miss.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, FlashError> {
        let digest = self.digest(key);
        let found = self.state().find(key, digest, &self.pins);
        match found {
            Lookup::Nothing => Ok(None),
            Lookup::Value(value) => Ok(Some(value)),
            Lookup::Writing { buffer, place, sequence } => {
                let bytes = &buffer[block::bytes_of(place.offset, place.units)];
                Ok(self.check(key, digest, bytes, &place, sequence))
            }
            Lookup::OnDevice { slot, pin, place, sequence } => {
                let within = block::bytes_of(place.offset, place.units);
                let first = within.start / SECTOR * SECTOR;
                let length = within.end.next_multiple_of(SECTOR) - first;
                let mut buffer = match length <= READ_BYTES {
                    true => self.read_buffers.take(),
                    false => crate::device::AlignedBuffer::new(length),
                };
                let read = self.device.read(self.layout.block(slot) + first as u64, &mut buffer[..length]);
                drop(pin);
                if let Err(error) = read {
                    self.lose(digest, &place, sequence, |statistics| statistics.read_errors += 1);
                    return Err(FlashError::device("reading an object", error));
                }
                let start = within.start - first;
                let bytes = &buffer[start..start + place.units as usize * UNIT];
                Ok(self.check(key, digest, bytes, &place, sequence))
            }
        }
    }

    /// The value in a sealed record, if it is the one that was written and its key is the one asked for.
    fn check(
        &self,
        key: &[u8],
        digest: u64,
        bytes: &[u8],
        place: &IndexPlace,
        sequence: u64,
    ) -> Option<Bytes> {
        match record::parse(bytes, sequence, place.offset) {
            Some((known, value)) if known == key => Some(Bytes::copy_from_slice(value)),
            Some(_) => {
                let statistics = &mut self.state().statistics;
                statistics.collisions += 1;
                statistics.hits -= 1;
                statistics.misses += 1;
                None
            }
            None => {
                self.lose(digest, place, sequence, |statistics| statistics.damaged += 1);
                None
            }
        }
    }

    /// A copy that cannot be read leaves the cache, unless another has taken its place meanwhile.
    fn lose(&self, digest: u64, place: &IndexPlace, sequence: u64, count: impl FnOnce(&mut RipqStatistics)) {
        let mut state = self.state();
        count(&mut state.statistics);
        state.statistics.hits -= 1;
        state.statistics.misses += 1;
        if let Some(now) = state.index.get(digest)
            && (now.block, now.offset) == (place.block, place.offset)
            && state.stored(now.block).sequence == sequence
        {
            state.forget(digest, &now);
            state.evicted.note(digest);
            state.lose_standing(digest);
        }
    }

    /// Puts an object into the cache, in the place of one with the same key, whose priority it takes on. What the key had
    /// before never comes back (`Settings::durable_changes`), not even if it had been evicted. After `Error::TooLarge` the
    /// cache has what it had; after an error of the device it may have either value, and either after a crash.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), FlashError> {
        let record = self.record(key, value)?;
        let mut writer = self.writer();
        writer.check()?;
        let replaced = self.write_object(&mut writer, &record)?;
        let was_evicted = self.state().evicted.contains(record.digest);
        self.make_room(&mut writer, 0)?;
        self.commit_changes(&mut writer, replaced || was_evicted)
    }

    /// Takes an object out of the cache; whether there was one. Recovery never brings it back.
    pub fn remove(&self, key: &[u8]) -> Result<bool, FlashError> {
        let digest = self.digest(key);
        let mut writer = self.writer();
        let removed = {
            let mut state = self.state();
            let place = state.index.get(digest);
            if let Some(place) = &place {
                state.forget(digest, place);
                state.lose_standing(digest);
                state.statistics.removed += 1;
                // If the journal cannot be told now, whoever inserts it anew has to.
                state.evicted.note(digest);
            }
            place.is_some()
        };
        // Even a miss: the copy of an object that was evicted must not come back either.
        self.commit_changes(&mut writer, true)?;
        self.bound_dead(&mut writer)?;
        Ok(removed)
    }

    /// Writes every buffer and the order of the blocks: nothing is lost if the process ends after this. Blocks that are
    /// not full take their room all the same, so this is for the end and not for every minute.
    pub fn flush(&self) -> Result<(), FlashError> {
        let mut writer = self.writer();
        writer.check()?;
        self.write_buffers(&mut writer)?;
        self.checkpoint(&mut writer)
    }

    /// Flushes; the cache can be opened again with all that was in it.
    pub fn close(self) -> Result<(), FlashError> {
        self.flush()
    }

    pub fn statistics(&self) -> RipqStatistics {
        let state = self.state();
        let mut statistics = state.statistics;
        (statistics.splits, statistics.merges) = (state.queue.splits, state.queue.merges);
        statistics
    }

    pub fn contents(&self) -> Contents {
        self.state().contents()
    }

    /// Whether all that is known of objects, blocks and sections agrees; the first contradiction. It reads all of it.
    pub fn verify(&self) -> Result<(), String> {
        let _writer = self.writer();
        self.state().verify()
    }

    fn digest(&self, key: &[u8]) -> u64 {
        record::digest(key, self.layout.identity)
    }

    fn writer(&self) -> MutexGuard<'_, RipqWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, RipqState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
