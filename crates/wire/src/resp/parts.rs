//! Follows a reply that is handed on piece by piece, without ever having the whole of it. Not where a small one ends.

use super::error::ProtocolError;
use super::scan::{ELEMENTS_MAX, HeaderLine, STRING_BYTES_MAX, length, shape};

/// The line before a string or an aggregate: a sign and nineteen digits are the most that a number has.
const LENGTH_LINE_BYTES_MAX: usize = 32;

/// Where the next byte of the reply stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FramePlace {
    /// An element begins.
    #[default]
    Element,
    /// In an element that is one line; `true` behind a carriage return.
    Line(bool),
    /// In a string of so many bytes more.
    String(u64),
    /// Behind a string: so many of its two last bytes are still to come.
    End(u8),
}

/// Follows one reply that comes in parts. Nesting needs no stack: what counts is how many elements are still owed.
#[derive(Clone, Debug)]
pub struct PartScanner {
    owed: u64,
    place: FramePlace,
}

impl Default for PartScanner {
    fn default() -> PartScanner {
        PartScanner { owed: 1, place: FramePlace::Element }
    }
}

impl PartScanner {
    /// How many of `bytes`, which go on where the last ones taken ended, belong to the reply and may be handed on. What is
    /// not taken is to be given again, with more behind it.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, ProtocolError> {
        let mut at = 0;
        while self.owed > 0 && at < bytes.len() {
            let rest = &bytes[at..];
            let taken = match self.place {
                FramePlace::Element => self.element(rest)?,
                FramePlace::Line(returned) => self.line(rest, returned)?,
                FramePlace::String(left) => {
                    let taken = left.min(rest.len() as u64);
                    let left = left - taken;
                    self.place = if left == 0 { FramePlace::End(2) } else { FramePlace::String(left) };
                    taken as usize
                }
                FramePlace::End(left) => {
                    if rest[0] != b"\r\n"[2 - usize::from(left)] {
                        return Err(ProtocolError::ReplyMalformed);
                    }
                    match left {
                        2 => self.place = FramePlace::End(1),
                        _ => self.ended(0)?,
                    }
                    1
                }
            };
            if taken == 0 {
                break;
            }
            at += taken;
        }
        Ok(at)
    }

    /// Whether the reply is complete with what was taken.
    pub fn is_ended(&self) -> bool {
        self.owed == 0
    }

    fn element(&mut self, bytes: &[u8]) -> Result<usize, ProtocolError> {
        let shape = shape(bytes[0])?;
        if matches!(shape, HeaderLine::Line) {
            self.place = FramePlace::Line(false);
            return Ok(1);
        }
        let window = &bytes[1..bytes.len().min(LENGTH_LINE_BYTES_MAX)];
        let Some(newline) = window.iter().position(|&byte| byte == b'\n') else {
            let long = bytes.len() >= LENGTH_LINE_BYTES_MAX;
            return if long { Err(ProtocolError::ReplyMalformed) } else { Ok(0) };
        };
        let line = window[..newline].strip_suffix(b"\r").ok_or(ProtocolError::ReplyMalformed)?;
        match shape {
            HeaderLine::String => match length(line, STRING_BYTES_MAX)? {
                Some(0) => self.place = FramePlace::End(2),
                Some(bytes) => self.place = FramePlace::String(bytes),
                None => self.ended(0)?,
            },
            HeaderLine::Elements { each, extra } => {
                let count = length(line, ELEMENTS_MAX)?.unwrap_or(0);
                self.ended(count * each + extra)?;
            }
            HeaderLine::Line => unreachable!("it was looked at above"),
        }
        Ok(newline + 2)
    }

    fn line(&mut self, bytes: &[u8], returned: bool) -> Result<usize, ProtocolError> {
        let Some(newline) = bytes.iter().position(|&byte| byte == b'\n') else {
            self.place = FramePlace::Line(bytes.last() == Some(&b'\r'));
            return Ok(bytes.len());
        };
        let ends = if newline == 0 { returned } else { bytes[newline - 1] == b'\r' };
        if !ends {
            return Err(ProtocolError::ReplyMalformed);
        }
        self.ended(0)?;
        Ok(newline + 1)
    }

    /// An element is behind us, which owes so many others.
    fn ended(&mut self, children: u64) -> Result<(), ProtocolError> {
        self.place = FramePlace::Element;
        self.owed = (self.owed - 1).checked_add(children).ok_or(ProtocolError::ReplyMalformed)?;
        Ok(())
    }
}
