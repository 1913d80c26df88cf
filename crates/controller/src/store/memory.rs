//! The store of a cluster with one controller: in memory, gone with it. Not shared between processes.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::time::Time;

use super::{ControllerStore, StoreChange, StoreError};

#[derive(Debug)]
pub struct MemoryStore {
    lease: Duration,
    /// The end of each member's lease.
    members: BTreeMap<String, Time>,
    /// Version of the map; 0 while there is none.
    version: u64,
    changes: Vec<StoreChange>,
}

impl MemoryStore {
    /// A store whose leases run out when they have not been kept for `lease`.
    pub fn new(lease: Duration) -> MemoryStore {
        MemoryStore { lease, members: BTreeMap::new(), version: 0, changes: Vec::new() }
    }

    /// Takes leases that have run out away.
    fn expire(&mut self, now: Time) {
        let ended = self.members.iter().filter(|(_, end)| **end <= now);
        let ended: Vec<String> = ended.map(|(member, _)| member.clone()).collect();
        for member in ended {
            self.members.remove(&member);
            self.changes.push(StoreChange::Gone { member });
        }
    }
}

impl ControllerStore for MemoryStore {
    fn keep(&mut self, now: Time, member: &str) {
        // The loss of the old lease must be seen before the new one.
        self.expire(now);
        if self.members.insert(member.to_owned(), now.after(self.lease)).is_none() {
            self.changes.push(StoreChange::Registered { member: member.to_owned() });
        }
    }

    fn forget(&mut self, now: Time, member: &str) {
        self.expire(now);
        if self.members.remove(member).is_some() {
            self.changes.push(StoreChange::Gone { member: member.to_owned() });
        }
    }

    fn propose(&mut self, _now: Time, version: u64, map: &str) {
        if version == self.version {
            self.version += 1;
            self.changes.push(StoreChange::Map { version: self.version, value: map.to_owned() });
        }
    }

    fn changes(&mut self, now: Time) -> Result<Vec<StoreChange>, StoreError> {
        self.expire(now);
        Ok(std::mem::take(&mut self.changes))
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryStore;
    use crate::store::{ControllerStore, StoreChange};
    use protocol::time::Time;
    use std::time::Duration;

    fn store() -> MemoryStore {
        MemoryStore::new(Duration::from_secs(1))
    }

    #[test]
    fn a_proposal_needs_the_version_it_names() {
        let mut store = store();
        for (version, map) in [(0, "a"), (0, "b"), (1, "c"), (1, "d"), (7, "e")] {
            store.propose(Time(0), version, map);
        }
        let change = |version, value: &str| StoreChange::Map { version, value: value.to_owned() };
        assert_eq!(store.changes(Time(0)), Ok(vec![change(1, "a"), change(2, "c")]));
        assert_eq!(store.changes(Time(0)), Ok(Vec::new()));
    }

    #[test]
    fn members_go_with_their_lease() {
        let mut store = store();
        let registered = |member: &str| StoreChange::Registered { member: member.to_owned() };
        let gone = |member: &str| StoreChange::Gone { member: member.to_owned() };
        store.keep(Time(0), "a");
        store.keep(Time(0), "b");
        store.keep(Time(900_000), "a");
        store.forget(Time(900_000), "b");
        store.forget(Time(900_000), "b");
        assert_eq!(store.changes(Time(900_000)), Ok(vec![registered("a"), registered("b"), gone("b")]));
        assert_eq!(store.changes(Time(1_899_999)), Ok(Vec::new()));
        store.keep(Time(1_900_000), "a");
        assert_eq!(store.changes(Time(1_900_000)), Ok(vec![gone("a"), registered("a")]));
    }
}
