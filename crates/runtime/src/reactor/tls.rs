//! TLS over one TCP socket: ciphertext through a rustls session, plaintext for the reactor. Not whose certificates.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::Connection;

use crate::reactor::socket::outcome;
use crate::tls::{HandshakeTally, VouchedRoles, explain};

/// Ciphertext that the kernel has not taken holds back further encryption from here on.
const PLAINTEXT_STEP_BYTES: usize = 64 << 10;
/// Plaintext of one record that began in an earlier read, with room to spare.
const RECORD_BYTES_MAX: usize = 20 << 10;
/// Reads of the socket for one read of plaintext, so that records without any do not hold a turn.
const ROUNDS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(crate) socket: TcpStream,
    session: Connection,
    /// The socket itself is connected; only then does the handshake begin.
    connected: bool,
    /// The other end has said that it sends no more.
    closed: bool,
    /// The last read has left something behind.
    more: bool,
    tally: Arc<HandshakeTally>,
}

impl TlsStream {
    pub(crate) fn accepted(socket: TcpStream, session: Connection, tally: Arc<HandshakeTally>) -> TlsStream {
        TlsStream { socket, session, connected: true, closed: false, more: false, tally }
    }

    pub(crate) fn dialled(socket: TcpStream, session: Connection, tally: Arc<HandshakeTally>) -> TlsStream {
        TlsStream { connected: false, ..TlsStream::accepted(socket, session, tally) }
    }

    /// Whether the connection is there with its handshake done; `None` while it is being made.
    pub(crate) fn opened(&mut self) -> Option<io::Result<()>> {
        if !self.connected {
            match outcome(self.socket.take_error(), self.socket.peer_addr().map(drop)) {
                Some(Ok(())) => {
                    self.connected = true;
                    // The handshake is a conversation.
                    let _ = self.socket.set_nodelay(true);
                }
                open_or_error => return open_or_error,
            }
        }
        match self.shake() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Goes on with the handshake; true once it is over.
    fn shake(&mut self) -> io::Result<bool> {
        loop {
            self.flush()?;
            if !self.session.is_handshaking() {
                self.tally.succeeded();
                return Ok(true);
            }
            match self.session.read_tls(&mut self.socket) {
                Ok(0) => {
                    let what = "the other end has closed the connection during the TLS handshake";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
                }
                Ok(_) => self.process()?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What the other end's certificate vouches for; the session has verified it.
    pub(crate) fn vouched_roles(&self) -> VouchedRoles {
        let chain = self.session.peer_certificates().and_then(<[_]>::first);
        chain.map_or(VouchedRoles::ALL, VouchedRoles::of)
    }

    pub(crate) fn count_failure(&self) -> &'static str {
        self.tally.failed();
        self.tally.table()
    }

    /// Plaintext into the first half of `buffer`; the other half takes ciphertext on its way.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (plain, cipher) = buffer.split_at_mut(buffer.len() / 2);
        let mut count = self.take(plain)?;
        self.more = true;
        for _ in 0..ROUNDS_MAX {
            let room = plain.len().saturating_sub(count + RECORD_BYTES_MAX).min(cipher.len());
            if self.closed || room == 0 {
                return Ok(count);
            }
            let read = match self.socket.read(&mut cipher[..room]) {
                Ok(read) => read,
                Err(_) if count > 0 => return Ok(count),
                Err(error) => return Err(error),
            };
            if read == 0 {
                return Ok(count);
            }
            count += self.decrypt(&cipher[..read], &mut plain[count..])?;
            if read < room && !self.closed {
                self.more = false;
                return if count > 0 { Ok(count) } else { Err(io::ErrorKind::WouldBlock.into()) };
            }
        }
        if count > 0 || self.closed { Ok(count) } else { Err(io::ErrorKind::Interrupted.into()) }
    }

    /// Whether the last `read` may have left something behind that the kernel does not report again.
    pub(crate) fn has_more(&self) -> bool {
        self.more
    }

    fn decrypt(&mut self, mut cipher: &[u8], plain: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while !cipher.is_empty() && self.session.read_tls(&mut cipher)? > 0 {
            self.process()?;
            count += self.take(&mut plain[count..])?;
        }
        if self.session.wants_write() {
            // An answer of the session itself; what does not fit goes out before the next output.
            self.flush()?;
        }
        Ok(count)
    }

    /// Moves plaintext that is there already.
    fn take(&mut self, plain: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < plain.len() {
            match self.session.reader().read(&mut plain[count..]) {
                Ok(0) => {
                    self.closed = true;
                    break;
                }
                Ok(taken) => count += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    fn process(&mut self) -> io::Result<()> {
        match self.session.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The alert that tells the other end why; it is only a courtesy.
                let _ = self.flush();
                Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    explain(&error, self.session.is_handshaking()),
                ))
            }
        }
    }

    /// Encrypts what the socket takes, and at most one step more: a byte counts as written once it is encrypted.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < bytes.len() {
            if !self.flush()? {
                return if count > 0 { Ok(count) } else { Err(io::ErrorKind::WouldBlock.into()) };
            }
            let step = &bytes[count..bytes.len().min(count + PLAINTEXT_STEP_BYTES)];
            match self.session.writer().write(step)? {
                0 => break,
                written => count += written,
            }
        }
        self.flush()?;
        Ok(count)
    }

    /// Gives the socket the ciphertext that waits; true once nothing does.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(crate) fn is_flushed(&self) -> bool {
        !self.session.wants_write()
    }

    /// Whether nothing but the end is left to read. What is there besides stays in the session.
    pub(crate) fn is_drained(&mut self) -> bool {
        loop {
            match self.session.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return false,
                Ok(state) if state.peer_has_closed() => return true,
                Ok(_) => {}
                Err(_) => return true,
            }
            match self.session.read_tls(&mut self.socket) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Says that no more comes, then ends the socket's output.
    pub(crate) fn shutdown_output(&mut self) {
        self.session.send_close_notify();
        // An error says that the connection is gone already.
        let _ = self.flush();
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}
