//! The bytes of one object on flash: checksum, lengths, key, value. Not where they lie.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Records begin at multiples of this, so that 24 bits address a block of 256 MiB.
pub const UNIT: usize = 16;
/// Checksum, length of the value, length of the key.
const HEADER_BYTES: usize = 16;
/// What a block of the largest size can address.
pub const UNITS_MAX: u32 = (1 << 24) - 1;

const _: () = assert!(HEADER_BYTES == UNIT, "a record of an empty object is one unit");

/// An object's key as the index and the tables know it; `seed` makes it another one for each cache.
pub fn digest(key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// Units that an object takes, or none if a block cannot address them.
pub fn units(key_bytes: usize, value_bytes: usize) -> Option<u32> {
    let bytes = HEADER_BYTES.checked_add(key_bytes)?.checked_add(value_bytes)?;
    u32::try_from(bytes.div_ceil(UNIT)).ok().filter(|units| *units <= UNITS_MAX)
}

/// What a record's checksum must be, less its stamp. Both lengths are part of it: bytes never move between key and value.
fn content(key: &[u8], value: &[u8]) -> u64 {
    let lengths = (key.len() as u64) << 32 | value.len() as u64;
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, lengths))
}

/// What binds a record to its place: bytes of a block's former life, or of another place, never pass for a record.
fn stamp(sequence: u64, offset: u32) -> u64 {
    let place = [sequence.to_le_bytes(), u64::from(offset).to_le_bytes()];
    xxh3_64_with_seed(place.as_flattened(), 0)
}

/// An object ready to be appended: its checksum is computed once, before any lock.
#[derive(Clone, Copy, Debug)]
pub struct ObjectRecord<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub digest: u64,
    pub units: u32,
    content: u64,
}

impl<'a> ObjectRecord<'a> {
    /// An object's record; `None` if it is too long for any block.
    pub fn new(key: &'a [u8], value: &'a [u8], digest: u64) -> Option<ObjectRecord<'a>> {
        let units = units(key.len(), value.len())?;
        Some(ObjectRecord { key, value, digest, units, content: content(key, value) })
    }

    /// Writes it into exactly its units, not yet stamped.
    pub fn encode(&self, target: &mut [u8]) {
        let (header, rest) = target.split_at_mut(HEADER_BYTES);
        header[..8].copy_from_slice(&self.content.to_le_bytes());
        header[8..12].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        header[12..].copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        let (key, rest) = rest.split_at_mut(self.key.len());
        key.copy_from_slice(self.key);
        let (value, padding) = rest.split_at_mut(self.value.len());
        value.copy_from_slice(self.value);
        padding.fill(0);
    }
}

/// Turns the checksum of an encoded record into that of its final place.
pub fn seal(target: &mut [u8], sequence: u64, offset: u32) {
    let sealed = word(target).wrapping_add(stamp(sequence, offset));
    target[..8].copy_from_slice(&sealed.to_le_bytes());
}

/// Key and value of a record that is not sealed, which has never left memory.
pub fn parse_open(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let field = |range| {
        Some(u32::from_le_bytes(<[u8; 4]>::try_from(bytes.get::<std::ops::Range<usize>>(range)?).ok()?))
    };
    let (value_bytes, key_bytes) = (field(8..12)? as usize, field(12..16)? as usize);
    let rest = &bytes[HEADER_BYTES..];
    let end = key_bytes.checked_add(value_bytes)?;
    Some((rest.get(..key_bytes)?, rest.get(key_bytes..end)?))
}

/// Key and value of a sealed record, or none if it is not the one that was written at this place.
pub fn parse(bytes: &[u8], sequence: u64, offset: u32) -> Option<(&[u8], &[u8])> {
    let (key, value) = parse_open(bytes)?;
    (word(bytes) == content(key, value).wrapping_add(stamp(sequence, offset))).then_some((key, value))
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(key: &[u8], value: &[u8], sequence: u64, offset: u32) -> Vec<u8> {
        let record = ObjectRecord::new(key, value, 0).expect("short");
        let mut bytes = vec![0xee; record.units as usize * UNIT];
        record.encode(&mut bytes);
        assert_eq!(parse_open(&bytes), Some((key, value)));
        seal(&mut bytes, sequence, offset);
        bytes
    }

    proptest! {
        #![proptest_config(cases::proptest(256))]

        #[test]
        fn a_record_is_read_back_only_from_its_own_place(
            key in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(any::<u8>(), 0..300),
            sequence in 1..u64::MAX,
            offset in 1..UNITS_MAX,
        ) {
            let bytes = sealed(&key, &value, sequence, offset);
            prop_assert_eq!(parse(&bytes, sequence, offset), Some((key.as_slice(), value.as_slice())));
            prop_assert_eq!(parse(&bytes, sequence - 1, offset), None);
            prop_assert_eq!(parse(&bytes, sequence, offset - 1), None);
        }

        #[test]
        fn a_changed_bit_is_noticed(
            value in prop::collection::vec(any::<u8>(), 0..100),
            place in any::<prop::sample::Index>(),
            bit in 0..8u32,
        ) {
            let mut bytes = sealed(b"key", &value, 7, 3);
            let counted = HEADER_BYTES + 3 + value.len();
            bytes[place.index(counted)] ^= 1u8 << bit;
            prop_assert_eq!(parse(&bytes, 7, 3), None);
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(parse(&bytes, 1, 1), None);
        }
    }

    #[test]
    fn lengths_beyond_a_block_are_refused() {
        assert_eq!(units(0, 0), Some(1));
        assert_eq!(units(1, 0), Some(2));
        assert_eq!(units(8, (1 << 28) - 40), Some(UNITS_MAX));
        assert_eq!(units(8, 1 << 28), None);
        assert_eq!(units(usize::MAX, 1), None);
    }
}
