//! The keys of the embedded store with their values and deadlines. Not what commands mean.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

/// What `OBJECT ENCODING` says of a string; it depends on how the value came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Int,
    Embstr,
    Raw,
}

#[derive(Clone, Debug)]
pub(super) struct StoredObject {
    pub(super) key: Bytes,
    pub(super) value: Vec<u8>,
    pub(super) encoding: Encoding,
    /// Milliseconds on the store's own clock; the object is gone once the clock has passed it.
    deadline: Option<i64>,
}

impl StoredObject {
    pub(super) fn deadline(&self) -> Option<i64> {
        self.deadline
    }
}

/// Objects keep their slot while they live, so a slot number is a cursor that SCAN can stop and go on at.
#[derive(Default)]
pub(super) struct Keyspace {
    index: HashMap<Bytes, u32>,
    slots: Vec<Option<StoredObject>>,
    free: Vec<u32>,
    deadlines: BTreeSet<(i64, u32)>,
}

/// Redis' `OBJ_ENCODING_EMBSTR_SIZE_LIMIT`.
const EMBSTR_BYTES_MAX: usize = 44;

impl Encoding {
    pub(super) fn of(value: &[u8]) -> Encoding {
        if super::number::parse_integer(value).is_some() { Encoding::Int } else { Encoding::of_text(value) }
    }

    /// Encoding of a value that Redis does not try to hold as an integer.
    pub(super) fn of_text(value: &[u8]) -> Encoding {
        if value.len() <= EMBSTR_BYTES_MAX { Encoding::Embstr } else { Encoding::Raw }
    }
}

impl Keyspace {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn expiring_count(&self) -> usize {
        self.deadlines.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Keyspace::default();
    }

    /// Removes objects whose deadline has passed, at most `objects_max` of them.
    pub(super) fn expire(&mut self, now: i64, objects_max: usize) {
        for _ in 0..objects_max {
            match self.deadlines.first() {
                Some(&(deadline, slot)) if deadline < now => {
                    self.remove_slot(slot);
                }
                _ => return,
            }
        }
    }

    pub(super) fn get(&mut self, now: i64, key: &[u8]) -> Option<&StoredObject> {
        let slot = self.find(now, key)?;
        self.slots[slot as usize].as_ref()
    }

    pub(super) fn get_mut(&mut self, now: i64, key: &[u8]) -> Option<&mut StoredObject> {
        let slot = self.find(now, key)?;
        self.slots[slot as usize].as_mut()
    }

    pub(super) fn contains(&mut self, now: i64, key: &[u8]) -> bool {
        self.find(now, key).is_some()
    }

    /// Replaces value and encoding; the deadline becomes `deadline`.
    pub(super) fn put(&mut self, key: &[u8], value: Vec<u8>, encoding: Encoding, deadline: Option<i64>) {
        if let Some(&slot) = self.index.get(key) {
            if let Some(object) = self.slots[slot as usize].as_mut() {
                object.value = value;
                object.encoding = encoding;
            }
            self.set_deadline(slot, deadline);
            return;
        }
        // A copy: the command's buffer is much larger than its key, and lives as long as any slice of it.
        let key = Bytes::copy_from_slice(key);
        let object = StoredObject { key: key.clone(), value, encoding, deadline };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(object);
                slot
            }
            None => {
                self.slots.push(Some(object));
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(key, slot);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, slot));
        }
    }

    /// Whether the key was there.
    pub(super) fn remove(&mut self, now: i64, key: &[u8]) -> bool {
        self.take(now, key).is_some()
    }

    pub(super) fn take(&mut self, now: i64, key: &[u8]) -> Option<StoredObject> {
        let slot = self.find(now, key)?;
        self.remove_slot(slot)
    }

    /// Whether the key was there.
    pub(super) fn expire_at(&mut self, now: i64, key: &[u8], deadline: Option<i64>) -> bool {
        match self.find(now, key) {
            Some(slot) => {
                self.set_deadline(slot, deadline);
                true
            }
            None => false,
        }
    }

    pub(super) fn slots_count(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn at_slot(&self, now: i64, slot: usize) -> Option<&StoredObject> {
        let object = self.slots.get(slot)?.as_ref()?;
        object.deadline.is_none_or(|deadline| deadline >= now).then_some(object)
    }

    fn find(&mut self, now: i64, key: &[u8]) -> Option<u32> {
        let slot = *self.index.get(key)?;
        let deadline = self.slots[slot as usize].as_ref().and_then(|object| object.deadline);
        if deadline.is_some_and(|deadline| deadline < now) {
            self.remove_slot(slot);
            return None;
        }
        Some(slot)
    }

    fn set_deadline(&mut self, slot: u32, deadline: Option<i64>) {
        let Some(object) = self.slots[slot as usize].as_mut() else { return };
        if let Some(old) = object.deadline {
            self.deadlines.remove(&(old, slot));
        }
        object.deadline = deadline;
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, slot));
        }
    }

    fn remove_slot(&mut self, slot: u32) -> Option<StoredObject> {
        let object = self.slots[slot as usize].take()?;
        self.index.remove(&object.key);
        if let Some(deadline) = object.deadline {
            self.deadlines.remove(&(deadline, slot));
        }
        self.free.push(slot);
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoding, Keyspace};

    fn put(keyspace: &mut Keyspace, key: &str, deadline: Option<i64>) {
        keyspace.put(key.as_bytes(), b"v".to_vec(), Encoding::Embstr, deadline);
    }

    #[test]
    fn expires_actively_in_order_and_lazily() {
        let mut keyspace = Keyspace::default();
        put(&mut keyspace, "late", Some(30));
        put(&mut keyspace, "soon", Some(10));
        put(&mut keyspace, "never", None);
        keyspace.expire(10, 8);
        assert_eq!(keyspace.len(), 3, "a deadline is over only once the clock has passed it");
        keyspace.expire(11, 8);
        assert_eq!(keyspace.len(), 2);
        assert!(!keyspace.contains(31, b"late"));
        assert_eq!(keyspace.len(), 1, "a lookup removes what has expired");
    }

    #[test]
    fn overwriting_moves_the_deadline_and_keeps_the_slot() {
        let mut keyspace = Keyspace::default();
        put(&mut keyspace, "a", Some(10));
        put(&mut keyspace, "a", None);
        keyspace.expire(1000, 8);
        assert!(keyspace.contains(1000, b"a"));
        assert_eq!(keyspace.slots_count(), 1);
        assert!(keyspace.remove(1000, b"a"));
        put(&mut keyspace, "b", None);
        assert_eq!(keyspace.slots_count(), 1, "free slots are used again");
    }
}
