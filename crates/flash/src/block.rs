//! A block's bytes: a header, records, and a table of them. Not where the block lies.
//!
//! ```text
//! 0            64                                                            block_bytes
//! | header: 64 | record | record | ... | table: 12 bytes each | never written |
//! ```
//!
//! The table is in the order of the records, which follow each other without gaps, so lengths give the offsets. It lets
//! recovery and reclaim learn what is in a block without reading its objects. What stays free at the end, because the
//! next object did not fit, is not written.

use std::io;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::DeviceLayout;
use super::record::{self, ObjectRecord, UNIT};
use crate::device::{AlignedBuffer, Device, SECTOR};

/// One part in so many of a block may be written for nothing.
const FREE_WRITTEN: usize = 16;
pub const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 12;
/// Where the first record is.
const FIRST_UNIT: u32 = (HEADER_BYTES / UNIT) as u32;
/// The table's, within the header.
const TABLE_CHECKSUM: usize = 48;
const MAGIC: u64 = u64::from_le_bytes(*b"DCblock\x01");

const _: () = assert!(HEADER_BYTES.is_multiple_of(UNIT) && HEADER_BYTES < SECTOR);

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    pub digest: u64,
    /// In units, as `units` is.
    pub offset: u32,
    pub units: u32,
    /// Requests when it was written; 0 marks a record that was dead by then.
    pub frequency: u8,
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockHeader {
    /// Identity of the cache: blocks of a cache that was here before are not ours.
    pub identity: u64,
    /// Rises with each block written, from 1.
    pub sequence: u64,
    pub objects: u32,
    /// Where the table begins.
    pub used_units: u32,
    /// The head of its section in the queue, from 0 to 1, when it was written: where recovery puts it back.
    pub rank: f64,
    /// Mean over its objects of the lowest value when each got its priority, for absolute priorities.
    pub lowest: f64,
}

impl BlockHeader {
    /// From the first bytes of a block; none if they are not a header of this cache.
    pub fn parse(bytes: &[u8], identity: u64) -> Option<BlockHeader> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
        let words: [u64; 8] = std::array::from_fn(|index| read_u64(&bytes[index * 8..]));
        let header = BlockHeader {
            identity: words[1],
            sequence: words[2],
            objects: words[3] as u32,
            used_units: (words[3] >> 32) as u32,
            rank: f64::from_bits(words[4]),
            lowest: f64::from_bits(words[5]),
        };
        let sealed = xxh3_64_with_seed(&bytes[..56], words[0]);
        let sound =
            words[0] == MAGIC && words[7] == sealed && header.used_units as usize * UNIT >= HEADER_BYTES;
        let in_range =
            (0.0..=1.0).contains(&header.rank) && header.lowest.is_finite() && header.lowest >= 0.0;
        // Zero stands for a block that is not written yet.
        (sound && in_range && header.sequence > 0 && header.identity == identity).then_some(header)
    }

    /// Where the table is, in bytes.
    pub fn table(&self) -> std::ops::Range<usize> {
        let start = self.used_units as usize * UNIT;
        start..start + self.objects as usize * ENTRY_BYTES
    }

    fn encode(&self, table_checksum: u64, target: &mut [u8]) {
        let words = [
            MAGIC,
            self.identity,
            self.sequence,
            u64::from(self.used_units) << 32 | u64::from(self.objects),
            self.rank.to_bits(),
            self.lowest.to_bits(),
            table_checksum,
        ];
        for (word, place) in words.iter().zip(target.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sealed = xxh3_64_with_seed(&target[..56], MAGIC);
        target[56..64].copy_from_slice(&sealed.to_le_bytes());
    }
}

/// The entries of a table; none if it is damaged.
pub fn parse_table(table: &[u8], checksum: u64, header: &BlockHeader) -> Option<Vec<BlockEntry>> {
    if xxh3_64_with_seed(table, header.sequence) != checksum {
        return None;
    }
    let mut offset = FIRST_UNIT;
    let mut entries = Vec::with_capacity(table.len() / ENTRY_BYTES);
    for line in table.chunks_exact(ENTRY_BYTES) {
        let packed = u32::from_le_bytes([line[8], line[9], line[10], line[11]]);
        let entry = BlockEntry {
            digest: read_u64(line),
            offset,
            units: packed & 0xff_ffff,
            frequency: (packed >> 24) as u8,
        };
        offset = offset.checked_add(entry.units).filter(|_| entry.units > 0)?;
        entries.push(entry);
    }
    (offset == header.used_units && entries.len() == header.objects as usize).then_some(entries)
}

/// Header and table of a block of which all that is used is here; none if it is none of this cache.
pub fn parse_block(bytes: &[u8], layout: &DeviceLayout) -> Option<(BlockHeader, Vec<BlockEntry>)> {
    let header = BlockHeader::parse(bytes, layout.identity)?;
    let entries = parse_table(bytes.get(header.table())?, read_u64(&bytes[TABLE_CHECKSUM..]), &header)?;
    Some((header, entries))
}

/// Header and table of the block at this offset of a device; none if it has none of this cache.
pub fn read_table(
    device: &dyn Device,
    offset: u64,
    layout: &DeviceLayout,
) -> io::Result<Option<(BlockHeader, Vec<BlockEntry>)>> {
    let mut first = AlignedBuffer::new(SECTOR);
    device.read(offset, &mut first)?;
    let Some(header) = BlockHeader::parse(&first, layout.identity) else { return Ok(None) };
    let table = header.table();
    if table.end as u64 > layout.block_bytes {
        return Ok(None);
    }
    if table.end <= SECTOR {
        return Ok(parse_block(&first, layout));
    }
    let start = table.start / SECTOR * SECTOR;
    let mut sectors = AlignedBuffer::new(table.end - start);
    device.read(offset + start as u64, &mut sectors)?;
    let checksum = read_u64(&first[TABLE_CHECKSUM..]);
    let entries = parse_table(&sectors[table.start - start..table.end - start], checksum, &header);
    Ok(entries.map(|entries| (header, entries)))
}

fn read_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// A block in memory that is being filled.
#[derive(Debug)]
pub struct Builder {
    pub buffer: AlignedBuffer,
    entries: Vec<BlockEntry>,
    used_units: u32,
}

impl Builder {
    /// In memory of the size of a block, whatever it holds.
    pub fn new(buffer: AlignedBuffer) -> Builder {
        Builder { buffer, entries: Vec::new(), used_units: FIRST_UNIT }
    }

    /// The largest object that fits an empty block of this size.
    pub fn units_max(block_bytes: usize) -> u32 {
        ((block_bytes - HEADER_BYTES - ENTRY_BYTES) / UNIT) as u32
    }

    pub fn entries(&self) -> &[BlockEntry] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the block in use, header and table included.
    pub fn used_bytes(&self) -> usize {
        self.used_units as usize * UNIT + self.entries.len() * ENTRY_BYTES
    }

    pub fn fits(&self, units: u32) -> bool {
        self.used_bytes() + units as usize * UNIT + ENTRY_BYTES <= self.buffer.len()
    }

    /// The offset it gets; it must fit.
    pub fn append(&mut self, record: &ObjectRecord<'_>, frequency: u8) -> u32 {
        assert!(self.fits(record.units), "the caller looks first");
        let offset = self.used_units;
        record.encode(&mut self.buffer[bytes_of(offset, record.units)]);
        let frequency = frequency.max(1);
        self.entries.push(BlockEntry { digest: record.digest, offset, units: record.units, frequency });
        self.used_units += record.units;
        offset
    }

    /// Recovery shall not find the record that begins here.
    pub fn kill(&mut self, offset: u32) {
        if let Ok(number) = self.entries.binary_search_by_key(&offset, |entry| entry.offset) {
            self.entries[number].frequency = 0;
        }
    }

    /// Key and value of a record in this block.
    pub fn read(&self, offset: u32, units: u32) -> Option<(&[u8], &[u8])> {
        record::parse_open(self.buffer.get(bytes_of(offset, units))?)
    }

    /// The block as it goes to the device, as far as it is used. Its records are bound to the sequence number.
    pub fn seal(mut self, mut header: BlockHeader) -> (AlignedBuffer, Vec<BlockEntry>) {
        (header.objects, header.used_units) = (self.entries.len() as u32, self.used_units);
        for entry in &self.entries {
            record::seal(
                &mut self.buffer[bytes_of(entry.offset, entry.units)],
                header.sequence,
                entry.offset,
            );
        }
        let table = header.table();
        let written = written_bytes(table.end, self.buffer.len());
        self.buffer[table.end..written].fill(0);
        let lines = self.buffer[table.clone()].chunks_exact_mut(ENTRY_BYTES);
        for (line, entry) in lines.zip(&self.entries) {
            line[..8].copy_from_slice(&entry.digest.to_le_bytes());
            line[8..].copy_from_slice(&(entry.units | u32::from(entry.frequency) << 24).to_le_bytes());
        }
        let checksum = xxh3_64_with_seed(&self.buffer[table], header.sequence);
        header.encode(checksum, &mut self.buffer);
        (self.buffer, self.entries)
    }
}

/// What is written of a block of which so much is used: all of it if little is free. Flash moves what it cannot erase
/// together, which costs more than to write a little more.
pub fn written_bytes(used_bytes: usize, block_bytes: usize) -> usize {
    if (block_bytes - used_bytes) * FREE_WRITTEN <= block_bytes {
        return block_bytes;
    }
    used_bytes.next_multiple_of(SECTOR)
}

/// Where a record is within its block, in bytes.
pub fn bytes_of(offset: u32, units: u32) -> std::ops::Range<usize> {
    let start = offset as usize * UNIT;
    start..start + units as usize * UNIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use crate::index::{Index, IndexPlace};
    use proptest::prelude::*;

    const BLOCK: usize = 4 * SECTOR;

    fn header(sequence: u64) -> BlockHeader {
        BlockHeader { identity: 42, sequence, objects: 0, used_units: 0, rank: 0.25, lowest: 1.5 }
    }

    /// A device with this as its third block.
    fn stored(block: &[u8]) -> (MemoryDevice, DeviceLayout) {
        let device = MemoryDevice::new(1 << 20).expect("sized");
        let layout = DeviceLayout::plan(device.bytes(), BLOCK as u64, 42).expect("fits");
        device.write(layout.block(2), block).expect("healthy");
        (device, layout)
    }

    /// As many of the objects as fit, each with its number as its digest.
    fn built(values: &[Vec<u8>]) -> Builder {
        let mut builder = Builder::new(AlignedBuffer::new(BLOCK));
        builder.buffer.fill(0xaa);
        for (number, value) in values.iter().enumerate() {
            let key = number.to_le_bytes();
            let record = ObjectRecord::new(&key, value, number as u64).expect("short");
            if builder.fits(record.units) {
                let offset = builder.append(&record, number as u8);
                assert_eq!(builder.read(offset, record.units), Some((key.as_slice(), value.as_slice())));
            }
        }
        builder
    }

    fn values() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..60)
    }

    proptest! {
        #![proptest_config(cases::proptest(256))]

        #[test]
        fn a_block_is_read_back(values in values(), dead in any::<prop::sample::Index>()) {
            let mut builder = built(&values);
            if !builder.is_empty() {
                let number = dead.index(builder.entries().len());
                builder.kill(builder.entries()[number].offset);
            }
            let entries = builder.entries().to_vec();
            let (block, sealed) = builder.seal(header(9));
            prop_assert_eq!(&sealed, &entries);
            let found = BlockHeader::parse(&block, 42).expect("sealed");
            prop_assert_eq!(found.objects as usize, entries.len());
            prop_assert_eq!(BlockHeader { objects: 0, used_units: 0, ..found }, header(9));
            prop_assert_eq!(BlockHeader::parse(&block, 43), None);
            let (device, layout) = stored(&block);
            let read = read_table(&device, layout.block(2), &layout).expect("healthy");
            prop_assert_eq!(read, Some((found, entries.clone())));
            prop_assert_eq!(read_table(&device, layout.block(1), &layout).expect("healthy"), None);
            for entry in entries {
                let record = &block[bytes_of(entry.offset, entry.units)];
                let value = values[entry.digest as usize].as_slice();
                prop_assert_eq!(record::parse(record, 9, entry.offset).map(|(_, value)| value), Some(value));
            }
        }

        #[test]
        fn a_damaged_table_is_noticed(values in values(), bit in 0..8u32, place in any::<prop::sample::Index>()) {
            let (mut block, _) = built(&values).seal(header(9));
            let table = BlockHeader::parse(&block, 42).expect("sealed").table();
            let at = place.index(HEADER_BYTES + table.len());
            block[if at < HEADER_BYTES { at } else { table.start + at - HEADER_BYTES }] ^= 1u8 << bit;
            let (device, layout) = stored(&block);
            prop_assert_eq!(read_table(&device, layout.block(2), &layout).expect("healthy"), None);
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            (objects, used_units) in any::<(u32, u32)>(),
        ) {
            prop_assert_eq!(BlockHeader::parse(&bytes, 42), None);
            let claimed = BlockHeader { objects, used_units, ..header(9) };
            let checksum = xxh3_64_with_seed(&bytes, 9);
            let fits = |entries: &Vec<BlockEntry>| entries.len() == objects as usize;
            prop_assert!(parse_table(&bytes, checksum, &claimed).is_none_or(|entries| fits(&entries)));
        }
    }

    #[test]
    fn a_number_that_nobody_gives_is_none() {
        for sequence in [0, 1] {
            let mut bytes = [0; HEADER_BYTES];
            let header = BlockHeader { used_units: FIRST_UNIT, ..header(sequence) };
            header.encode(0, &mut bytes);
            assert_eq!(BlockHeader::parse(&bytes, 42), (sequence == 1).then_some(header));
        }
    }

    /// Table 4.3's blocks. All but the last kilobytes is an object that was dead when the block was written.
    #[test]
    fn a_block_of_256_mib_is_filled_to_its_end() {
        const LARGEST: usize = 256 << 20;
        let layout = DeviceLayout::plan(9 << 28, LARGEST as u64, 42).expect("the dissertation's size");
        let mut builder = Builder::new(AlignedBuffer::new(LARGEST));
        let units = Builder::units_max(LARGEST) - 1000;
        assert!(record::units(8, units as usize * UNIT - 24).is_some(), "an object may be as large");
        builder.entries.push(BlockEntry { digest: 7, offset: FIRST_UNIT, units, frequency: 0 });
        builder.used_units += units;
        let value = [3; 16];
        let mut index = Index::default();
        while builder.fits(3) {
            let number = builder.entries.len() as u64;
            let key = number.to_le_bytes();
            let record = ObjectRecord::new(&key, &value, number << 24).expect("short");
            let place =
                IndexPlace { block: 8, offset: builder.used_units, units: 3, moved_to: None, frequency: 1 };
            index.insert(record.digest, &place);
            builder.append(&record, 1);
        }
        assert!(builder.used_bytes() > LARGEST - 100 && builder.entries.len() > 200);
        let (block, sealed) = builder.seal(header(9));
        let (_, entries) = parse_block(&block, &layout).expect("sealed");
        assert_eq!(entries, sealed);
        for entry in &entries[1..] {
            let place = index.get(entry.digest).expect("inserted");
            let record = &block[bytes_of(place.offset, place.units)];
            let key = (entry.digest >> 24).to_le_bytes();
            assert_eq!(record::parse(record, 9, entry.offset), Some((key.as_slice(), value.as_slice())));
        }
    }
}
