//! Takes commands off what a client sent, under limits that are checked before anything is kept.

use bytes::Bytes;

use super::command::{Command, Spans};
use super::error::ProtocolError;
use super::inline::{self, InlineLine};
use super::number::parse_integer;
use crate::foreign::is_http_request;

/// Least bytes of one more argument: `$0\r\n\r\n`.
const ARGUMENT_BYTES_MIN: usize = 6;

/// Up to here a partial command is looked at whenever it has grown, so that a client is told of a mistake without
/// having to send more. A longer one would be read again and again; a mistake in it is told when it could be whole.
const SHORT_BYTES_MAX: usize = 16 << 10;

/// What one client may make a router hold. The defaults are those of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RespLimits {
    pub arguments_max: usize,
    pub bulk_bytes_max: usize,
    /// Longest inline command, and longest header line of any other.
    pub line_bytes_max: usize,
    /// A whole command; never more than `u32::MAX`.
    pub frame_bytes_max: usize,
    /// Before authentication Redis takes at most 10 arguments of at most 16 KiB.
    pub authenticated: bool,
}

impl Default for RespLimits {
    fn default() -> RespLimits {
        RespLimits {
            arguments_max: 1 << 20,
            bulk_bytes_max: 512 << 20,
            line_bytes_max: 64 << 10,
            // A command travels between the roles as the value of a message.
            frame_bytes_max: crate::codec::VALUE_BYTES_MAX,
            authenticated: true,
        }
    }
}

impl RespLimits {
    /// For frames whose length is known already, so that there is nothing left to guard.
    pub(super) const UNLIMITED: RespLimits = RespLimits {
        arguments_max: u32::MAX as usize,
        bulk_bytes_max: u32::MAX as usize,
        line_bytes_max: 64 << 10,
        frame_bytes_max: u32::MAX as usize,
        authenticated: true,
    };

    /// Whether no limit is below what `short_array` takes.
    #[inline]
    fn allow_short_arrays(&self) -> bool {
        self.arguments_max >= 8 && self.bulk_bytes_max >= 99 && self.frame_bytes_max >= 1024
    }

    const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
    const UNAUTHENTICATED_BULK_BYTES_MAX: i64 = 16 << 10;
}

/// What the start of a buffer turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RespTaken {
    Command(Command),
    /// No command is whole before the buffer has this many bytes; asking earlier only costs time.
    Needs(usize),
}

/// Takes the first whole command off `buffer`; `None` until it is whole. Inline commands become arrays and
/// empty ones are skipped. After an error nothing in the buffer can be trusted any more.
pub fn take_command(buffer: &mut Bytes, limits: &RespLimits) -> Result<Option<Command>, ProtocolError> {
    match next_command(buffer, limits)? {
        RespTaken::Command(command) => Ok(Some(command)),
        RespTaken::Needs(_) => Ok(None),
    }
}

/// Whether a TLS connection begins: a handshake record of version 3 with a ClientHello in it. Not where a line ends
/// before, which would be a command if it came in pieces.
fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes.get(..6), Some(start @ [0x16, 0x03, _, _, _, 0x01]) if !start.contains(&b'\n'))
}

/// The first byte of a request of memcached's binary protocol.
const MEMCACHED_BINARY: u8 = 0x80;

/// Whether a request of memcached's binary protocol begins: its magic byte, any opcode, and a key of less than 256
/// bytes. `None`: too little to tell; the opcode may be a line's end.
fn is_memcached_binary(bytes: &[u8]) -> Option<bool> {
    match *bytes {
        [MEMCACHED_BINARY, _, length, ..] => Some(length == 0),
        [MEMCACHED_BINARY, ..] => None,
        _ => Some(false),
    }
}

/// As `take_command`, but says how many bytes a partial command needs at least. A caller that waits for
/// them reads a large command in time linear in its size.
pub fn next_command(buffer: &mut Bytes, limits: &RespLimits) -> Result<RespTaken, ProtocolError> {
    loop {
        let Some(&first) = buffer.first() else { return Ok(RespTaken::Needs(1)) };
        if first != b'*' {
            if is_client_hello(buffer) {
                return Err(ProtocolError::TlsHello);
            }
            match is_memcached_binary(buffer) {
                None => return Ok(RespTaken::Needs(buffer.len() + 1)),
                Some(true) => return Err(ProtocolError::MemcachedBinary),
                Some(false) => {}
            }
            match inline::split(buffer, limits.line_bytes_max)? {
                InlineLine::Partial => return Ok(RespTaken::Needs(buffer.len() + 1)),
                InlineLine::Whole { args, end } => {
                    let _ = buffer.split_to(end);
                    if is_http_request(args.iter().map(AsRef::as_ref)) {
                        return Err(ProtocolError::Http);
                    }
                    if !args.is_empty() {
                        return Ok(RespTaken::Command(Command::from_args(&args)));
                    }
                }
            }
            continue;
        }
        match multibulk(buffer, limits)? {
            ScanStep::Whole { args, end } => {
                return Ok(RespTaken::Command(Command::assemble(buffer.split_to(end), args)));
            }
            ScanStep::Empty { end } => {
                let _ = buffer.split_to(end);
            }
            ScanStep::Needs(bytes) => return Ok(RespTaken::Needs(bytes)),
        }
    }
}

pub(super) enum ScanStep {
    Whole { args: Spans, end: usize },
    Empty { end: usize },
    Needs(usize),
}

/// Reads the array that starts `bytes`.
pub(super) fn multibulk(bytes: &[u8], limits: &RespLimits) -> Result<ScanStep, ProtocolError> {
    match short_array(bytes) {
        Some((args, end)) if limits.allow_short_arrays() => Ok(ScanStep::Whole { args, end }),
        _ => any_array(bytes, limits),
    }
}

/// The array that starts `bytes` if it is as most are: whole, of up to 8 arguments of up to 99 bytes. `None` is not an error.
#[inline]
fn short_array(bytes: &[u8]) -> Option<(Spans, usize)> {
    let [b'*', count @ b'1'..=b'8', b'\r', b'\n', ..] = *bytes else { return None };
    let (mut args, mut at) = (Spans::new(), 4);
    for _ in b'0'..count {
        let header: &[u8; 5] = bytes.get(at..)?.first_chunk()?;
        let (length, start) = match *header {
            [b'$', ones @ b'0'..=b'9', b'\r', b'\n', _] => (ones - b'0', at + 4),
            [b'$', tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n'] => {
                ((tens - b'0') * 10 + ones - b'0', at + 5)
            }
            _ => return None,
        };
        let end = start + usize::from(length);
        if bytes.get(end..end + 2)? != b"\r\n" {
            return None;
        }
        args.push((start as u32, end as u32));
        at = end + 2;
    }
    Some((args, at))
}

/// The same of any array.
fn any_array(bytes: &[u8], limits: &RespLimits) -> Result<ScanStep, ProtocolError> {
    let (count, mut at) = match length_line(bytes, 1, limits.line_bytes_max) {
        LengthLine::Length { value, end } => (value, end),
        LengthLine::Partial => return Ok(ScanStep::Needs(bytes.len() + 1)),
        LengthLine::Invalid => return Err(ProtocolError::MultibulkLength),
        LengthLine::TooLong => return Err(ProtocolError::MultibulkLine),
    };
    if count <= 0 {
        return Ok(ScanStep::Empty { end: at });
    }
    if count > limits.arguments_max as i64 {
        return Err(ProtocolError::MultibulkLength);
    }
    if !limits.authenticated && count > RespLimits::UNAUTHENTICATED_ARGUMENTS_MAX {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    let count = count as usize;
    // Room for what is here, whatever the header promises.
    let mut args = Spans::with_capacity(count.min(bytes.len() / ARGUMENT_BYTES_MIN + 1));
    for left in (0..count).rev() {
        let after = left * ARGUMENT_BYTES_MIN;
        let Some((start, length)) = bulk_header(bytes, at, limits)? else {
            return Ok(ScanStep::Needs(needs(bytes, bytes.len() + 1, at + ARGUMENT_BYTES_MIN + after)));
        };
        let end = start + length;
        if end + 2 + after > limits.frame_bytes_max.min(u32::MAX as usize) {
            return Err(ProtocolError::FrameBytes(limits.frame_bytes_max));
        }
        let Some(line_end) = bytes.get(end..end + 2) else {
            return Ok(ScanStep::Needs(needs(bytes, end + 2, end + 2 + after)));
        };
        if line_end != b"\r\n" {
            return Err(ProtocolError::LineEnd);
        }
        args.push((start as u32, end as u32));
        at = end + 2;
    }
    Ok(ScanStep::Whole { args, end: at })
}

/// How many bytes to wait for, when `next` may show a mistake and `whole` is the least that a command can have.
fn needs(bytes: &[u8], next: usize, whole: usize) -> usize {
    if bytes.len() < SHORT_BYTES_MAX { next } else { whole.max(next) }
}

/// Where the bulk string at `at` starts and how long it is; `None` until its header is whole.
fn bulk_header(
    bytes: &[u8],
    at: usize,
    limits: &RespLimits,
) -> Result<Option<(usize, usize)>, ProtocolError> {
    let Some(&first) = bytes.get(at) else { return Ok(None) };
    if first != b'$' {
        return Err(ProtocolError::BulkExpected(first));
    }
    match length_line(bytes, at + 1, limits.line_bytes_max) {
        LengthLine::Partial => Ok(None),
        LengthLine::TooLong => Err(ProtocolError::BulkLine),
        LengthLine::Length { value, end } if (0..=limits.bulk_bytes_max as i64).contains(&value) => {
            if !limits.authenticated && value > RespLimits::UNAUTHENTICATED_BULK_BYTES_MAX {
                return Err(ProtocolError::UnauthenticatedBulkLength);
            }
            Ok(Some((end, value as usize)))
        }
        LengthLine::Length { .. } | LengthLine::Invalid => Err(ProtocolError::BulkLength),
    }
}

enum LengthLine {
    Length { value: i64, end: usize },
    Partial,
    Invalid,
    TooLong,
}

/// Reads the number from `from` to the end of its line.
#[inline]
fn length_line(bytes: &[u8], from: usize, line_bytes_max: usize) -> LengthLine {
    // Eight digits cannot overflow, and no honest header has more than nine.
    let mut value: i64 = 0;
    for (index, &byte) in bytes[from..].iter().take(9).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 && index < 8 {
            value = value * 10 + i64::from(digit);
            continue;
        }
        let leading_zero = index > 1 && bytes[from] == b'0';
        if byte == b'\r' && index > 0 && !leading_zero && bytes.get(from + index + 1) == Some(&b'\n') {
            return LengthLine::Length { value, end: from + index + 2 };
        }
        break;
    }
    length_line_slow(bytes, from, line_bytes_max)
}

#[cold]
fn length_line_slow(bytes: &[u8], from: usize, line_bytes_max: usize) -> LengthLine {
    let line = &bytes[from..];
    // A line that is too long is so whether or not its end has arrived.
    let window = &line[..line.len().min(line_bytes_max + 1)];
    let Some(length) = window.iter().position(|&byte| byte == b'\r') else {
        return if line.len() > line_bytes_max { LengthLine::TooLong } else { LengthLine::Partial };
    };
    match (line.get(length + 1), parse_integer(&line[..length])) {
        (None, _) => LengthLine::Partial,
        (Some(b'\n'), Some(value)) => LengthLine::Length { value, end: from + length + 2 },
        _ => LengthLine::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{
        Command, ProtocolError, RespLimits, RespTaken, ScanStep, any_array, next_command, short_array,
    };

    /// Whatever is read the short way is read the long way, too, and everything that is short is.
    #[test]
    fn short_arrays_are_what_any_array_is() {
        let longest = "x".repeat(99);
        let commands = [
            Command::from_args(&["GET", "key:000000000001"]),
            Command::from_args(&["SET", "", "\r\n$3\r\n"]),
            Command::from_args(&["1", "2", "3", "4", "5", "6", "7", &longest]),
            Command::from_args(&["GET", &"x".repeat(100)]),
            Command::from_args(&["1", "2", "3", "4", "5", "6", "7", "8", "9"]),
        ];
        let limits = RespLimits::default();
        let (mut shorts, mut wholes) = (0, 0);
        for (index, command) in commands.iter().enumerate() {
            let frame = [&command.frame()[..], b"*1\r\n"].concat();
            assert_eq!(short_array(&frame).is_some(), index < 3, "{command:?}");
            let cuts = (0..frame.len()).map(|length| frame[..length].to_vec());
            let changes = (0..frame.len()).flat_map(|at| {
                let frame = &frame;
                b"*$\r\n0123456789-x".iter().map(move |&byte| {
                    let mut changed = frame.clone();
                    changed[at] = byte;
                    changed
                })
            });
            for bytes in cuts.chain(changes).filter(|bytes| bytes.first() == Some(&b'*')) {
                let whole = match any_array(&bytes, &limits) {
                    Ok(ScanStep::Whole { args, end }) => Some((args, end)),
                    _ => None,
                };
                wholes += usize::from(whole.is_some());
                if let Some(short) = short_array(&bytes) {
                    shorts += 1;
                    assert_eq!(Some(short), whole, "{}", bytes.escape_ascii());
                }
            }
        }
        assert!(shorts > 1000 && wholes > shorts, "{shorts} {wholes}");
    }

    #[test]
    fn only_a_client_hello_is_taken_for_tls() {
        let taken =
            |bytes: &'static [u8]| next_command(&mut Bytes::from_static(bytes), &RespLimits::default());
        assert_eq!(taken(b"\x16\x03\x01\x02\x00\x01rest"), Err(ProtocolError::TlsHello));
        assert!(matches!(taken(b"\x16"), Ok(RespTaken::Needs(_))));
        assert!(matches!(taken(b"\x16\x03\r\n"), Ok(RespTaken::Command(_))));
        // In pieces this is two commands, and so it is in one.
        assert!(matches!(taken(b"\x16\x03+\r\n\x01"), Ok(RespTaken::Command(_))));
    }

    #[test]
    fn a_browser_is_known_by_a_line_and_nothing_after_it_is_taken() {
        let mut buffer = Bytes::from_static(b"PING\r\nPOST / HTTP/1.1\r\nSET k v\r\n");
        let limits = RespLimits::default();
        assert!(matches!(next_command(&mut buffer, &limits), Ok(RespTaken::Command(_))));
        assert_eq!(next_command(&mut buffer, &limits), Err(ProtocolError::Http));
        let mut array = Bytes::from_static(b"*2\r\n$5\r\nHOST:\r\n$1\r\na\r\n");
        assert!(
            matches!(next_command(&mut array, &limits), Ok(RespTaken::Command(_))),
            "no browser sends that"
        );
    }

    #[test]
    fn memcached_binary_is_known_by_its_first_bytes_however_they_arrive() {
        let taken =
            |bytes: &'static [u8]| next_command(&mut Bytes::from_static(bytes), &RespLimits::default());
        assert_eq!(taken(b"\x80"), Ok(RespTaken::Needs(2)));
        // A NOOP, whose opcode would be a line's end.
        assert_eq!(taken(b"\x80\x0a"), Ok(RespTaken::Needs(3)));
        assert_eq!(taken(b"\x80\x0a\0"), Err(ProtocolError::MemcachedBinary));
        assert_eq!(taken(b"\x80\x0a\0\0\0\0\0\0\0\0\0\0"), Err(ProtocolError::MemcachedBinary));
        assert!(matches!(taken(b"\x80\xff\n"), Ok(RespTaken::Command(_))));
        assert!(matches!(taken(b"\x80\xff\xff\n\0\0\0\0"), Ok(RespTaken::Command(_))));
    }
}
