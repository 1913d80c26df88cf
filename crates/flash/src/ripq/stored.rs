//! The life of a device block: open in a buffer, sealed, on the device, drained, free. Not which block is next.

use std::sync::Arc;

use super::state::RipqState;
use crate::block::{self, BlockEntry, BlockHeader, Builder};
use crate::device::AlignedBuffer;
use crate::journal::JournalChange;

/// Buffers kept for the next insertion point; more go back to the allocator.
const SPARE_BUFFERS: usize = 3;

/// Where the bytes of a device block are.
#[derive(Debug)]
pub(super) enum BlockBytes {
    Open(Builder),
    /// Sealed, and on its way to the device.
    Writing(Arc<AlignedBuffer>),
    OnDevice(u32),
}

#[derive(Debug)]
pub(super) struct StoredBlock {
    pub(super) held: BlockBytes,
    /// 0 until it is sealed.
    pub(super) sequence: u64,
    pub(super) used_bytes: u64,
    /// Offsets of what was removed or replaced since it was sealed.
    pub(super) dead: Vec<u32>,
}

/// A block that must be written now.
#[derive(Debug)]
pub(super) struct Sealing {
    pub(super) block: u32,
    pub(super) buffer: Arc<AlignedBuffer>,
    pub(super) entries: Vec<BlockEntry>,
    /// How much of the buffer.
    pub(super) written_bytes: usize,
}

impl RipqState {
    pub(super) fn stored(&self, block: u32) -> &StoredBlock {
        self.stored[block as usize].as_ref().expect("a device block has bytes")
    }

    pub(super) fn stored_mut(&mut self, block: u32) -> &mut StoredBlock {
        self.stored[block as usize].as_mut().expect("a device block has bytes")
    }

    pub(super) fn store(&mut self, block: u32, stored: StoredBlock) {
        let index = block as usize;
        if self.stored.len() <= index {
            self.stored.resize_with(index + 1, || None);
        }
        self.stored[index] = Some(stored);
    }

    /// Seals the insertion point of a section; what must be written, if there is anything.
    pub(super) fn seal(&mut self, section: usize) -> Option<Sealing> {
        let block = self.queue.sections[section].active_device?;
        if self.queue.blocks[block].residents == 0 {
            self.queue.seal(section);
            self.drained(block);
            return None;
        }
        let below_head: u64 = self.queue.sections[..=section].iter().map(|section| section.bytes).sum();
        let header = BlockHeader {
            identity: self.layout.identity,
            sequence: self.next_sequence,
            objects: 0,
            used_units: 0,
            rank: if self.queue.bytes == 0 { 1.0 } else { below_head as f64 / self.queue.bytes as f64 },
            lowest: self.queue.blocks[block].lowest,
        };
        self.next_sequence += 1;
        self.queue.seal(section);
        let stored = self.stored[block as usize].take().expect("a device block has bytes");
        let BlockBytes::Open(builder) = stored.held else { unreachable!("an active block is open") };
        let (buffer, entries) = builder.seal(header);
        let buffer = Arc::new(buffer);
        self.buffered_bytes -= stored.used_bytes;
        self.sealed_blocks += 1;
        self.sealed_bytes += stored.used_bytes;
        let held = BlockBytes::Writing(Arc::clone(&buffer));
        let written_bytes =
            block::written_bytes(stored.used_bytes as usize, self.layout.block_bytes as usize);
        self.store(
            block,
            StoredBlock { held, sequence: header.sequence, used_bytes: stored.used_bytes, dead: Vec::new() },
        );
        Some(Sealing { block, buffer, entries, written_bytes })
    }

    /// Merges two neighbours with buffers that fit into one, if there are such; the buffer that is to be drained into the
    /// other's. Before sections are split again, or its objects would have none to go to.
    pub(super) fn join_buffers(&mut self) -> Option<u32> {
        let used = |section: usize| {
            let block = self.queue.sections[section].active_device;
            block.map_or(0, |block| self.stored(block).used_bytes)
        };
        let open: Vec<usize> = self.queue.open_sections().collect();
        let fit = |pair: &&[usize]| used(pair[0]) + used(pair[1]) <= self.layout.block_bytes;
        let &[lower, upper] = open.windows(2).find(fit)? else { return None };
        self.queue.merge_all(lower, upper);
        let closed = self.queue.closed.pop();
        closed.inspect(|block| self.begin_drain(*block))
    }

    /// The block is on the device; its buffer may be used again.
    pub(super) fn written(&mut self, sealing: Sealing, slot: u32) {
        self.stored_mut(sealing.block).held = BlockBytes::OnDevice(slot);
        self.statistics.blocks_written += 1;
        self.statistics.written_bytes += sealing.written_bytes as u64;
        // A reader that still holds the buffer drops it.
        if let Ok(buffer) = Arc::try_unwrap(sealing.buffer) {
            self.recycle(buffer);
        }
        self.release_if_unused(sealing.block);
    }

    /// The block could not be written: what is in it is gone, be it on the device or not.
    pub(super) fn give_up(&mut self, sealing: &Sealing, slot: u32) {
        for entry in &sealing.entries {
            if let Some(place) = self.resident(sealing.block, entry) {
                self.evict(entry.digest, &place);
            }
        }
        self.stored_mut(sealing.block).held = BlockBytes::OnDevice(slot);
        self.release_if_unused(sealing.block);
    }

    pub(super) fn release_if_unused(&mut self, block: u32) {
        if self.queue.blocks[block].residents > 0 {
            return;
        }
        if let BlockBytes::OnDevice(slot) = self.stored(block).held {
            let stored = self.stored[block as usize].take().expect("it has just been read");
            self.queue.remove(block);
            self.pending.push(JournalChange::Freed { sequence: stored.sequence });
            self.free.push_back(slot);
            self.sealed_blocks -= 1;
            self.sealed_bytes -= stored.used_bytes;
            self.dead -= stored.dead.len() as u64;
        }
    }

    /// A block that has been drained leaves the cache.
    pub(super) fn drained(&mut self, block: u32) {
        if !self.queue.blocks.contains(block) {
            return;
        }
        match self.stored(block).held {
            BlockBytes::Open(_) => {
                let stored = self.stored[block as usize].take().expect("it has just been read");
                self.queue.remove(block);
                self.buffered_bytes -= stored.used_bytes;
                if let BlockBytes::Open(builder) = stored.held {
                    self.recycle(builder.buffer);
                }
            }
            BlockBytes::Writing(_) | BlockBytes::OnDevice(_) => self.release_if_unused(block),
        }
    }

    /// Memory for a block, whatever it holds.
    pub(super) fn take_buffer(&mut self) -> AlignedBuffer {
        self.buffers.pop().unwrap_or_else(|| AlignedBuffer::new(self.layout.block_bytes as usize))
    }

    pub(super) fn recycle(&mut self, buffer: AlignedBuffer) {
        if self.buffers.len() < SPARE_BUFFERS {
            self.buffers.push(buffer);
        }
    }
}
