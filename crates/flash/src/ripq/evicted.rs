//! Who was evicted, removed, or lost to an error, since the journal was last synced. Copies of these may still be on
//! the device and come back after a crash, so whoever inserts one of them anew waits for a sync. Nobody else does.

use hashbrown::HashTable;

/// About a MiB; more evictions than this are worth a sync.
const DIGESTS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Evicted {
    digests: HashTable<u64>,
    /// Too many, or it is not known who.
    many: bool,
}

impl Evicted {
    pub(super) fn note(&mut self, digest: u64) {
        if self.digests.len() == DIGESTS_MAX {
            self.many = true;
        } else if !self.contains(digest) {
            self.digests.insert_unique(digest, digest, |digest| *digest);
        }
    }

    pub(super) fn note_all(&mut self, others: Evicted) {
        self.many |= others.many;
        others.digests.into_iter().for_each(|digest| self.note(digest));
    }

    pub(super) fn note_unknown(&mut self) {
        self.many = true;
    }

    pub(super) fn contains(&self, digest: u64) -> bool {
        self.digests.find(digest, |known| *known == digest).is_some()
    }

    /// Whether a sync is due, whoever is inserted next.
    pub(super) fn are_many(&self) -> bool {
        self.many
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.digests.capacity() * 8 / 7 * (size_of::<u64>() + 1)
    }
}
