//! The keyed hash functions that place a key: its digest, its position among the storage servers and in each layer. Not
//! who owns a position, which is a ring's to say, or the caller's where there is no cluster map.

use std::hash::Hasher;

use siphasher::sip128::Hasher128;
use siphasher::{sip, sip128};
use wire::Digest;

use super::secret::Secret;

/// Keys up to here are hashed in one piece.
const SHORT_KEY_BYTES: usize = 62;

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
        let database = database.to_be_bytes();
        // One piece takes two thirds of the instructions of two.
        let mut whole = [0; SHORT_KEY_BYTES + 2];
        if let Some(end) = whole.get_mut(2..2 + key.len()) {
            end.copy_from_slice(key);
            whole[..2].copy_from_slice(&database);
            return Digest(self.digest.hash(&whole[..2 + key.len()]).as_u128());
        }
        let mut hasher = self.digest;
        hasher.write(&database);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_one_piece_has_the_digest_of_two() {
        let functions = Functions::new(Secret([7; 16]), 1);
        let bytes: Vec<u8> = (0..2 * SHORT_KEY_BYTES as u8).collect();
        for length in 0..bytes.len() {
            for database in [0, 1, 0x1234] {
                let mut hasher = functions.digest;
                hasher.write(&u16::to_be_bytes(database));
                hasher.write(&bytes[..length]);
                let expected = hasher.finish128().as_u128();
                assert_eq!(functions.digest(database, &bytes[..length]).0, expected, "{database} {length}");
            }
        }
    }
}
