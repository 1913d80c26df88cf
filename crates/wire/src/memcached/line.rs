//! One command line cut into its tokens, and the numbers in them as memcached reads them. Not what the tokens mean.

use bytes::Bytes;
use smallvec::SmallVec;

/// More tokens than a command other than a retrieval can have make it malformed.
pub(super) type Tokens = SmallVec<[Bytes; 8]>;

/// Only blanks separate: tabs and control characters may be part of a key.
pub(super) fn tokens(line: &Bytes) -> Tokens {
    let mut found = Tokens::new();
    let mut start = 0;
    for end in (0..line.len()).filter(|&at| line[at] == b' ').chain([line.len()]) {
        if end > start {
            found.push(line.slice(start..end));
        }
        start = end + 1;
    }
    found
}

/// As `strtoll` and a test that nothing but a blank follows: a sign and digits.
fn signed(text: &[u8]) -> Option<i128> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || digits.len() > 30 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    Some(if negative { -value } else { value })
}

/// An expiry time or a length. What does not fit into 32 bits is cut, as memcached cuts it.
pub(super) fn int32(text: &[u8]) -> Option<i32> {
    signed(text).and_then(|value| i64::try_from(value).ok()).map(|value| value as i32)
}

/// Client flags.
pub(super) fn uint32(text: &[u8]) -> Option<u32> {
    uint64(text).map(|value| value as u32)
}

/// A unique or a delta. Small negative numbers wrap, as in memcached; those that look like large ones do not.
pub(super) fn uint64(text: &[u8]) -> Option<u64> {
    let value = signed(text)?;
    match value < 0 {
        false => u64::try_from(value).ok(),
        true => i64::try_from(value).ok().map(|value| value as u64).filter(|wrapped| (*wrapped as i64) >= 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_separate_and_nothing_else() {
        let found = tokens(&Bytes::from_static(b"  get a\tb  c "));
        assert_eq!(found.as_slice(), [&b"get"[..], b"a\tb", b"c"]);
        assert!(tokens(&Bytes::from_static(b"   ")).is_empty());
    }

    #[test]
    fn numbers_are_those_of_memcached() {
        assert_eq!(int32(b"-1"), Some(-1));
        assert_eq!(int32(b"+7"), Some(7));
        assert_eq!(int32(b"4294967296"), Some(0));
        assert_eq!((int32(b""), int32(b"1x"), int32(b"99999999999999999999")), (None, None, None));
        assert_eq!(uint64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!((uint64(b"18446744073709551616"), uint64(b"-1")), (None, None));
        assert_eq!(uint32(b"4294967295"), Some(u32::MAX));
    }
}
