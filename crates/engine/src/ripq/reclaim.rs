//! Reclaiming the lowest block: what was updated is materialised, the rest is evicted. Not which block is the lowest.
//!
//! Section 4.3.4, figure 4.3c. The same walk over a block's objects rewrites a block whose insertion point is gone.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::Ripq;
use super::queue::{bytes, counted_in};
use super::state::{Held, State};
use super::write::Writer;
use crate::device::{AlignedBuffer, SECTOR};
use crate::flash::Error;
use crate::flash::block::{self, Entry, Header};
use crate::flash::index::Place;
use crate::flash::record::{self, Record};

/// A block of which no more is used is read at once: a second read takes longer than what it would spare.
const WHOLE_BYTES: usize = 512 << 10;

/// What becomes of an object that has not been updated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unmoved {
    Evict,
    Keep,
}

/// A block's objects, and the bytes of those that are to be written again.
struct Source {
    entries: Vec<Entry>,
    /// The block's bytes from `start` on.
    bytes: AlignedBuffer,
    start: usize,
    /// None for a block that never left memory.
    sequence: Option<u64>,
}

impl Source {
    fn key_and_value(&self, entry: &Entry) -> Option<(&[u8], &[u8])> {
        let within = block::bytes_of(entry.offset, entry.units);
        let bytes = self.bytes.get(within.start.checked_sub(self.start)?..within.end - self.start)?;
        match self.sequence {
            Some(sequence) => record::parse(bytes, sequence, entry.offset),
            None => record::parse_open(bytes),
        }
    }
}

impl Ripq {
    /// Reclaims the lowest block; false if there is none.
    pub(super) fn reclaim(&self, writer: &mut Writer) -> Result<bool, Error> {
        let block = {
            let mut state = self.state();
            let Some(block) = state.queue.lowest_device() else { return Ok(false) };
            state.queue.close(block);
            state.queue.note_full();
            state.statistics.blocks_reclaimed += 1;
            state.reclaimed_in_vain += 1;
            state.resize_logical();
            block
        };
        self.drain(writer, block, Unmoved::Evict)?;
        Ok(true)
    }

    /// Inserts everything in a block again, each object into the section where it counts.
    pub(super) fn rewrite(&self, writer: &mut Writer, block: u32) -> Result<(), Error> {
        self.state().queue.close(block);
        self.drain(writer, block, Unmoved::Keep)
    }

    fn drain(&self, writer: &mut Writer, block: u32, unmoved: Unmoved) -> Result<(), Error> {
        let Some(source) = self.open_source(block, unmoved) else {
            self.state().abandon(block);
            return Ok(());
        };
        for entry in &source.entries {
            loop {
                let sealing = {
                    let mut state = self.state();
                    match state.drain_object(block, entry, &source, unmoved, self.settings.skip) {
                        Some(full) => state.seal(full),
                        None => break,
                    }
                };
                if let Err(error) = self.write_block(writer, sealing) {
                    self.state().stop_drain(block, &source.entries);
                    return Err(error);
                }
            }
        }
        let mut state = self.state();
        state.recycle(source.bytes);
        state.drained(block);
        Ok(())
    }

    /// Reads what is needed of a block: its table, and the bytes from the first to the last object to be kept.
    fn open_source(&self, block: u32, unmoved: Unmoved) -> Option<Source> {
        let (slot, sequence, whole, mut bytes) = {
            let mut state = self.state();
            let mut bytes = state.take_buffer();
            let stored = state.stored(block);
            match &stored.held {
                Held::Open(builder) => {
                    bytes[..builder.used_bytes()].copy_from_slice(&builder.buffer[..builder.used_bytes()]);
                    let entries = builder.entries().to_vec();
                    return Some(Source { entries, bytes, start: 0, sequence: None });
                }
                Held::OnDevice(slot) => {
                    let whole =
                        block::written_bytes(stored.used_bytes as usize, self.layout.block_bytes as usize);
                    (*slot, stored.sequence, whole, bytes)
                }
                Held::Writing(_) => unreachable!("the writer waits for its writes"),
            }
        };
        let offset = self.layout.block(slot);
        if whole <= WHOLE_BYTES {
            let read = self.device.read(offset, &mut bytes[..whole]);
            let table = read.map(|()| block::parse_block(&bytes[..whole], &self.layout));
            let entries = self.entries(table, sequence)?;
            return Some(Source { entries, bytes, start: 0, sequence: Some(sequence) });
        }
        let table = block::read_table(&*self.device, offset, &self.layout);
        let entries = self.entries(table, sequence)?;
        let needed = self.needed(block, &entries, unmoved);
        if !needed.is_empty()
            && self.device.read(offset + needed.start as u64, &mut bytes[..needed.len()]).is_err()
        {
            self.state().statistics.read_errors += 1;
            bytes[..needed.len()].fill(0);
        }
        Some(Source { entries, bytes, start: needed.start, sequence: Some(sequence) })
    }

    /// The sectors of a block that have what is to be kept.
    fn needed(&self, block: u32, entries: &[Entry], unmoved: Unmoved) -> Range<usize> {
        let state = self.state();
        let kept = entries.iter().filter(|entry| {
            let place = state.resident(block, entry);
            place.is_some_and(|place| state.keeps(entry.digest, &place, unmoved, self.settings.skip))
        });
        let places = kept.map(|entry| block::bytes_of(entry.offset, entry.units));
        let all = places.reduce(|first, last| first.start..last.end).unwrap_or(0..0);
        all.start / SECTOR * SECTOR..all.end.next_multiple_of(SECTOR)
    }

    /// The table that was read, if it is that of the block that was written with this number.
    fn entries(&self, table: io::Result<Option<(Header, Vec<Entry>)>>, sequence: u64) -> Option<Vec<Entry>> {
        let mut state = self.state();
        match table {
            Ok(Some((header, entries))) if header.sequence == sequence => return Some(entries),
            Ok(_) => state.statistics.damaged += 1,
            Err(_) => state.statistics.read_errors += 1,
        }
        None
    }
}

impl State {
    /// Moves an object out of a block; the section whose insertion point must be sealed before that, if any.
    fn drain_object(
        &mut self,
        block: u32,
        entry: &Entry,
        source: &Source,
        unmoved: Unmoved,
        skip: f64,
    ) -> Option<usize> {
        let place = self.resident(block, entry)?;
        if !self.keeps(entry.digest, &place, unmoved, skip) {
            self.statistics.skipped += u64::from(place.moved_to.is_some());
            self.evict(entry.digest, &place);
            return None;
        }
        let record =
            source.key_and_value(entry).and_then(|(key, value)| Record::new(key, value, entry.digest));
        let Some(record) = record else {
            self.statistics.damaged += 1;
            self.evict(entry.digest, &place);
            return None;
        };
        let section = self.queue.blocks[counted_in(&place)].section;
        if !self.fits(section, place.units) {
            if !self.free.is_empty() {
                return Some(section);
            }
            self.statistics.skipped += 1;
            self.evict(entry.digest, &place);
            return None;
        }
        let lowest = self.queue.blocks[counted_in(&place)].lowest;
        self.unlink(entry.digest, &place);
        self.append(section, &record, place.frequency, lowest);
        if source.sequence.is_some() {
            self.statistics.reinserted += 1;
            self.statistics.reinserted_bytes += bytes(place.units);
        }
        None
    }

    /// Whether an object is written again when its block goes.
    fn keeps(&self, digest: u64, place: &Place, unmoved: Unmoved, skip: f64) -> bool {
        if unmoved == Unmoved::Keep {
            return true;
        }
        match &self.logical {
            Some(logical) => self.reclaimed_in_vain <= self.blocks() && logical.contains(digest),
            None => place.moved_to.is_some_and(|counted| self.queue.rank(counted) >= skip),
        }
    }

    /// The block stays, half drained. What has left it must not come back from it.
    fn stop_drain(&mut self, block: u32, entries: &[Entry]) {
        let known: BTreeSet<u32> = self.stored(block).dead.iter().copied().collect();
        let gone = |entry: &&Entry| {
            entry.frequency > 0 && self.resident(block, entry).is_none() && !known.contains(&entry.offset)
        };
        let offsets: Vec<u32> = entries.iter().filter(gone).map(|entry| entry.offset).collect();
        self.mark_dead(block, &offsets);
    }

    /// Drops every object of a block whose table cannot be read: the whole index has to tell which they are.
    fn abandon(&mut self, block: u32) {
        let mut lost = Vec::new();
        self.index.update_all(|place| {
            if place.block == block {
                lost.push(place);
            }
            (place.block != block).then_some(place)
        });
        for place in &lost {
            self.uncount(place);
        }
        self.statistics.evicted += lost.len() as u64;
        self.evicted.note_unknown();
        self.drained(block);
    }
}
