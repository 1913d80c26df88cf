//! Reclaiming the lowest block: what was updated is materialised, the rest is evicted. Not which block is the lowest.
//!
//! Section 4.3.4, figure 4.3c. The same walk over a block's objects rewrites a block whose insertion point is gone.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::Ripq;
use super::queue::{bytes, counted_in};
use super::state::RipqState;
use super::stored::BlockBytes;
use super::write::RipqWriter;
use crate::FlashError;
use crate::block::{self, BlockEntry, BlockHeader};
use crate::device::{AlignedBuffer, SECTOR};
use crate::index::IndexPlace;
use crate::record::{self, ObjectRecord};

/// A block of which no more is used is read at once: a second read takes longer than what it would spare.
const WHOLE_BYTES: usize = 512 << 10;

/// What becomes of an object that has not been updated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unmoved {
    Evict,
    Keep,
}

/// What became of one object.
enum Drained {
    Done,
    /// Nothing yet: the insertion point of this section has no room.
    Full(usize),
    /// Nothing yet: it was requested after it had been decided what to read.
    Unread,
}

/// Some of a block's bytes, in memory.
struct BlockPiece {
    within: Range<usize>,
    bytes: AlignedBuffer,
}

impl BlockPiece {
    fn get(&self, wanted: &Range<usize>) -> Option<&[u8]> {
        let is_here = self.within.start <= wanted.start && wanted.end <= self.within.end;
        is_here.then(|| &self.bytes[wanted.start - self.within.start..wanted.end - self.within.start])
    }
}

/// A block's objects, and the bytes of those that are to be written again.
struct ReclaimSource {
    entries: Vec<BlockEntry>,
    piece: BlockPiece,
    /// The object that was read last of those that the piece lacks.
    late: Option<BlockPiece>,
    /// On the device; of no meaning without a sequence number.
    slot: u32,
    /// Sequence number of the block; `None` for one that never left memory.
    sequence: Option<u64>,
}

impl ReclaimSource {
    /// The entry's bytes; `None` if they have not been read.
    fn bytes(&self, entry: &BlockEntry) -> Option<&[u8]> {
        let within = block::bytes_of(entry.offset, entry.units);
        self.piece.get(&within).or_else(|| self.late.as_ref()?.get(&within))
    }

    fn parse<'a>(&self, entry: &BlockEntry, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        match self.sequence {
            Some(sequence) => record::parse(bytes, sequence, entry.offset),
            None => record::parse_open(bytes),
        }
    }
}

impl Ripq {
    /// Reclaims the lowest block; false if there is none.
    pub(super) fn reclaim(&self, writer: &mut RipqWriter) -> Result<bool, FlashError> {
        let block = {
            let mut state = self.state();
            let Some(block) = state.queue.lowest_device() else { return Ok(false) };
            state.begin_drain(block);
            state.queue.note_full();
            state.statistics.blocks_reclaimed += 1;
            state.reclaimed_in_vain += 1;
            state.resize_logical();
            block
        };
        self.drain(writer, block, Unmoved::Evict)?;
        Ok(true)
    }

    /// Inserts everything in a block again, each object into the section where it counts. Its drain has begun.
    pub(super) fn rewrite(&self, writer: &mut RipqWriter, block: u32) -> Result<(), FlashError> {
        self.drain(writer, block, Unmoved::Keep)
    }

    fn drain(&self, writer: &mut RipqWriter, block: u32, unmoved: Unmoved) -> Result<(), FlashError> {
        let Some(mut source) = self.open_source(block, unmoved) else {
            self.state().abandon(block);
            return Ok(());
        };
        for number in 0..source.entries.len() {
            let entry = source.entries[number];
            loop {
                let sealing = {
                    let mut state = self.state();
                    match state.drain_object(block, &entry, &source, unmoved, self.settings.skip) {
                        Drained::Done => break,
                        Drained::Full(section) => state.seal(section),
                        Drained::Unread => {
                            drop(state);
                            let within = block::bytes_of(entry.offset, entry.units);
                            source.late = Some(self.read_piece(source.slot, &within, None));
                            continue;
                        }
                    }
                };
                if let Err(error) = self.write_block(writer, sealing) {
                    self.state().stop_drain(block, &source.entries);
                    return Err(error);
                }
            }
        }
        let mut state = self.state();
        state.recycle(source.piece.bytes);
        state.end_drain(block);
        Ok(())
    }

    /// Reads what is needed of a block: its table, and the bytes from the first to the last object to be kept.
    fn open_source(&self, block: u32, unmoved: Unmoved) -> Option<ReclaimSource> {
        let (slot, sequence, whole, mut bytes) = {
            let mut state = self.state();
            let mut bytes = state.take_buffer();
            let stored = state.stored(block);
            match &stored.held {
                BlockBytes::Open(builder) => {
                    let within = 0..builder.used_bytes();
                    bytes[within.clone()].copy_from_slice(&builder.buffer[within.clone()]);
                    let (entries, piece) = (builder.entries().to_vec(), BlockPiece { within, bytes });
                    return Some(ReclaimSource { entries, piece, late: None, slot: 0, sequence: None });
                }
                BlockBytes::OnDevice(slot) => {
                    let whole =
                        block::written_bytes(stored.used_bytes as usize, self.layout.block_bytes as usize);
                    (*slot, stored.sequence, whole, bytes)
                }
                BlockBytes::Writing(_) => unreachable!("the writer waits for its writes"),
            }
        };
        let offset = self.layout.block(slot);
        if whole <= WHOLE_BYTES {
            let read = self.device.read(offset, &mut bytes[..whole]);
            let table = read.map(|()| block::parse_block(&bytes[..whole], &self.layout));
            let entries = self.entries(table, sequence)?;
            let piece = BlockPiece { within: 0..whole, bytes };
            return Some(ReclaimSource { entries, piece, late: None, slot, sequence: Some(sequence) });
        }
        let table = block::read_table(&*self.device, offset, &self.layout);
        let entries = self.entries(table, sequence)?;
        let needed = self.needed(block, &entries, unmoved);
        let piece = self.read_piece(slot, &needed, Some(bytes));
        Some(ReclaimSource { entries, piece, late: None, slot, sequence: Some(sequence) })
    }

    /// The sectors around these bytes of a block, into this memory if there is some. What cannot be read is zeros, which
    /// are no object.
    fn read_piece(&self, slot: u32, wanted: &Range<usize>, memory: Option<AlignedBuffer>) -> BlockPiece {
        let within = wanted.start / SECTOR * SECTOR..wanted.end.next_multiple_of(SECTOR);
        let mut bytes = memory.unwrap_or_else(|| AlignedBuffer::new(within.len()));
        let offset = self.layout.block(slot) + within.start as u64;
        if !within.is_empty() && self.device.read(offset, &mut bytes[..within.len()]).is_err() {
            self.state().statistics.read_errors += 1;
            bytes[..within.len()].fill(0);
        }
        BlockPiece { within, bytes }
    }

    /// The bytes of a block from the first to the last object that is to be kept by now.
    fn needed(&self, block: u32, entries: &[BlockEntry], unmoved: Unmoved) -> Range<usize> {
        let state = self.state();
        let kept = entries.iter().filter(|entry| {
            let place = state.resident(block, entry);
            place.is_some_and(|place| state.keeps(entry.digest, &place, unmoved, self.settings.skip))
        });
        let places = kept.map(|entry| block::bytes_of(entry.offset, entry.units));
        places.reduce(|first, last| first.start..last.end).unwrap_or(0..0)
    }

    /// The table that was read, if it is that of the block that was written with this number.
    fn entries(
        &self,
        table: io::Result<Option<(BlockHeader, Vec<BlockEntry>)>>,
        sequence: u64,
    ) -> Option<Vec<BlockEntry>> {
        let mut state = self.state();
        match table {
            Ok(Some((header, entries))) if header.sequence == sequence => return Some(entries),
            Ok(_) => state.statistics.damaged += 1,
            Err(_) => state.statistics.read_errors += 1,
        }
        None
    }
}

impl RipqState {
    /// From now on no object enters the block, and it stays until the drain ends, even if readers find all of it damaged.
    pub(super) fn begin_drain(&mut self, block: u32) {
        self.queue.close(block);
        self.queue.blocks[block].residents += 1;
    }

    fn end_drain(&mut self, block: u32) {
        self.queue.blocks[block].residents -= 1;
        self.drained(block);
    }

    /// Moves an object out of a block, if its bytes are at hand and there is room for them.
    fn drain_object(
        &mut self,
        block: u32,
        entry: &BlockEntry,
        source: &ReclaimSource,
        unmoved: Unmoved,
        skip: f64,
    ) -> Drained {
        let Some(place) = self.resident(block, entry) else { return Drained::Done };
        if !self.keeps(entry.digest, &place, unmoved, skip) {
            self.statistics.skipped += u64::from(place.moved_to.is_some());
            self.evict(entry.digest, &place);
            return Drained::Done;
        }
        let Some(stored) = source.bytes(entry) else { return Drained::Unread };
        let record =
            source.parse(entry, stored).and_then(|(key, value)| ObjectRecord::new(key, value, entry.digest));
        let Some(record) = record else {
            self.statistics.damaged += 1;
            self.evict(entry.digest, &place);
            return Drained::Done;
        };
        let section = self.queue.blocks[counted_in(&place)].section;
        if !self.fits(section, place.units) {
            if !self.free.is_empty() {
                return Drained::Full(section);
            }
            self.statistics.skipped += 1;
            self.evict(entry.digest, &place);
            return Drained::Done;
        }
        let lowest = self.queue.blocks[counted_in(&place)].lowest;
        self.unlink(entry.digest, &place);
        self.append(section, &record, place.frequency, lowest);
        if source.sequence.is_some() {
            self.statistics.reinserted += 1;
            self.statistics.reinserted_bytes += bytes(place.units);
        }
        Drained::Done
    }

    /// Whether an object is written again when its block goes.
    fn keeps(&self, digest: u64, place: &IndexPlace, unmoved: Unmoved, skip: f64) -> bool {
        if unmoved == Unmoved::Keep {
            return true;
        }
        match &self.logical {
            Some(logical) => self.reclaimed_in_vain <= self.blocks() && logical.contains(digest),
            None => place.moved_to.is_some_and(|counted| self.queue.rank(counted) >= skip),
        }
    }

    /// The block stays, half drained. What has left it must not come back from it.
    fn stop_drain(&mut self, block: u32, entries: &[BlockEntry]) {
        let known: BTreeSet<u32> = self.stored(block).dead.iter().copied().collect();
        let gone = |entry: &&BlockEntry| {
            entry.frequency > 0 && self.resident(block, entry).is_none() && !known.contains(&entry.offset)
        };
        let offsets: Vec<u32> = entries.iter().filter(gone).map(|entry| entry.offset).collect();
        self.mark_dead(block, &offsets);
        self.queue.blocks[block].residents -= 1;
        self.release_if_unused(block);
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
        self.end_drain(block);
    }
}
