//! The restricted insertion priority queue: which section an object belongs to, and which block goes next. Reads no
//! device and knows no keys.
//!
//! Section 4.3.2: K sections, each with one insertion point at its head; sealed blocks never change their order. An
//! object that is updated counts in a virtual block from then on, above the device block that has its bytes. So the
//! virtual blocks below the lowest device block are empty, and it is always a device block that goes.

use super::histogram::Histogram;
use super::section::{Block, BlockKind, Blocks, Section};
use super::segments::Segments;
use crate::index::IndexPlace;
use crate::priority::{FlashPolicy, ObjectAccess, QueuePriority};
use crate::record::UNIT;

/// Finer than sections, of which there are at most 2 / alpha: a rank is good to a fraction of a section.
const BINS_PER_ALPHA: f64 = 4.0;

#[derive(Debug)]
pub(super) struct RipqQueue {
    pub(super) blocks: Blocks,
    /// From tail to head; there is always one.
    pub(super) sections: Vec<Section>,
    /// Bytes of the objects, wherever they are.
    pub(super) bytes: u64,
    pub(super) policy: FlashPolicy,
    pub(super) alpha: f64,
    pub(super) block_bytes: u64,
    pub(super) histogram: Histogram,
    pub(super) segments: Segments,
    /// Buffered blocks without an insertion point.
    pub(super) closed: Vec<u32>,
    order: u64,
    pub(super) splits: u64,
    pub(super) merges: u64,
}

pub(super) fn bytes(units: u32) -> u64 {
    u64::from(units) * UNIT as u64
}

/// The block in which an object counts.
pub(super) fn counted_in(place: &IndexPlace) -> u32 {
    place.moved_to.unwrap_or(place.block)
}

impl RipqQueue {
    /// For so many bytes of objects, or somewhat less.
    pub(super) fn new(policy: FlashPolicy, alpha: f64, block_bytes: u64, capacity_bytes: u64) -> RipqQueue {
        RipqQueue {
            blocks: Blocks::default(),
            sections: vec![Section::default()],
            bytes: 0,
            policy,
            alpha,
            block_bytes,
            histogram: Histogram::new((BINS_PER_ALPHA * 2.0 / alpha).ceil() as usize),
            segments: Segments::new(policy.segments(), capacity_bytes),
            closed: Vec::new(),
            order: 0,
            splits: 0,
            merges: 0,
        }
    }

    /// Value from which priorities count now (Table 4.2).
    pub(super) fn lowest(&self) -> f64 {
        self.histogram.lowest()
    }

    /// The priority of a new object.
    pub(super) fn on_miss(&self, units: u32) -> QueuePriority {
        let access = ObjectAccess { bytes: bytes(units), frequency: 1, rank: 0.0, lowest: self.lowest() };
        self.policy.on_miss(&access)
    }

    /// A request for an object (section 4.3.4, figure 4.3b): counts it, and lets the object rise if its priority says so.
    pub(super) fn request(&mut self, place: &mut IndexPlace) {
        let before = place.frequency;
        place.frequency = before.saturating_add(1);
        let standing = self.standing(place);
        let Some(priority) = self.on_hit(place, standing) else { return };
        let section = self.locate(priority);
        self.segments.leave(standing, bytes(place.units));
        self.enter_segment(priority, place.units);
        if self.is_above(section, place) {
            self.update(place, section, before);
        } else if self.policy.is_absolute() {
            let (lowest, bytes) = (self.blocks[counted_in(place)].lowest, bytes(place.units));
            self.histogram.remove(lowest + self.policy.worth(before, bytes), bytes);
            self.histogram.add(lowest + self.policy.worth(place.frequency, bytes), bytes);
        }
    }

    /// The relative priority of the place where an object is.
    pub(super) fn standing(&self, place: &IndexPlace) -> f64 {
        self.segments.priority(self.rank(counted_in(place)), self.bytes)
    }

    /// What a request makes of an object's priority, if anything.
    pub(super) fn on_hit(&self, place: &IndexPlace, standing: f64) -> Option<QueuePriority> {
        let (bytes, frequency) = (bytes(place.units), place.frequency);
        self.policy.on_hit(&ObjectAccess { bytes, frequency, rank: standing, lowest: self.lowest() })
    }

    /// Whether an object that moves to the head of this section rises. None falls: priorities only rise.
    pub(super) fn is_above(&self, section: usize, place: &IndexPlace) -> bool {
        let block = &self.blocks[counted_in(place)];
        section > block.section || section == block.section && !block.active
    }

    /// The segment that an object is in loses its bytes.
    pub(super) fn leave_segment(&mut self, place: &IndexPlace) {
        self.segments.leave(self.standing(place), bytes(place.units));
    }

    pub(super) fn enter_segment(&mut self, priority: QueuePriority, units: u32) {
        if let QueuePriority::Relative(priority) = priority {
            self.segments.enter(priority, bytes(units));
        }
    }

    /// The section whose head, where it inserts, is nearest to the priority. (The dissertation takes the one whose range
    /// contains it, so everything is inserted too high, by half a section in the mean.)
    pub(super) fn locate(&self, priority: QueuePriority) -> usize {
        let rank = match priority {
            QueuePriority::Relative(priority) => self.segments.rank(priority, self.bytes),
            QueuePriority::Absolute(value) => self.histogram.rank(value),
        };
        let target = rank * self.bytes as f64;
        let mut head = 0.0;
        for (number, section) in self.sections.iter().enumerate() {
            let below = head;
            head += section.bytes as f64;
            if target < head {
                return if target - below < head - target { number.saturating_sub(1) } else { number };
            }
        }
        self.sections.len() - 1
    }

    /// The rank of the middle of a block, from 0 at the tail to 1 at the head.
    pub(super) fn rank(&self, id: u32) -> f64 {
        let block = &self.blocks[id];
        let section = &self.sections[block.section];
        let below: u64 = self.sections[..block.section].iter().map(|section| section.bytes).sum();
        // Objects come and go without a block's `below` being told; the section's own sum is exact.
        let inside = match block.active {
            true => section.bytes as f64 - block.bytes as f64 / 2.0,
            false => (block.below as f64 + block.bytes as f64 / 2.0).min(section.bytes as f64),
        };
        if self.bytes == 0 { 0.0 } else { (below as f64 + inside) / self.bytes as f64 }
    }

    /// The active block of this kind, opened if there is none.
    pub(super) fn open(&mut self, section: usize, kind: BlockKind) -> u32 {
        if let Some(id) = self.sections[section].active(kind) {
            return id;
        }
        let id = self.blocks.insert(Block {
            kind,
            bytes: 0,
            objects: 0,
            residents: 0,
            active: true,
            section,
            order: u64::MAX,
            below: 0,
            lowest: self.lowest(),
        });
        *self.sections[section].active_mut(kind) = Some(id);
        id
    }

    /// Counts an object in a block, with the priority it gets now.
    pub(super) fn count(&mut self, id: u32, units: u32, frequency: u8) {
        self.count_at(id, units, frequency, self.lowest());
    }

    /// Counts an object in a block, with the priority it got when the lowest value was this.
    pub(super) fn count_at(&mut self, id: u32, units: u32, frequency: u8, lowest: f64) {
        let bytes = bytes(units);
        let block = &mut self.blocks[id];
        block.bytes += bytes;
        block.objects += 1;
        let share = bytes as f64 / block.bytes as f64;
        block.lowest = lowest * share + block.lowest * (1.0 - share);
        self.sections[block.section].bytes += bytes;
        self.bytes += bytes;
        if self.policy.is_absolute() {
            self.histogram.add(lowest + self.policy.worth(frequency, bytes), bytes);
        }
    }

    /// The object no longer counts in this block; a virtual block without objects goes.
    pub(super) fn discount(&mut self, id: u32, units: u32, frequency: u8) {
        if self.policy.is_absolute() {
            let bytes = bytes(units);
            self.histogram.remove(self.blocks[id].lowest + self.policy.worth(frequency, bytes), bytes);
        }
        self.evict(id, units);
    }

    /// As `discount`, but the priority is remembered: what has to go before its time keeps its place among those that an
    /// exact queue would still have.
    pub(super) fn evict(&mut self, id: u32, units: u32) {
        let bytes = bytes(units);
        let block = &mut self.blocks[id];
        block.bytes -= bytes;
        block.objects -= 1;
        self.sections[block.section].bytes -= bytes;
        self.bytes -= bytes;
        if block.kind == BlockKind::Virtual && block.objects == 0 && !block.active {
            self.remove(id);
        }
    }

    /// The cache is full: with as many bytes, an exact queue would have the highest priorities that were given.
    pub(super) fn note_full(&mut self) {
        self.segments.set_capacity(self.bytes);
        self.histogram.keep_highest(self.bytes);
    }

    /// The object counts at the head of the section from now on, in a virtual block. One that holds as much as a device
    /// block is sealed alone.
    fn update(&mut self, place: &mut IndexPlace, section: usize, frequency_before: u8) {
        let id = self.open(section, BlockKind::Virtual);
        self.discount(counted_in(place), place.units, frequency_before);
        self.count(id, place.units, place.frequency);
        place.moved_to = Some(id);
        if self.blocks[id].bytes >= self.block_bytes {
            self.seal_one(section, BlockKind::Virtual);
            self.recount(section);
            self.balance();
        }
    }

    /// Both active blocks of a section become sealed, the virtual one above the device block.
    pub(super) fn seal(&mut self, section: usize) {
        self.seal_one(section, BlockKind::Device);
        self.seal_one(section, BlockKind::Virtual);
        self.recount(section);
    }

    /// A block that is active is no longer.
    pub(super) fn close(&mut self, id: u32) {
        if self.blocks[id].active {
            self.seal(self.blocks[id].section);
        }
    }

    fn seal_one(&mut self, section: usize, kind: BlockKind) {
        let Some(id) = self.sections[section].active_mut(kind).take() else { return };
        self.order += 1;
        let block = &mut self.blocks[id];
        (block.active, block.order) = (false, self.order);
        self.sections[section].sealed.push_back(id);
        if kind == BlockKind::Virtual && self.blocks[id].objects == 0 {
            self.remove(id);
        }
    }

    /// Puts a sealed device block at the head of a section; for recovery, which finds them on the device.
    pub(super) fn push_sealed(&mut self, section: usize) -> u32 {
        debug_assert!(self.sections[section].active_device.is_none());
        let id = self.open(section, BlockKind::Device);
        self.seal_one(section, BlockKind::Device);
        id
    }

    /// A block without objects leaves the queue.
    pub(super) fn remove(&mut self, id: u32) {
        let block = self.blocks.remove(id);
        self.closed.retain(|closed| *closed != id);
        assert_eq!((block.objects, block.bytes, block.residents), (0, 0, 0), "the block is in use");
        let section = &mut self.sections[block.section];
        if block.active {
            *section.active_mut(block.kind) = None;
        } else {
            let blocks = &self.blocks;
            let order = |other: &u32| if *other == id { block.order } else { blocks[*other].order };
            let index = section.sealed.partition_point(|other| order(other) < block.order);
            assert_eq!(section.sealed.remove(index), Some(id), "a sealed block is in its section");
        }
    }

    /// The device block that goes next: the lowest, be it still in its buffer.
    pub(super) fn lowest_device(&self) -> Option<u32> {
        let blocks = self.sections.iter().flat_map(Section::blocks);
        blocks.into_iter().find(|id| self.blocks[*id].kind == BlockKind::Device)
    }

    /// Brings `below` of a section's blocks up to date.
    pub(super) fn recount(&mut self, section: usize) {
        let mut below = 0;
        for id in &self.sections[section].sealed {
            let block = &mut self.blocks[*id];
            block.below = below;
            below += block.bytes;
        }
    }

    /// After sections were split or joined: who belongs where, in which order.
    pub(super) fn renumber(&mut self, from: usize) {
        for number in from..self.sections.len() {
            for id in self.sections[number].blocks() {
                let block = &mut self.blocks[id];
                block.section = number;
                if !block.active {
                    self.order += 1;
                    block.order = self.order;
                }
            }
            self.recount(number);
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let sealed: usize =
            self.sections.iter().map(|section| section.sealed.capacity() * size_of::<u32>()).sum();
        self.blocks.memory_bytes() + self.sections.capacity() * size_of::<Section>() + sealed
    }
}
