//! The cluster's 128-bit placement secret and the independent hash keys derived from it. Never printed.

use std::fmt;

use siphasher::sip128::SipHasher24;

/// Who does not know it cannot aim keys at a node. Every member of a cluster has the same one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A SipHash key for one purpose. Distinct labels give keys, and so hash functions, that are independent
    /// for anyone who does not know the secret.
    /// Tells clusters apart, and says nothing of the secret.
    pub fn id(&self) -> u64 {
        let derived = self.derive(b"id");
        derived.iter().fold(0, |id, byte| id.rotate_left(8) ^ u64::from(*byte))
    }

    pub(super) fn derive(&self, label: &[u8]) -> [u8; 16] {
        SipHasher24::new_with_key(&self.0).hash(label).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn debug_does_not_print_it() {
        assert_eq!(format!("{:?}", Secret([0x11; 16])), "Secret(..)");
    }
}
