//! What survives the end of a process: the saved order, and putting a cache together again from its blocks. Writes nothing.
//!
//! The tables of the blocks tell what is in them; the journal tells which of it is dead, which blocks were freed, and the
//! order when it was last saved. Blocks written later go where their headers say. Objects that had risen without having
//! been written again are found where their bytes are.

use std::collections::{BTreeMap, BTreeSet};

use super::RipqSettings;
use super::section::{BlockKind, Section};
use super::state::RipqState;
use super::stored::{BlockBytes, StoredBlock};
use crate::FlashError;
use crate::block::{self, BlockEntry, BlockHeader};
use crate::device::Device;
use crate::index::IndexPlace;
use crate::journal::{Journal, JournalChange};
use crate::layout::DeviceLayout;

/// Blocks that were being written when power went have numbers that nothing tells of; none is used again.
const SEQUENCES_SKIPPED: u64 = 1 << 20;
/// More blocks or checkpoints than are ever written: a number above was made up, and counting on from it would come to an end.
const COUNT_MAX: u64 = 1 << 62;

pub(super) struct Recovered {
    pub(super) state: RipqState,
    /// Generation of the journal.
    pub(super) generation: u64,
}

/// The order of the blocks as a checkpoint saves it.
#[derive(Debug, Default, PartialEq)]
struct SavedQueue {
    /// Later blocks are not in it.
    next_sequence: u64,
    lowest: f64,
    /// Bytes of the upper segments of SLRU.
    segments: Vec<u64>,
    /// From tail to head: blocks by sequence number, and the offsets of what is dead in them.
    sections: Vec<Vec<(u64, Vec<u32>)>>,
}

/// Bytes that `payload` would have.
pub(super) fn payload_bytes(state: &RipqState) -> usize {
    let segments = state.queue.segments.upper().len();
    24 + segments * 8
        + state.queue.sections.len() * 4
        + state.sealed_blocks as usize * 12
        + state.dead as usize * 4
}

pub(super) fn payload(state: &RipqState) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload_bytes(state));
    bytes.extend(state.next_sequence.to_le_bytes());
    bytes.extend(state.queue.lowest().to_le_bytes());
    let segments = state.queue.segments.upper();
    bytes.extend((segments.len() as u32).to_le_bytes());
    bytes.extend(segments.iter().flat_map(|size| size.to_le_bytes()));
    bytes.extend((state.queue.sections.len() as u32).to_le_bytes());
    for section in &state.queue.sections {
        let device = section.blocks().filter(|block| state.queue.blocks[*block].kind == BlockKind::Device);
        let sealed: Vec<&StoredBlock> = device
            .map(|block| state.stored(block))
            .filter(|stored| matches!(stored.held, BlockBytes::OnDevice(_)))
            .collect();
        bytes.extend((sealed.len() as u32).to_le_bytes());
        for stored in sealed {
            bytes.extend(stored.sequence.to_le_bytes());
            bytes.extend((stored.dead.len() as u32).to_le_bytes());
            bytes.extend(stored.dead.iter().flat_map(|offset| offset.to_le_bytes()));
        }
    }
    bytes
}

impl SavedQueue {
    fn parse(bytes: &[u8]) -> Option<SavedQueue> {
        let mut rest = bytes;
        let next_sequence = u64::from_le_bytes(take(&mut rest)?);
        let lowest = f64::from_le_bytes(take(&mut rest)?);
        let mut segments = Vec::new();
        for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
            segments.push(u64::from_le_bytes(take(&mut rest)?));
        }
        let mut sections = Vec::new();
        for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
            let mut section = Vec::new();
            for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
                let sequence = u64::from_le_bytes(take(&mut rest)?);
                let mut dead = Vec::new();
                for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
                    dead.push(u32::from_le_bytes(take(&mut rest)?));
                }
                section.push((sequence, dead));
            }
            sections.push(section);
        }
        let mut seen = BTreeSet::new();
        let mut blocks = sections.iter().flatten();
        let sound = rest.is_empty()
            && lowest.is_finite()
            && lowest >= 0.0
            && blocks.all(|(sequence, _)| *sequence < next_sequence && seen.insert(*sequence));
        sound.then_some(SavedQueue { next_sequence, lowest, segments, sections })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

/// A block as it was found.
struct FoundBlock {
    slot: u32,
    header: BlockHeader,
    entries: Vec<BlockEntry>,
}

pub(super) fn recover(
    device: &dyn Device,
    settings: &RipqSettings,
    layout: &DeviceLayout,
) -> Result<Recovered, FlashError> {
    let journal =
        Journal::read(device, layout).map_err(|error| FlashError::device("reading the journal", error))?;
    let (generation, journal) = (journal.generation, journal.saved);
    let saved = journal.as_ref().and_then(|journal| SavedQueue::parse(&journal.payload));
    let mut state = RipqState::new(settings, *layout);
    let mut found = scan(device, layout, settings.recovery_threads, &mut state);
    let highest = found.iter().map(|found| found.header.sequence).max().unwrap_or(0);
    let next = saved.as_ref().map_or(0, |saved| saved.next_sequence);
    let last = highest.max(generation).max(next);
    if last > COUNT_MAX {
        return Err(FlashError::Damaged(format!("nobody writes as many as {last} blocks or checkpoints")));
    }
    let Some(saved) = saved else {
        // Without a journal nobody knows what was removed, so nothing may be served.
        state.next_sequence = highest + SEQUENCES_SKIPPED;
        state.free.extend(0..layout.blocks as u32);
        return Ok(Recovered { state, generation });
    };
    let changes = journal.map_or(Vec::new(), |journal| journal.changes);
    state.next_sequence = highest.max(saved.next_sequence) + SEQUENCES_SKIPPED;
    let dead = drop_dead(&mut found, &saved, &changes);
    let blocks = rebuild_queue(&mut state, &saved, &found);
    fill(&mut state, &found, &blocks, &dead);
    let used: BTreeSet<u32> = found.iter().map(|found| found.slot).collect();
    state.free.extend((0..layout.blocks as u32).filter(|slot| !used.contains(slot)));
    for block in blocks {
        state.drained(block);
    }
    for section in 0..state.queue.sections.len() {
        state.queue.recount(section);
    }
    state.statistics.recovered = state.index.len() as u64;
    Ok(Recovered { state, generation })
}

/// Reads header and table of every block.
fn scan(
    device: &dyn Device,
    layout: &DeviceLayout,
    threads: usize,
    state: &mut RipqState,
) -> Vec<FoundBlock> {
    let blocks = layout.blocks as u32;
    let share = blocks.div_ceil(threads as u32).max(1);
    let read = |first: u32| {
        let (mut found, mut unreadable) = (Vec::new(), 0);
        for slot in first..blocks.min(first.saturating_add(share)) {
            match block::read_table(device, layout.block(slot), layout) {
                Ok(Some((header, entries))) => found.push(FoundBlock { slot, header, entries }),
                Ok(None) => {}
                Err(_) => unreadable += 1,
            }
        }
        (found, unreadable)
    };
    std::thread::scope(|scope| {
        let firsts = (0..blocks).step_by(share as usize);
        let threads: Vec<_> = firsts.map(|first| scope.spawn(move || read(first))).collect();
        let mut all = Vec::new();
        for thread in threads {
            let (found, unreadable) = thread.join().expect("reading a block does not panic");
            all.extend(found);
            state.statistics.blocks_unreadable += unreadable;
        }
        all
    })
}

/// Leaves the blocks that count, in the order in which they were written, and tells what is dead in them.
fn drop_dead(
    found: &mut Vec<FoundBlock>,
    saved: &SavedQueue,
    changes: &[JournalChange],
) -> BTreeMap<u64, BTreeSet<u32>> {
    let mut known: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for (sequence, offsets) in saved.sections.iter().flatten() {
        known.insert(*sequence, offsets.iter().copied().collect());
    }
    found.sort_unstable_by_key(|found| found.header.sequence);
    found.dedup_by_key(|found| found.header.sequence);
    found.retain(|found| {
        found.header.sequence >= saved.next_sequence || known.contains_key(&found.header.sequence)
    });
    let mut freed = BTreeSet::new();
    for change in changes {
        match *change {
            JournalChange::Dead { sequence, offset } => {
                known.entry(sequence).or_default().insert(offset);
            }
            JournalChange::Freed { sequence } => {
                freed.insert(sequence);
            }
        }
    }
    found.retain(|found| !freed.contains(&found.header.sequence));
    known
}

/// Puts the blocks into the saved sections, and later ones at the heads of the sections that their headers tell. Returns
/// the queue's numbers of the blocks found.
fn rebuild_queue(state: &mut RipqState, saved: &SavedQueue, found: &[FoundBlock]) -> Vec<u32> {
    let position: BTreeMap<u64, usize> =
        found.iter().enumerate().map(|(position, found)| (found.header.sequence, position)).collect();
    let order = |section: &Vec<(u64, Vec<u32>)>| -> Vec<usize> {
        section.iter().filter_map(|(sequence, _)| position.get(sequence).copied()).collect()
    };
    let mut sections: Vec<Vec<usize>> = saved.sections.iter().map(order).collect();
    // SIPQ has one, whatever the cache was before.
    if sections.is_empty() || state.logical.is_some() {
        sections = vec![sections.concat()];
    }
    for (number, later) in found.iter().enumerate() {
        if later.header.sequence >= saved.next_sequence {
            let total: usize = sections.iter().map(Vec::len).sum();
            let mut end = 0;
            let reaches = sections.iter().position(|section| {
                end += section.len();
                end as f64 >= later.header.rank * total as f64
            });
            let last = sections.len() - 1;
            sections[reaches.unwrap_or(last)].push(number);
        }
    }
    state.queue.sections = sections.iter().map(|_| Section::default()).collect();
    let mut blocks = vec![0; found.len()];
    for (section, numbers) in sections.iter().enumerate() {
        for number in numbers {
            let found = &found[*number];
            let block = state.queue.push_sealed(section);
            let used_bytes = found.header.table().end as u64;
            let sequence = found.header.sequence;
            state.store(
                block,
                StoredBlock {
                    held: BlockBytes::OnDevice(found.slot),
                    sequence,
                    used_bytes,
                    dead: Vec::new(),
                },
            );
            state.sealed_blocks += 1;
            state.sealed_bytes += used_bytes;
            blocks[*number] = block;
        }
    }
    state.queue.histogram.set_lowest(saved.lowest);
    state.queue.segments.restore(&saved.segments);
    blocks
}

/// Enters the objects, oldest block first, so that the newest copy of each stays.
fn fill(state: &mut RipqState, found: &[FoundBlock], blocks: &[u32], dead: &BTreeMap<u64, BTreeSet<u32>>) {
    let nothing = BTreeSet::new();
    for (found, block) in found.iter().zip(blocks) {
        let dead = dead.get(&found.header.sequence).unwrap_or(&nothing);
        state.keep_dead(*block, dead);
        for entry in found.entries.iter().filter(|entry| entry.frequency > 0 && !dead.contains(&entry.offset))
        {
            // An older copy must stay dead when the newer one has been evicted.
            if let Some(older) = state.index.get(entry.digest) {
                state.supersede(entry.digest, &older);
            }
            let place = IndexPlace {
                block: *block,
                offset: entry.offset,
                units: entry.units,
                moved_to: None,
                frequency: entry.frequency,
            };
            state.requested(entry.digest, entry.units);
            state.index.insert(entry.digest, &place);
            state.queue.blocks[*block].residents += 1;
            state.queue.count_at(*block, entry.units, entry.frequency, found.header.lowest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(saved: &SavedQueue) -> Vec<u8> {
        let mut bytes = [saved.next_sequence.to_le_bytes(), saved.lowest.to_le_bytes()].concat();
        bytes.extend((saved.segments.len() as u32).to_le_bytes());
        bytes.extend(saved.segments.iter().flat_map(|size| size.to_le_bytes()));
        bytes.extend((saved.sections.len() as u32).to_le_bytes());
        for section in &saved.sections {
            bytes.extend((section.len() as u32).to_le_bytes());
            for (sequence, dead) in section {
                bytes.extend(sequence.to_le_bytes());
                bytes.extend((dead.len() as u32).to_le_bytes());
                bytes.extend(dead.iter().flat_map(|offset| offset.to_le_bytes()));
            }
        }
        bytes
    }

    /// A block whose checksum fits, whatever wrote it: two blocks of one number would be one block twice.
    #[test]
    fn an_order_that_nobody_saves_is_none() {
        let saved = |next_sequence, lowest, sections: [&[u64]; 2]| SavedQueue {
            next_sequence,
            lowest,
            segments: vec![5, 0],
            sections: sections.map(|all| all.iter().map(|number| (*number, vec![4, 9])).collect()).into(),
        };
        let sound = saved(8, 0.5, [&[1, 7], &[3]]);
        assert_eq!(SavedQueue::parse(&bytes(&sound)), Some(sound));
        for wrong in [
            saved(8, 0.5, [&[1, 7], &[1]]),
            saved(8, 0.5, [&[1, 1], &[]]),
            saved(8, 0.5, [&[1, 8], &[3]]),
            saved(8, f64::NAN, [&[1, 7], &[3]]),
            saved(8, -1.0, [&[1, 7], &[3]]),
        ] {
            assert_eq!(SavedQueue::parse(&bytes(&wrong)), None, "{wrong:?}");
        }
    }
}
