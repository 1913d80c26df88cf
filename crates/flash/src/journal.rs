//! Which copies on the device are dead, and a saved state: what recovery cannot learn from blocks. Not the blocks.
//!
//! Two halves take turns. Each begins with a checkpoint, whose payload is its owner's; sectors of changes follow. A
//! checkpoint goes to the half that is not in use and counts once it is whole, so there is always one that is.
//!
//! A sector is never overwritten by the write that extends it: the last two take turns, and the one being written holds
//! less than the other. So a torn write costs nothing that was committed.
//!
//! Sectors tell how many full ones came before, and the first, empty, that the checkpoint was whole. So what was damaged
//! later is missed, and nothing is read rather than a part, for what is dead would come back. Only damage to the very
//! sector that was written last cannot be told from a torn write.

use std::collections::BTreeSet;
use std::io;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::DeviceLayout;
use crate::device::{AlignedBuffer, Device, SECTOR};

const HEADER_BYTES: usize = 32;
const CHANGE_BYTES: usize = 12;
const CHANGES_PER_SECTOR: usize = (SECTOR - HEADER_BYTES) / CHANGE_BYTES;
const FREED: u32 = u32::MAX;
const CHECKPOINT: u64 = u64::from_le_bytes(*b"DCcheck\x01");
const CHANGES: u64 = u64::from_le_bytes(*b"DCchang\x01");

/// What became of copies in a block that was written with this sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JournalChange {
    /// The one at this offset, in units, was removed or replaced.
    Dead { sequence: u64, offset: u32 },
    /// All of them: the block is about to be overwritten.
    Freed { sequence: u64 },
}

/// What `Journal::read` finds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JournalContents {
    /// No part of a journal that is on the device has a higher one.
    pub generation: u64,
    /// The last checkpoint; `None` if there is none, or not all of it.
    pub saved: Option<SavedCheckpoint>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct SavedCheckpoint {
    pub payload: Vec<u8>,
    pub changes: Vec<JournalChange>,
}

#[derive(Debug)]
pub struct Journal {
    starts: [u64; 2],
    half_bytes: u64,
    identity: u64,
    generation: u64,
    /// Changes of the sector that is being filled.
    tail: Vec<JournalChange>,
    /// Sectors that were filled before it.
    full: u32,
    /// Where it goes next, and where it was written last.
    target: u64,
    other: u64,
    /// First sector that was never a target in this half; 0 if only a checkpoint can be written.
    fresh: u64,
    /// Something was written and not yet synced.
    unsynced: bool,
    end: u64,
    written_bytes: u64,
}

impl Journal {
    /// The newest checkpoint and the changes after it.
    pub fn read(device: &dyn Device, layout: &DeviceLayout) -> io::Result<JournalContents> {
        let mut newest = JournalContents::default();
        for half in 0..2 {
            let mut bytes = AlignedBuffer::new(layout.journal_bytes as usize);
            device.read(layout.journal(half), &mut bytes)?;
            let found = parse(&bytes, layout.identity);
            if found.generation > newest.generation {
                newest = found;
            }
        }
        Ok(newest)
    }

    /// Starts after the generation that was read, 0 if none was. There is no place for changes before a checkpoint.
    pub fn new(layout: &DeviceLayout, generation: u64) -> Journal {
        Journal {
            starts: [layout.journal(0), layout.journal(1)],
            half_bytes: layout.journal_bytes,
            identity: layout.identity,
            generation,
            tail: Vec::with_capacity(CHANGES_PER_SECTOR),
            full: 0,
            target: 0,
            other: 0,
            fresh: 0,
            unsynced: false,
            end: 0,
            written_bytes: 0,
        }
    }

    /// The longest payload that leaves a quarter of a half for changes.
    pub fn payload_bytes_max(&self) -> usize {
        self.half_bytes as usize / 4 * 3 - HEADER_BYTES
    }

    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Whether so many changes can be committed before the next checkpoint.
    pub fn has_room(&self, changes: usize) -> bool {
        let sectors = (self.tail.len() + changes) / CHANGES_PER_SECTOR;
        self.fresh > 0 && self.fresh + sectors as u64 * SECTOR as u64 <= self.end
    }

    /// Appends changes; they survive a loss of power once the device is synced. After an error none is appended.
    pub fn commit(&mut self, device: &dyn Device, mut changes: &[JournalChange]) -> io::Result<()> {
        assert!(self.has_room(changes.len()), "the caller makes a checkpoint instead");
        while !changes.is_empty() {
            let before = self.tail.len();
            let (now, later) = changes.split_at(changes.len().min(CHANGES_PER_SECTOR - before));
            self.tail.extend_from_slice(now);
            if let Err(error) = self.write_tail(device) {
                self.tail.truncate(before);
                return Err(error);
            }
            changes = later;
        }
        Ok(())
    }

    fn write_tail(&mut self, device: &dyn Device) -> io::Result<()> {
        let mut sector = AlignedBuffer::new(SECTOR);
        encode_changes(&self.tail, self.full, self.identity, self.generation, &mut sector);
        device.write(self.target, &sector)?;
        self.unsynced = true;
        self.written_bytes += SECTOR as u64;
        if self.tail.len() < CHANGES_PER_SECTOR {
            std::mem::swap(&mut self.target, &mut self.other);
            return Ok(());
        }
        // A later sector without this one would be damage.
        self.sync(device)?;
        self.tail.clear();
        self.full += 1;
        self.target = self.fresh;
        self.fresh += SECTOR as u64;
        Ok(())
    }

    /// What was committed survives a loss of power from now on. After an error nobody knows what of it is on the device, and
    /// another sync would not tell: a checkpoint has to say it all again.
    pub fn sync(&mut self, device: &dyn Device) -> io::Result<()> {
        if self.unsynced {
            device.sync().inspect_err(|_| self.fresh = 0)?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Replaces everything committed before by a payload, which is on the device when this returns. It may be there after an
    /// error, too, so there is no room for changes then: they would follow a checkpoint that is no longer the newest.
    pub fn checkpoint(&mut self, device: &dyn Device, payload: &[u8]) -> io::Result<()> {
        assert!(payload.len() <= self.payload_bytes_max(), "the caller keeps it short");
        let generation = self.generation + 1;
        let mut bytes = AlignedBuffer::new(HEADER_BYTES + payload.len());
        bytes[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        let checksum = checksum(payload, self.identity, [generation, 0]);
        encode_header([CHECKPOINT, generation, payload.len() as u64, checksum], &mut bytes);
        let start = self.starts[generation as usize % 2];
        self.fresh = 0;
        device.write(start, &bytes)?;
        device.sync()?;
        self.generation = generation;
        self.tail.clear();
        self.full = 0;
        self.target = start + bytes.len() as u64;
        self.other = self.target + SECTOR as u64;
        let fresh = self.other + SECTOR as u64;
        self.end = start + self.half_bytes;
        self.written_bytes += bytes.len() as u64;
        self.write_tail(device)?;
        self.fresh = fresh;
        Ok(())
    }
}

/// Checksum of a part of this cache's journal: that of a former cache on the device is no part of it.
fn checksum(bytes: &[u8], identity: u64, [generation, counts]: [u64; 2]) -> u64 {
    let seed = xxh3_64_with_seed(&generation.to_le_bytes(), identity) ^ counts;
    xxh3_64_with_seed(bytes, seed)
}

fn encode_header(words: [u64; 4], target: &mut [u8]) {
    for (word, place) in words.iter().zip(target.chunks_exact_mut(8)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

fn encode_changes(changes: &[JournalChange], full: u32, identity: u64, generation: u64, sector: &mut [u8]) {
    sector.fill(0);
    for (change, place) in changes.iter().zip(sector[HEADER_BYTES..].chunks_exact_mut(CHANGE_BYTES)) {
        let (sequence, offset) = match *change {
            JournalChange::Dead { sequence, offset } => (sequence, offset),
            JournalChange::Freed { sequence } => (sequence, FREED),
        };
        place[..8].copy_from_slice(&sequence.to_le_bytes());
        place[8..].copy_from_slice(&offset.to_le_bytes());
    }
    let counts = u64::from(full) << 32 | changes.len() as u64;
    let checksum = checksum(&sector[HEADER_BYTES..], identity, [generation, counts]);
    encode_header([CHANGES, generation, counts, checksum], sector);
}

fn words(bytes: &[u8]) -> Option<[u64; 4]> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    Some(std::array::from_fn(|index| {
        header[index * 8..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }))
}

fn parse(half: &[u8], identity: u64) -> JournalContents {
    let checkpoint = parse_checkpoint(half, identity);
    let mut sectors: Vec<Sector> =
        half.chunks_exact(SECTOR).filter_map(|sector| parse_changes(sector, identity)).collect();
    let newest = sectors.iter().map(|sector| sector.generation);
    let generation = newest.chain(checkpoint.map(|(generation, _)| generation)).max().unwrap_or(0);
    sectors.retain(|sector| sector.generation == generation);
    let is_full = |sector: &&Sector| sector.changes.len() == CHANGES_PER_SECTOR;
    let full: BTreeSet<u32> = sectors.iter().filter(is_full).map(|sector| sector.full_before).collect();
    let before_last = sectors.iter().map(|sector| sector.full_before).max().unwrap_or(0);
    let whole = (0..before_last).all(|number| full.contains(&number));
    let mut changes: Vec<JournalChange> = sectors.into_iter().flat_map(|sector| sector.changes).collect();
    changes.sort_unstable();
    changes.dedup();
    let payload = checkpoint.filter(|(known, _)| *known == generation && whole).map(|(_, payload)| payload);
    JournalContents {
        generation,
        saved: payload.map(|payload| SavedCheckpoint { payload: payload.to_vec(), changes }),
    }
}

/// Its generation and payload.
fn parse_checkpoint(half: &[u8], identity: u64) -> Option<(u64, &[u8])> {
    let [magic, generation, length, known] = words(half)?;
    let end = usize::try_from(length).ok()?.checked_add(HEADER_BYTES)?;
    let payload = half.get(HEADER_BYTES..end)?;
    let sound = magic == CHECKPOINT && checksum(payload, identity, [generation, 0]) == known;
    sound.then_some((generation, payload))
}

struct Sector {
    generation: u64,
    full_before: u32,
    changes: Vec<JournalChange>,
}

fn parse_changes(sector: &[u8], identity: u64) -> Option<Sector> {
    let [magic, generation, counts, known] = words(sector)?;
    let (full_before, count) = ((counts >> 32) as u32, counts as u32 as usize);
    let body = &sector[HEADER_BYTES..];
    let sound = magic == CHANGES
        && count <= CHANGES_PER_SECTOR
        && checksum(body, identity, [generation, counts]) == known;
    let change = |bytes: &[u8]| {
        let sequence = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        match bytes.last_chunk().map_or(0, |word| u32::from_le_bytes(*word)) {
            FREED => JournalChange::Freed { sequence },
            offset => JournalChange::Dead { sequence, offset },
        }
    };
    let changes = || body.chunks_exact(CHANGE_BYTES).take(count).map(change).collect();
    sound.then(|| Sector { generation, full_before, changes: changes() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceFault, FaultyDevice, MemoryDevice};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn layout() -> DeviceLayout {
        DeviceLayout::plan(8 << 20, 64 << 10, 5).expect("fits")
    }

    /// Checks both halves.
    fn sectors(device: &FaultyDevice<MemoryDevice>, layout: &DeviceLayout) -> Vec<Vec<u8>> {
        let mut bytes = AlignedBuffer::new(2 * layout.journal_bytes as usize);
        device.store().read(layout.journal(0), &mut bytes).expect("healthy");
        bytes.chunks_exact(SECTOR).map(<[u8]>::to_vec).collect()
    }

    fn dead(number: u64) -> JournalChange {
        if number.is_multiple_of(7) {
            JournalChange::Freed { sequence: number }
        } else {
            JournalChange::Dead { sequence: number % 50, offset: number as u32 }
        }
    }

    proptest! {
        #![proptest_config(cases::proptest(256))]

        /// Commits of random lengths, a checkpoint when one is due or by chance, and a power cut somewhere.
        #[test]
        fn what_was_synced_is_read_back(
            lengths in prop::collection::vec((1..900usize, prop::bool::weighted(0.05)), 1..60),
            cut in 0..200u64,
            seed in any::<u64>(),
        ) {
            let layout = layout();
            let device = FaultyDevice::new(MemoryDevice::new(8 << 20).expect("sized"), seed);
            let mut journal = Journal::new(&layout, 0);
            journal.checkpoint(&device, b"first").expect("healthy");
            let cut = device.operations() + cut;
            device.plan(cut, DeviceFault::PowerCut);
            let (mut payload, mut kept, mut number) = (b"first".to_vec(), BTreeSet::new(), 0);
            let mut doubtful = BTreeSet::new();
            let mut next_payload = payload.clone();
            for (length, checkpoint) in lengths {
                if checkpoint || !journal.has_room(length) {
                    next_payload = number.to_string().into_bytes();
                    if journal.checkpoint(&device, &next_payload).is_err() {
                        break;
                    }
                    payload.clone_from(&next_payload);
                    kept.clear();
                }
                let changes: Vec<JournalChange> = (number..number + length as u64).map(dead).collect();
                number += length as u64;
                doubtful = changes.iter().copied().collect();
                if journal.commit(&device, &changes).and_then(|()| device.sync()).is_err() {
                    break;
                }
                kept.append(&mut doubtful);
            }
            if device.operations() <= cut {
                device.cut_power().expect("the store is healthy");
            }
            while device.operations() <= cut {
                device.sync().expect_err("there is no power");
            }
            device.restart();
            let found = Journal::read(&device, &layout).expect("readable");
            let saved = found.saved.expect("there is one");
            if saved.payload == payload {
                let found: BTreeSet<JournalChange> = saved.changes.iter().copied().collect();
                prop_assert!(kept.is_subset(&found), "lost {:?}", kept.difference(&found).next());
                doubtful.append(&mut kept);
                prop_assert!(found.is_subset(&doubtful), "made up");
            } else {
                // The cut came while a checkpoint was synced, and it was whole by then.
                prop_assert_eq!(saved.payload, next_payload);
                prop_assert!(saved.changes.is_empty());
            }
        }

        /// Whatever is damaged of it but what was written last: all that was committed is read, or nothing.
        #[test]
        fn damage_brings_nothing_back(
            lengths in prop::collection::vec((1..300usize, prop::bool::weighted(0.2)), 1..40),
            places in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
            seed in any::<u64>(),
        ) {
            let layout = layout();
            let device = FaultyDevice::new(MemoryDevice::new(8 << 20).expect("sized"), seed);
            let mut journal = Journal::new(&layout, 0);
            journal.checkpoint(&device, b"first").expect("healthy");
            let (mut kept, mut number, mut before) = (BTreeSet::new(), 0, sectors(&device, &layout));
            for (length, checkpoint) in lengths {
                if checkpoint {
                    journal.checkpoint(&device, &[7; 9000]).expect("healthy");
                    kept.clear();
                }
                before = sectors(&device, &layout);
                let changes: Vec<JournalChange> = (number..number + length as u64).map(dead).collect();
                number += length as u64;
                journal.commit(&device, &changes).expect("healthy");
                kept.extend(changes);
            }
            let after = sectors(&device, &layout);
            let older: Vec<usize> = (0..after.len()).filter(|place| after[*place] == before[*place]).collect();
            for place in places {
                let sector = place.get(&older);
                let offset = layout.journal(0) + (sector * SECTOR) as u64;
                device.corrupt(offset, SECTOR as u64).expect("the store is healthy");
            }
            let found = Journal::read(&device, &layout).expect("readable");
            prop_assert!(found.generation <= journal.generation && found.generation + 1 >= journal.generation);
            if let Some(saved) = found.saved {
                let found: BTreeSet<JournalChange> = saved.changes.into_iter().collect();
                prop_assert_eq!(found, kept);
            }
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
            prop_assert_eq!(parse(&bytes, 0), JournalContents::default());
        }
    }

    #[test]
    fn a_device_without_a_journal_has_none() {
        let device = MemoryDevice::new(8 << 20).expect("sized");
        assert_eq!(Journal::read(&device, &layout()).expect("readable"), JournalContents::default());
    }
}
