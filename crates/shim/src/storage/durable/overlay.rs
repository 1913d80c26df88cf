//! Changes of a durable store that are not on disk yet, and how keys and objects are written there. Not when.

use std::collections::BTreeMap;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::storage::embedded::keyspace::{Encoding, StoredObject};

/// What begins the names under which things are on disk.
const OBJECT: u8 = 1;
const DEADLINE: u8 = 2;
/// The name of `StoreCounts`.
pub(super) const COUNTS: [u8; 1] = [0];

/// In the first byte of an object: it has a deadline.
const HAS_DEADLINE: u8 = 4;

/// How much there is, and the commit as of which that is so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreCounts {
    pub(super) commit: u64,
    pub(super) keys: u64,
    pub(super) expiring: u64,
}

/// Everything that one commit changes.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// Nothing of before is there any more.
    pub(super) is_flushed: bool,
    /// By their names on disk; none: removed.
    pub(super) objects: BTreeMap<Vec<u8>, Option<StoredObject>>,
    /// Deadlines and the keys that have them, and whether they come or go.
    pub(super) deadlines: BTreeMap<(i64, Bytes), bool>,
    pub(super) counts: StoreCounts,
}

/// The name of a key's object. They are ordered by a hash, so that a cursor is a number that stays good whatever comes and goes.
pub(super) fn object_name(seed: u64, key: &[u8]) -> Vec<u8> {
    let mut name = hash_name(place(seed, key));
    name.extend_from_slice(key);
    name
}

/// Where objects with this hash begin.
pub(super) fn hash_name(hash: u64) -> Vec<u8> {
    let mut name = Vec::with_capacity(64);
    name.push(OBJECT);
    name.extend_from_slice(&hash.to_be_bytes());
    name
}

/// Behind all objects.
pub(super) fn objects_end() -> Vec<u8> {
    vec![OBJECT + 1]
}

/// Hash and key of an object's name.
pub(super) fn parse_object_name(name: &[u8]) -> Option<(u64, &[u8])> {
    let (hash, key) = name.strip_prefix(&[OBJECT])?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*hash), key))
}

/// Cursor 0 is the beginning, so no key is there.
fn place(seed: u64, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, seed).max(1)
}

/// In the order of time.
pub(super) fn deadline_name(deadline: i64, key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(9 + key.len());
    name.push(DEADLINE);
    name.extend_from_slice(&deadline.cast_unsigned().wrapping_add(1 << 63).to_be_bytes());
    name.extend_from_slice(key);
    name
}

/// All deadlines before `now`.
pub(super) fn deadlines_before(now: i64) -> std::ops::Range<Vec<u8>> {
    vec![DEADLINE]..deadline_name(now, b"")
}

pub(super) fn parse_deadline_name(name: &[u8]) -> Option<(i64, &[u8])> {
    let (deadline, key) = name.strip_prefix(&[DEADLINE])?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*deadline).wrapping_sub(1 << 63).cast_signed(), key))
}

pub(super) fn write_object(object: &StoredObject) -> Vec<u8> {
    let encoding = match object.encoding {
        Encoding::Int => 0,
        Encoding::Embstr => 1,
        Encoding::Raw => 2,
    };
    let mut bytes = Vec::with_capacity(9 + object.value.len());
    match object.deadline {
        Some(deadline) => {
            bytes.push(encoding | HAS_DEADLINE);
            bytes.extend_from_slice(&deadline.to_be_bytes());
        }
        None => bytes.push(encoding),
    }
    bytes.extend_from_slice(&object.value);
    bytes
}

/// The object that was written so; none if nobody has written that.
pub(super) fn parse_object(key: &[u8], bytes: &[u8]) -> Option<StoredObject> {
    let (&first, mut rest) = bytes.split_first()?;
    let encoding = match first & !HAS_DEADLINE {
        0 => Encoding::Int,
        1 => Encoding::Embstr,
        2 => Encoding::Raw,
        _ => return None,
    };
    let mut deadline = None;
    if first & HAS_DEADLINE != 0 {
        let (written, value) = rest.split_first_chunk::<8>()?;
        (deadline, rest) = (Some(i64::from_be_bytes(*written)), value);
    }
    Some(StoredObject { key: Bytes::copy_from_slice(key), value: rest.to_vec(), encoding, deadline })
}

impl StoreCounts {
    pub(super) fn write(self) -> Vec<u8> {
        [self.commit, self.keys, self.expiring].iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<StoreCounts> {
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let [commit, keys, expiring] = numbers else { return None };
        let number = |bytes: &[u8; 8]| u64::from_be_bytes(*bytes);
        Some(StoreCounts { commit: number(commit), keys: number(keys), expiring: number(expiring) })
    }
}

impl Overlay {
    /// Without changes, on top of `counts`.
    pub(super) fn over(counts: StoreCounts) -> Overlay {
        Overlay { counts, ..Overlay::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_names_are_read_as_they_were_written() {
        let key = Bytes::from_static(b"k\0ey");
        for (deadline, encoding) in
            [(None, Encoding::Int), (Some(-3), Encoding::Embstr), (Some(9), Encoding::Raw)]
        {
            let object = StoredObject { key: key.clone(), value: b"12".to_vec(), encoding, deadline };
            let read = parse_object(&key, &write_object(&object)).unwrap();
            assert_eq!(
                (read.key, read.value, read.encoding, read.deadline),
                (key.clone(), b"12".to_vec(), encoding, deadline)
            );
        }
        assert!(parse_object(b"k", &[3, 1]).is_none() && parse_object(b"k", &[4, 1]).is_none());
        let name = object_name(7, &key);
        assert_eq!(parse_object_name(&name).map(|(_, key)| key), Some(&key[..]));
        assert!(name >= hash_name(1) && name < objects_end());
        let counts = StoreCounts { commit: 1, keys: u64::MAX, expiring: 0 };
        assert_eq!(StoreCounts::parse(&counts.write()), Some(counts));
        assert_eq!(StoreCounts::parse(b"short"), None);
    }

    #[test]
    fn deadlines_are_in_the_order_of_time() {
        let times = [i64::MIN, -1, 0, 1, 1_700_000_000_000, i64::MAX];
        let names: Vec<_> = times.iter().map(|&time| deadline_name(time, b"k")).collect();
        assert!(names.is_sorted());
        for (time, name) in times.iter().zip(&names) {
            assert_eq!(parse_deadline_name(name), Some((*time, &b"k"[..])));
            assert_eq!(deadlines_before(1).contains(name), *time < 1, "{time}");
        }
    }
}
