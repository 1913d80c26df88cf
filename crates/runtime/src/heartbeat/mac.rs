//! Authentication of heartbeats and their replies by HMAC-SHA256 under a key of their own. Not encryption.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use config::Secret;

/// The header that carries the code, in hexadecimal digits.
pub const MAC_HEADER: &str = "x-distcache-mac";

/// The header that announces how long the body is, for bodies that nobody else may send: a code, too.
pub const LENGTH_MAC_HEADER: &str = "x-distcache-length-mac";

type HmacSha256 = Hmac<Sha256>;

/// The key of heartbeats, derived from the cluster's secret.
#[derive(Clone)]
pub struct HeartbeatKey([u8; 32]);

impl HeartbeatKey {
    pub fn derive(secret: &Secret) -> HeartbeatKey {
        let mut mac = HmacSha256::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
        mac.update(b"distcache heartbeat 1");
        HeartbeatKey(mac.finalize().into_bytes().into())
    }

    /// The code of a heartbeat with this body.
    pub fn of_request(&self, body: &[u8]) -> String {
        hexadecimal(&self.request(body).finalize().into_bytes())
    }

    pub fn is_request(&self, body: &[u8], code: &str) -> bool {
        digits(code).is_some_and(|code| self.request(body).verify_slice(&code).is_ok())
    }

    /// The code of the reply to the heartbeat that carried `request_code`, so that no other reply fits.
    pub fn of_reply(&self, request_code: &str, body: &[u8]) -> String {
        hexadecimal(&self.reply(request_code, body).finalize().into_bytes())
    }

    pub fn is_reply(&self, request_code: &str, body: &[u8], code: &str) -> bool {
        digits(code).is_some_and(|code| self.reply(request_code, body).verify_slice(&code).is_ok())
    }

    /// The code that announces a body of so many bytes.
    pub fn of_length(&self, length: usize) -> String {
        hexadecimal(&self.length(length).finalize().into_bytes())
    }

    pub fn is_length(&self, length: usize, code: &str) -> bool {
        digits(code).is_some_and(|code| self.length(length).verify_slice(&code).is_ok())
    }

    fn length(&self, length: usize) -> HmacSha256 {
        self.start(b"length-").chain_update((length as u64).to_be_bytes())
    }

    fn request(&self, body: &[u8]) -> HmacSha256 {
        self.start(b"request").chain_update(body)
    }

    fn reply(&self, request_code: &str, body: &[u8]) -> HmacSha256 {
        let length = (request_code.len() as u64).to_be_bytes();
        self.start(b"reply--").chain_update(length).chain_update(request_code).chain_update(body)
    }

    fn start(&self, direction: &[u8; 7]) -> HmacSha256 {
        let mac = HmacSha256::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.chain_update(direction)
    }
}

impl fmt::Debug for HeartbeatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeartbeatKey(..)")
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that hexadecimal digits stand for.
pub(crate) fn digits(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::HeartbeatKey;
    use config::Secret;

    #[test]
    fn only_the_same_secret_body_and_direction_pass() {
        let key = HeartbeatKey::derive(&Secret([1; 16]));
        let other = HeartbeatKey::derive(&Secret([2; 16]));
        let code = key.of_request(b"body");
        assert_eq!(code.len(), 64);
        assert!(key.is_request(b"body", &code));
        assert!(!key.is_request(b"Body", &code));
        assert!(!other.is_request(b"body", &code));
        for bad in ["", "0", "zz", &code[..62], &format!("{code}00"), "é"] {
            assert!(!key.is_request(b"body", bad), "{bad}");
        }

        let length = key.of_length(4);
        assert!(key.is_length(4, &length) && !key.is_length(5, &length) && !other.is_length(4, &length));
        assert!(!key.is_request(&4u64.to_be_bytes(), &length));

        let reply = key.of_reply(&code, b"answer");
        assert!(key.is_reply(&code, b"answer", &reply));
        assert!(!key.is_reply(&key.of_request(b"another"), b"answer", &reply));
        assert!(!key.is_reply(&code, b"Answer", &reply));
        assert!(!key.is_request(b"answer", &reply));
    }
}
