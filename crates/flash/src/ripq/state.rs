//! Index, queue and buffers of a cache, kept consistent with each other. Touches no device.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::evicted::Evicted;
use super::queue::{RipqQueue, counted_in};
use super::section::BlockKind;
use super::settings::RipqSettings;
use super::statistics::{Contents, MemoryBytes, RipqStatistics};
use super::stored::{BlockBytes, StoredBlock};
use crate::FlashPolicy;
use crate::block::{BlockEntry, Builder};
use crate::device::AlignedBuffer;
use crate::index::{Index, IndexPlace};
use crate::journal::JournalChange;
use crate::layout::DeviceLayout;
use crate::pins::{Pin, Pins};
use crate::record::{ObjectRecord, UNIT};
use crate::sipq::Logical;

/// Blocks of the device that are kept free, so that a full buffer is never kept from being written by a block that is
/// still being read.
const SPARE_BLOCKS: u64 = 2;

/// A section is split when it is twice this share of the queue.
const ONE_SECTION: f64 = 1.0;

/// Where a lookup leads.
pub(super) enum Lookup<'a> {
    Nothing,
    Value(Bytes),
    Writing { buffer: Arc<AlignedBuffer>, place: IndexPlace, sequence: u64 },
    OnDevice { slot: u32, pin: Pin<'a>, place: IndexPlace, sequence: u64 },
}

#[derive(Debug)]
pub(super) struct RipqState {
    pub(super) index: Index,
    pub(super) queue: RipqQueue,
    /// SIPQ's logical queue; `None` in RIPQ.
    pub(super) logical: Option<Logical>,
    theta: f64,
    /// Blocks reclaimed since there was room. After all of them what the logical queue holds goes as well.
    pub(super) reclaimed_in_vain: u64,
    /// The device's blocks, by their numbers in the queue.
    pub(super) stored: Vec<Option<StoredBlock>>,
    /// Blocks of the device that hold nothing, the one freed first at the front.
    pub(super) free: VecDeque<u32>,
    /// What the journal has not been told.
    pub(super) pending: Vec<JournalChange>,
    pub(super) evicted: Evicted,
    pub(super) statistics: RipqStatistics,
    pub(super) next_sequence: u64,
    /// Blocks sealed, and their bytes.
    pub(super) sealed_blocks: u64,
    pub(super) sealed_bytes: u64,
    pub(super) buffered_bytes: u64,
    pub(super) dead: u64,
    pub(super) buffers: Vec<AlignedBuffer>,
    pub(super) layout: DeviceLayout,
    capacity_bytes: u64,
    objects_max: usize,
}

impl RipqState {
    pub(super) fn new(settings: &RipqSettings, layout: DeviceLayout) -> RipqState {
        let capacity_bytes = settings.capacity_bytes.unwrap_or(u64::MAX);
        let room = (layout.blocks.saturating_sub(SPARE_BLOCKS) * layout.block_bytes).min(capacity_bytes);
        let queue = |policy, alpha| RipqQueue::new(policy, alpha, layout.block_bytes, room);
        let (queue, logical) = match settings.theta {
            None => (queue(settings.policy, settings.alpha), None),
            Some(theta) => {
                let logical = Logical::new(settings.policy, (room as f64 * theta) as u64 / UNIT as u64);
                (queue(FlashPolicy::Fifo, ONE_SECTION), Some(logical))
            }
        };
        RipqState {
            index: Index::default(),
            queue,
            logical,
            theta: settings.theta.unwrap_or(0.0),
            reclaimed_in_vain: 0,
            stored: Vec::new(),
            free: VecDeque::new(),
            pending: Vec::new(),
            evicted: Evicted::default(),
            statistics: RipqStatistics::default(),
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
    pub(super) fn find<'a>(&mut self, key: &[u8], digest: u64, pins: &'a Pins) -> Lookup<'a> {
        let Some(mut place) = self.index.get(digest) else {
            self.statistics.misses += 1;
            return Lookup::Nothing;
        };
        let stored = self.stored(place.block);
        let sequence = stored.sequence;
        let found = match &stored.held {
            BlockBytes::Open(builder) => match builder.read(place.offset, place.units) {
                Some((known, value)) if known == key => Lookup::Value(Bytes::copy_from_slice(value)),
                _ => {
                    self.statistics.collisions += 1;
                    self.statistics.misses += 1;
                    return Lookup::Nothing;
                }
            },
            BlockBytes::Writing(buffer) => Lookup::Writing { buffer: Arc::clone(buffer), place, sequence },
            BlockBytes::OnDevice(slot) => {
                Lookup::OnDevice { slot: *slot, pin: pins.pin(*slot), place, sequence }
            }
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
            BlockBytes::Open(builder) => builder.fits(units),
            BlockBytes::Writing(_) | BlockBytes::OnDevice(_) => unreachable!("an active block is open"),
        }
    }

    /// Puts an object that is nowhere at the insertion point of a section, where it fits. Its priority was given when
    /// the lowest value was this.
    pub(super) fn append(&mut self, section: usize, record: &ObjectRecord<'_>, frequency: u8, lowest: f64) {
        let block = self.queue.open(section, BlockKind::Device);
        if self.stored.get(block as usize).is_none_or(Option::is_none) {
            let buffer = self.take_buffer();
            let held = BlockBytes::Open(Builder::new(buffer));
            self.store(block, StoredBlock { held, sequence: 0, used_bytes: 0, dead: Vec::new() });
        }
        let stored = self.stored_mut(block);
        let BlockBytes::Open(builder) = &mut stored.held else { unreachable!("an active block is open") };
        let offset = builder.append(record, frequency);
        let used_bytes = builder.used_bytes() as u64;
        let added = used_bytes - std::mem::replace(&mut stored.used_bytes, used_bytes);
        self.buffered_bytes += added;
        self.queue.blocks[block].residents += 1;
        self.queue.count_at(block, record.units, frequency, lowest);
        let place = IndexPlace { block, offset, units: record.units, moved_to: None, frequency };
        let displaced = self.index.insert(record.digest, &place);
        debug_assert_eq!(displaced, None, "the caller removes what was there");
    }

    /// The object is no longer in the cache. Its bytes stay, so whoever calls this answers for them.
    pub(super) fn unlink(&mut self, digest: u64, place: &IndexPlace) {
        self.index.remove(digest);
        self.uncount(place);
    }

    /// The object counts in no block any more; the index is the caller's.
    pub(super) fn uncount(&mut self, place: &IndexPlace) {
        self.queue.discount(counted_in(place), place.units, place.frequency);
        self.queue.blocks[place.block].residents -= 1;
    }

    /// The object has to make room for others.
    pub(super) fn evict(&mut self, digest: u64, place: &IndexPlace) {
        self.evicted.note(digest);
        self.lose_standing(digest);
        self.index.remove(digest);
        self.queue.evict(counted_in(place), place.units);
        self.queue.blocks[place.block].residents -= 1;
        self.statistics.evicted += 1;
    }

    /// The object is no longer in the cache, and recovery must not bring it back.
    pub(super) fn forget(&mut self, digest: u64, place: &IndexPlace) {
        self.queue.leave_segment(place);
        self.unlink(digest, place);
        let stored = self.stored_mut(place.block);
        if let BlockBytes::Open(builder) = &mut stored.held {
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
            self.pending
                .extend(offsets.iter().map(|offset| JournalChange::Dead { sequence, offset: *offset }));
            self.dead += offsets.len() as u64;
        }
    }

    /// Recovery has found a newer copy of an object.
    pub(super) fn supersede(&mut self, digest: u64, place: &IndexPlace) {
        self.unlink(digest, place);
        self.stored_mut(place.block).dead.push(place.offset);
        self.dead += 1;
    }

    /// Recovery has learnt what is dead in a block.
    pub(super) fn keep_dead(&mut self, block: u32, dead: &BTreeSet<u32>) {
        self.stored_mut(block).dead = dead.iter().copied().collect();
        self.dead += dead.len() as u64;
    }

    /// How many blocks the device has.
    pub(super) fn blocks(&self) -> u64 {
        self.layout.blocks
    }

    /// The place of a table's object, if the index knows it by this very copy.
    pub(super) fn resident(&self, block: u32, entry: &BlockEntry) -> Option<IndexPlace> {
        let place = self.index.get(entry.digest)?;
        (place.block == block && place.offset == entry.offset).then_some(place)
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
        let open =
            self.stored.iter().flatten().filter(|stored| !matches!(stored.held, BlockBytes::OnDevice(_)));
        let buffers = open.count() + self.buffers.len();
        let dead: usize =
            self.stored.iter().flatten().map(|stored| stored.dead.capacity() * size_of::<u32>()).sum();
        let stored_bytes = self.stored.capacity() * size_of::<Option<StoredBlock>>() + dead;
        let logical_bytes = self.logical.as_ref().map_or(0, Logical::memory_bytes);
        Contents {
            objects: self.index.len(),
            bytes: self.queue.bytes,
            sections: self.queue.sections.len(),
            blocks_on_device: self.sealed_blocks as usize,
            buffered_bytes: self.buffered_bytes,
            memory: MemoryBytes {
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
