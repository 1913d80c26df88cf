//! Output buffers that connections borrow while they have something to say. Not the system call's policy.

use std::io;

use crate::reactor::connection::ReactorConnection;
use crate::reactor::socket::Stream;

/// A drained buffer up to this size is used again: the output of a busy turn fits, a bulk reply is freed.
const SPARE_BYTES_MAX: usize = 64 << 10;
/// Memory held in spare buffers: enough for every connection of a busy turn to find one.
const SPARES_BYTES_MAX: usize = 2 << 20;

#[derive(Debug, Default)]
pub(crate) struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity > 0 && capacity <= SPARE_BYTES_MAX && self.bytes + capacity <= SPARES_BYTES_MAX {
            buffer.clear();
            self.bytes += capacity;
            self.buffers.push(buffer);
        }
    }
}

impl ReactorConnection {
    /// The buffer to append to.
    pub(crate) fn out(&mut self, spares: &mut Spares) -> &mut Vec<u8> {
        if self.out.capacity() == 0 {
            self.out = spares.take();
        } else if self.sent > 0 && self.sent >= self.out.len() / 2 {
            // At most as much is moved as was written, so the cost per byte stays constant.
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        &mut self.out
    }

    /// Gives the socket all it takes in one call. True when nothing is left, and then no buffer either.
    pub(crate) fn write(&mut self, spares: &mut Spares) -> io::Result<bool> {
        while self.pending() > 0 {
            let Some(stream) = &mut self.stream else { return Ok(false) };
            let wanted = self.out.len() - self.sent;
            match stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    if count < wanted {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        spares.give(std::mem::take(&mut self.out));
        self.stream.as_mut().map_or(Ok(true), Stream::flush)
    }
}
