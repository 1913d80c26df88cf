//! What names a cached reply: a key with its digest, and a view of that key.

use bytes::Bytes;

/// 128-bit keyed hash of database number and key (design: placement). Every role of a cluster computes
/// the same digest for the same key; lookups still compare the whole key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub u128);

/// A key of one logical database, with its digest.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Key {
    pub digest: Digest,
    pub database: u16,
    pub bytes: Bytes,
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // The digest is uniform already, so its low half is the whole hash.
        state.write_u64(self.digest.0 as u64);
    }
}

/// One cached reply of one read command on a key: the hash of command, arguments and RESP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct View(pub u64);

impl View {
    /// The plain `GET key`, the same for both RESP versions.
    pub const GET: View = View(0);
}

/// The part of a key that decides its slot, and with it its shim: what is between the first `{` and the first `}` after it, unless that
/// is empty; otherwise the whole key.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let after = &key[open + 1..];
    match after.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &after[..close],
    }
}
