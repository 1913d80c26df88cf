//! What a command does to each of its keys, where Redis' access control looks for them. Not how a command is routed.

use smallvec::SmallVec;
use wire::resp::Command;

use super::keys::{self, integer};
use super::own;
use super::spec::{Begin, CommandSpec, Find, KeyFlag, KeyRange, KeySpec};

/// Reading, writing, both or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessMode {
    read: bool,
    write: bool,
}

impl AccessMode {
    pub(crate) const NONE: AccessMode = AccessMode { read: false, write: false };
    pub(crate) const READ: AccessMode = AccessMode { read: true, write: false };
    pub(crate) const WRITE: AccessMode = AccessMode { read: false, write: true };
    pub(crate) const READ_WRITE: AccessMode = AccessMode { read: true, write: true };

    pub(crate) fn covers(self, needed: AccessMode) -> bool {
        (self.read || !needed.read) && (self.write || !needed.write)
    }

    pub(crate) fn and(self, other: AccessMode) -> AccessMode {
        AccessMode { read: self.read || other.read, write: self.write || other.write }
    }

    /// EXISTS and its like neither read nor write a value.
    fn of(spec: &KeySpec) -> AccessMode {
        let writes = [KeyFlag::Insert, KeyFlag::Delete, KeyFlag::Update];
        AccessMode { read: spec.has(KeyFlag::Access), write: writes.iter().any(|flag| spec.has(*flag)) }
    }
}

/// One argument that is a key, and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyAccess {
    pub(crate) index: usize,
    pub(crate) access: AccessMode,
}

pub(crate) type KeyAccesses = SmallVec<[KeyAccess; 4]>;

/// Every key of a command. None where its arguments make no sense, because it will not be carried out then.
pub(crate) fn accesses(command: &Command, spec: &'static CommandSpec) -> KeyAccesses {
    let at = |index, access| KeyAccess { index, access };
    if !spec.accepts(command.len()) {
        return KeyAccesses::new();
    }
    match spec.name {
        "set" => SmallVec::from_slice(&[at(1, set(command))]),
        "bitfield" => SmallVec::from_slice(&[at(1, bit_field(command))]),
        "sort" => {
            let keys = keys::extract(command, spec).unwrap_or_default().into_iter().enumerate();
            keys.map(|(place, index)| {
                at(index, if place == 0 { AccessMode::READ } else { AccessMode::WRITE })
            })
            .collect()
        }
        "migrate" => keys::migrate(command).map(|index| at(index, AccessMode::READ_WRITE)).collect(),
        "sort_ro" => SmallVec::from_slice(&[at(1, AccessMode::READ)]),
        "distcache|purge" => {
            let key = own::scope(command).and_then(|(_, key)| key);
            key.map(|index| at(index, AccessMode::WRITE)).into_iter().collect()
        }
        // Here the table's description can miss a key that the command uses.
        "georadius" | "georadiusbymember" | "pfmerge" | "xread" | "xreadgroup" => {
            let mut found = described(command, spec).unwrap_or_default();
            for index in keys::extract(command, spec).unwrap_or_default() {
                if !found.iter().any(|known| known.index == index) {
                    found.push(at(index, AccessMode::READ_WRITE));
                }
            }
            found
        }
        _ => described(command, spec).unwrap_or_default(),
    }
}

/// The keys of all specifications; `None` if one of them does not fit the arguments.
fn described(command: &Command, spec: &'static CommandSpec) -> Option<KeyAccesses> {
    let mut found = KeyAccesses::new();
    for key_spec in spec.keys.iter().filter(|key_spec| !key_spec.has(KeyFlag::NotKey)) {
        let first = match key_spec.begin {
            Begin::Index(index) => index,
            Begin::Keyword(keyword, from) => match keys::position(command, keyword, from) {
                Some(place) => place + 1,
                None => continue,
            },
            Begin::Unknown => return None,
        };
        let (first, end, step) = match key_spec.find {
            Find::Range(KeyRange { last, step, limit }) => {
                (first, range_end(command, first, last, limit)?, step)
            }
            Find::Count { count, first: offset, step } => {
                let number = integer(command.get(first + count)?)?;
                let number = usize::try_from(number).ok()?;
                ((first + offset), (first + offset).checked_add(number)?, step)
            }
            Find::Unknown => return None,
        };
        if end > command.len() || end <= first {
            return None;
        }
        let access = AccessMode::of(key_spec);
        found.extend((first..end).step_by(step.max(1)).map(|index| KeyAccess { index, access }));
        if key_spec.has(KeyFlag::Incomplete) {
            return None;
        }
    }
    Some(found)
}

/// Behind the last key of a range.
fn range_end(command: &Command, first: usize, last: i16, limit: usize) -> Option<usize> {
    match (usize::try_from(last), limit) {
        (Ok(last), _) => Some(first + last + 1),
        (Err(_), 0) => (command.len() + 1).checked_sub(usize::from(last.unsigned_abs())),
        (Err(_), limit) => Some(first + command.len().saturating_sub(first) / limit),
    }
}

/// SET with GET reads what it overwrites.
fn set(command: &Command) -> AccessMode {
    let reads = (3..command.len()).any(|index| command.arg(index).eq_ignore_ascii_case(b"get"));
    if reads { AccessMode::READ_WRITE } else { AccessMode::WRITE }
}

/// BITFIELD writes unless all of its operations are known to read.
fn bit_field(command: &Command) -> AccessMode {
    let mut at = 2;
    while let Some(operation) = command.get(at) {
        let left = command.len() - at - 1;
        at += match operation.to_ascii_lowercase().as_slice() {
            b"get" if left >= 2 => 3,
            b"overflow" if left >= 1 => 2,
            _ => return AccessMode::READ_WRITE,
        };
    }
    AccessMode::READ
}
