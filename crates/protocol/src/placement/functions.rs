//! The keyed hash functions that place a key: its digest, its position among the storage servers and in each layer. Not
//! who owns a position, which is a ring's to say, or the caller's where there is no cluster map.

use siphasher::{sip, sip128};
use wire::Digest;

use super::secret::Secret;

/// All of one secret; independent of each other for anyone who does not know it.
#[derive(Clone, Debug)]
pub struct Functions {
    digest: sip128::SipHasher24,
    pub(super) storage: sip::SipHasher24,
    pub(super) layers: Vec<sip::SipHasher24>,
}

impl Functions {
    pub fn new(secret: Secret, layers_count: usize) -> Functions {
        let layer = |index: usize| {
            let label = [b"layer".as_slice(), &[index as u8]].concat();
            sip::SipHasher24::new_with_key(&secret.derive(&label))
        };
        Functions {
            digest: sip128::SipHasher24::new_with_key(&secret.derive(b"digest")),
            storage: sip::SipHasher24::new_with_key(&secret.derive(b"storage")),
            layers: (0..layers_count).map(layer).collect(),
        }
    }

    pub fn digest(&self, database: u16, key: &[u8]) -> Digest {
        use std::hash::Hasher;

        use siphasher::sip128::Hasher128;
        let mut hasher = self.digest;
        hasher.write(&database.to_be_bytes());
        hasher.write(key);
        Digest(hasher.finish128().as_u128())
    }

    /// Where a key lies among storage servers that divide a circle; keys with the same hash tag lie together.
    pub fn storage(&self, key: &[u8]) -> u64 {
        self.storage.hash(wire::key::hash_tag(key))
    }

    /// Where a key lies in one layer. Panics on layers that were not asked for.
    pub fn layer(&self, layer: usize, digest: Digest) -> u64 {
        self.layers[layer].hash(&digest.0.to_be_bytes())
    }
}
