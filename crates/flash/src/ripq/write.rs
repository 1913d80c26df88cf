//! Writing buffers and making room for them. One thread at a time. Which object goes is not here, nor what the journal is
//! told.

use std::io;

use super::queue::counted_in;
use super::state::RipqState;
use super::stored::Sealing;
use super::{Ripq, recovery};
use crate::FlashError;
use crate::block::Builder;
use crate::index::IndexPlace;
use crate::journal::Journal;
use crate::layout::DeviceLayout;
use crate::priority::QueuePriority;
use crate::record::{ObjectRecord, UNIT};

/// One bad block is a bad block; so many in a row are a device that takes no more.
const FAILURES_MAX: u32 = 3;

/// What only the thread that writes needs.
#[derive(Debug)]
pub(super) struct RipqWriter {
    pub(super) journal: Journal,
    pub(super) blocks_since_checkpoint: u64,
    block_failures: u32,
    journal_failures: u32,
    failed: Option<String>,
}

impl RipqWriter {
    pub(super) fn new(layout: &DeviceLayout, generation: u64) -> RipqWriter {
        RipqWriter {
            journal: Journal::new(layout, generation),
            blocks_since_checkpoint: 0,
            block_failures: 0,
            journal_failures: 0,
            failed: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), FlashError> {
        self.failed.clone().map_or(Ok(()), |error| Err(FlashError::Failed(error)))
    }

    fn note_block(&mut self, outcome: &io::Result<()>) {
        self.block_failures = if outcome.is_ok() { 0 } else { self.block_failures + 1 };
        if let Err(error) = outcome
            && self.block_failures == FAILURES_MAX
        {
            self.failed = Some(format!("the device refused {FAILURES_MAX} blocks in a row: {error}"));
        }
    }

    /// What is not told to the journal waits in memory, so this may not go on for ever either.
    pub(super) fn note_journal(&mut self, outcome: &Result<(), FlashError>) {
        self.journal_failures = if outcome.is_ok() { 0 } else { self.journal_failures + 1 };
        if let Err(error) = outcome
            && self.journal_failures == FAILURES_MAX
        {
            self.failed =
                Some(format!("the journal could not be written {FAILURES_MAX} times in a row: {error}"));
        }
    }
}

impl Ripq {
    pub(super) fn record<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<ObjectRecord<'a>, FlashError> {
        let units_max = Builder::units_max(self.layout.block_bytes as usize);
        let record =
            ObjectRecord::new(key, value, self.digest(key)).filter(|record| record.units <= units_max);
        record.ok_or_else(|| FlashError::TooLarge {
            bytes: key.len() + value.len(),
            bytes_max: units_max as usize * UNIT - UNIT,
        })
    }

    /// Puts an object at the insertion point of its section, after writing what is in the way; whether it replaced one.
    pub(super) fn write_object(
        &self,
        writer: &mut RipqWriter,
        record: &ObjectRecord<'_>,
    ) -> Result<bool, FlashError> {
        loop {
            let sealing = {
                let mut state = self.state();
                let old = state.index.get(record.digest);
                let Aim { section, frequency, priority } = state.aim(record, old.as_ref());
                if state.fits(section, record.units) {
                    if let Some(old) = &old {
                        state.forget(record.digest, old);
                    }
                    let lowest = state.queue.lowest();
                    if let Some(priority) = priority {
                        state.queue.enter_segment(priority, record.units);
                    }
                    state.append(section, record, frequency, lowest);
                    state.requested(record.digest, record.units);
                    state.statistics.inserted += 1;
                    state.statistics.inserted_bytes += u64::from(record.units) * UNIT as u64;
                    return Ok(old.is_some());
                }
                if state.free.is_empty() { None } else { Some(state.seal(section)) }
            };
            match sealing {
                Some(sealing) => self.write_block(writer, sealing)?,
                // Merging sections has used up the spare blocks.
                None => self.make_room(writer, 0)?,
            }
            self.balance(writer)?;
        }
    }

    /// Writes a sealed block. A failure costs its objects and is an error only when the device seems to be gone.
    pub(super) fn write_block(
        &self,
        writer: &mut RipqWriter,
        sealing: Option<Sealing>,
    ) -> Result<(), FlashError> {
        let Some(sealing) = sealing else { return Ok(()) };
        let slot = self.take_block();
        let written = self.device.write(self.layout.block(slot), &sealing.buffer[..sealing.written_bytes]);
        writer.note_block(&written);
        if written.is_err() {
            let mut state = self.state();
            state.statistics.write_errors += 1;
            state.give_up(&sealing, slot);
            return writer.check();
        }
        self.discard_rest(slot, sealing.written_bytes as u64);
        self.state().written(sealing, slot);
        writer.blocks_since_checkpoint += 1;
        Ok(())
    }

    /// What is not written of a block would still be the former one's, and flash would keep it. Only a hint.
    fn discard_rest(&self, slot: u32, written_bytes: u64) {
        let rest = self.layout.block_bytes - written_bytes;
        if rest > 0 && self.device.discard(self.layout.block(slot) + written_bytes, rest).is_err() {
            self.state().statistics.discard_errors += 1;
        }
    }

    /// A free block that nobody reads any more.
    fn take_block(&self) -> u32 {
        let slots: Vec<u32> = {
            let mut state = self.state();
            if let Some(position) = state.free.iter().position(|slot| !self.pins.is_pinned(*slot)) {
                return state.free.remove(position).expect("it is there");
            }
            state.free.iter().copied().collect()
        };
        assert!(!slots.is_empty(), "room is made before it is needed");
        let position = self.pins.wait_for_any(&slots);
        self.state().free.remove(position).expect("only the writer takes blocks")
    }

    /// Keeps sections few and small. What a merge leaves without an insertion point is inserted again, in memory.
    pub(super) fn balance(&self, writer: &mut RipqWriter) -> Result<(), FlashError> {
        loop {
            let closed = {
                let mut state = self.state();
                state.queue.balance();
                let closed = state.queue.closed.pop();
                closed.inspect(|block| state.begin_drain(*block))
            };
            let Some(closed) = closed else { return Ok(()) };
            self.rewrite(writer, closed)?;
        }
    }

    /// Evicts until everything fits again, with so many insertion points about to be sealed.
    pub(super) fn make_room(&self, writer: &mut RipqWriter, sealing: u64) -> Result<(), FlashError> {
        self.state().reclaimed_in_vain = 0;
        while self.state().is_over_capacity(sealing) {
            if !self.reclaim(writer)? {
                break;
            }
            self.balance(writer)?;
        }
        self.bound_dead(writer)
    }

    /// The journal has room for so many dead objects; the block that has most of them is written again without them.
    pub(super) fn bound_dead(&self, writer: &mut RipqWriter) -> Result<(), FlashError> {
        loop {
            let worst = {
                let mut state = self.state();
                if recovery::payload_bytes(&state) <= writer.journal.payload_bytes_max() / 2 {
                    return Ok(());
                }
                let dead = |block: &u32| {
                    state.stored[*block as usize].as_ref().map_or(0, |stored| stored.dead.len())
                };
                let worst = (0..state.stored.len() as u32).max_by_key(dead).filter(|block| dead(block) > 0);
                worst.inspect(|block| state.begin_drain(*block))
            };
            let Some(block) = worst else { return Ok(()) };
            self.rewrite(writer, block)?;
            self.state().statistics.blocks_compacted += 1;
            self.balance(writer)?;
        }
    }

    /// Seals and writes every insertion point. Neighbours whose buffers fit into one block share it, so that no more is
    /// evicted for blocks that are not full than must be.
    pub(super) fn write_buffers(&self, writer: &mut RipqWriter) -> Result<(), FlashError> {
        loop {
            self.balance(writer)?;
            let closed = || self.state().join_buffers();
            while let Some(closed) = closed() {
                self.rewrite(writer, closed)?;
            }
            let open = self.state().queue.open_sections().count() as u64;
            self.make_room(writer, open)?;
            let sealing = {
                let mut state = self.state();
                let section = state.queue.open_sections().next();
                match section {
                    Some(section) => state.seal(section),
                    // A reader's request may have closed one.
                    None if state.queue.closed.is_empty() => return Ok(()),
                    None => None,
                }
            };
            self.write_block(writer, sealing)?;
        }
    }
}

/// Where an object that is written now belongs.
struct Aim {
    section: usize,
    frequency: u8,
    /// The new priority; `None` if a request changes nothing.
    priority: Option<QueuePriority>,
}

impl RipqState {
    /// As on a request, if it was in the cache.
    fn aim(&self, record: &ObjectRecord<'_>, old: Option<&IndexPlace>) -> Aim {
        let queue = &self.queue;
        let Some(old) = old else {
            let priority = queue.on_miss(record.units);
            return Aim { section: queue.locate(priority), frequency: 1, priority: Some(priority) };
        };
        let frequency = old.frequency.saturating_add(1);
        let requested = IndexPlace { units: record.units, frequency, ..*old };
        let here = queue.blocks[counted_in(old)].section;
        let priority = queue.on_hit(&requested, queue.standing(old));
        let above = priority.map(|priority| queue.locate(priority));
        let above = above.filter(|section| queue.is_above(*section, old));
        Aim { section: above.unwrap_or(here), frequency, priority }
    }
}
