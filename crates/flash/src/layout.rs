//! How a device is divided: superblock, two halves of a journal, blocks. Not what the halves and blocks hold.

use std::io;

use xxhash_rust::xxh3::xxh3_64;

use super::FlashError;
use super::index::BLOCKS_MAX;
use super::record::{UNIT, UNITS_MAX};
use crate::device::{AlignedBuffer, Device, SECTOR};

const MAGIC: [u8; 16] = *b"DistCache flash\n";
/// Version of all that is on the device. Another one is refused, never guessed at.
const VERSION: u64 = 2;
/// The superblock is written twice, so that one bad sector does not cost the cache.
const COPIES: u64 = 2;
/// An object begins before a block's end, so the highest offset needs not be the block's length.
const BLOCK_BYTES_MAX: u64 = (UNITS_MAX as u64 + 1) * UNIT as u64;
/// Virtual blocks are numbered as well, several for each of these.
const BLOCKS_COUNT_MAX: u64 = BLOCKS_MAX as u64 / 8;
/// So that each section has some, and two are spare.
pub const BLOCKS_COUNT_MIN: u64 = 8;
/// Even a small device has room for the changes between two checkpoints.
const JOURNAL_BYTES_MIN: u64 = 1 << 16;
/// Beyond what blocks of any size ask for. Sums of such numbers do not overflow.
const JOURNAL_BYTES_MAX: u64 = 1 << 40;

/// Where things are on a device; told by its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLayout {
    /// A number that no other cache on this device has had.
    pub identity: u64,
    pub block_bytes: u64,
    pub blocks: u64,
    /// Bytes of each of the journal's halves.
    pub journal_bytes: u64,
}

impl DeviceLayout {
    /// For a device of this size.
    pub fn plan(device_bytes: u64, block_bytes: u64, identity: u64) -> Result<DeviceLayout, FlashError> {
        let sector = SECTOR as u64;
        if !block_bytes.is_multiple_of(sector) || block_bytes == 0 || block_bytes > BLOCK_BYTES_MAX {
            return Err(FlashError::Settings(format!(
                "block_bytes = {block_bytes}: must be a multiple of {SECTOR} and at most 256 MiB"
            )));
        }
        // A journal half holds the order of the blocks and a four-byte mark for each dead object of them.
        let bytes = JOURNAL_BYTES_MIN + device_bytes / block_bytes * 64 + device_bytes / 512;
        let journal_bytes = bytes.next_multiple_of(sector);
        let rest = device_bytes
            .saturating_sub(DeviceLayout { identity, block_bytes, blocks: 0, journal_bytes }.first_block());
        let layout = DeviceLayout { identity, block_bytes, blocks: rest / block_bytes, journal_bytes };
        if layout.blocks > BLOCKS_COUNT_MAX {
            return Err(FlashError::Settings(format!(
                "block_bytes = {block_bytes}: makes {} blocks, and {BLOCKS_COUNT_MAX} is the most; make blocks larger",
                layout.blocks
            )));
        }
        Ok(layout)
    }

    /// Where a journal half starts.
    pub fn journal(&self, half: usize) -> u64 {
        COPIES * SECTOR as u64 + half as u64 * self.journal_bytes
    }

    /// Blocks start at a multiple of their size: flash that erases as much at a time then never moves what is in them.
    fn first_block(&self) -> u64 {
        self.journal(2).next_multiple_of(self.block_bytes)
    }

    pub fn block(&self, slot: u32) -> u64 {
        self.first_block() + u64::from(slot) * self.block_bytes
    }

    /// Writes the superblock where nothing else is: a device whose first sectors are not zero belongs to somebody.
    pub fn create(&self, device: &dyn Device) -> Result<(), FlashError> {
        let mut first = AlignedBuffer::new(COPIES as usize * SECTOR);
        device.read(0, &mut first).map_err(|error| FlashError::device("reading the superblock", error))?;
        if first.iter().any(|byte| *byte != 0) {
            return Err(FlashError::InUse);
        }
        let fields = [VERSION, self.identity, self.block_bytes, self.blocks, self.journal_bytes];
        for copy in first.chunks_exact_mut(SECTOR) {
            copy[..16].copy_from_slice(&MAGIC);
            for (field, place) in fields.iter().zip(copy[16..].chunks_exact_mut(8)) {
                place.copy_from_slice(&field.to_le_bytes());
            }
            seal(copy);
        }
        let write = || -> io::Result<()> {
            device.write(0, &first)?;
            device.sync()
        };
        write().map_err(|error| FlashError::device("writing the superblock", error))
    }

    /// Reads the superblock.
    pub fn open(device: &dyn Device) -> Result<DeviceLayout, FlashError> {
        let mut first = AlignedBuffer::new(COPIES as usize * SECTOR);
        device.read(0, &mut first).map_err(|error| FlashError::device("reading the superblock", error))?;
        let copies: Vec<_> = first.chunks_exact(SECTOR).map(DeviceLayout::parse).collect();
        let layout = copies.iter().find_map(|copy| copy.as_ref().ok()).copied();
        // Empty is what may be written over, so a single copy of zeros does not make it so.
        let is_empty = |copy: &Result<DeviceLayout, FlashError>| matches!(copy, Err(FlashError::Empty));
        let refusal = || copies.into_iter().find(|copy| !is_empty(copy)).unwrap_or(Err(FlashError::Empty));
        let Some(layout) = layout else { return refusal() };
        if layout.block(layout.blocks as u32) > device.bytes() {
            return Err(FlashError::Damaged(format!(
                "the device has {} bytes, and its superblock tells of {} blocks of {}: it was cut",
                device.bytes(),
                layout.blocks,
                layout.block_bytes
            )));
        }
        Ok(layout)
    }

    fn parse(sector: &[u8]) -> Result<DeviceLayout, FlashError> {
        if sector.iter().all(|byte| *byte == 0) {
            return Err(FlashError::Empty);
        }
        if sector.get(..16) != Some(&MAGIC) {
            return Err(FlashError::Foreign);
        }
        let field = |index: usize| {
            let bytes = sector.get(16 + index * 8..).and_then(|rest| rest.first_chunk::<8>());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        if field(0) != VERSION {
            return Err(FlashError::Version { found: field(0), known: VERSION });
        }
        let layout = DeviceLayout {
            identity: field(1),
            block_bytes: field(2),
            blocks: field(3),
            journal_bytes: field(4),
        };
        let sound = sector.get(..56).is_some_and(|fields| xxh3_64(fields) == field(5))
            && layout.block_bytes > 0
            && layout.block_bytes <= BLOCK_BYTES_MAX
            && layout.block_bytes.is_multiple_of(SECTOR as u64)
            && (JOURNAL_BYTES_MIN..JOURNAL_BYTES_MAX).contains(&layout.journal_bytes)
            && layout.journal_bytes.is_multiple_of(SECTOR as u64)
            && layout.blocks <= BLOCKS_COUNT_MAX;
        sound
            .then_some(layout)
            .ok_or_else(|| FlashError::Damaged("both copies of its superblock are damaged".into()))
    }
}

fn seal(copy: &mut [u8]) {
    let checksum = xxh3_64(&copy[..56]);
    copy[56..64].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    fn device(bytes: u64) -> MemoryDevice {
        MemoryDevice::new(bytes).expect("whole sectors")
    }

    #[test]
    fn a_layout_is_found_again_and_never_overwritten() {
        let device = device(32 << 20);
        assert!(matches!(DeviceLayout::open(&device), Err(FlashError::Empty)));
        let layout = DeviceLayout::plan(device.bytes(), 64 << 10, 77).expect("fits");
        assert!(layout.block(layout.blocks as u32) <= device.bytes());
        assert!(layout.block(layout.blocks as u32 + 16) > device.bytes(), "little is wasted");
        layout.create(&device).expect("empty");
        assert_eq!(DeviceLayout::open(&device).expect("created"), layout);
        assert!(matches!(layout.create(&device), Err(FlashError::InUse)));
    }

    #[test]
    fn one_bad_sector_is_survived_and_foreign_bytes_are_named() {
        let device = device(32 << 20);
        let layout = DeviceLayout::plan(device.bytes(), 64 << 10, 77).expect("fits");
        layout.create(&device).expect("empty");
        let mut sector = AlignedBuffer::new(SECTOR);
        device.read(0, &mut sector).expect("read");
        let good = sector.to_vec();
        sector[24] ^= 1;
        device.write(0, &sector).expect("written");
        assert_eq!(DeviceLayout::open(&device).expect("the other copy"), layout);
        device.write(SECTOR as u64, &sector).expect("written");
        assert!(matches!(DeviceLayout::open(&device), Err(FlashError::Damaged(_))));
        sector.copy_from_slice(&good);
        sector[16] = 9;
        for copy in 0..2 {
            device.write(copy * SECTOR as u64, &sector).expect("written");
        }
        assert!(matches!(DeviceLayout::open(&device), Err(FlashError::Version { found: 9, known: 2 })));
        sector.fill(b'x');
        for copy in 0..2 {
            device.write(copy * SECTOR as u64, &sector).expect("written");
        }
        assert!(matches!(DeviceLayout::open(&device), Err(FlashError::Foreign)));
    }

    #[test]
    fn a_device_is_empty_only_if_both_copies_are_zeros() {
        let zeros = AlignedBuffer::new(SECTOR);
        for lost in 0..2 {
            let device = device(32 << 20);
            let layout = DeviceLayout::plan(device.bytes(), 64 << 10, 77).expect("fits");
            layout.create(&device).expect("empty");
            device.write(lost * SECTOR as u64, &zeros).expect("written");
            assert_eq!(DeviceLayout::open(&device).expect("the other copy"), layout);
            let other = (1 - lost) * SECTOR as u64;
            let mut sector = AlignedBuffer::new(SECTOR);
            device.read(other, &mut sector).expect("read");
            sector[24] ^= 1;
            device.write(other, &sector).expect("written");
            assert!(
                matches!(DeviceLayout::open(&device), Err(FlashError::Damaged(_))),
                "copy {lost} is zeros"
            );
            let error = layout.create(&device).expect_err("not empty").to_string();
            assert!(error.contains("it holds a cache or something else"), "{error}");
            device.write(other, &zeros).expect("written");
            assert!(matches!(DeviceLayout::open(&device), Err(FlashError::Empty)));
        }
    }

    /// Superblocks whose checksum fits, whatever wrote them.
    #[test]
    fn sizes_that_nobody_writes_are_damage() {
        let device = device(32 << 20);
        let layout = DeviceLayout::plan(device.bytes(), 64 << 10, 77).expect("fits");
        layout.create(&device).expect("empty");
        let mut first = AlignedBuffer::new(2 * SECTOR);
        device.read(0, &mut first).expect("read");
        for (field, values) in [
            (2, [0, 4097, 1 << 29, u64::MAX << 12]),
            (3, [layout.blocks + 1, 1 << 17, 1 << 32, u64::MAX]),
            (4, [0, 4096, 1 << 40, u64::MAX << 12]),
        ] {
            for value in values {
                let mut wrong = AlignedBuffer::new(2 * SECTOR);
                wrong.copy_from_slice(&first);
                for copy in wrong.chunks_exact_mut(SECTOR) {
                    copy[16 + field * 8..24 + field * 8].copy_from_slice(&value.to_le_bytes());
                    seal(copy);
                }
                device.write(0, &wrong).expect("written");
                let opened = DeviceLayout::open(&device);
                assert!(matches!(opened, Err(FlashError::Damaged(_))), "field {field}, {value}: {opened:?}");
            }
        }
    }

    #[test]
    fn impossible_sizes_are_refused_by_name() {
        for block_bytes in [0, 1000, (1 << 28) + SECTOR as u64] {
            let error = DeviceLayout::plan(1 << 30, block_bytes, 1).expect_err("no block size").to_string();
            assert!(error.contains(&format!("block_bytes = {block_bytes}")), "{error}");
        }
        assert!(DeviceLayout::plan(1 << 40, 1 << 20, 1).is_err(), "a million blocks");
    }
}
