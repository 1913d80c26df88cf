//! Hash maps keyed by `Key`: the digest is uniform already, so its low half serves as the hash.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use wire::Key;

/// A map from keys, with the same iteration order for the same history everywhere.
pub type KeyMap<V> = HashMap<Key, V, BuildHasherDefault<DigestHasher>>;

/// Keys, likewise.
pub type KeySet = HashSet<Key, BuildHasherDefault<DigestHasher>>;

/// Passes one 64-bit word through.
#[derive(Clone, Copy, Debug, Default)]
pub struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = self.0.rotate_left(29) ^ word;
    }
}
