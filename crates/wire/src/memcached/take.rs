//! Takes requests off what a client sent, under limits that are checked before anything is kept.

use bytes::Bytes;

use super::line;
use super::request::{LacksData, MemcachedRequest, RequestLine, parse};
use crate::foreign::is_http_request;

/// A line other than a retrieval's that is longer without an end is no command.
const LINE_BYTES_MAX: usize = 2048;
/// What a connection of the binary protocol starts with.
const BINARY: u8 = 0x80;
const BINARY_HEADER_BYTES: usize = 24;
/// What a browser is told, and whoever had it send this.
const HTTP_REFUSAL: &[u8] = b"CLIENT_ERROR this port speaks memcached's protocol, not HTTP\r\n";

/// What one client may make a router hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemcachedLimits {
    /// Longest command line; a retrieval with many keys has the longest.
    pub line_bytes_max: usize,
    pub value_bytes_max: usize,
}

impl MemcachedLimits {
    /// Limits of a client that has not shown a password: room for a name and a password.
    pub const STRANGER: MemcachedLimits = MemcachedLimits { line_bytes_max: 2048, value_bytes_max: 2048 };
}

impl Default for MemcachedLimits {
    fn default() -> MemcachedLimits {
        MemcachedLimits {
            line_bytes_max: 1 << 20,
            value_bytes_max: crate::codec::VALUE_BYTES_MAX - (1 << 20),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemcachedTaken {
    Request(MemcachedRequest),
    /// No request is whole before the buffer has this many bytes; asking earlier only costs time.
    Needs(usize),
    /// What the client sends is no memcached text: it is to be closed, after this last answer, if any.
    Hangup(Bytes),
}

/// The state of one client's stream between requests: a data block that is being skipped.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestReader {
    skips: usize,
}

impl RequestReader {
    /// Takes the first whole request off `buffer`.
    pub fn next(&mut self, buffer: &mut Bytes, limits: &MemcachedLimits) -> MemcachedTaken {
        let skipped = self.skips.min(buffer.len());
        let _ = buffer.split_to(skipped);
        self.skips -= skipped;
        match buffer.first() {
            None => return MemcachedTaken::Needs(1),
            Some(&BINARY) if buffer.len() < BINARY_HEADER_BYTES => {
                return MemcachedTaken::Needs(BINARY_HEADER_BYTES);
            }
            Some(&BINARY) => return MemcachedTaken::Hangup(binary_refusal(buffer)),
            Some(_) => {}
        }
        let end = buffer.iter().position(|&byte| byte == b'\n');
        if is_too_long(buffer, end.unwrap_or(buffer.len()), limits) {
            return MemcachedTaken::Hangup(Bytes::new());
        }
        let Some(end) = end else { return MemcachedTaken::Needs(buffer.len() + 1) };
        let bytes = if end > 0 && buffer[end - 1] == b'\r' { end - 1 } else { end };
        let tokens = line::tokens(&buffer.slice(..bytes));
        let block = end + 1;
        if is_http_request(tokens.iter().map(AsRef::as_ref)) {
            return MemcachedTaken::Hangup(Bytes::from_static(HTTP_REFUSAL));
        }
        match parse(&tokens) {
            RequestLine::Whole(request) => {
                let _ = buffer.split_to(block);
                MemcachedTaken::Request(request)
            }
            RequestLine::Skip { bytes, error } => {
                let _ = buffer.split_to(block);
                self.skips = bytes + 2;
                MemcachedTaken::Request(MemcachedRequest::failed(error, false))
            }
            RequestLine::Data { bytes, pending } if bytes > limits.value_bytes_max => {
                let _ = buffer.split_to(block);
                self.skips = bytes + 2;
                MemcachedTaken::Request(pending.too_large())
            }
            RequestLine::Data { bytes, .. } if buffer.len() < block + bytes + 2 => {
                MemcachedTaken::Needs(block + bytes + 2)
            }
            RequestLine::Data { bytes, pending } => {
                MemcachedTaken::Request(with_data(buffer, block, bytes, pending))
            }
        }
    }
}

/// An error in the binary protocol, as an answer to the request that starts `buffer`: what a client's library shows.
fn binary_refusal(buffer: &[u8]) -> Bytes {
    const TEXT: &[u8] =
        b"DistCache: the binary protocol is not carried; switch the client to memcached's text protocol";
    const RESPONSE: u8 = 0x81;
    const UNKNOWN_COMMAND: u16 = 0x81;
    let mut out = Vec::with_capacity(BINARY_HEADER_BYTES + TEXT.len());
    out.extend_from_slice(&[RESPONSE, buffer[1], 0, 0, 0, 0]);
    out.extend_from_slice(&UNKNOWN_COMMAND.to_be_bytes());
    out.extend_from_slice(&(TEXT.len() as u32).to_be_bytes());
    // The client's own mark; there is no unique.
    out.extend_from_slice(&buffer[12..16]);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(TEXT);
    out.into()
}

fn with_data(buffer: &mut Bytes, block: usize, bytes: usize, pending: LacksData) -> MemcachedRequest {
    let whole = buffer.split_to(block + bytes + 2);
    match whole.ends_with(b"\r\n") {
        true => pending.with(whole.slice(block..block + bytes)),
        false => pending.bad_chunk(),
    }
}

/// Whether a line of so many bytes is longer than its start allows.
fn is_too_long(buffer: &Bytes, bytes: usize, limits: &MemcachedLimits) -> bool {
    if bytes <= LINE_BYTES_MAX {
        return false;
    }
    let blanks = buffer.iter().take_while(|&&byte| byte == b' ').count();
    let text = &buffer[blanks..];
    let retrieves = blanks <= 100 && (text.starts_with(b"get ") || text.starts_with(b"gets "));
    !retrieves || bytes > limits.line_bytes_max
}
