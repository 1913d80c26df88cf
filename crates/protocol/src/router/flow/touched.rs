//! Which keys the unanswered operations of a client are about, so that one about others need not look at all of them. Not what
//! they demand of each other.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::touch::Touch;
use crate::hash::DigestHasher;

/// How many operations are about each digest, and how many about all keys.
#[derive(Debug, Default)]
pub(crate) struct TouchCounts {
    counts: HashMap<u64, u32, BuildHasherDefault<DigestHasher>>,
    all: usize,
}

impl TouchCounts {
    pub(crate) fn add(&mut self, touch: &Touch) {
        self.all += usize::from(matches!(touch, Touch::All));
        for digest in touch.digests() {
            *self.counts.entry(*digest).or_default() += 1;
        }
    }

    pub(crate) fn remove(&mut self, touch: &Touch) {
        self.all -= usize::from(matches!(touch, Touch::All));
        for digest in touch.digests() {
            if let Some(count) = self.counts.get_mut(digest) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(digest);
                }
            }
        }
    }

    /// Whether any operation is about this digest.
    pub(crate) fn contains(&self, digest: u64) -> bool {
        self.all > 0 || self.counts.contains_key(&digest)
    }
}
