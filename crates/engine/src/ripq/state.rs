//! Index, queue and buffers of a cache, kept consistent with each other. Touches no device.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::evicted::Evicted;
use super::queue::{Queue, counted_in};
use super::section::Kind;
use super::settings::Settings;
use super::statistics::{Contents, Memory, Statistics};
use crate::device::AlignedBuffer;
use crate::flash::Policy;
use crate::flash::block::{self, Builder, Entry, Header};
use crate::flash::index::{Index, Place};
use crate::flash::journal::Change;
use crate::flash::layout::Layout;
use crate::flash::pins::{Pin, Pins};
use crate::flash::record::{Record, UNIT};
use crate::sipq::Logical;

/// Blocks of the device that are kept free, so that a full buffer is never kept from being written by a block that is
/// still being read.
const SPARE_BLOCKS: u64 = 2;
/// Buffers kept for the next insertion point; more go back to the allocator.
const SPARE_BUFFERS: usize = 3;

/// A section is split when it is twice this share of the queue.
const ONE_SECTION: f64 = 1.0;

/// Where the bytes of a device block are.
#[derive(Debug)]
pub(super) enum Held {
    Open(Builder),
    /// Sealed, and on its way to the device.
    Writing(Arc<AlignedBuffer>),
    OnDevice(u32),
}

#[derive(Debug)]
pub(super) struct Stored {
    pub(super) held: Held,
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
    pub(super) entries: Vec<Entry>,
    /// How much of the buffer.
    pub(super) written_bytes: usize,
}

/// Where a lookup leads.
pub(super) enum Found<'a> {
    Nothing,
    Value(Bytes),
    Writing { buffer: Arc<AlignedBuffer>, place: Place, sequence: u64 },
    OnDevice { slot: u32, pin: Pin<'a>, place: Place, sequence: u64 },
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) index: Index,
    pub(super) queue: Queue,
    /// Of SIPQ.
    pub(super) logical: Option<Logical>,
    theta: f64,
    /// Blocks reclaimed since there was room. After all of them what the logical queue holds goes as well.
    pub(super) reclaimed_in_vain: u64,
    /// Of the device blocks, by their numbers in the queue.
    pub(super) stored: Vec<Option<Stored>>,
    /// Blocks of the device that hold nothing, the one freed first at the front.
    pub(super) free: VecDeque<u32>,
    /// What the journal has not been told.
    pub(super) pending: Vec<Change>,
    pub(super) evicted: Evicted,
    pub(super) statistics: Statistics,
    pub(super) next_sequence: u64,
    /// Of blocks that are sealed.
    pub(super) sealed_blocks: u64,
    pub(super) sealed_bytes: u64,
    pub(super) buffered_bytes: u64,
    pub(super) dead: u64,
    buffers: Vec<AlignedBuffer>,
    layout: Layout,
    capacity_bytes: u64,
    objects_max: usize,
}

impl State {
    pub(super) fn new(settings: &Settings, layout: Layout) -> State {
        let capacity_bytes = settings.capacity_bytes.unwrap_or(u64::MAX);
        let room = (layout.blocks.saturating_sub(SPARE_BLOCKS) * layout.block_bytes).min(capacity_bytes);
        let queue = |policy, alpha| Queue::new(policy, alpha, layout.block_bytes, room);
        let (queue, logical) = match settings.theta {
            None => (queue(settings.policy, settings.alpha), None),
            Some(theta) => {
                let logical = Logical::new(settings.policy, (room as f64 * theta) as u64 / UNIT as u64);
                (queue(Policy::Fifo, ONE_SECTION), Some(logical))
            }
        };
        State {
            index: Index::default(),
            queue,
            logical,
            theta: settings.theta.unwrap_or(0.0),
            reclaimed_in_vain: 0,
            stored: Vec::new(),
            free: VecDeque::new(),
            pending: Vec::new(),
            evicted: Evicted::default(),
            statistics: Statistics::default(),
            next_sequence: 1,
            sealed_blocks: 0,
            sealed_bytes: 0,
            buffered_bytes: 0,
            dead: 0,
            buffers: Vec::new(),
            layout,
            capacity_bytes,
            objects_max: settings.objects_max,
        }
    }

    pub(super) fn stored(&self, block: u32) -> &Stored {
        self.stored[block as usize].as_ref().expect("a device block has bytes")
    }

    fn stored_mut(&mut self, block: u32) -> &mut Stored {
        self.stored[block as usize].as_mut().expect("a device block has bytes")
    }

    pub(super) fn store(&mut self, block: u32, stored: Stored) {
        let index = block as usize;
        if self.stored.len() <= index {
            self.stored.resize_with(index + 1, || None);
        }
        self.stored[index] = Some(stored);
    }

    /// Tells the logical queue, which decides what is written again, of an object that is in the cache.
    pub(super) fn requested(&mut self, digest: u64, units: u32) {
        if let Some(logical) = &mut self.logical {
            logical.request(digest, units, |_, _| {});
        }
    }

    /// SIPQ: whoever comes again is new.
    pub(super) fn lose_standing(&mut self, digest: u64) {
        if let Some(logical) = &mut self.logical {
            logical.remove(digest);
        }
    }

    /// Section 4.4.1: theta relates the bytes that the logical queue holds to those on the device, which once blocks are
    /// reclaimed hold no more than now.
    pub(super) fn resize_logical(&mut self) {
        if let Some(logical) = &mut self.logical {
            logical.resize((self.queue.bytes as f64 * self.theta) as u64 / UNIT as u64);
        }
    }

    /// Looks an object up and counts the request.
    pub(super) fn find<'a>(&mut self, key: &[u8], digest: u64, pins: &'a Pins) -> Found<'a> {
        let Some(mut place) = self.index.get(digest) else {
            self.statistics.misses += 1;
            return Found::Nothing;
        };
        let stored = self.stored(place.block);
        let sequence = stored.sequence;
        let found = match &stored.held {
            Held::Open(builder) => match builder.read(place.offset, place.units) {
                Some((known, value)) if known == key => Found::Value(Bytes::copy_from_slice(value)),
                _ => {
                    self.statistics.collisions += 1;
                    self.statistics.misses += 1;
                    return Found::Nothing;
                }
            },
            Held::Writing(buffer) => Found::Writing { buffer: Arc::clone(buffer), place, sequence },
            Held::OnDevice(slot) => Found::OnDevice { slot: *slot, pin: pins.pin(*slot), place, sequence },
        };
        self.statistics.hits += 1;
        self.queue.request(&mut place);
        self.requested(digest, place.units);
        self.index.insert(digest, &place);
        self.bound_blocks();
        found
    }

    /// Whether the insertion point of the section takes an object of this size without being sealed first.
    pub(super) fn fits(&self, section: usize, units: u32) -> bool {
        let Some(block) = self.queue.sections[section].active_device else { return true };
        match &self.stored(block).held {
            Held::Open(builder) => builder.fits(units),
            Held::Writing(_) | Held::OnDevice(_) => unreachable!("an active block is open"),
        }
    }

    /// Puts an object that is nowhere at the insertion point of a section, where it fits. Its priority was given when
    /// the lowest value was this.
    pub(super) fn append(&mut self, section: usize, record: &Record<'_>, frequency: u8, lowest: f64) {
        let block = self.queue.open(section, Kind::Device);
        if self.stored.get(block as usize).is_none_or(Option::is_none) {
            let buffer = self.take_buffer();
            let held = Held::Open(Builder::new(buffer));
            self.store(block, Stored { held, sequence: 0, used_bytes: 0, dead: Vec::new() });
        }
        let stored = self.stored_mut(block);
        let Held::Open(builder) = &mut stored.held else { unreachable!("an active block is open") };
        let offset = builder.append(record, frequency);
        let used_bytes = builder.used_bytes() as u64;
        let added = used_bytes - std::mem::replace(&mut stored.used_bytes, used_bytes);
        self.buffered_bytes += added;
        self.queue.blocks[block].residents += 1;
        self.queue.count_at(block, record.units, frequency, lowest);
        let place = Place { block, offset, units: record.units, moved_to: None, frequency };
        let displaced = self.index.insert(record.digest, &place);
        debug_assert_eq!(displaced, None, "the caller removes what was there");
    }

    /// The object is no longer in the cache. Its bytes stay, so whoever calls this answers for them.
    pub(super) fn unlink(&mut self, digest: u64, place: &Place) {
        self.index.remove(digest);
        self.uncount(place);
    }

    /// The object counts in no block any more; the index is the caller's.
    pub(super) fn uncount(&mut self, place: &Place) {
        self.queue.discount(counted_in(place), place.units, place.frequency);
        self.queue.blocks[place.block].residents -= 1;
    }

    /// The object has to make room for others.
    pub(super) fn evict(&mut self, digest: u64, place: &Place) {
        self.evicted.note(digest);
        self.lose_standing(digest);
        self.index.remove(digest);
        self.queue.evict(counted_in(place), place.units);
        self.queue.blocks[place.block].residents -= 1;
        self.statistics.evicted += 1;
    }

    /// The object is no longer in the cache, and recovery must not bring it back.
    pub(super) fn forget(&mut self, digest: u64, place: &Place) {
        self.queue.leave_segment(place);
        self.unlink(digest, place);
        let stored = self.stored_mut(place.block);
        if let Held::Open(builder) = &mut stored.held {
            builder.kill(place.offset);
            return;
        }
        self.mark_dead(place.block, &[place.offset]);
        self.release_if_unused(place.block);
    }

    /// Copies in a sealed block that recovery must not bring back; a buffer has no others than those it knows.
    pub(super) fn mark_dead(&mut self, block: u32, offsets: &[u32]) {
        let stored = self.stored_mut(block);
        let sequence = stored.sequence;
        if sequence > 0 {
            stored.dead.extend(offsets);
            self.pending.extend(offsets.iter().map(|offset| Change::Dead { sequence, offset: *offset }));
            self.dead += offsets.len() as u64;
        }
    }

    /// Recovery has found a newer copy of an object.
    pub(super) fn supersede(&mut self, digest: u64, place: &Place) {
        self.unlink(digest, place);
        self.stored_mut(place.block).dead.push(place.offset);
        self.dead += 1;
    }

    /// Recovery has learnt what is dead in a block.
    pub(super) fn keep_dead(&mut self, block: u32, dead: &BTreeSet<u32>) {
        self.stored_mut(block).dead = dead.iter().copied().collect();
        self.dead += dead.len() as u64;
    }

    /// Of the device.
    pub(super) fn blocks(&self) -> u64 {
        self.layout.blocks
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
        let header = Header {
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
        let Held::Open(builder) = stored.held else { unreachable!("an active block is open") };
        let (buffer, entries) = builder.seal(header);
        let buffer = Arc::new(buffer);
        self.buffered_bytes -= stored.used_bytes;
        self.sealed_blocks += 1;
        self.sealed_bytes += stored.used_bytes;
        let held = Held::Writing(Arc::clone(&buffer));
        let written_bytes =
            block::written_bytes(stored.used_bytes as usize, self.layout.block_bytes as usize);
        self.store(
            block,
            Stored { held, sequence: header.sequence, used_bytes: stored.used_bytes, dead: Vec::new() },
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
        self.stored_mut(sealing.block).held = Held::OnDevice(slot);
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
        self.stored_mut(sealing.block).held = Held::OnDevice(slot);
        self.release_if_unused(sealing.block);
    }

    /// The place of a table's object, if the index knows it by this very copy.
    pub(super) fn resident(&self, block: u32, entry: &Entry) -> Option<Place> {
        let place = self.index.get(entry.digest)?;
        (place.block == block && place.offset == entry.offset).then_some(place)
    }

    pub(super) fn release_if_unused(&mut self, block: u32) {
        if self.queue.blocks[block].residents > 0 {
            return;
        }
        if let Held::OnDevice(slot) = self.stored(block).held {
            let stored = self.stored[block as usize].take().expect("it has just been read");
            self.queue.remove(block);
            self.pending.push(Change::Freed { sequence: stored.sequence });
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
            Held::Open(_) => {
                let stored = self.stored[block as usize].take().expect("it has just been read");
                self.queue.remove(block);
                self.buffered_bytes -= stored.used_bytes;
                if let Held::Open(builder) = stored.held {
                    self.recycle(builder.buffer);
                }
            }
            Held::Writing(_) | Held::OnDevice(_) => self.release_if_unused(block),
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

    /// Whether something must go before more comes, with so many insertion points about to be sealed, full or not. What is
    /// buffered counts; this is what leaves a free block for each buffer that fills up while a block is reclaimed.
    pub(super) fn is_over_capacity(&self, sealing: u64) -> bool {
        let block_bytes = self.layout.block_bytes;
        let room = self.layout.blocks.saturating_sub(SPARE_BLOCKS) * block_bytes;
        let buffered_bytes = self.buffered_bytes.max(sealing * block_bytes);
        self.sealed_blocks * block_bytes + buffered_bytes > room
            || self.sealed_bytes + self.buffered_bytes > self.capacity_bytes
            || self.index.len() > self.objects_max
    }

    pub(super) fn contents(&self) -> Contents {
        let open = self.stored.iter().flatten().filter(|stored| !matches!(stored.held, Held::OnDevice(_)));
        let buffers = open.count() + self.buffers.len();
        let dead: usize =
            self.stored.iter().flatten().map(|stored| stored.dead.capacity() * size_of::<u32>()).sum();
        let stored_bytes = self.stored.capacity() * size_of::<Option<Stored>>() + dead;
        let logical_bytes = self.logical.as_ref().map_or(0, Logical::memory_bytes);
        Contents {
            objects: self.index.len(),
            bytes: self.queue.bytes,
            sections: self.queue.sections.len(),
            blocks_on_device: self.sealed_blocks as usize,
            buffered_bytes: self.buffered_bytes,
            memory: Memory {
                index_bytes: self.index.bytes(),
                buffers_bytes: buffers * self.layout.block_bytes as usize,
                queue_bytes: self.queue.memory_bytes()
                    + logical_bytes
                    + stored_bytes
                    + self.evicted.memory_bytes(),
            },
        }
    }
}
