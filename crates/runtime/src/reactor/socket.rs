//! TCP and Unix sockets behind one enum, with the options that every connection gets. Not their buffers.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::address::Address;

/// Connections that the kernel holds until they are accepted: a reconnecting herd of clients must fit.
const BACKLOG: i32 = 1024;
/// A peer whose machine has vanished is noticed after about a minute of silence.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
}

impl Stream {
    pub(crate) fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Tcp(address) => mio::net::TcpStream::connect(*address).map(Stream::Tcp),
            Address::Unix(path) => mio::net::UnixStream::connect(path).map(Stream::Unix),
        }
    }

    /// No delay, and a probe for peers that vanish. Failure is no reason to refuse a connection.
    pub(crate) fn tune(&self) {
        if let Stream::Tcp(stream) = self {
            let keepalive = TcpKeepalive::new()
                .with_time(KEEPALIVE_TIME)
                .with_interval(KEEPALIVE_INTERVAL)
                .with_retries(3);
            let tuned = stream.set_nodelay(true).and(SockRef::from(stream).set_tcp_keepalive(&keepalive));
            if let Err(error) = tuned {
                tracing::debug!(%error, "socket options were refused");
            }
        }
    }

    /// Whether a dialled connection is there; `None` while it is still being made.
    pub(crate) fn connected(&self) -> Option<io::Result<()>> {
        let (error, peer) = match self {
            Stream::Tcp(stream) => (stream.take_error(), stream.peer_addr().map(drop)),
            Stream::Unix(stream) => (stream.take_error(), stream.peer_addr().map(drop)),
        };
        match (error, peer) {
            (Ok(Some(error)), _) | (Err(error), _) => Some(Err(error)),
            (Ok(None), Ok(())) => Some(Ok(())),
            (Ok(None), Err(error)) if error.kind() == io::ErrorKind::NotConnected => None,
            (Ok(None), Err(error)) => Some(Err(error)),
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    /// Whether the other end has ended and everything that it sent was read.
    pub(crate) fn is_drained(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = match self {
            Stream::Tcp(stream) => SockRef::from(stream).peek(&mut byte),
            Stream::Unix(stream) => SockRef::from(stream).peek(&mut byte),
        };
        peeked.map_or_else(|error| error.kind() != io::ErrorKind::WouldBlock, |count| count == 0)
    }

    pub(crate) fn shutdown_output(&self) {
        // An error says that the connection is gone already.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    pub(crate) fn peer_address(&self) -> Option<Address> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok().map(Address::Tcp),
            Stream::Unix(stream) => {
                let address = stream.peer_addr().ok()?;
                Some(Address::Unix(address.as_pathname().unwrap_or(Path::new("")).to_path_buf()))
            }
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }

    pub(crate) fn register(&mut self, poll: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        poll.register(self.source(), token, interest)
    }

    pub(crate) fn reregister(&mut self, poll: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        poll.reregister(self.source(), token, interest)
    }
}

#[derive(Debug)]
pub(crate) enum ListenerSocket {
    Tcp(mio::net::TcpListener),
    Unix(mio::net::UnixListener),
}

impl ListenerSocket {
    pub(crate) fn bind(address: &Address) -> io::Result<ListenerSocket> {
        match address {
            Address::Tcp(address) => {
                let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
                socket.set_reuse_address(true)?;
                socket.set_nonblocking(true)?;
                socket.bind(&(*address).into())?;
                socket.listen(BACKLOG)?;
                Ok(ListenerSocket::Tcp(mio::net::TcpListener::from_std(socket.into())))
            }
            Address::Unix(path) => {
                remove_stale(path)?;
                mio::net::UnixListener::bind(path).map(ListenerSocket::Unix)
            }
        }
    }

    pub(crate) fn register(&mut self, poll: &Registry, token: Token) -> io::Result<()> {
        match self {
            ListenerSocket::Tcp(listener) => poll.register(listener, token, Interest::READABLE),
            ListenerSocket::Unix(listener) => poll.register(listener, token, Interest::READABLE),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            ListenerSocket::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            ListenerSocket::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }

    pub(crate) fn local_address(&self, bound: &Address) -> Address {
        match self {
            ListenerSocket::Tcp(listener) => listener.local_addr().map_or(bound.clone(), Address::Tcp),
            ListenerSocket::Unix(_) => bound.clone(),
        }
    }
}

/// Removes the socket file that a crashed process has left. Anything else at `path` stays, and so does the
/// socket of a process that still answers: then binding fails with `AddrInUse`.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match mio::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Ok(()),
    }
}
