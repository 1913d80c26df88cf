//! Writes replies. Each function appends one complete element, or the header that its elements follow.

use super::number::{decimal_digits, write_integer, write_unsigned};

pub const OK: &[u8] = b"+OK\r\n";
pub const PONG: &[u8] = b"+PONG\r\n";
pub const QUEUED: &[u8] = b"+QUEUED\r\n";
pub const EMPTY_ARRAY: &[u8] = b"*0\r\n";

/// The null reply, whose bytes depend on the protocol version.
pub const fn null_bytes(resp3: bool) -> &'static [u8] {
    if resp3 { b"_\r\n" } else { b"$-1\r\n" }
}

pub fn null(resp3: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(null_bytes(resp3));
}

/// The null that RESP2 writes in place of an array: a blocking command that timed out, an aborted EXEC.
pub fn null_array(resp3: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if resp3 { b"_\r\n" } else { b"*-1\r\n" });
}

pub fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + decimal_digits(bytes.len() as u64) + 5);
    header(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A status such as `OK`. Line breaks would end it, so they become blanks.
pub fn simple(text: &[u8], out: &mut Vec<u8>) {
    line(b'+', text, out);
}

/// An error; `text` starts with its code (`ERR ...`). Line breaks are cut off at its end and become blanks elsewhere, as in
/// Redis.
pub fn error(text: &[u8], out: &mut Vec<u8>) {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    line(b'-', &text[..end], out);
}

pub fn integer(number: i64, out: &mut Vec<u8>) {
    out.push(b':');
    write_integer(number, out);
    out.extend_from_slice(b"\r\n");
}

pub fn array_header(elements: usize, out: &mut Vec<u8>) {
    header(b'*', elements, out);
}

/// `pairs` keys and values follow; RESP2 writes them as one flat array.
pub fn map_header(pairs: usize, resp3: bool, out: &mut Vec<u8>) {
    if resp3 { header(b'%', pairs, out) } else { header(b'*', pairs * 2, out) }
}

pub fn set_header(elements: usize, resp3: bool, out: &mut Vec<u8>) {
    header(if resp3 { b'~' } else { b'*' }, elements, out);
}

/// Out-of-band data; RESP2 has arrays for it.
pub fn push_header(elements: usize, resp3: bool, out: &mut Vec<u8>) {
    header(if resp3 { b'>' } else { b'*' }, elements, out);
}

pub fn double(number: f64, resp3: bool, out: &mut Vec<u8>) {
    let text = if number.is_nan() { "nan".to_owned() } else { number.to_string() };
    if resp3 { line(b',', text.as_bytes(), out) } else { bulk(text.as_bytes(), out) }
}

pub fn boolean(value: bool, resp3: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(match (resp3, value) {
        (true, true) => b"#t\r\n",
        (true, false) => b"#f\r\n",
        (false, true) => b":1\r\n",
        (false, false) => b":0\r\n",
    });
}

/// Text for people, such as INFO; RESP3 marks it as such.
pub fn verbatim(text: &[u8], resp3: bool, out: &mut Vec<u8>) {
    if !resp3 {
        return bulk(text, out);
    }
    header(b'=', text.len() + 4, out);
    out.extend_from_slice(b"txt:");
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn header(kind: u8, length: usize, out: &mut Vec<u8>) {
    out.push(kind);
    write_unsigned(length as u64, out);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 3);
    out.push(kind);
    out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    fn check(write: impl Fn(bool, &mut Vec<u8>), resp2: &str, resp3: &str) {
        for (version3, expected) in [(false, resp2), (true, resp3)] {
            let mut out = Vec::new();
            write(version3, &mut out);
            assert_eq!(out.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
        }
    }

    #[test]
    fn replies_are_written_as_redis_writes_them() {
        check(super::null, "$-1\r\n", "_\r\n");
        check(super::null_array, "*-1\r\n", "_\r\n");
        check(|_, out| super::bulk(b"a\r\nb", out), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n");
        check(|_, out| super::error(b"ERR a\r\nb", out), "-ERR a  b\r\n", "-ERR a  b\r\n");
        check(|_, out| super::error(b"ERR a\n \n\r\n", out), "-ERR a  \r\n", "-ERR a  \r\n");
        check(|_, out| super::integer(-12, out), ":-12\r\n", ":-12\r\n");
        check(|resp3, out| super::map_header(2, resp3, out), "*4\r\n", "%2\r\n");
        check(|resp3, out| super::set_header(2, resp3, out), "*2\r\n", "~2\r\n");
        check(|resp3, out| super::push_header(2, resp3, out), "*2\r\n", ">2\r\n");
        check(|resp3, out| super::double(1.5, resp3, out), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(|resp3, out| super::double(f64::NEG_INFINITY, resp3, out), "$4\r\n-inf\r\n", ",-inf\r\n");
        check(|resp3, out| super::boolean(true, resp3, out), ":1\r\n", "#t\r\n");
        check(|resp3, out| super::verbatim(b"hi", resp3, out), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
    }
}
