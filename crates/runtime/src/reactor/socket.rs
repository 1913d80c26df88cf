//! TCP (plain or TLS) and Unix sockets behind one enum, with the options that every connection gets. Not their buffers.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::reactor::tls::TlsStream;
use crate::tls::{Acceptor, Dialer, VouchedRoles};
use crate::upgrade::sockets;
use config::Address;

/// Connections that the kernel holds until they are accepted: a reconnecting herd of clients must fit.
const BACKLOG: i32 = 1024;
/// A peer whose machine has vanished is noticed after about a minute of silence.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Starts to connect, and then to shake hands. A Unix socket stays plain.
    pub(crate) fn connect_tls(address: &Address, dialer: &Dialer) -> io::Result<Stream> {
        match address {
            Address::Tcp(address) => {
                let session = dialer.session(address.ip())?;
                let socket = mio::net::TcpStream::connect(*address)?;
                let stream = TlsStream::dialled(socket, session, dialer.tally().clone());
                Ok(Stream::Tls(Box::new(stream)))
            }
            Address::Unix(_) => Stream::connect(address),
        }
    }

    /// An accepted socket, secured if it can be reached from elsewhere: a Unix socket is as safe as its directory.
    pub(crate) fn secured(self, acceptor: &Acceptor) -> io::Result<Stream> {
        match self {
            Stream::Tcp(socket) => {
                let session = acceptor.session()?;
                let stream = TlsStream::accepted(socket, session, acceptor.tally().clone());
                Ok(Stream::Tls(Box::new(stream)))
            }
            stream => Ok(stream),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// The TLS handshake has come to nothing; of which table of the configuration it was.
    pub(crate) fn count_failure(&self) -> &'static str {
        match self {
            Stream::Tls(stream) => stream.count_failure(),
            _ => "",
        }
    }

    pub(crate) fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Tcp(address) => mio::net::TcpStream::connect(*address).map(Stream::Tcp),
            Address::Unix(path) => mio::net::UnixStream::connect(path).map(Stream::Unix),
        }
    }

    /// No delay, and a probe for peers that vanish. Failure is no reason to refuse a connection.
    pub(crate) fn tune(&self) {
        let stream = match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Tls(stream) => Some(&stream.socket),
            Stream::Unix(_) => None,
        };
        if let Some(stream) = stream {
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
    pub(crate) fn connected(&mut self) -> Option<io::Result<()>> {
        let (error, peer) = match self {
            Stream::Tls(stream) => return stream.opened(),
            Stream::Tcp(stream) => (stream.take_error(), stream.peer_addr().map(drop)),
            Stream::Unix(stream) => (stream.take_error(), stream.peer_addr().map(drop)),
        };
        outcome(error, peer)
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }

    /// Whether a read may have left something behind that the kernel does not report again; `filled` if it took all that
    /// it was allowed to.
    pub(crate) fn has_more(&self, filled: bool) -> bool {
        match self {
            Stream::Tls(stream) => stream.has_more(),
            _ => filled,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    /// What the transport itself holds back goes to the kernel; true once there is nothing.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Stream::Tls(stream) => stream.flush(),
            _ => Ok(true),
        }
    }

    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Stream::Tls(stream) => stream.is_flushed(),
            _ => true,
        }
    }

    /// Whether the other end has ended and everything that it sent was read.
    pub(crate) fn is_drained(&mut self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = match self {
            Stream::Tcp(stream) => SockRef::from(&*stream).peek(&mut byte),
            Stream::Unix(stream) => SockRef::from(&*stream).peek(&mut byte),
            Stream::Tls(stream) => return stream.is_drained(),
        };
        peeked.map_or_else(|error| error.kind() != io::ErrorKind::WouldBlock, |count| count == 0)
    }

    pub(crate) fn shutdown_output(&mut self) {
        // An error says that the connection is gone already.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => {
                stream.shutdown_output();
                Ok(())
            }
        };
    }

    /// This end's; `None` for a Unix socket, which has none that means anything.
    pub(crate) fn own_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.local_addr().ok(),
            Stream::Tls(stream) => stream.socket.local_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// What the other end's certificate vouches for; without TLS nobody shows one.
    pub(crate) fn vouched_roles(&self) -> VouchedRoles {
        match self {
            Stream::Tls(stream) => stream.vouched_roles(),
            Stream::Tcp(_) | Stream::Unix(_) => VouchedRoles::ALL,
        }
    }

    pub(crate) fn peer_address(&self) -> Option<Address> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok().map(Address::Tcp),
            Stream::Tls(stream) => stream.socket.peer_addr().ok().map(Address::Tcp),
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
            Stream::Tls(stream) => &mut stream.socket,
        }
    }

    pub(crate) fn register(&mut self, poll: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        poll.register(self.source(), token, interest)
    }

    pub(crate) fn reregister(&mut self, poll: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        poll.reregister(self.source(), token, interest)
    }
}

/// Whether a socket is connected; `None` while that is open.
pub(crate) fn outcome(error: io::Result<Option<io::Error>>, peer: io::Result<()>) -> Option<io::Result<()>> {
    match (error, peer) {
        (Ok(Some(error)), _) | (Err(error), _) => Some(Err(error)),
        (Ok(None), Ok(())) => Some(Ok(())),
        (Ok(None), Err(error)) if error.kind() == io::ErrorKind::NotConnected => None,
        (Ok(None), Err(error)) => Some(Err(error)),
    }
}

#[derive(Debug)]
pub(crate) enum ListenerSocket {
    Tcp(mio::net::TcpListener),
    Unix(mio::net::UnixListener),
}

impl AsFd for ListenerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListenerSocket::Tcp(listener) => listener.as_fd(),
            ListenerSocket::Unix(listener) => listener.as_fd(),
        }
    }
}

impl ListenerSocket {
    /// Listens at `address`, or goes on with what the process before has listened with there.
    pub(crate) fn bind(address: &Address) -> io::Result<ListenerSocket> {
        if let Some(inherited) = sockets::inherited(address) {
            return match address {
                Address::Tcp(_) => {
                    let listener = std::net::TcpListener::from(inherited);
                    listener.set_nonblocking(true)?;
                    Ok(ListenerSocket::Tcp(mio::net::TcpListener::from_std(listener)))
                }
                Address::Unix(_) => {
                    let listener = std::os::unix::net::UnixListener::from(inherited);
                    listener.set_nonblocking(true)?;
                    Ok(ListenerSocket::Unix(mio::net::UnixListener::from_std(listener)))
                }
            };
        }
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

    /// An error says that it was not watched.
    pub(crate) fn deregister(&mut self, poll: &Registry) {
        let _ = match self {
            ListenerSocket::Tcp(listener) => poll.deregister(listener),
            ListenerSocket::Unix(listener) => poll.deregister(listener),
        };
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
