//! Whole replies as shared bytes, for what the router itself has to say. The bytes are `wire::resp::reply`'s.

use bytes::Bytes;
use wire::resp::reply;

pub(crate) use wire::resp::reply::{array_header, bulk, null_bytes as nil};

pub(crate) const OK: Bytes = Bytes::from_static(reply::OK);

pub(crate) fn error(text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 3);
    reply::error(text.as_bytes(), &mut out);
    out.into()
}

/// SCAN of what has nothing more.
pub(crate) fn scan_end() -> Bytes {
    Bytes::from_static(b"*2\r\n$1\r\n0\r\n*0\r\n")
}

pub(crate) fn integer(number: i64) -> Bytes {
    let mut out = Vec::new();
    reply::integer(number, &mut out);
    out.into()
}

pub(crate) fn bulk_string(bytes: &[u8]) -> Bytes {
    let mut out = Vec::new();
    bulk(bytes, &mut out);
    out.into()
}

pub(crate) fn verbatim(text: &str, resp3: bool) -> Bytes {
    let mut out = Vec::new();
    reply::verbatim(text.as_bytes(), resp3, &mut out);
    out.into()
}

/// An array of simple strings.
pub(crate) fn lines(lines: &[&str]) -> Bytes {
    let mut out = Vec::new();
    array_header(lines.len(), &mut out);
    lines.iter().for_each(|line| reply::simple(line.as_bytes(), &mut out));
    out.into()
}
