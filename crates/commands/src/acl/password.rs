//! Passwords as users keep them: their SHA-256 and nothing else. Compared in constant time.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hash([u8; 32]);

impl Hash {
    pub(super) fn of(password: &[u8]) -> Hash {
        Hash(Sha256::digest(password).into())
    }

    /// From 64 lower-case hexadecimal digits.
    pub(super) fn parse(text: &[u8]) -> Option<Hash> {
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() {
            return None;
        }
        for (byte, digits) in hash.iter_mut().zip(text.chunks(2)) {
            *byte = digit(digits[0])? << 4 | digit(digits[1])?;
        }
        Some(Hash(hash))
    }

    pub(super) fn matches(&self, other: &Hash) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Hash;

    #[test]
    fn a_hash_is_read_back_and_matches_its_password_only() {
        let hash = Hash::of(b"secret");
        let text = hash.text();
        assert_eq!(text, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b");
        assert!(Hash::parse(text.as_bytes()).is_some_and(|read| read.matches(&hash)));
        assert!(!hash.matches(&Hash::of(b"Secret")));
        for wrong in [&text[1..], &text.to_uppercase(), ""] {
            assert!(Hash::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
