//! The thread that reads from etcd: everything at first, then what changes. Never writes.

use std::collections::BTreeMap;

use super::EtcdShared;
use super::api::{EtcdApi, EtcdListing, Pair, WatchEvent};
use crate::store::{StoreChange, StoreError};

struct EtcdWatcher<'a> {
    shared: &'a EtcdShared,
    /// The version of the map that was told last.
    map_version: i64,
}

pub(super) fn run(shared: &EtcdShared) {
    let mut watcher = EtcdWatcher { shared, map_version: 0 };
    let endpoints = &shared.settings.endpoints;
    let mut endpoint = 0;
    loop {
        let followed = watcher.follow(&EtcdApi::new(&shared.settings, endpoint));
        let mut state = shared.state();
        if state.stop {
            return;
        }
        if let Err(error) = followed {
            (state.watching, state.problem) = (false, error.0);
            drop(state);
            endpoint = (endpoint + 1) % endpoints.len();
            shared.pause_failed();
        }
    }
}

impl EtcdWatcher<'_> {
    /// Reads everything and then what changes, until the store stops or the server fails.
    fn follow(&mut self, api: &EtcdApi) -> Result<(), StoreError> {
        let listing = api.list(&self.shared.prefix())?;
        let mut next = listing.header.revision + 1;
        self.take_all(listing);
        loop {
            let mut again = false;
            api.watch(&self.shared.prefix(), next, |watched| {
                if watched.canceled {
                    again = true;
                    return false;
                }
                for event in &watched.events {
                    next = next.max(event.kv.mod_revision + 1);
                    self.take(event);
                }
                let mut state = self.shared.state();
                state.watching |= watched.created;
                !state.stop
            })?;
            // Changes may have been compacted away before they were seen: then everything is read again.
            if again || self.shared.state().stop {
                return Ok(());
            }
        }
    }

    /// What is there now, as changes of what was there when it was looked at last.
    fn take_all(&mut self, listing: EtcdListing) {
        let mut members = BTreeMap::new();
        if !listing.kvs.iter().any(|pair| pair.key == self.shared.map_key()) {
            self.take_no_map();
        }
        for pair in listing.kvs {
            match self.member(&pair.key) {
                Some(member) => drop(members.insert(member, pair.lease)),
                None => self.take_map(pair),
            }
        }
        let mut state = self.shared.state();
        let before = std::mem::take(&mut state.leases);
        let gone = before.keys().filter(|member| !members.contains_key(*member));
        let gone: Vec<StoreChange> =
            gone.map(|member| StoreChange::Gone { member: member.clone() }).collect();
        let new = members.keys().map(|member| StoreChange::Registered { member: member.clone() });
        state.changes.extend(gone.into_iter().chain(new));
        state.leases = members;
    }

    fn take(&mut self, event: &WatchEvent) {
        let Some(member) = self.member(&event.kv.key) else {
            match event.is_deletion() {
                true if event.kv.key == self.shared.map_key() => self.take_no_map(),
                true => {}
                false => self.take_map(event.kv.clone()),
            }
            return;
        };
        let mut state = self.shared.state();
        let change = if event.is_deletion() {
            state.leases.remove(&member);
            StoreChange::Gone { member }
        } else {
            state.leases.insert(member.clone(), event.kv.lease);
            StoreChange::Registered { member }
        };
        state.changes.push(change);
    }

    fn take_map(&mut self, pair: Pair) {
        // After a loss of etcd's data versions start anew, so that only the same one is no news.
        if pair.key == self.shared.map_key() && pair.mod_revision != self.map_version {
            self.map_version = pair.mod_revision;
            let version = pair.mod_revision as u64;
            self.shared.state().changes.push(StoreChange::Map { version, value: pair.value });
        }
    }

    fn take_no_map(&mut self) {
        if std::mem::replace(&mut self.map_version, 0) != 0 {
            self.shared.state().changes.push(StoreChange::NoMap);
        }
    }

    fn member(&self, key: &str) -> Option<String> {
        key.strip_prefix(&self.shared.member_key("")).map(str::to_owned)
    }
}
