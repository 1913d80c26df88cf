//! The store that replicas of the controller share: leases of members, one map with versions, a watch for each replica.
//! Not what they make of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use protocol::controller::partitions::Terms;
use protocol::controller::{Change, StoredMap};
use wire::{LEVELS, Peer};

use crate::cast::CastRoster;
use crate::random::SimRandom;

/// How one replica reaches the store: what it writes waits while it is cut off, and it reads everything again after that.
#[derive(Clone, Debug, Default)]
struct Replica {
    /// It hears of each change.
    watching: bool,
    news: VecDeque<Change<CastRoster>>,
    /// What it has been told: who has a lease, and the version of the map.
    leases: BTreeSet<Peer>,
    version: u64,
    /// What it wants written: the leases of members, `true` of those that live, and a map for a version.
    members: BTreeMap<Peer, bool>,
    proposal: Option<(u64, StoredMap<CastRoster>)>,
    /// It alone does not reach the store until then.
    cut_until: u64,
}

pub(crate) struct Registry {
    pub(crate) terms: Terms,
    /// When each member's lease ends.
    leases: BTreeMap<Peer, u64>,
    /// The map and its version, or something that is none.
    map: Option<(u64, Result<StoredMap<CastRoster>, String>)>,
    /// The version of the map that was written last: no two maps have the same.
    version: u64,
    replicas: Vec<Replica>,
    /// Nobody reaches it, and no member a controller, until then.
    pub(crate) lost_until: u64,
}

impl Registry {
    pub(crate) fn new(controllers: usize, random: &mut SimRandom) -> Registry {
        let mut pick = |among: &[u64]| Duration::from_micros(random.pick(among));
        Registry {
            terms: Terms {
                level_max: LEVELS.max,
                lease: pick(&[1_000_000, 2_000_000]),
                grace: pick(&[100_000, 300_000, 2_000_000]),
                step: pick(&[200_000, 1_000_000]),
            },
            leases: BTreeMap::new(),
            map: None,
            version: 0,
            replicas: vec![Replica::default(); controllers],
            lost_until: 0,
        }
    }

    fn lease(&self) -> u64 {
        self.terms.lease.as_micros() as u64
    }

    pub(crate) fn heartbeat_interval(&self) -> u64 {
        self.lease() / 4
    }

    /// From a node's end to the map without it, at most.
    pub(crate) fn remap_max(&self) -> u64 {
        (self.terms.lease + self.terms.grace).as_micros() as u64 + 500_000
    }

    pub(crate) fn is_lost(&self, now: u64) -> bool {
        self.lost_until > now
    }

    /// A controller starts and knows nothing yet.
    pub(crate) fn join(&mut self, index: usize) {
        let cut_until = self.replicas[index].cut_until;
        self.replicas[index] = Replica { cut_until, ..Replica::default() };
    }

    pub(crate) fn cut(&mut self, index: usize, until: u64) {
        self.replicas[index].cut_until = until;
    }

    fn reaches(&self, now: u64, index: usize) -> bool {
        !self.is_lost(now) && self.replicas[index].cut_until <= now
    }

    /// The map, if there is one and it is one.
    pub(crate) fn map(&self) -> Option<&StoredMap<CastRoster>> {
        self.map.as_ref().and_then(|(_, map)| map.as_ref().ok())
    }

    /// Somebody deletes everything. False if there is nothing.
    pub(crate) fn empty(&mut self) -> bool {
        let leases = std::mem::take(&mut self.leases);
        leases.keys().for_each(|member| self.tell(&Change::Gone(*member)));
        self.delete_map() || !leases.is_empty()
    }

    fn delete_map(&mut self) -> bool {
        let had = self.map.take().is_some();
        if had {
            self.tell(&Change::NoMap);
        }
        had
    }

    /// Somebody writes what is no map, or none of this cluster.
    pub(crate) fn spoil(&mut self, map: Result<StoredMap<CastRoster>, String>) {
        self.put(map);
    }

    /// The operator takes such a thing away again.
    pub(crate) fn mend(&mut self) {
        if self.map.is_some() && self.map().is_none_or(|map| map.roster.stranger) {
            self.delete_map();
        }
    }

    fn put(&mut self, map: Result<StoredMap<CastRoster>, String>) {
        self.version += 1;
        self.tell(&Change::Map { version: self.version, map: map.clone() });
        self.map = Some((self.version, map));
    }

    /// A member's lease starts anew, or ends.
    pub(crate) fn keep(&mut self, now: u64, index: usize, member: Peer, lives: bool) {
        self.replicas[index].members.insert(member, lives);
        if self.reaches(now, index) {
            self.write_members(now, index);
        }
    }

    /// A replica wants this map in the place of `version`, rather than what it wanted before. Whether nothing was waiting.
    pub(crate) fn propose(&mut self, index: usize, version: u64, map: StoredMap<CastRoster>) -> bool {
        self.replicas[index].proposal.replace((version, map)).is_none()
    }

    /// The replica's proposal arrives. The map, if it is the store's now; an error if nothing arrives.
    pub(crate) fn carry(&mut self, now: u64, index: usize) -> Result<Option<&StoredMap<CastRoster>>, ()> {
        if !self.reaches(now, index) {
            return Err(());
        }
        let Some((version, map)) = self.replicas[index].proposal.take() else { return Ok(None) };
        if version != self.map.as_ref().map_or(0, |(version, _)| *version) {
            return Ok(None);
        }
        self.put(Ok(map));
        Ok(self.map())
    }

    /// Everything that has changed since the replica looked last, or why it cannot know.
    pub(crate) fn changes(&mut self, now: u64, index: usize) -> Result<VecDeque<Change<CastRoster>>, String> {
        if !self.reaches(now, index) {
            self.replicas[index].watching = false;
            return Err("nothing reaches it".to_owned());
        }
        self.expire(now);
        if !self.replicas[index].watching {
            self.list(index);
        }
        self.write_members(now, index);
        Ok(std::mem::take(&mut self.replicas[index].news))
    }

    /// What is there, as changes of what the replica was told last.
    fn list(&mut self, index: usize) {
        let own = &mut self.replicas[index];
        own.watching = true;
        match &self.map {
            None if own.version != 0 => own.news.push_back(Change::NoMap),
            Some((version, map)) if *version != own.version => {
                own.news.push_back(Change::Map { version: *version, map: map.clone() });
            }
            _ => {}
        }
        own.version = self.map.as_ref().map_or(0, |(version, _)| *version);
        let gone = own.leases.iter().filter(|member| !self.leases.contains_key(*member));
        own.news.extend(gone.map(|member| Change::Gone(*member)));
        own.news.extend(self.leases.keys().map(|member| Change::Registered(*member)));
        own.leases = self.leases.keys().copied().collect();
    }

    fn write_members(&mut self, now: u64, index: usize) {
        self.expire(now);
        for (member, lives) in std::mem::take(&mut self.replicas[index].members) {
            let end = now + self.lease();
            let had = if lives { self.leases.insert(member, end) } else { self.leases.remove(&member) };
            match (had.is_some(), lives) {
                (false, true) => self.tell(&Change::Registered(member)),
                (true, false) => self.tell(&Change::Gone(member)),
                _ => {}
            }
        }
    }

    fn expire(&mut self, now: u64) {
        let ended = self.leases.iter().filter(|(_, end)| **end <= now).map(|(member, _)| *member);
        for member in ended.collect::<Vec<_>>() {
            self.leases.remove(&member);
            self.tell(&Change::Gone(member));
        }
    }

    fn tell(&mut self, change: &Change<CastRoster>) {
        for replica in self.replicas.iter_mut().filter(|replica| replica.watching) {
            match change {
                Change::Registered(member) => drop(replica.leases.insert(*member)),
                Change::Gone(member) => drop(replica.leases.remove(member)),
                Change::Map { version, .. } => replica.version = *version,
                Change::NoMap => replica.version = 0,
            }
            replica.news.push_back(change.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Registry;
    use crate::cast::CastRoster;
    use crate::random::SimRandom;
    use protocol::controller::{Change, StoredMap};
    use wire::{NodeId, Peer};

    const N0: Peer = Peer::Node(NodeId(0));

    fn map(epoch: u32) -> StoredMap<CastRoster> {
        StoredMap {
            epoch,
            level: 1,
            history: 1,
            by: "a".to_owned(),
            roster: CastRoster::default(),
            nodes: Vec::new(),
            shims: Vec::new(),
        }
    }

    #[test]
    fn one_proposal_wins_and_every_replica_hears_of_it() {
        let mut store = Registry::new(2, &mut SimRandom::new(1));
        assert!((0..2).all(|index| store.changes(0, index).unwrap().is_empty()));
        assert!(store.propose(0, 0, map(2)) && store.propose(1, 0, map(3)));
        assert_eq!(store.carry(0, 1), Ok(Some(&map(3))));
        assert_eq!(store.carry(0, 0), Ok(None), "it was for another version");
        for index in 0..2 {
            let change = Change::Map { version: 1, map: Ok(map(3)) };
            assert_eq!(store.changes(0, index).unwrap(), [change]);
        }
    }

    #[test]
    fn who_was_cut_off_is_told_what_it_missed_and_writes_what_it_could_not() {
        let mut store = Registry::new(1, &mut SimRandom::new(1));
        store.keep(0, 0, N0, true);
        assert_eq!(store.changes(0, 0).unwrap(), [Change::Registered(N0)]);
        store.lost_until = 10_000_000;
        store.keep(1, 0, N0, true);
        store.propose(0, 0, map(2));
        assert_eq!(store.carry(1, 0), Err(()));
        assert!(store.changes(1, 0).is_err());
        let after = store.changes(10_000_000, 0).unwrap();
        assert_eq!(after, [Change::Gone(N0), Change::Registered(N0)]);
        assert_eq!(store.carry(10_000_000, 0), Ok(Some(&map(2))));
    }
}
