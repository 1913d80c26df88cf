//! The store of a cluster with one controller: in memory, gone with it. Not shared between processes.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::time::Time;

use super::{Change, LeaseId, Put, Store, StoreError, Transaction};

#[derive(Debug, Default)]
pub struct MemoryStore {
    values: BTreeMap<String, Stored>,
    leases: BTreeMap<LeaseId, Lease>,
    changes: Vec<Change>,
    /// Numbers versions and leases.
    last: u64,
}

#[derive(Debug)]
struct Stored {
    version: u64,
    lease: Option<LeaseId>,
}

#[derive(Debug)]
struct Lease {
    length: Duration,
    end: Time,
}

impl MemoryStore {
    /// Takes leases that have run out, and their keys, away.
    fn expire(&mut self, now: Time) {
        let ended: Vec<LeaseId> =
            self.leases.iter().filter(|(_, lease)| lease.end <= now).map(|(id, _)| *id).collect();
        for id in ended {
            self.leases.remove(&id);
            let keys = self.values.iter().filter(|(_, stored)| stored.lease == Some(id));
            let keys: Vec<String> = keys.map(|(key, _)| key.clone()).collect();
            for key in keys {
                self.values.remove(&key);
                self.changes.push(Change::Deleted { key });
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Store for MemoryStore {
    fn grant(&mut self, now: Time, length: Duration) -> Result<LeaseId, StoreError> {
        let id = LeaseId(self.next());
        self.leases.insert(id, Lease { length, end: now.after(length) });
        Ok(id)
    }

    fn keep_alive(&mut self, now: Time, lease: LeaseId) -> Result<bool, StoreError> {
        self.expire(now);
        let lease = self.leases.get_mut(&lease);
        Ok(lease.map(|lease| lease.end = now.after(lease.length)).is_some())
    }

    fn transact(&mut self, now: Time, put: Put) -> Result<Transaction, StoreError> {
        self.expire(now);
        if put.lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
            return Ok(Transaction::LeaseGone);
        }
        if self.values.get(&put.key).map_or(0, |stored| stored.version) != put.version {
            return Ok(Transaction::Conflict);
        }
        let version = self.next();
        self.values.insert(put.key.clone(), Stored { version, lease: put.lease });
        self.changes.push(Change::Put { key: put.key, version, value: put.value });
        Ok(Transaction::Done(version))
    }

    fn watch(&mut self, now: Time) -> Result<Vec<Change>, StoreError> {
        self.expire(now);
        Ok(std::mem::take(&mut self.changes))
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryStore;
    use crate::store::{Change, LeaseId, Put, Store, Transaction};
    use protocol::time::Time;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn put(key: &str, version: u64, value: &str, lease: Option<LeaseId>) -> Put {
        Put { key: key.to_owned(), version, value: value.to_owned(), lease }
    }

    #[test]
    fn a_transaction_needs_the_version_it_names() {
        let mut store = MemoryStore::default();
        let Ok(Transaction::Done(first)) = store.transact(Time(0), put("map", 0, "a", None)) else {
            panic!()
        };
        assert_eq!(store.transact(Time(0), put("map", 0, "b", None)), Ok(Transaction::Conflict));
        let Ok(Transaction::Done(second)) = store.transact(Time(0), put("map", first, "c", None)) else {
            panic!()
        };
        assert_eq!(store.transact(Time(0), put("map", first, "d", None)), Ok(Transaction::Conflict));
        let change =
            |version, value: &str| Change::Put { key: "map".to_owned(), version, value: value.to_owned() };
        assert_eq!(store.watch(Time(0)), Ok(vec![change(first, "a"), change(second, "c")]));
        assert_eq!(store.watch(Time(0)), Ok(Vec::new()));
    }

    #[test]
    fn keys_vanish_with_their_lease_and_only_with_it() {
        let mut store = MemoryStore::default();
        let lease = store.grant(Time(0), SECOND).unwrap();
        store.transact(Time(0), put("member", 0, "", Some(lease))).unwrap();
        store.transact(Time(0), put("map", 0, "", None)).unwrap();
        store.watch(Time(0)).unwrap();

        assert_eq!(store.keep_alive(Time(900_000), lease), Ok(true));
        assert_eq!(store.watch(Time(1_899_999)), Ok(Vec::new()));
        assert_eq!(store.watch(Time(1_900_000)), Ok(vec![Change::Deleted { key: "member".to_owned() }]));
        assert_eq!(store.keep_alive(Time(1_900_000), lease), Ok(false));
        let late = store.transact(Time(1_900_000), put("member", 0, "", Some(lease)));
        assert_eq!(late, Ok(Transaction::LeaseGone));
    }
}
