//! The connections of one process to its storage, as its storage machine uses them. Not when bytes arrive.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bytes::{Bytes, BytesMut};
use protocol::storage::network::{ConnectionId, Endpoint, Network};

/// What the machine wants done with a connection.
#[derive(Debug)]
pub(crate) enum Action {
    Dial(ConnectionId, Endpoint),
    /// Once what is left to write is written; nothing is left where it was closed at once.
    Close(ConnectionId, Bytes),
    Resume(ConnectionId),
}

#[derive(Debug, Default)]
struct Link {
    out: Vec<u8>,
    unread: BytesMut,
    paused: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Links {
    /// All its connections have numbers from here on, which no other process has.
    next: u64,
    links: BTreeMap<ConnectionId, Link>,
    /// Where output for connections that are gone ends up.
    sink: Vec<u8>,
    actions: Vec<Action>,
}

impl Links {
    pub(crate) fn new(first: u64) -> Links {
        Links { next: first, links: BTreeMap::new(), sink: Vec::new(), actions: Vec::new() }
    }

    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    pub(crate) fn has(&self, connection: ConnectionId) -> bool {
        self.links.contains_key(&connection)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = ConnectionId> {
        self.links.keys().copied()
    }

    /// Connections with something to write.
    pub(crate) fn writing(&self) -> Vec<ConnectionId> {
        let writing = self.links.iter().filter(|(_, link)| !link.out.is_empty());
        writing.map(|(connection, _)| *connection).collect()
    }

    /// The kernel takes so many bytes of what is to be written.
    pub(crate) fn write(&mut self, connection: ConnectionId, bytes: usize) -> Bytes {
        let Some(link) = self.links.get_mut(&connection) else { return Bytes::new() };
        let bytes = bytes.min(link.out.len());
        link.out.drain(..bytes).collect::<Vec<u8>>().into()
    }

    /// Bytes have come. What the machine is to be given, unless it does not read now.
    pub(crate) fn come(&mut self, connection: ConnectionId, bytes: &[u8]) -> Option<Bytes> {
        let link = self.links.get_mut(&connection)?;
        link.unread.extend_from_slice(bytes);
        (!link.paused && !link.unread.is_empty()).then(|| link.unread.split().freeze())
    }

    /// The connection is no more; the machine may ask about it until it has been told.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        self.links.remove(&connection);
    }
}

impl Network for Links {
    fn dial(&mut self, to: Endpoint, _urgent: bool) -> ConnectionId {
        let connection = ConnectionId(self.next);
        self.next += 1;
        self.links.insert(connection, Link::default());
        self.actions.push(Action::Dial(connection, to));
        connection
    }

    fn out(&mut self, connection: ConnectionId) -> &mut Vec<u8> {
        self.sink.clear();
        self.links.get_mut(&connection).map_or(&mut self.sink, |link| &mut link.out)
    }

    fn unwritten_bytes(&self, connection: ConnectionId) -> usize {
        self.links.get(&connection).map_or(0, |link| link.out.len())
    }

    fn unread(&mut self, connection: ConnectionId, rest: Bytes) {
        if let Some(link) = self.links.get_mut(&connection) {
            let later = std::mem::take(&mut link.unread);
            link.unread.extend_from_slice(&rest);
            link.unread.extend_from_slice(&later);
        }
    }

    fn pause(&mut self, connection: ConnectionId) {
        if let Some(link) = self.links.get_mut(&connection) {
            link.paused = true;
        }
    }

    fn resume(&mut self, connection: ConnectionId) {
        if let Some(link) = self.links.get_mut(&connection)
            && std::mem::take(&mut link.paused)
        {
            self.actions.push(Action::Resume(connection));
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        if self.links.remove(&connection).is_some() {
            self.actions.push(Action::Close(connection, Bytes::new()));
        }
    }

    fn close_confirmed(&mut self, connection: ConnectionId) {
        if let Some(link) = self.links.remove(&connection) {
            self.actions.push(Action::Close(connection, link.out.into()));
        }
    }

    fn own_address(&self, connection: ConnectionId) -> Option<SocketAddr> {
        self.has(connection).then(|| address(connection))
    }
}

/// The address of a process's end: each connection has its own, and no later one has it again.
pub(crate) fn address(connection: ConnectionId) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from(u128::from(connection.0))), 40_000)
}
