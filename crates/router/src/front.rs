//! Client connections of the front door: their output, their limits and when they are read. Not their commands.

use bytes::Bytes;
use protocol::router::ClientId;
use runtime::reactor::{ConnectionId, Io, OUT_LOW_BYTES};
use wire::memcached::RequestReader;

use crate::engine::Front;

/// A client that lets this much pile up, in multiples of the limit at which it is not read any more, does not
/// read at all and is closed.
const OUT_LIMITS_MAX: usize = 256;
/// The same for messages that it has subscribed to, which nobody holds back.
const PUSH_LIMITS_MAX: usize = 32;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// Bytes that the next command needs at least.
    pub(crate) needs: usize,
    /// Reading is paused until the pipeline or the output has drained.
    pub(crate) halted: bool,
    pub(crate) seen_us: u64,
    /// Of a client that speaks memcached.
    pub(crate) requests: RequestReader,
}

/// The connections by the index that is their `ClientId` too.
#[derive(Debug)]
pub(crate) struct Connections {
    connections: Vec<Option<Connection>>,
    count: usize,
    out_bytes_max: usize,
    /// Closed because they did not read their replies.
    pub(crate) slow_total: u64,
    /// To be taken from the machine once its step is over.
    pub(crate) dropped: Vec<ClientId>,
    resumes: bool,
}

impl Connections {
    pub(crate) fn new(out_bytes_max: usize) -> Connections {
        let connections = Vec::new();
        Connections {
            connections,
            count: 0,
            out_bytes_max,
            slow_total: 0,
            dropped: Vec::new(),
            resumes: true,
        }
    }

    pub(crate) fn set_out_bytes_max(&mut self, out_bytes_max: usize) {
        self.out_bytes_max = out_bytes_max;
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn insert(&mut self, id: ConnectionId, now_us: u64) -> ClientId {
        if self.connections.len() <= id.index() {
            self.connections.resize_with(id.index() + 1, || None);
        }
        self.count += 1;
        let requests = RequestReader::default();
        self.connections[id.index()] =
            Some(Connection { id, needs: 0, halted: false, seen_us: now_us, requests });
        ClientId(id.index() as u32)
    }

    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Connection> {
        self.connections.get_mut(client.0 as usize)?.as_mut()
    }

    /// The client of a connection, if it is one of these and still there.
    pub(crate) fn client(&self, id: ConnectionId) -> Option<ClientId> {
        let found = self.connections.get(id.index())?.as_ref()?;
        (found.id == id).then_some(ClientId(id.index() as u32))
    }

    pub(crate) fn remove(&mut self, client: ClientId) -> Option<Connection> {
        let removed = self.connections.get_mut(client.0 as usize)?.take()?;
        self.count -= 1;
        Some(removed)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (ClientId, &Connection)> {
        let indexed = self.connections.iter().enumerate();
        indexed.filter_map(|(index, found)| Some((ClientId(index as u32), found.as_ref()?)))
    }

    pub(crate) fn output_full(&self, io: &Io, id: ConnectionId) -> bool {
        io.out_bytes(id) > self.out_bytes_max
    }

    pub(crate) fn halt(&mut self, io: &mut Io, client: ClientId) {
        if let Some(connection) = self.get_mut(client) {
            connection.halted = true;
            io.pause(connection.id);
        }
    }

    /// No connection is read again: the instance is stopping.
    pub(crate) fn halt_all(&mut self, io: &mut Io) {
        self.resumes = false;
        for connection in self.connections.iter_mut().flatten() {
            connection.halted = true;
            io.pause(connection.id);
        }
    }

    /// Reads again if the output allows. Whether the pipeline does is the caller's to know.
    pub(crate) fn resume_if_drained(&mut self, io: &mut Io, client: ClientId) {
        let (out_bytes_max, resumes) = (self.out_bytes_max, self.resumes);
        let Some(connection) = self.get_mut(client).filter(|connection| connection.halted && resumes) else {
            return;
        };
        if io.out_bytes(connection.id) <= out_bytes_max {
            connection.halted = false;
            io.resume(connection.id);
        }
    }

    fn write(&mut self, io: &mut Io, client: ClientId, bytes: &[u8], limits_max: usize) {
        let Some(id) = self.get_mut(client).map(|connection| connection.id) else { return };
        if self.output_full(io, id) && io.out_bytes(id) > self.out_bytes_max * limits_max {
            tracing::warn!(bytes = io.out_bytes(id), "a client that does not read its replies is closed");
            self.slow_total += 1;
            io.close(id);
            self.remove(client);
            self.dropped.push(client);
            return;
        }
        io.out(id).extend_from_slice(bytes);
    }
}

impl Front for Connections {
    fn reply(&mut self, io: &mut Io, client: ClientId, bytes: Bytes) {
        self.write(io, client, &bytes, OUT_LIMITS_MAX);
    }

    fn part(&mut self, io: &mut Io, client: ClientId, bytes: Bytes) -> bool {
        self.write(io, client, &bytes, OUT_LIMITS_MAX);
        let connection = self.get_mut(client).map(|connection| connection.id);
        connection.is_some_and(|connection| io.out_bytes(connection) <= OUT_LOW_BYTES)
    }

    fn push(&mut self, io: &mut Io, client: ClientId, bytes: Bytes) {
        self.write(io, client, &bytes, PUSH_LIMITS_MAX);
    }

    fn close(&mut self, io: &mut Io, client: ClientId) {
        if let Some(connection) = self.remove(client) {
            io.close_flushed(connection.id);
        }
    }

    fn resume(&mut self, io: &mut Io, client: ClientId) {
        self.resume_if_drained(io, client);
    }
}
