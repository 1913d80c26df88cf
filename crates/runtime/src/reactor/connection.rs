//! The connections of one reactor in a slab whose ids are checked by generation. Not their events.

use bytes::BytesMut;
use mio::Token;

use crate::reactor::socket::Stream;
use crate::reactor::{ConnectionId, ListenerId};

/// Everything a connection costs while it is idle; buffers exist only while they hold something.
#[derive(Debug)]
pub(crate) struct ReactorConnection {
    /// `None` when dialling failed at once; `Closed` is on its way.
    pub(crate) stream: Option<Stream>,
    pub(crate) listener: Option<ListenerId>,
    /// Output, of which the first `sent` bytes are written already.
    pub(crate) out: Vec<u8>,
    pub(crate) sent: usize,
    /// What the driver gave back.
    pub(crate) rest: BytesMut,
    /// Bytes of its buffers, as `Io` has counted them last.
    pub(crate) counted_bytes: usize,
    /// Not there yet, or in its TLS handshake: the driver does not know an accepted one.
    pub(crate) connecting: bool,
    /// In the dirty list.
    pub(crate) dirty: bool,
    /// The socket took less than it was given; the next try waits for an edge.
    pub(crate) blocked: bool,
    /// Registered for writability too.
    pub(crate) watched: bool,
    /// Output has been above the low mark since the last `Writable`.
    pub(crate) high: bool,
    pub(crate) paused: bool,
    /// Hand `rest` to the driver again even if nothing is read.
    pub(crate) replay: bool,
    /// Call the driver even if nothing is read, and even while it is paused.
    pub(crate) again: bool,
    /// In the list of connections that are read without a new edge.
    pub(crate) queued: bool,
    /// The other end has said that it sends no more: read up to the end.
    pub(crate) ending: bool,
    /// It was read up to there, and the driver goes on.
    pub(crate) ended: bool,
    /// Closed by the driver, lives on until its output is written.
    pub(crate) closing: bool,
    /// Then until the other end has ended, too: what it sends is read and thrown away.
    pub(crate) lingers: bool,
    /// And a driver that has come to its end waits for that.
    pub(crate) confirms: bool,
    /// Broken; `Closed` is queued.
    pub(crate) dead: bool,
    /// Read and written before the others, whatever they have.
    pub(crate) urgent: bool,
}

impl ReactorConnection {
    pub(crate) fn new(stream: Option<Stream>, listener: Option<ListenerId>) -> ReactorConnection {
        ReactorConnection {
            stream,
            listener,
            out: Vec::new(),
            sent: 0,
            rest: BytesMut::new(),
            counted_bytes: 0,
            connecting: false,
            dirty: false,
            blocked: false,
            watched: false,
            high: false,
            paused: false,
            replay: false,
            again: false,
            queued: false,
            ending: false,
            ended: false,
            closing: false,
            lingers: false,
            confirms: false,
            dead: false,
            urgent: false,
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Memory that its buffers take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.rest.capacity() + self.out.capacity()
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.pending() == 0 && self.stream.as_ref().is_none_or(Stream::is_flushed)
    }
}

/// Ten thousand idle clients are held in little more than this each.
const _: () = assert!(size_of::<Slot>() <= 160);

#[derive(Debug)]
struct Slot {
    generation: u32,
    connection: Option<ReactorConnection>,
}

#[derive(Debug, Default)]
pub(crate) struct ReactorConnections {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Tokens of listeners have this bit; generations stay below it.
const LISTENER_BIT: usize = 1 << 63;
const GENERATION_MASK: u32 = u32::MAX >> 1;
pub(crate) const WAKER: Token = Token(usize::MAX);

/// What a token stands for.
pub(crate) enum TokenTarget {
    Waker,
    Listener(ListenerId),
    Connection(ConnectionId),
}

impl TokenTarget {
    pub(crate) fn of(token: Token) -> TokenTarget {
        match token {
            WAKER => TokenTarget::Waker,
            Token(value) if value & LISTENER_BIT != 0 => TokenTarget::Listener(ListenerId(value as u32)),
            Token(value) => TokenTarget::Connection(ConnectionId {
                index: value as u32,
                generation: (value >> 32) as u32,
            }),
        }
    }
}

impl ListenerId {
    pub(crate) fn token(self) -> Token {
        Token(LISTENER_BIT | self.0 as usize)
    }
}

impl ConnectionId {
    pub(crate) fn token(self) -> Token {
        Token((self.generation as usize) << 32 | self.index as usize)
    }
}

impl ReactorConnections {
    pub(crate) fn insert(&mut self, connection: ReactorConnection) -> ConnectionId {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.connection = Some(connection);
            return ConnectionId { index, generation: slot.generation };
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, connection: Some(connection) });
        ConnectionId { index, generation: 0 }
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&ReactorConnection> {
        let slot = self.slots.get(id.index())?;
        slot.connection.as_ref().filter(|_| slot.generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut ReactorConnection> {
        let slot = self.slots.get_mut(id.index())?;
        slot.connection.as_mut().filter(|_| slot.generation == id.generation)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ReactorConnection> {
        self.slots.iter().filter_map(|slot| slot.connection.as_ref())
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<ReactorConnection> {
        let slot = self.slots.get_mut(id.index())?;
        if slot.generation != id.generation {
            return None;
        }
        let connection = slot.connection.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push(id.index);
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::{ListenerId, ReactorConnection, ReactorConnections, TokenTarget};

    #[test]
    fn an_old_id_does_not_name_the_new_connection_in_its_place() {
        let mut connections = ReactorConnections::default();
        let old = connections.insert(ReactorConnection::new(None, None));
        assert!(connections.remove(old).is_some());
        let new = connections.insert(ReactorConnection::new(None, None));
        assert_eq!(new.index(), old.index());
        assert_ne!(new, old);
        assert!(connections.get(old).is_none());
        assert!(connections.get_mut(old).is_none());
        assert!(connections.remove(old).is_none());
        assert!(connections.get(new).is_some());
        let token = new.token();
        assert!(matches!(TokenTarget::of(token), TokenTarget::Connection(id) if id == new));
        assert!(matches!(TokenTarget::of(ListenerId(3).token()), TokenTarget::Listener(ListenerId(3))));
    }
}
