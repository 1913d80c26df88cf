//! Finds where a reply ends, in RESP2 and RESP3, without keeping or understanding it.

use super::error::ProtocolError;
use super::number::parse_integer;

/// Largest string in a reply: Redis' own limit, with the room that a message between roles leaves.
pub(super) const STRING_BYTES_MAX: i64 = crate::codec::VALUE_BYTES_MAX as i64;
/// Redis' own limit on the elements of one aggregate.
pub(super) const ELEMENTS_MAX: i64 = i32::MAX as i64;
/// More than any string line that Redis writes; a stream without line ends is not followed for ever.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Remembers how far it came, so that a large reply is scanned once however many reads it takes.
///
/// Nesting needs no stack: what counts is how many elements are still owed.
#[derive(Clone, Debug, Default)]
pub struct ReplyScanner {
    /// Where the next element starts.
    position: usize,
    /// Up to where that element's line was searched for its end.
    searched: usize,
    /// Elements still owed to the reply in progress; zero between replies.
    owed: u64,
    needed: usize,
}

impl ReplyScanner {
    pub fn new() -> ReplyScanner {
        ReplyScanner::default()
    }

    /// Length of the first complete reply in `bytes`, `None` until it is complete. `bytes` starts where the
    /// reply starts, at every call; after a length was returned, it starts behind that reply. Attributes
    /// belong to the reply that follows them; a push (`>`) is a reply of its own.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.owed == 0 {
            *self = ReplyScanner { owed: 1, ..ReplyScanner::default() };
        }
        while self.owed > 0 {
            let Some((end, children)) = self.element(bytes)? else { return Ok(None) };
            self.position = end;
            self.searched = end;
            let owed = (self.owed - 1).checked_add(children);
            self.owed = owed.ok_or(ProtocolError::ReplyMalformed)?;
        }
        Ok(Some(self.position))
    }

    /// After `scan` said `None`: no reply is complete before this many bytes are there.
    pub fn needed(&self) -> usize {
        self.needed
    }

    /// Where the element at `position` ends, without its own elements, and how many of those follow.
    fn element(&mut self, bytes: &[u8]) -> Result<Option<(usize, u64)>, ProtocolError> {
        let Some(&kind) = bytes.get(self.position) else {
            self.needed = self.position + 1;
            return Ok(None);
        };
        let shape = shape(kind)?;
        let Some(line_end) = self.line_end(bytes)? else { return Ok(None) };
        let line = &bytes[self.position + 1..line_end - 2];
        match shape {
            HeaderLine::Line => Ok(Some((line_end, 0))),
            HeaderLine::String => {
                let Some(length) = length(line, STRING_BYTES_MAX)? else { return Ok(Some((line_end, 0))) };
                let end = line_end + length as usize;
                match bytes.get(end..end + 2) {
                    Some(b"\r\n") => Ok(Some((end + 2, 0))),
                    Some(_) => Err(ProtocolError::ReplyMalformed),
                    None => {
                        self.needed = end + 2;
                        Ok(None)
                    }
                }
            }
            HeaderLine::Elements { each, extra } => {
                let count = length(line, ELEMENTS_MAX)?.unwrap_or(0);
                Ok(Some((line_end, count * each + extra)))
            }
        }
    }

    fn line_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let from = self.searched.max(self.position + 1);
        let Some(newline) = bytes.get(from..).unwrap_or_default().iter().position(|&byte| byte == b'\n')
        else {
            self.searched = bytes.len();
            self.needed = bytes.len() + 1;
            if bytes.len() - self.position > LINE_BYTES_MAX {
                return Err(ProtocolError::ReplyMalformed);
            }
            return Ok(None);
        };
        // The line may have to be read again when its string is not whole yet; it ends in the same place.
        self.searched = from + newline;
        let end = from + newline + 1;
        if end - self.position < 3 || bytes[end - 2] != b'\r' {
            return Err(ProtocolError::ReplyMalformed);
        }
        Ok(Some(end))
    }
}

pub(super) enum HeaderLine {
    Line,
    String,
    Elements { each: u64, extra: u64 },
}

pub(super) fn shape(kind: u8) -> Result<HeaderLine, ProtocolError> {
    Ok(match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => HeaderLine::Line,
        b'$' | b'=' | b'!' => HeaderLine::String,
        b'*' | b'~' | b'>' => HeaderLine::Elements { each: 1, extra: 0 },
        b'%' => HeaderLine::Elements { each: 2, extra: 0 },
        b'|' => HeaderLine::Elements { each: 2, extra: 1 },
        other => return Err(ProtocolError::ReplyType(other)),
    })
}

/// A length, `None` for the null `-1` of RESP2.
pub(super) fn length(line: &[u8], max: i64) -> Result<Option<u64>, ProtocolError> {
    match parse_integer(line) {
        Some(-1) => Ok(None),
        Some(length) if (0..=max).contains(&length) => Ok(Some(length as u64)),
        _ => Err(ProtocolError::ReplyMalformed),
    }
}
