//! The cluster's 128-bit placement secret and the independent hash keys derived from it. Never printed.

use std::fmt;
use std::str::FromStr;

use siphasher::sip128::SipHasher24;

/// Who does not know it cannot aim keys at a node. Every member of a cluster has the same one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

/// Why a text is not a secret. Says nothing about the digits that were right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("a secret has 32 hexadecimal digits, not {0} (make one with `openssl rand -hex 16`)")]
    Length(usize),
    #[error("a secret has hexadecimal digits only; character {0} is none")]
    Digit(usize),
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Secret, SecretError> {
        let mut digits = [0u8; 32];
        for (index, character) in text.chars().enumerate() {
            let Some(slot) = digits.get_mut(index) else {
                return Err(SecretError::Length(text.chars().count()));
            };
            *slot = character.to_digit(16).ok_or(SecretError::Digit(index + 1))? as u8;
        }
        if text.len() != digits.len() {
            return Err(SecretError::Length(text.len()));
        }
        Ok(Secret(std::array::from_fn(|index| digits[2 * index] << 4 | digits[2 * index + 1])))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A SipHash key for one purpose. Distinct labels give keys, and so hash functions, that are independent
    /// for anyone who does not know the secret.
    pub(super) fn derive(&self, label: &[u8]) -> [u8; 16] {
        SipHasher24::new_with_key(&self.0).hash(label).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_thirty_two_hexadecimal_digits_and_nothing_else() {
        let secret: Secret = "00112233445566778899AAbbccddeeff".parse().unwrap();
        assert_eq!(secret.0[..3], [0x00, 0x11, 0x22]);
        assert_eq!(secret.0[15], 0xff);
        let check = |text: &str, expected: SecretError| assert_eq!(text.parse::<Secret>(), Err(expected));
        check("", SecretError::Length(0));
        check("0011", SecretError::Length(4));
        check("00112233445566778899aabbccddeeff0", SecretError::Length(33));
        check("0x112233445566778899aabbccddeeff", SecretError::Digit(2));
        check("00112233445566778899aabbccddeef\u{e9}", SecretError::Digit(32));
    }

    #[test]
    fn debug_does_not_print_it() {
        let secret: Secret = "00112233445566778899aabbccddeeff".parse().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert!(!SecretError::Digit(3).to_string().contains("0011"));
    }
}
