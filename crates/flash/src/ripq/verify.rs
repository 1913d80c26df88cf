//! Whether index, queue, blocks and sums agree: what tests ask after each step. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::queue::{bytes, counted_in};
use super::section::BlockKind;
use super::state::RipqState;
use super::stored::BlockBytes;

/// What the index says of one block.
#[derive(Default, PartialEq, Debug)]
struct Sums {
    bytes: u64,
    objects: u32,
    residents: u32,
}

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err(format!($($message)+));
        }
    };
}

impl RipqState {
    pub(super) fn verify(&self) -> Result<(), String> {
        self.verify_objects()?;
        self.verify_sections()?;
        self.verify_sizes()?;
        self.verify_stored()
    }

    /// Every object counts in one block, which is above the one that has its bytes.
    fn verify_objects(&self) -> Result<(), String> {
        let mut sums: BTreeMap<u32, Sums> = BTreeMap::new();
        let blocks = &self.queue.blocks;
        for place in self.index.places() {
            ensure!(blocks.contains(place.block), "{place:?}: no such block");
            ensure!(
                blocks[place.block].kind == BlockKind::Device,
                "{place:?}: its bytes are in a virtual block"
            );
            sums.entry(place.block).or_default().residents += 1;
            let is_dead = self.stored(place.block).dead.contains(&place.offset);
            ensure!(!is_dead, "{place:?}: is dead");
            let counted = sums.entry(counted_in(&place)).or_default();
            counted.objects += 1;
            counted.bytes += bytes(place.units);
            if let Some(moved) = place.moved_to {
                ensure!(blocks.contains(moved), "{place:?}: no such virtual block");
                ensure!(blocks[moved].kind == BlockKind::Virtual, "{place:?}: has moved to a device block");
                let position = |block: u32| (blocks[block].section, blocks[block].order);
                ensure!(position(moved) > position(place.block), "{place:?}: has moved down");
            }
        }
        let mut known = 0;
        for block in self.queue.sections.iter().flat_map(|section| section.blocks()) {
            let expected = sums.remove(&block).unwrap_or_default();
            let block = &blocks[block];
            let found = Sums { bytes: block.bytes, objects: block.objects, residents: block.residents };
            ensure!(expected == found, "{block:?}: the index says {expected:?}");
            known += 1;
        }
        ensure!(sums.is_empty(), "blocks in no section: {sums:?}");
        ensure!(known == blocks.len(), "{} blocks, {known} of them in sections", blocks.len());
        Ok(())
    }

    fn verify_sections(&self) -> Result<(), String> {
        let queue = &self.queue;
        for (number, section) in queue.sections.iter().enumerate() {
            let sum: u64 = section.blocks().map(|block| queue.blocks[block].bytes).sum();
            ensure!(sum == section.bytes, "section {number} has {sum} bytes, not {}", section.bytes);
            for block in section.blocks() {
                let active = section.active(queue.blocks[block].kind) == Some(block);
                let block = &queue.blocks[block];
                ensure!(block.section == number, "{block:?} is in section {number}");
                ensure!(block.active == active, "{block:?} is active: {active}");
                let empty = block.kind == BlockKind::Virtual && block.objects == 0;
                ensure!(block.active || !empty, "{block:?} is virtual and empty");
            }
            let orders: Vec<u64> = section.sealed.iter().map(|block| queue.blocks[*block].order).collect();
            ensure!(orders.is_sorted_by(|a, b| a < b), "section {number} is out of order: {orders:?}");
        }
        let sum: u64 = queue.sections.iter().map(|section| section.bytes).sum();
        ensure!(sum == queue.bytes, "the queue has {sum} bytes, not {}", queue.bytes);
        queue.segments.verify()?;
        queue.histogram.verify()
    }

    /// Section 4.3.4: at most 2 / alpha sections, each of at most 2 alpha or one block. Since the last change of blocks
    /// two active ones may have filled up.
    fn verify_sizes(&self) -> Result<(), String> {
        let queue = &self.queue;
        let most = (2.0 / queue.alpha).ceil() as usize;
        ensure!(queue.sections.len() <= most.max(1), "{} sections, {most} at most", queue.sections.len());
        for (number, section) in queue.sections.iter().enumerate() {
            let largest = section.blocks().map(|block| queue.blocks[block].bytes).max().unwrap_or(0);
            let limit = 2.0 * queue.alpha * queue.bytes as f64 + (largest.max(queue.block_bytes) * 3) as f64;
            ensure!(section.bytes as f64 <= limit, "section {number} has {} bytes of {limit}", section.bytes);
        }
        Ok(())
    }

    fn verify_stored(&self) -> Result<(), String> {
        let mut slots: BTreeSet<u32> = self.free.iter().copied().collect();
        ensure!(slots.len() == self.free.len(), "a block of the device is free twice");
        let mut sequences = BTreeSet::new();
        let (mut sealed, mut sealed_bytes, mut buffered_bytes, mut dead) = (0, 0, 0, 0);
        for (number, stored) in self.stored.iter().enumerate() {
            let number = number as u32;
            let block = self.queue.blocks.contains(number).then(|| &self.queue.blocks[number]);
            let device = block.is_some_and(|block| block.kind == BlockKind::Device);
            let Some(stored) = stored else {
                ensure!(!device, "block {number} has no bytes");
                continue;
            };
            ensure!(device, "bytes of block {number}, which is none");
            dead += stored.dead.len() as u64;
            let is_open = matches!(stored.held, BlockBytes::Open(_));
            let numbered = sequences.insert(stored.sequence) && stored.sequence < self.next_sequence;
            ensure!(is_open == (stored.sequence == 0), "block {number} has the number {}", stored.sequence);
            ensure!(is_open || numbered, "block {number} has a number that is not its own");
            let offsets: BTreeSet<u32> = stored.dead.iter().copied().collect();
            ensure!(offsets.len() == stored.dead.len(), "in block {number} something is dead twice");
            match &stored.held {
                BlockBytes::OnDevice(slot) => {
                    ensure!(slots.insert(*slot), "block {slot} of the device is used twice");
                    sealed += 1;
                    sealed_bytes += stored.used_bytes;
                }
                BlockBytes::Open(builder) => {
                    ensure!(stored.used_bytes == builder.used_bytes() as u64, "block {number} is miscounted");
                    buffered_bytes += stored.used_bytes;
                }
                BlockBytes::Writing(_) => return Err(format!("block {number} is being written")),
            }
        }
        let found = (sealed, sealed_bytes, buffered_bytes, dead);
        let counted = (self.sealed_blocks, self.sealed_bytes, self.buffered_bytes, self.dead);
        ensure!(found == counted, "blocks, bytes, buffered, dead: {found:?}, not {counted:?}");
        ensure!(slots.len() as u64 == self.blocks(), "{} blocks of {}", slots.len(), self.blocks());
        ensure!(!self.is_over_capacity(0), "more than its capacity");
        Ok(())
    }
}
