//! memcached's text and meta protocols as clients and servers speak them: framing, reading, writing. Not what a request
//! means.

mod line;
mod meta;
mod reply;
mod request;
mod take;

pub use meta::{Meta, MetaVerb};
pub use reply::{ReplyHead, next_reply};
pub use request::{MemcachedRequest, StoreRequest, StoreVerb};
pub use take::{MemcachedLimits, MemcachedTaken, RequestReader};

/// Longer keys are refused, as memcached refuses them.
pub const KEY_BYTES_MAX: usize = 250;

/// A key as the meta protocol takes it: as it is, or in base64 with the flag `b` where a byte of it would end the token.
pub fn write_key(key: &[u8], out: &mut Vec<u8>) -> bool {
    use base64::Engine as _;
    let plain = key.iter().all(|&byte| byte > b' ' && byte != 0x7f);
    match plain {
        true => out.extend_from_slice(key),
        false => out.extend_from_slice(base64::engine::general_purpose::STANDARD.encode(key).as_bytes()),
    }
    !plain
}
