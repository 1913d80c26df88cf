//! Damage to the bytes of a device, mostly where a format has a field, and checksums that fit it. Not what must come of it.

use arbitrary::{Result, Unstructured};
use flash::device::SECTOR;
use flash::layout::DeviceLayout;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// As `docs/ripq.md` has them.
const BLOCK: &[u8; 8] = b"DCblock\x01";
const CHANGES: &[u8; 8] = b"DCchang\x01";
const JOURNAL_HEADER_BYTES: usize = 32;
const BLOCK_HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 12;
const UNIT: usize = 16;

const WORDS: [u64; 9] =
    [0, 1, 2, 0xff_ffff, 1 << 31, u32::MAX as u64, 1 << 62, 0x7fef_ffff_ffff_ffff, u64::MAX];

/// One piece of damage; whether it is in the blocks.
pub(super) fn apply(bytes: &mut Unstructured<'_>, layout: &DeviceLayout, image: &mut [u8]) -> Result<bool> {
    let blocks = layout.block(0) as usize;
    let at = place(bytes, layout, image)?;
    match bytes.int_in_range(0..=3)? {
        0 => {
            let new: [u8; 8] = bytes.arbitrary()?;
            let length = bytes.int_in_range(1..=8)?;
            put(image, at, &new[..length]);
        }
        1 => {
            let new = bytes.choose(&WORDS)?.to_le_bytes();
            put(image, at, if bytes.arbitrary()? { &new } else { &new[..4] });
        }
        2 => {
            let old = u32_at(image, at);
            let new = old.wrapping_add_signed(i32::from(bytes.arbitrary::<i8>()?));
            put(image, at, &new.to_le_bytes());
        }
        _ => {
            // What belongs elsewhere, or to an earlier life: a sector, or all of a block.
            let unit = if bytes.arbitrary()? { SECTOR } else { layout.block_bytes as usize };
            let from = place(bytes, layout, image)? / unit * unit;
            let to = at / unit * unit;
            let length = unit.min(image.len() - from.max(to));
            image.copy_within(from..from + length, to);
            return Ok(to >= blocks);
        }
    }
    Ok(at >= blocks)
}

/// Where it goes: any byte, or the beginning of a field.
fn place(bytes: &mut Unstructured<'_>, layout: &DeviceLayout, image: &[u8]) -> Result<usize> {
    let half = layout.journal(usize::from(bytes.arbitrary::<bool>()?)) as usize;
    let slot = bytes.int_in_range(0..=layout.blocks as u32 - 1)?;
    let block = layout.block(slot) as usize;
    let number = usize::from(bytes.arbitrary::<u16>()?);
    Ok(match bytes.int_in_range(0..=6)? {
        0 => number % 2 * SECTOR + number / 2 % 9 * 8,
        1 => half + number % 8 * 4,
        2 => half + JOURNAL_HEADER_BYTES + number % 64 * 4,
        3 => {
            let sector = half + (1 + number % 4) * SECTOR;
            sector + number / 4 % 32 * 4
        }
        4 => block + number % 16 * 4,
        5 => {
            let table = u32_at(image, block + 28) as usize * UNIT;
            let line = table + number / 3 % 16 * ENTRY_BYTES;
            (block + line + [0, 8, 11][number % 3]).min(image.len() - 1)
        }
        _ => (slot as usize * layout.block_bytes as usize + number) % image.len(),
    })
}

fn put(image: &mut [u8], at: usize, new: &[u8]) {
    let end = image.len().min(at + new.len());
    image[at..end].copy_from_slice(&new[..end - at]);
}

/// Makes the checksums of superblocks, journal, headers and tables those of what is there. Records keep theirs: what they
/// hold is nobody's but the client's.
pub(super) fn repair(layout: &DeviceLayout, image: &mut [u8]) {
    for copy in image[..2 * SECTOR].chunks_exact_mut(SECTOR) {
        let checksum = xxh3_64(&copy[..56]);
        put(copy, 56, &checksum.to_le_bytes());
    }
    for half in 0..2 {
        let start = layout.journal(half) as usize;
        repair_journal(&mut image[start..start + layout.journal_bytes as usize], layout.identity);
    }
    for slot in 0..layout.blocks as u32 {
        let start = layout.block(slot) as usize;
        repair_block(&mut image[start..start + layout.block_bytes as usize]);
    }
}

fn repair_journal(half: &mut [u8], identity: u64) {
    let seed = |generation: u64, counts| xxh3_64_with_seed(&generation.to_le_bytes(), identity) ^ counts;
    let (generation, length) = (u64_at(half, 8), u64_at(half, 16));
    let end = usize::try_from(length).ok().and_then(|length| length.checked_add(JOURNAL_HEADER_BYTES));
    if let Some(payload) = end.and_then(|end| half.get(JOURNAL_HEADER_BYTES..end)) {
        let checksum = xxh3_64_with_seed(payload, seed(generation, 0));
        put(half, 24, &checksum.to_le_bytes());
    }
    for sector in half.chunks_exact_mut(SECTOR).filter(|sector| sector.starts_with(CHANGES)) {
        let seed = seed(u64_at(sector, 8), u64_at(sector, 16));
        let checksum = xxh3_64_with_seed(&sector[JOURNAL_HEADER_BYTES..], seed);
        put(sector, 24, &checksum.to_le_bytes());
    }
}

fn repair_block(block: &mut [u8]) {
    if !block.starts_with(BLOCK) {
        return;
    }
    let (objects, start) = (u32_at(block, 24) as usize, u32_at(block, 28) as usize * UNIT);
    if let Some(table) = block.get(start..start + objects * ENTRY_BYTES) {
        let checksum = xxh3_64_with_seed(table, u64_at(block, 16));
        put(block, 48, &checksum.to_le_bytes());
    }
    let sealed = xxh3_64_with_seed(&block[..BLOCK_HEADER_BYTES - 8], u64::from_le_bytes(*BLOCK));
    put(block, BLOCK_HEADER_BYTES - 8, &sealed.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}
