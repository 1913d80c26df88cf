//! Client connections of the front door: their output, their limits and when they are read. Not their commands.

use bytes::Bytes;
use config::FrontProtocol;
use protocol::router::{ClientId, CloseReason};
use protocol::time::Time;
use runtime::reactor::{ConnectionId, Io, OUT_LOW_BYTES};
use wire::memcached::RequestReader;

use crate::closing::told;
use crate::engine::Front;
use crate::kept::Kept;
use crate::siblings::Siblings;

/// A client that lets this much pile up, in multiples of the limit at which no more of its commands are carried out, does
/// not read at all and is closed.
const OUT_LIMITS_MAX: usize = 256;
/// The same for messages that it has subscribed to, which nobody holds back.
const PUSH_LIMITS_MAX: usize = 32;
/// Unread replies may take the memory that commands which wait for them would take otherwise, up to so many limits.
const AHEAD_LIMITS_MAX: usize = 32;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// Bytes that the next command needs at least.
    pub(crate) needs: usize,
    /// Reading is paused: too much is kept, or the client is to be closed.
    pub(crate) halted: bool,
    /// What is kept is handed in in the next turn.
    pub(crate) due: bool,
    /// It waits, with large commands, for links that have much to take yet.
    pub(crate) held_back: bool,
    /// It sends no more. The machine learns of it behind everything that is kept.
    pub(crate) ended: bool,
    /// What it has sent and cannot be handed in yet.
    pub(crate) kept: Kept,
    /// Memory of `kept`, as it was counted last.
    counted_bytes: usize,
    pub(crate) seen: Time,
    /// Requests of a client that speaks memcached.
    pub(crate) requests: RequestReader,
}

impl Connection {
    fn new(id: ConnectionId, now: Time) -> Connection {
        Connection {
            id,
            needs: 0,
            halted: false,
            due: false,
            held_back: false,
            ended: false,
            kept: Kept::default(),
            counted_bytes: 0,
            seen: now,
            requests: RequestReader::default(),
        }
    }

    /// Whether something of it counts as kept.
    pub(crate) fn was_kept(&self) -> bool {
        self.counted_bytes > 0
    }
}

/// The connections by the index that is their `ClientId` too.
#[derive(Debug)]
pub(crate) struct Connections {
    siblings: Siblings,
    connections: Vec<Option<Connection>>,
    count: usize,
    out_bytes_max: usize,
    /// What is kept of all clients.
    kept_bytes: usize,
    /// Closed because the replies that they did not read had become too many at once.
    pub(crate) slow_total: u64,
    protocol: FrontProtocol,
    /// To be taken from the machine once its step is over.
    pub(crate) dropped: Vec<ClientId>,
    resumes: bool,
}

impl Connections {
    pub(crate) fn new(out_bytes_max: usize, protocol: FrontProtocol, siblings: Siblings) -> Connections {
        Connections {
            siblings,
            connections: Vec::new(),
            count: 0,
            out_bytes_max,
            kept_bytes: 0,
            slow_total: 0,
            protocol,
            dropped: Vec::new(),
            resumes: true,
        }
    }

    pub(crate) fn set_out_bytes_max(&mut self, out_bytes_max: usize) {
        self.out_bytes_max = out_bytes_max;
    }

    /// Memory of all clients' commands that wait.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn insert(&mut self, id: ConnectionId, now: Time) -> ClientId {
        if self.connections.len() <= id.index() {
            self.connections.resize_with(id.index() + 1, || None);
        }
        self.count += 1;
        self.siblings.add_client();
        self.connections[id.index()] = Some(Connection::new(id, now));
        ClientId(id.index() as u32)
    }

    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Connection> {
        self.connections.get_mut(client.0 as usize)?.as_mut()
    }

    pub(crate) fn get(&self, client: ClientId) -> Option<&Connection> {
        self.connections.get(client.0 as usize)?.as_ref()
    }

    /// The client of a connection, if it is one of these and still there.
    pub(crate) fn client(&self, id: ConnectionId) -> Option<ClientId> {
        let found = self.connections.get(id.index())?.as_ref()?;
        (found.id == id).then_some(ClientId(id.index() as u32))
    }

    pub(crate) fn remove(&mut self, client: ClientId) -> Option<Connection> {
        let removed = self.connections.get_mut(client.0 as usize)?.take()?;
        self.count -= 1;
        self.siblings.remove_client();
        self.kept_bytes -= removed.counted_bytes;
        Some(removed)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (ClientId, &Connection)> {
        let indexed = self.connections.iter().enumerate();
        indexed.filter_map(|(index, found)| Some((ClientId(index as u32), found.as_ref()?)))
    }

    /// Whether so much output is unread that no more commands are carried out while these wait. Where many do, as much may
    /// be unread: a command that is kept costs no less than its reply then.
    pub(crate) fn output_full(&self, io: &Io, id: ConnectionId, waiting_bytes: usize) -> bool {
        let ahead_bytes = waiting_bytes.min(self.out_bytes_max.saturating_mul(AHEAD_LIMITS_MAX));
        // Below the low mark no event would say that it has been taken.
        io.out_bytes(id) > self.out_bytes_max.max(ahead_bytes).max(OUT_LOW_BYTES)
    }

    pub(crate) fn halt(&mut self, io: &mut Io, client: ClientId) {
        if let Some(connection) = self.get_mut(client) {
            connection.halted = true;
            io.pause(connection.id);
        }
    }

    /// The client is to be closed once it has its replies: nothing more that it sends counts.
    pub(crate) fn end_input(&mut self, io: &mut Io, client: ClientId) {
        self.halt(io, client);
        if let Some(connection) = self.get_mut(client) {
            connection.kept = Kept::default();
            let counted = std::mem::take(&mut connection.counted_bytes);
            self.kept_bytes -= counted;
        }
    }

    /// No connection is read again, and nothing more is handed in: the instance is stopping.
    pub(crate) fn halt_all(&mut self, io: &mut Io) {
        self.resumes = false;
        for connection in self.connections.iter_mut().flatten() {
            connection.halted = true;
            connection.kept = Kept::default();
            self.kept_bytes -= std::mem::take(&mut connection.counted_bytes);
            io.pause(connection.id);
        }
    }

    /// What the client has sent is handed in in the next turn, as far as that is possible then.
    pub(crate) fn wake(&mut self, io: &mut Io, client: ClientId) {
        let Some(connection) = self.get_mut(client) else { return };
        if !connection.due && !connection.kept.is_empty() {
            connection.due = true;
            io.call_again(connection.id);
        }
    }

    /// Takes notice of what is kept. Only a client with too much of it is not read.
    pub(crate) fn recount(&mut self, io: &mut Io, client: ClientId, in_bytes_max: usize) {
        let resumes = self.resumes;
        let Some(connection) = self.get_mut(client) else { return };
        let held = connection.kept.memory_bytes();
        let before = std::mem::replace(&mut connection.counted_bytes, held);
        if held >= in_bytes_max && !connection.halted {
            connection.halted = true;
            io.pause(connection.id);
        } else if connection.halted && resumes && held <= in_bytes_max / 2 {
            connection.halted = false;
            io.resume(connection.id);
        }
        self.kept_bytes = self.kept_bytes - before + held;
    }

    /// The connection of a client that may be told more. One that leaves so many limits unread is closed.
    fn reading(&mut self, io: &mut Io, client: ClientId, limits_max: usize) -> Option<ConnectionId> {
        let id = self.get_mut(client)?.id;
        if io.out_bytes(id) > self.out_bytes_max * limits_max {
            tracing::warn!(bytes = io.out_bytes(id), "a client that does not read its replies is closed");
            self.slow_total += 1;
            io.close(id);
            self.remove(client);
            self.dropped.push(client);
            return None;
        }
        Some(id)
    }
}

impl Front for Connections {
    fn reply(&mut self, io: &mut Io, client: ClientId, bytes: Bytes) {
        if let Some(id) = self.reading(io, client, OUT_LIMITS_MAX) {
            io.out(id).extend_from_slice(&bytes);
        }
    }

    fn part(&mut self, io: &mut Io, client: ClientId, bytes: Bytes) -> bool {
        let Some(id) = self.reading(io, client, OUT_LIMITS_MAX) else { return false };
        io.out(id).extend_from_slice(&bytes);
        io.out_bytes(id) <= OUT_LOW_BYTES
    }

    fn push(&mut self, io: &mut Io, client: ClientId, bytes: Bytes) {
        if let Some(id) = self.reading(io, client, PUSH_LIMITS_MAX) {
            io.out(id).extend_from_slice(&bytes);
        }
    }

    fn close(&mut self, io: &mut Io, client: ClientId, reason: &CloseReason) {
        let Some(Connection { id, .. }) = self.remove(client) else { return };
        let Some(told) = told(reason) else { return io.close_flushed(id) };
        let from = io.peer_address(id).map_or_else(String::new, |from| from.to_string());
        tracing::warn!(from, reason = told, "a client is closed");
        match *reason {
            CloseReason::Memory { tells: true, .. } | CloseReason::Unread { tells: true, .. } => {
                let error = match self.protocol {
                    FrontProtocol::Memcached => "SERVER_ERROR",
                    FrontProtocol::Redis => "-ERR",
                };
                let line = format!("{error} DistCache: closed: {told}\r\n");
                io.out(id).extend_from_slice(line.as_bytes());
                io.close_lingering(id);
            }
            _ => io.close(id),
        }
    }

    fn resume(&mut self, io: &mut Io, client: ClientId) {
        self.wake(io, client);
    }
}
