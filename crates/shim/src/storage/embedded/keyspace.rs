//! What commands ask of the keys of an embedded store, wherever these are. Not what commands mean.

use bytes::Bytes;

/// What `OBJECT ENCODING` says of a string; it depends on how the value came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Int,
    Embstr,
    Raw,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct StoredObject {
    pub key: Bytes,
    pub value: Vec<u8>,
    pub encoding: Encoding,
    /// Milliseconds on the store's own clock; the object is gone once the clock has passed it.
    pub deadline: Option<i64>,
}

/// The keys of one embedded store. Times are milliseconds on its own clock.
///
/// What cannot be read looks as if it were not there, and `fault` tells of it: whoever runs a command asks for that behind it.
pub trait Keyspace {
    fn keys_count(&self) -> usize;

    fn expiring_count(&self) -> usize;

    fn clear(&mut self);

    /// Removes objects whose deadline has passed, at most `objects_max` of them.
    fn expire(&mut self, now: i64, objects_max: usize);

    fn get(&mut self, now: i64, key: &[u8]) -> Option<&StoredObject>;

    /// For a change of the value and its encoding.
    fn get_mut(&mut self, now: i64, key: &[u8]) -> Option<&mut StoredObject>;

    fn contains(&mut self, now: i64, key: &[u8]) -> bool;

    /// Replaces value and encoding; the deadline becomes `deadline`.
    fn put(&mut self, key: &[u8], value: Vec<u8>, encoding: Encoding, deadline: Option<i64>);

    /// Removes the key, and gives what it held.
    fn take(&mut self, now: i64, key: &[u8]) -> Option<StoredObject>;

    /// Whether the key was there.
    fn expire_at(&mut self, now: i64, key: &[u8], deadline: Option<i64>) -> bool;

    /// About `count` keys from a cursor on (0: the first), and the cursor of what follows (0: nothing). What is there all the
    /// time from the first call to the last is given.
    fn scan(&mut self, now: i64, cursor: u64, count: usize) -> (Vec<Bytes>, u64);

    /// Any key, chosen by a random number.
    fn random(&mut self, now: i64, random: u64) -> Option<Bytes>;

    /// Why something could not be read since this was asked last.
    fn fault(&mut self) -> Option<String>;
}

/// Redis' `OBJ_ENCODING_EMBSTR_SIZE_LIMIT`.
const EMBSTR_BYTES_MAX: usize = 44;

impl Encoding {
    pub fn of(value: &[u8]) -> Encoding {
        if super::number::parse_integer(value).is_some() { Encoding::Int } else { Encoding::of_text(value) }
    }

    /// Encoding of a value that Redis does not try to hold as an integer.
    pub fn of_text(value: &[u8]) -> Encoding {
        if value.len() <= EMBSTR_BYTES_MAX { Encoding::Embstr } else { Encoding::Raw }
    }
}

impl StoredObject {
    pub fn deadline(&self) -> Option<i64> {
        self.deadline
    }

    pub fn is_alive(&self, now: i64) -> bool {
        self.deadline.is_none_or(|deadline| deadline >= now)
    }
}
