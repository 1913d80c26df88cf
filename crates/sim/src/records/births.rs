//! When copies were asked for and read, and which purges are under way. Not what follows from their age.

use std::collections::BTreeMap;

use protocol::shim::PurgeTarget;
use wire::resp::Command;
use wire::{Key, View};

use crate::network::HostId;

/// When what nodes hold was asked for at the shims, and read in storage.
#[derive(Debug, Default)]
pub(crate) struct Births {
    /// By node, session and fill.
    pub(crate) asked: BTreeMap<(HostId, u64, u64), u64>,
    /// By key: when storage carried out the PTTL that every read for a copy begins with.
    pub(crate) read: BTreeMap<Vec<u8>, Vec<u64>>,
    pub(crate) born: BTreeMap<HeldCopy, Birth>,
    /// By number: since when, and what.
    pub(crate) purges: BTreeMap<u64, (u64, PurgeTarget)>,
    pub(crate) purged: u64,
}

/// A node, the digest of a key, and a view of it.
pub(crate) type HeldCopy = (HostId, u128, View);

/// Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    pub(crate) version: u64,
    pub(crate) asked: u64,
    /// Not before this: of two reads for copies of one key the earlier one is taken for both.
    pub(crate) read: u64,
}

impl Births {
    /// A value that came with COMMIT stays where a FILL of the same version follows that was asked for before.
    pub(crate) fn bear(&mut self, held: HeldCopy, birth: Birth) {
        let born = self.born.entry(held).or_insert(birth);
        *born = match born.version == birth.version {
            true => Birth { asked: born.asked.max(birth.asked), read: born.read.max(birth.read), ..birth },
            false => birth,
        };
    }

    pub(crate) fn note_execution(&mut self, command: &Command, now: u64) {
        if let (b"PTTL", Some(key)) = (command.name(), command.get(1)) {
            self.read.entry(key.to_vec()).or_default().push(now);
        }
    }

    /// The first time that storage was read for a copy of the key, after this one was asked for.
    pub(crate) fn read_since(&self, key: &Key, asked: u64) -> u64 {
        let times = self.read.get(&*key.bytes).map_or(&[][..], Vec::as_slice);
        times.get(times.partition_point(|time| *time < asked)).copied().unwrap_or(asked)
    }
}
