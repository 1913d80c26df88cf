//! From the keys of text formats to object ids. Not the hash that places keys in a cluster.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Fixed for ever: ids are in converted traces, and samples of different machines must agree.
const SEED: u64 = 0x6469_7374_6361_6368;

/// A number stays what it is, so that traces with numeric ids survive conversion; any other text is hashed.
pub fn object_id(key: &[u8]) -> u64 {
    canonical_number(key).unwrap_or_else(|| xxh3_64_with_seed(key, SEED))
}

/// A decimal number as a machine writes it: no sign, no leading zero, below 2^64.
fn canonical_number(key: &[u8]) -> Option<u64> {
    match key {
        [b'0'] => Some(0),
        [b'1'..=b'9', rest @ ..] if rest.len() < 20 => number(key),
        _ => None,
    }
}

/// A decimal number of digits only, below 2^64.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_their_own_ids_and_other_keys_are_hashed() {
        for number in [0, 1, 9, 10, 42_932_745, u64::MAX] {
            assert_eq!(object_id(number.to_string().as_bytes()), number);
        }
        for text in ["", "00", "07", "+1", "-1", "1.0", " 1", "18446744073709551616", "0x10", "1e3"] {
            assert_eq!(object_id(text.as_bytes()), xxh3_64_with_seed(text.as_bytes(), SEED), "{text:?}");
        }
    }

    /// The same on every machine and in every version; converted traces depend on it.
    #[test]
    fn ids_of_keys_are_pinned() {
        assert_eq!(object_id(b"user:1"), PINNED[0]);
        assert_eq!(object_id(b"nz:u:eeW511W3dcH3de3d15ec"), PINNED[1]);
        assert_eq!(object_id(b""), PINNED[2]);
    }

    const PINNED: [u64; 3] =
        [7_143_849_486_757_430_896, 13_007_697_151_404_840_747, 10_362_410_858_506_376_596];
}
