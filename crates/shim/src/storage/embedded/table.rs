//! The keys of an embedded store in memory. Not what commands mean.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

use super::keyspace::{Encoding, Keyspace, StoredObject};

/// Objects keep their slot while they live, so a slot number is a cursor that SCAN can stop and go on at.
#[derive(Default)]
pub struct KeyTable {
    index: HashMap<Bytes, u32>,
    slots: Vec<Option<StoredObject>>,
    free: Vec<u32>,
    deadlines: BTreeSet<(i64, u32)>,
}

impl Keyspace for KeyTable {
    fn keys_count(&self) -> usize {
        self.index.len()
    }

    fn expiring_count(&self) -> usize {
        self.deadlines.len()
    }

    fn clear(&mut self) {
        *self = KeyTable::default();
    }

    fn expire(&mut self, now: i64, objects_max: usize) {
        for _ in 0..objects_max {
            match self.deadlines.first() {
                Some(&(deadline, slot)) if deadline < now => {
                    self.remove_slot(slot);
                }
                _ => return,
            }
        }
    }

    fn get(&mut self, now: i64, key: &[u8]) -> Option<&StoredObject> {
        let slot = self.find(now, key)?;
        self.slots[slot as usize].as_ref()
    }

    fn get_mut(&mut self, now: i64, key: &[u8]) -> Option<&mut StoredObject> {
        let slot = self.find(now, key)?;
        self.slots[slot as usize].as_mut()
    }

    fn contains(&mut self, now: i64, key: &[u8]) -> bool {
        self.find(now, key).is_some()
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, encoding: Encoding, deadline: Option<i64>) {
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

    fn take(&mut self, now: i64, key: &[u8]) -> Option<StoredObject> {
        let slot = self.find(now, key)?;
        self.remove_slot(slot)
    }

    fn expire_at(&mut self, now: i64, key: &[u8], deadline: Option<i64>) -> bool {
        match self.find(now, key) {
            Some(slot) => {
                self.set_deadline(slot, deadline);
                true
            }
            None => false,
        }
    }

    /// The cursor is the number of a slot. Empty slots count as well: a call must end although the keyspace has shrunk.
    fn scan(&mut self, now: i64, cursor: u64, count: usize) -> (Vec<Bytes>, u64) {
        let first = usize::try_from(cursor).unwrap_or(usize::MAX).min(self.slots.len());
        let end = first.saturating_add(count).min(self.slots.len());
        let found = (first..end).filter_map(|slot| self.at_slot(now, slot)).map(|object| object.key.clone());
        (found.collect(), if end == self.slots.len() { 0 } else { end as u64 })
    }

    fn random(&mut self, now: i64, random: u64) -> Option<Bytes> {
        let slots = self.slots.len();
        let first = if slots == 0 { 0 } else { (random % slots as u64) as usize };
        let mut candidates = (first..slots).chain(0..first);
        candidates.find_map(|slot| self.at_slot(now, slot)).map(|object| object.key.clone())
    }

    fn fault(&mut self) -> Option<String> {
        None
    }
}

impl KeyTable {
    fn at_slot(&self, now: i64, slot: usize) -> Option<&StoredObject> {
        let object = self.slots.get(slot)?.as_ref()?;
        object.is_alive(now).then_some(object)
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
    use super::{Encoding, KeyTable, Keyspace as _};

    fn put(keyspace: &mut KeyTable, key: &str, deadline: Option<i64>) {
        keyspace.put(key.as_bytes(), b"v".to_vec(), Encoding::Embstr, deadline);
    }

    #[test]
    fn expires_actively_in_order_and_lazily() {
        let mut keyspace = KeyTable::default();
        put(&mut keyspace, "late", Some(30));
        put(&mut keyspace, "soon", Some(10));
        put(&mut keyspace, "never", None);
        keyspace.expire(10, 8);
        assert_eq!(keyspace.keys_count(), 3, "a deadline is over only once the clock has passed it");
        keyspace.expire(11, 8);
        assert_eq!(keyspace.keys_count(), 2);
        assert!(!keyspace.contains(31, b"late"));
        assert_eq!(keyspace.keys_count(), 1, "a lookup removes what has expired");
    }

    #[test]
    fn overwriting_moves_the_deadline_and_keeps_the_slot() {
        let mut keyspace = KeyTable::default();
        put(&mut keyspace, "a", Some(10));
        put(&mut keyspace, "a", None);
        keyspace.expire(1000, 8);
        assert!(keyspace.contains(1000, b"a"));
        assert_eq!(keyspace.slots.len(), 1);
        assert!(keyspace.take(1000, b"a").is_some());
        put(&mut keyspace, "b", None);
        assert_eq!(keyspace.slots.len(), 1, "free slots are used again");
    }
}
