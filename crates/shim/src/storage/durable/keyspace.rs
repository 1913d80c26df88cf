//! The keys of a durable store as commands see them: what is on disk, under the changes that are not there yet. Not when those get
//! there.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use fjall::Keyspace as Tree;

use super::disk::{DiskReader, KEY_BYTES_MAX, in_words};
use super::overlay::{
    Overlay, StoreCounts, deadlines_before, hash_name, object_name, objects_end, parse_deadline_name,
    parse_object, parse_object_name,
};
use crate::storage::embedded::keyspace::{Encoding, Keyspace, StoredObject};

/// How new the newest thing is that a command has seen or changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Freshness {
    #[default]
    OnDisk,
    UnderWay,
    Forming,
}

/// A key, and the name of its object on disk.
struct NamedKey {
    name: Vec<u8>,
    key: Bytes,
}

pub(super) struct DurableKeyspace {
    disk: DiskReader,
    /// Changes that are on their way to the disk.
    under_way: Option<Arc<Overlay>>,
    forming: Overlay,
    /// What the last command has seen or changed.
    freshness: Freshness,
    /// Why nothing may be changed.
    refusal: Option<String>,
    fault: Option<String>,
    /// The last object that was read from disk or from what is under way.
    loaded: Option<StoredObject>,
    /// No deadline is earlier.
    next_deadline: i64,
}

impl DurableKeyspace {
    pub(super) fn new(disk: DiskReader, counts: StoreCounts) -> DurableKeyspace {
        DurableKeyspace {
            disk,
            under_way: None,
            forming: Overlay::over(counts),
            freshness: Freshness::default(),
            refusal: None,
            fault: None,
            loaded: None,
            next_deadline: i64::MIN,
        }
    }

    /// What has been seen or changed since this was asked last.
    pub(super) fn take_freshness(&mut self) -> Freshness {
        mem::take(&mut self.freshness)
    }

    pub(super) fn refuse_changes(&mut self, why: Option<String>) {
        self.refusal = why;
    }

    /// Hands out the changes for the commit with this number; new ones go on top of them.
    pub(super) fn begin_commit(&mut self, commit: u64) -> Arc<Overlay> {
        let counts = self.forming.counts;
        let mut changes = mem::replace(&mut self.forming, Overlay::over(counts));
        changes.counts.commit = commit;
        let changes = Arc::new(changes);
        self.under_way = Some(Arc::clone(&changes));
        changes
    }

    /// The changes that were handed out are on disk; in another tree, if there is one.
    pub(super) fn end_commit(&mut self, keys: Option<Tree>) {
        self.under_way = None;
        if let Some(keys) = keys {
            self.disk.keys = keys;
        }
    }

    fn see(&mut self, freshness: Freshness) {
        self.freshness = self.freshness.max(freshness);
    }

    /// Whether nothing may be changed; that is a fault of the command which has tried to.
    fn is_refused(&mut self) -> bool {
        self.fault = self.fault.take().or_else(|| self.refusal.clone());
        self.refusal.is_some()
    }

    fn failed<T>(&mut self, result: fjall::Result<T>) -> Option<T> {
        result
            .inspect_err(|error| {
                self.fault = Some(format!("ERR reading the store failed: {}", in_words(error)))
            })
            .ok()
    }

    /// The object, alive or not.
    fn find(&mut self, name: &[u8], key: &[u8]) -> Option<&StoredObject> {
        if self.forming.is_flushed || self.forming.objects.contains_key(name) {
            self.see(Freshness::Forming);
            return self.forming.objects.get(name)?.as_ref();
        }
        if let Some(under_way) = self.under_way.clone()
            && (under_way.is_flushed || under_way.objects.contains_key(name))
        {
            self.see(Freshness::UnderWay);
            self.loaded = under_way.objects.get(name)?.clone();
            return self.loaded.as_ref();
        }
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let found = self.disk.keys.get(name);
        let bytes = self.failed(found)??;
        self.loaded = parse_object(key, &bytes);
        if self.loaded.is_none() {
            self.fault = Some("ERR reading the store failed: an object is damaged".to_owned());
        }
        self.loaded.as_ref()
    }

    /// Replaces the object of a key, whose deadline was `earlier` if there was one.
    fn replace(&mut self, at: NamedKey, earlier: Option<Option<i64>>, object: Option<StoredObject>) {
        let NamedKey { name, key } = at;
        self.see(Freshness::Forming);
        let counts = &mut self.forming.counts;
        let later = object.as_ref().map(|object| object.deadline);
        counts.keys = counts.keys + u64::from(later.is_some()) - u64::from(earlier.is_some());
        let (before, after) = (earlier.flatten(), later.flatten());
        counts.expiring = counts.expiring + u64::from(after.is_some()) - u64::from(before.is_some());
        if before != after {
            if let Some(deadline) = before {
                self.forming.deadlines.insert((deadline, key.clone()), false);
            }
            if let Some(deadline) = after {
                self.forming.deadlines.insert((deadline, key), true);
                self.next_deadline = self.next_deadline.min(deadline);
            }
        }
        self.forming.objects.insert(name, object);
    }

    /// The object if it is alive, with its name and its deadline as it stands.
    fn alive(&mut self, now: i64, key: &[u8]) -> Option<(Vec<u8>, StoredObject)> {
        let name = object_name(self.disk.seed, key);
        let object = self.find(&name, key).filter(|object| object.is_alive(now))?.clone();
        Some((name, object))
    }

    /// Names from `from` on: about `count` of those on disk, and all in between that are not there yet. And where those begin that
    /// follow.
    fn names(&mut self, from: u64, count: usize) -> (Vec<Vec<u8>>, u64) {
        let is_whole =
            !self.forming.is_flushed && !self.under_way.as_ref().is_some_and(|changes| changes.is_flushed);
        let (first, mut end, mut next) = (hash_name(from), objects_end(), 0);
        let mut names = std::collections::BTreeSet::new();
        if is_whole {
            let mut last = None;
            for entry in self.disk.keys.range(first.clone()..objects_end()) {
                let Some(name) = self.failed(entry.key()) else { break };
                let hash = parse_object_name(&name).map(|(hash, _)| hash);
                // Keys of one hash go together: a cursor cannot point between them.
                if names.len() >= count && hash != last {
                    next = hash.unwrap_or(0);
                    end = hash_name(next);
                    break;
                }
                last = hash;
                names.insert(name.to_vec());
            }
        }
        let under_way = self.under_way.clone().filter(|_| !self.forming.is_flushed);
        for changes in under_way.as_deref().into_iter().chain([&self.forming]) {
            for (name, object) in changes.objects.range(first.clone()..end.clone()) {
                match object {
                    Some(_) => names.insert(name.clone()),
                    None => names.remove(name),
                };
            }
        }
        (names.into_iter().collect(), next)
    }

    /// A command that looks at everything has seen everything.
    fn see_everything(&mut self) {
        if self.under_way.is_some() {
            self.see(Freshness::UnderWay);
        }
        if self.forming.is_flushed || !self.forming.objects.is_empty() {
            self.see(Freshness::Forming);
        }
    }
}

impl Keyspace for DurableKeyspace {
    fn keys_count(&self) -> usize {
        self.forming.counts.keys as usize
    }

    fn expiring_count(&self) -> usize {
        self.forming.counts.expiring as usize
    }

    fn clear(&mut self) {
        if !self.is_refused() {
            self.see(Freshness::Forming);
            let counts = StoreCounts { commit: self.forming.counts.commit, ..StoreCounts::default() };
            self.forming = Overlay { is_flushed: true, ..Overlay::over(counts) };
        }
    }

    /// Deadlines are taken from disk: those that are younger wait until they are there.
    fn expire(&mut self, now: i64, objects_max: usize) {
        if self.next_deadline >= now || self.refusal.is_some() || self.forming.is_flushed {
            return;
        }
        let mut due = Vec::new();
        for entry in self.disk.keys.range(deadlines_before(now)).take(objects_max) {
            let Some(name) = self.failed(entry.key()) else { break };
            due.extend(
                parse_deadline_name(&name).map(|(deadline, key)| (deadline, Bytes::copy_from_slice(key))),
            );
        }
        let are_all = due.len() < objects_max;
        for (deadline, key) in due {
            let name = object_name(self.disk.seed, &key);
            if self.find(&name, &key).is_some_and(|object| object.deadline == Some(deadline)) {
                self.replace(NamedKey { name, key }, Some(Some(deadline)), None);
            }
        }
        self.next_deadline = if are_all { self.first_deadline() } else { i64::MIN };
        self.fault = None;
    }

    fn get(&mut self, now: i64, key: &[u8]) -> Option<&StoredObject> {
        let name = object_name(self.disk.seed, key);
        self.find(&name, key).filter(|object| object.is_alive(now))
    }

    fn get_mut(&mut self, now: i64, key: &[u8]) -> Option<&mut StoredObject> {
        let (name, object) = self.alive(now, key)?;
        if self.is_refused() {
            // The command changes what nobody will see.
            self.loaded = Some(object);
            return self.loaded.as_mut();
        }
        self.see(Freshness::Forming);
        let there = self.forming.objects.entry(name).or_default();
        *there = Some(object);
        there.as_mut()
    }

    fn contains(&mut self, now: i64, key: &[u8]) -> bool {
        self.get(now, key).is_some()
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, encoding: Encoding, deadline: Option<i64>) {
        if key.len() > KEY_BYTES_MAX {
            self.fault =
                Some(format!("ERR the embedded store on disk takes keys of up to {KEY_BYTES_MAX} bytes"));
        }
        if self.is_refused() || self.fault.is_some() {
            return;
        }
        let name = object_name(self.disk.seed, key);
        let earlier = self.find(&name, key).map(|object| object.deadline);
        if self.fault.is_some() {
            return;
        }
        let key = Bytes::copy_from_slice(key);
        let object = StoredObject { key: key.clone(), value, encoding, deadline };
        self.replace(NamedKey { name, key }, earlier, Some(object));
    }

    fn take(&mut self, now: i64, key: &[u8]) -> Option<StoredObject> {
        let (name, object) = self.alive(now, key)?;
        if !self.is_refused() {
            let key = object.key.clone();
            self.replace(NamedKey { name, key }, Some(object.deadline), None);
        }
        Some(object)
    }

    fn expire_at(&mut self, now: i64, key: &[u8], deadline: Option<i64>) -> bool {
        let Some((name, object)) = self.alive(now, key) else { return false };
        if !self.is_refused() {
            let (key, earlier) = (object.key.clone(), Some(object.deadline));
            self.replace(NamedKey { name, key }, earlier, Some(StoredObject { deadline, ..object }));
        }
        true
    }

    fn scan(&mut self, now: i64, cursor: u64, count: usize) -> (Vec<Bytes>, u64) {
        self.see_everything();
        let (names, next) = self.names(cursor, count);
        let mut keys = Vec::with_capacity(names.len());
        for name in names {
            let Some((_, key)) = parse_object_name(&name) else { continue };
            // Without deadlines nothing can have passed one, and no value is read.
            if self.forming.counts.expiring == 0
                || self.find(&name, key).is_some_and(|object| object.is_alive(now))
            {
                keys.push(Bytes::copy_from_slice(key));
            }
        }
        (keys, next)
    }

    fn random(&mut self, now: i64, random: u64) -> Option<Bytes> {
        for first in [random, 0] {
            let mut cursor = first;
            loop {
                let (mut keys, next) = self.scan(now, cursor, 1);
                if !keys.is_empty() {
                    return Some(keys.swap_remove(random as usize % keys.len()));
                }
                if next == 0 {
                    break;
                }
                cursor = next;
            }
        }
        None
    }

    fn fault(&mut self) -> Option<String> {
        self.fault.take()
    }
}

impl DurableKeyspace {
    /// The earliest deadline of all; it may be of a key that has another one by now.
    fn first_deadline(&mut self) -> i64 {
        let first = self.disk.keys.range(deadlines_before(i64::MAX)).next().map(fjall::Guard::key);
        let name = first.and_then(|name| self.failed(name));
        let on_disk = name.and_then(|name| parse_deadline_name(&name).map(|(deadline, _)| deadline));
        let changes = self.under_way.as_deref().into_iter().chain([&self.forming]);
        let young = changes.flat_map(|changes| changes.deadlines.iter().filter(|(_, is_there)| **is_there));
        young.map(|((deadline, _), _)| *deadline).chain(on_disk).min().unwrap_or(i64::MAX)
    }
}
