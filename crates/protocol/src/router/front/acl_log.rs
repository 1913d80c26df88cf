//! What was denied lately, for ACL LOG. Not the decision.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::time::Time;

/// As many as Redis keeps.
pub(crate) const ENTRIES_MAX: usize = 128;
/// Equal entries among so many of the newest become one, if no more time than this lies between them.
const LOOKED_AT: usize = 10;
const TOGETHER_US: u64 = 60_000_000;
/// An object that is a key may be as long as keys are.
const OBJECT_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclReason {
    Command,
    Key,
    Channel,
    Auth,
}

impl AclReason {
    pub(crate) fn word(self) -> &'static str {
        match self {
            AclReason::Command => "command",
            AclReason::Key => "key",
            AclReason::Channel => "channel",
            AclReason::Auth => "auth",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    TopLevel,
    Multi,
}

impl Where {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Where::TopLevel => "toplevel",
            Where::Multi => "multi",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclEntry {
    pub(crate) count: u64,
    pub(crate) reason: AclReason,
    pub(crate) place: Where,
    pub(crate) object: Bytes,
    pub(crate) user: Bytes,
    pub(crate) at: Time,
    pub(crate) client: String,
}

impl AclEntry {
    fn is_like(&self, other: &AclEntry) -> bool {
        let apart = self.at.0.abs_diff(other.at.0);
        self.reason == other.reason
            && self.place == other.place
            && apart <= TOGETHER_US
            && self.object == other.object
            && self.user == other.user
    }
}

/// The newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclLog {
    entries: VecDeque<AclEntry>,
}

impl AclLog {
    pub(crate) fn add(&mut self, mut entry: AclEntry) {
        if entry.object.len() > OBJECT_BYTES_MAX {
            entry.object.truncate(OBJECT_BYTES_MAX);
        }
        // Copies: a slice would keep a whole read buffer alive.
        entry.object = Bytes::copy_from_slice(&entry.object);
        let known = self.entries.iter().take(LOOKED_AT).position(|known| known.is_like(&entry));
        if let Some(known) = known.and_then(|place| self.entries.remove(place)) {
            entry.count += known.count;
        }
        self.entries.push_front(entry);
        self.entries.truncate(ENTRIES_MAX);
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn newest(&self, count: usize) -> impl ExactSizeIterator<Item = &AclEntry> {
        self.entries.iter().take(count)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{AclEntry, AclLog, AclReason, ENTRIES_MAX, TOGETHER_US, Where};
    use crate::time::Time;

    fn entry(object: &str, at: u64) -> AclEntry {
        let object = Bytes::copy_from_slice(object.as_bytes());
        let (reason, place, user) = (AclReason::Key, Where::TopLevel, Bytes::from_static(b"app"));
        AclEntry { count: 1, reason, place, object, user, at: Time(at), client: String::new() }
    }

    #[test]
    fn equal_entries_are_counted_and_old_ones_go() {
        let mut log = AclLog::default();
        log.add(entry("a", 0));
        log.add(entry("b", 1));
        log.add(entry("a", TOGETHER_US));
        log.add(entry("a", 3 * TOGETHER_US));
        let seen: Vec<_> = log.newest(10).map(|entry| (entry.object.clone(), entry.count)).collect();
        assert_eq!(seen, [("a".into(), 1), ("a".into(), 2), ("b".into(), 1)]);
        (0..1000).for_each(|number| log.add(entry(&number.to_string(), 0)));
        assert_eq!(log.newest(usize::MAX).len(), ENTRIES_MAX);
        log.clear();
        assert_eq!(log.newest(1).len(), 0);
    }
}
