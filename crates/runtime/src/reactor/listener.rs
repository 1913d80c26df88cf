//! Listening sockets: what they accept, by TLS or plain, here or for other reactors. Not who gets which connection.

use std::io;

use mio::Interest;
use protocol::time::Time;

use crate::clock;
use crate::reactor::connection::ReactorConnection;
use crate::reactor::deal::Seat;
use crate::reactor::socket::{ListenerSocket, Stream};
use crate::reactor::{ConnectionId, Io, ListenerId};
use crate::tls::Acceptor;
use crate::upgrade::sockets::{self, SharedSocket};
use config::Address;

#[derive(Debug)]
pub(crate) struct Listener {
    /// It has none where another reactor has it, and deals its connections out.
    pub(crate) socket: Option<ListenerSocket>,
    acceptor: Option<Acceptor>,
    address: Address,
    /// Where it has the socket.
    _shared: Option<SharedSocket>,
    /// Accepting has failed; it is tried again every tick.
    pub(crate) starved: bool,
    /// When that was logged last.
    pub(crate) starved_told: Option<Time>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (Address::Unix(path), Some(_)) = (&self.address, &self.socket)
            && !sockets::are_given()
        {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Io {
    /// Accepts connections at `address` from now on. A Unix socket that a crashed process left is replaced.
    pub fn listen(&mut self, address: &Address) -> io::Result<ListenerId> {
        let mut socket = ListenerSocket::bind(address)?;
        let id = ListenerId(self.listeners.len() as u32);
        // A process that has not found the others yet leaves clients to the one before.
        if !sockets::are_held() {
            socket.register(&self.registry, id.token())?;
        }
        let shared = SharedSocket::new(address, &socket);
        self.listeners.push(Some(Listener {
            address: socket.local_address(address),
            _shared: Some(shared),
            socket: Some(socket),
            acceptor: None,
            starved: false,
            starved_told: None,
        }));
        Ok(id)
    }

    /// Accepts at `address` what passes a TLS handshake, if there is an `acceptor`; the driver learns of nothing else. A
    /// Unix socket stays plain.
    pub fn listen_tls(&mut self, address: &Address, acceptor: Option<&Acceptor>) -> io::Result<ListenerId> {
        let id = self.listen(address)?;
        if let Some(listener) = &mut self.listeners[id.0 as usize] {
            listener.acceptor = acceptor.cloned();
        }
        Ok(id)
    }

    /// The same listener as another reactor's, whose next one it has to be: that accepts, and deals connections out to this
    /// one, too, once they are joined by a [`super::Dealer`].
    pub fn share_listener(&mut self, of: &Io) -> ListenerId {
        let id = ListenerId(self.listeners.len() as u32);
        let shared = of.listeners[id.0 as usize].as_ref().map(|listener| Listener {
            socket: None,
            acceptor: listener.acceptor.clone(),
            address: listener.address.clone(),
            _shared: None,
            starved: false,
            starved_told: None,
        });
        self.listeners.push(shared);
        id
    }

    /// Where it listens, with port 0 resolved.
    ///
    /// # Panics
    /// If the listener has been closed.
    pub fn local_address(&self, listener: ListenerId) -> Address {
        self.listeners[listener.0 as usize].as_ref().expect("an open listener").address.clone()
    }

    /// Accepts from now on what another process has left to this one.
    pub fn open_listener(&mut self, listener: ListenerId) {
        let listening = self.listeners[listener.0 as usize].as_mut();
        if let Some(socket) = listening.and_then(|listener| listener.socket.as_mut())
            && let Err(error) = socket.register(&self.registry, listener.token())
        {
            tracing::error!(%error, "a listening socket cannot be watched");
        }
    }

    /// Stops accepting here, as of a listener that others share; what was dealt out to them is still theirs.
    pub fn retire_listener(&mut self, listener: ListenerId) {
        if self.listeners[listener.0 as usize].as_ref().is_some_and(|listener| listener.socket.is_some()) {
            self.close_listener(listener);
        }
    }

    /// Stops accepting. Connections accepted before stay.
    pub fn close_listener(&mut self, listener: ListenerId) {
        let mut closed = self.listeners[listener.0 as usize].take();
        if let Some(socket) = closed.as_mut().and_then(|listener| listener.socket.as_mut()) {
            // Another process may have it, too: closing it alone would leave it watched.
            socket.deregister(&self.registry);
        }
    }

    /// The next connection of a listener; `None` if it was turned away, or has its TLS handshake before it.
    pub(crate) fn accept(&mut self, id: ListenerId) -> io::Result<Option<ConnectionId>> {
        let Some(listener) = &mut self.listeners[id.0 as usize] else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let Some(socket) = &listener.socket else { return Err(io::ErrorKind::WouldBlock.into()) };
        let stream = socket.accept()?;
        listener.starved = false;
        Ok(match &self.seat {
            Some(seat) => seat.deal(id, stream).and_then(|own| self.admit(id, own)),
            None => self.admit(id, stream),
        })
    }

    /// An accepted connection becomes this reactor's; `None` as in `accept`.
    pub(crate) fn admit(&mut self, id: ListenerId, mut stream: Stream) -> Option<ConnectionId> {
        let left = |seat: &Option<Seat>| seat.iter().for_each(Seat::left);
        let Some(listener) = &self.listeners[id.0 as usize] else {
            // It listens no more.
            left(&self.seat);
            return None;
        };
        stream.tune();
        if let Some(acceptor) = &listener.acceptor {
            stream = match stream.secured(acceptor) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "an accepted connection gets no TLS session and is closed");
                    left(&self.seat);
                    return None;
                }
            };
        }
        let is_tls = stream.is_tls();
        let mut connection = ReactorConnection::new(Some(stream), Some(id));
        connection.connecting = is_tls;
        let connection = self.connections.insert(connection);
        let interest = if is_tls { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        if let Err(error) = self.register(connection, interest) {
            tracing::warn!(%error, "an accepted connection cannot be watched and is closed");
            self.forget(connection);
            return None;
        }
        if is_tls {
            self.watch_accepted(connection, clock::now());
            return None;
        }
        Some(connection)
    }

    pub(crate) fn is_tls_listener(&self, id: ListenerId) -> bool {
        self.listeners[id.0 as usize].as_ref().is_some_and(|listener| listener.acceptor.is_some())
    }

    /// The listener of a connection that was accepted.
    pub(crate) fn listener_of(&self, id: ConnectionId) -> Option<ListenerId> {
        self.connections.get(id)?.listener
    }
}
