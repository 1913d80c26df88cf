//! A blocking connection from which replies come whole. Not what is asked over it.

use std::io::{self, Read, Write};

use bytes::Bytes;
use wire::resp::{ReplyScanner, Value};

const CHUNK_BYTES: usize = 16 << 10;

pub(crate) struct ReplyConnection<S> {
    stream: S,
    received: Vec<u8>,
    /// Bytes of them that have been taken.
    at: usize,
}

impl<S: Read + Write> ReplyConnection<S> {
    pub(crate) fn new(stream: S) -> ReplyConnection<S> {
        ReplyConnection { stream, received: Vec::new(), at: 0 }
    }

    pub(crate) fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames)
    }

    /// The next reply in RESP.
    pub(crate) fn receive(&mut self) -> io::Result<Value> {
        let mut scanner = ReplyScanner::new();
        self.receive_as(|received| {
            let Some(length) = scanner.scan(received).map_err(io::Error::other)? else { return Ok(None) };
            let frame = Bytes::copy_from_slice(&received[..length]);
            Ok(Some((length, Value::parse(&frame).map_err(io::Error::other)?)))
        })
    }

    /// The next reply, of which `whole` tells the length and the value once all of it is there.
    pub(crate) fn receive_as(
        &mut self,
        mut whole: impl FnMut(&[u8]) -> io::Result<Option<(usize, Value)>>,
    ) -> io::Result<Value> {
        loop {
            if let Some((length, value)) = whole(&self.received[self.at..])? {
                self.at += length;
                if self.at == self.received.len() {
                    self.received.clear();
                    self.at = 0;
                }
                return Ok(value);
            }
            let mut chunk = [0; CHUNK_BYTES];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.received.extend_from_slice(&chunk[..count]),
            }
        }
    }
}
