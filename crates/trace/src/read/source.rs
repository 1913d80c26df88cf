//! The decompressed bytes of a trace, read in large pieces and lent out in small ones. No formats.

use std::io::{self, ErrorKind, Read};

use memchr::memchr;

/// Read from the file at once: enough that system calls do not count, little enough to stay in a core's cache.
const PIECE: usize = 256 << 10;
/// Longer lines are no keys, and must not fill the memory.
const LINE_BYTES_MAX: usize = 1 << 20;

pub(crate) struct ByteSource {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Where `start` is in the decompressed data, in bytes.
    offset: u64,
    ended: bool,
    /// Why it ended, if it should not have; told when everything before has been consumed.
    error: Option<io::Error>,
}

impl ByteSource {
    pub(crate) fn new(input: Box<dyn Read + Send>) -> ByteSource {
        ByteSource { input, buffer: vec![0; PIECE], start: 0, end: 0, offset: 0, ended: false, error: None }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes that come next: at least `want` of them unless the data ends before.
    pub(crate) fn peek(&mut self, want: usize) -> io::Result<&[u8]> {
        if self.end - self.start < want {
            self.refill(want);
            if self.end - self.start < want {
                self.fail()?;
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// The first bytes, as many as can be read up to `want`.
    pub(crate) fn head(&mut self, want: usize) -> io::Result<&[u8]> {
        self.refill(want);
        if self.end == 0 {
            self.fail()?;
        }
        Ok(&self.buffer[..self.end.min(want)])
    }

    /// Takes bytes that `peek` has shown.
    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "only what was seen is consumed");
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// The next line without its end, and how many bytes it takes with it; None after the last one.
    pub(crate) fn line(&mut self) -> io::Result<Option<(&[u8], usize)>> {
        let mut searched = 0;
        let length = loop {
            let seen = self.end - self.start;
            if let Some(at) = memchr(b'\n', &self.buffer[self.start + searched..self.end]) {
                break searched + at;
            }
            if self.ended || seen > LINE_BYTES_MAX {
                self.fail()?;
                break seen;
            }
            searched = seen;
            self.refill(seen + 1);
        };
        if length > LINE_BYTES_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("a line of over {LINE_BYTES_MAX} bytes"),
            ));
        }
        let taken = (length + 1).min(self.end - self.start);
        if taken == 0 {
            return Ok(None);
        }
        let line = &self.buffer[self.start..self.start + length];
        Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), taken)))
    }

    fn fail(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Reads until `want` bytes are there or the data ends.
    fn refill(&mut self, want: usize) {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < want + PIECE / 2 {
            self.buffer.resize((want + PIECE).next_power_of_two(), 0);
        }
        while self.end < want && !self.ended {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => (self.ended, self.error) = (true, Some(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of a few, as a decompressor or a pipe may.
    struct Drip(Vec<u8>, usize);

    impl Read for Drip {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.1.min(self.0.len()).min(buffer.len());
            buffer[..bytes].copy_from_slice(&self.0[..bytes]);
            self.0.drain(..bytes);
            Ok(bytes)
        }
    }

    fn lines(data: &[u8], drip: usize) -> Vec<Vec<u8>> {
        let mut source = ByteSource::new(Box::new(Drip(data.to_vec(), drip)));
        let mut lines = Vec::new();
        while let Some((line, taken)) = source.line().unwrap() {
            lines.push(line.to_vec());
            source.consume(taken);
        }
        assert_eq!(source.offset(), data.len() as u64);
        lines
    }

    #[test]
    fn lines_end_in_either_way_and_the_last_may_lack_its_end() {
        for drip in [1, 2, 7, 1000] {
            assert_eq!(lines(b"a\nbc\r\n\n\r\nd", drip), [&b"a"[..], b"bc", b"", b"", b"d"]);
            assert_eq!(lines(b"a\n", drip), [b"a"]);
            assert!(lines(b"", drip).is_empty());
        }
        let long = [vec![b'x'; PIECE * 2], vec![b'\n'], vec![b'y'; 10]].concat();
        assert_eq!(lines(&long, 100_000).iter().map(Vec::len).collect::<Vec<_>>(), [PIECE * 2, 10]);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut source = ByteSource::new(Box::new(io::repeat(b'x')));
        assert!(source.line().unwrap_err().to_string().contains("a line of over 1048576 bytes"));
    }

    #[test]
    fn what_is_peeked_is_there_until_it_is_consumed() {
        let data: Vec<u8> = (0..=255).cycle().take(3 * PIECE + 5).collect();
        let mut source = ByteSource::new(Box::new(Drip(data.clone(), 1013)));
        assert!(source.peek(PIECE + 1).unwrap().len() > PIECE);
        let mut seen = Vec::new();
        loop {
            let piece = source.peek(24).unwrap();
            if piece.is_empty() {
                break;
            }
            let piece = piece[..piece.len().min(24)].to_vec();
            source.consume(piece.len());
            seen.extend_from_slice(&piece);
        }
        assert_eq!(seen, data);
    }
}
