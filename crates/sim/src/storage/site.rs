//! A storage server and the connections to it: what is on its way, and when the server gets to it. Not what processes make
//! of what they hear.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use protocol::storage::network::{ConnectionId, Network as _};
use wire::resp::reply;

use super::data::Changes;
use super::links::{Action, Links, address};
use super::redis::{Outcome, RedisServer};
use crate::random::SimRandom;

/// What happens at a connection.
#[derive(Debug)]
pub(crate) enum WireEvent {
    Connected(ConnectionId),
    /// The kernel takes more of what a process has to write.
    Flush(ConnectionId),
    /// Bytes reach the server.
    Arrive(ConnectionId, Bytes),
    /// The server sees that the other end has gone.
    End(ConnectionId),
    /// The server gets to the next command of a connection.
    Execute(ConnectionId),
    /// Bytes reach the process. `made`: it is a report of what had changed by then.
    Deliver {
        connection: ConnectionId,
        bytes: Bytes,
        /// When the server said it.
        said: u64,
        made: Option<u64>,
    },
    /// The process sees that the connection is no more.
    Broken(ConnectionId),
    /// The server has done what had come when its turn began, and reports what has changed meanwhile.
    TurnEnds,
}

/// Whose doing an event is: who does nothing now does it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doer {
    Server,
    /// The process that made this connection.
    Process(ConnectionId),
    Kernel,
}

impl WireEvent {
    pub(crate) fn doer(&self) -> Doer {
        match self {
            WireEvent::Arrive(..) | WireEvent::End(_) | WireEvent::Execute(_) | WireEvent::TurnEnds => {
                Doer::Server
            }
            WireEvent::Connected(connection)
            | WireEvent::Deliver { connection, .. }
            | WireEvent::Broken(connection) => Doer::Process(*connection),
            WireEvent::Flush(_) => Doer::Kernel,
        }
    }
}

/// The time, chance, and how long one way takes, mostly; microseconds.
pub(crate) struct Moment<'a> {
    pub(crate) now: u64,
    pub(crate) random: &'a mut SimRandom,
    pub(crate) latency: u64,
}

impl Moment<'_> {
    fn soon(&mut self) -> u64 {
        1 + self.random.wait(self.latency)
    }
}

/// What slows connections down now and then: percentages, and microseconds at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// The kernel takes only a part of what is written.
    pub(crate) part_percent: u64,
    pub(crate) part_delay: u64,
    /// The server gets to a connection late.
    pub(crate) late_percent: u64,
    pub(crate) late_delay: u64,
}

/// A server with connections, which carries out what came over each when it gets to it.
pub(crate) trait Server {
    /// A connection from this address is there; its number.
    fn accept(&mut self, from: SocketAddr) -> u64;

    /// Takes whole requests off what has come over a connection, unless it is no more.
    fn read(&mut self, now: u64, client: u64, received: &mut BytesMut);

    /// The other end of a connection has gone.
    fn end(&mut self, client: u64);

    fn knows(&self, client: u64) -> bool;

    /// Whether a connection has something that the server can get to.
    fn has_work(&self, client: u64) -> bool;

    /// Carries out the next request of a connection at `now_ms` of its clock. None: there is none, or it blocks.
    fn execute(&mut self, now_ms: u64, client: u64) -> Option<Outcome>;
}

/// A connection between a process and the server, in both directions in order.
#[derive(Debug)]
struct Wire {
    client: u64,
    /// At the server, not a whole command yet.
    received: BytesMut,
    arrives_at: u64,
    delivers_at: u64,
    /// The server does not get to it before.
    rests_until: u64,
    /// The turn of the server in which it was read last, by its beginning, and when.
    read_in: Option<(u64, u64)>,
    /// When what has been changed since it tracks, and has not been reported to the process, was changed.
    unheard: VecDeque<u64>,
}

/// A turn of the server's loop in which something has changed. Redis gathers the keys that change during a turn and sends
/// them at its end. What has arrived when the turn begins is answered within it, before the report; what arrives later is
/// answered in a later turn.
#[derive(Debug)]
struct Turn {
    since: u64,
    ends: u64,
    changed: BTreeSet<Vec<u8>>,
}

/// A command that was carried out, and for whom.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) connection: ConnectionId,
    pub(crate) outcome: Outcome,
}

pub(crate) struct Site<S> {
    pub(crate) server: S,
    pub(crate) habits: Habits,
    /// Nobody listens there: connections are refused.
    pub(crate) refuses: bool,
    wires: BTreeMap<ConnectionId, Wire>,
    turn: Option<Turn>,
    due: Vec<(u64, WireEvent)>,
}

impl<S: Server> Site<S> {
    pub(crate) fn new(server: S, habits: Habits) -> Site<S> {
        let (wires, due) = (BTreeMap::new(), Vec::new());
        Site { server, habits, refuses: false, wires, turn: None, due }
    }

    /// What is to happen, and when.
    pub(crate) fn take_due(&mut self) -> Vec<(u64, WireEvent)> {
        std::mem::take(&mut self.due)
    }

    /// What a process wants done with a connection. Some: what came on it is to be handed on now.
    pub(crate) fn act(&mut self, at: &mut Moment<'_>, action: Action) -> Option<ConnectionId> {
        match action {
            Action::Dial(connection, _) if self.refuses => {
                self.due.push((at.now + at.soon(), WireEvent::Broken(connection)));
                None
            }
            Action::Dial(connection, _) => {
                let wire = Wire {
                    client: self.server.accept(address(connection)),
                    received: BytesMut::new(),
                    arrives_at: 0,
                    delivers_at: 0,
                    rests_until: 0,
                    read_in: None,
                    unheard: VecDeque::new(),
                };
                let client = wire.client;
                self.wires.insert(connection, wire);
                self.due.push((at.now + at.soon(), WireEvent::Connected(connection)));
                if self.server.has_work(client) {
                    self.plan(at, connection);
                }
                None
            }
            Action::Close(connection, rest) => {
                self.send(at, connection, rest);
                let wait = at.soon();
                self.gone(at.now, connection, wait);
                None
            }
            Action::Resume(connection) => Some(connection),
        }
    }

    /// The process has left a connection; the server sees it so much later, behind what was written before.
    pub(crate) fn gone(&mut self, now: u64, connection: ConnectionId, wait: u64) {
        if let Some(wire) = self.wires.get_mut(&connection) {
            wire.unheard.clear();
            self.due.push((wire.arrives_at.max(now) + wait, WireEvent::End(connection)));
        }
    }

    /// Both ends find out that a connection is no more, each in its time. What has arrived at the server is carried out until
    /// then, although it does not get to it for a while.
    pub(crate) fn break_connection(
        &mut self,
        now: u64,
        connection: ConnectionId,
        (near, far, rest): (u64, u64, u64),
    ) {
        if let Some(wire) = self.wires.get_mut(&connection) {
            wire.rests_until = now + rest;
            self.due.push((now + near, WireEvent::Broken(connection)));
            self.due.push((now + far, WireEvent::End(connection)));
        }
    }

    /// Nothing reaches the process on this connection before.
    pub(crate) fn hang(&mut self, connection: ConnectionId, until: u64) {
        if let Some(wire) = self.wires.get_mut(&connection) {
            wire.delivers_at = wire.delivers_at.max(until);
        }
    }

    /// The kernel takes what a process has to write, or now and then a part of it.
    pub(crate) fn flush(&mut self, at: &mut Moment<'_>, links: &mut Links, connection: ConnectionId) {
        let part = at.random.percent(self.habits.part_percent);
        let bytes = if part { at.random.index(links.unwritten_bytes(connection) + 1) } else { usize::MAX };
        let written = links.write(connection, bytes);
        self.send(at, connection, written);
        if part {
            let wait = at.random.below(self.habits.part_delay + 1);
            self.due.push((at.now + wait, WireEvent::Flush(connection)));
        }
    }

    fn send(&mut self, at: &mut Moment<'_>, connection: ConnectionId, bytes: Bytes) {
        let wait = at.soon();
        let Some(wire) = self.wires.get_mut(&connection).filter(|_| !bytes.is_empty()) else { return };
        wire.arrives_at = wire.arrives_at.max(at.now + wait);
        self.due.push((wire.arrives_at, WireEvent::Arrive(connection, bytes)));
    }

    pub(crate) fn arrive(&mut self, at: &mut Moment<'_>, connection: ConnectionId, bytes: &[u8]) {
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        let client = wire.client;
        wire.received.extend_from_slice(bytes);
        let had_work = self.server.has_work(client);
        self.server.read(at.now, client, &mut wire.received);
        if !had_work && self.server.has_work(client) {
            self.plan(at, connection);
        }
    }

    /// When the server gets to a connection: soon, or when it has done everything else.
    fn plan(&mut self, at: &mut Moment<'_>, connection: ConnectionId) {
        let late = at.random.percent(self.habits.late_percent);
        // Commands that came together still leave room between them for those of other connections.
        let most = if late { self.habits.late_delay } else { at.latency / 16 };
        let wait = at.random.below(most + 1);
        let rests_until = self.wires.get(&connection).map_or(0, |wire| wire.rests_until);
        self.due.push(((at.now + wait).max(rests_until), WireEvent::Execute(connection)));
    }

    /// The server sees that the other end of a connection has gone.
    pub(crate) fn end(&mut self, connection: ConnectionId) {
        if let Some(wire) = self.wires.get_mut(&connection) {
            wire.unheard.clear();
            self.server.end(wire.client);
            self.forget(connection);
        }
    }

    /// Nothing of a connection is left at the server.
    fn forget(&mut self, connection: ConnectionId) {
        let known = |wire: &Wire| self.server.knows(wire.client);
        if self.wires.get(&connection).is_some_and(|wire| !known(wire)) {
            self.wires.remove(&connection);
        }
    }

    /// The server gets to the next request of a connection.
    pub(crate) fn execute(
        &mut self,
        at: &mut Moment<'_>,
        now_ms: u64,
        connection: ConnectionId,
    ) -> Option<Done> {
        let client = self.wires.get(&connection)?.client;
        let Some(outcome) = self.server.execute(now_ms, client) else {
            self.forget(connection);
            return None;
        };
        Some(self.done(at, connection, outcome))
    }

    fn done(&mut self, at: &mut Moment<'_>, connection: ConnectionId, outcome: Outcome) -> Done {
        self.answer(at, connection, outcome.reply.clone(), None);
        self.cut(at, &outcome.killed);
        self.forget(connection);
        if self.wires.get(&connection).is_some_and(|wire| self.server.has_work(wire.client)) {
            self.plan(at, connection);
        }
        Done { connection, outcome }
    }

    fn answer(&mut self, at: &mut Moment<'_>, connection: ConnectionId, bytes: Bytes, made: Option<u64>) {
        let wait = at.soon();
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        wire.delivers_at = wire.delivers_at.max(at.now + wait);
        self.due.push((wire.delivers_at, WireEvent::Deliver { connection, bytes, said: at.now, made }));
    }

    /// The server has closed these connections: their other ends see it behind what was answered before.
    pub(crate) fn cut(&mut self, at: &mut Moment<'_>, clients: &[u64]) {
        let due = &mut self.due;
        self.wires.retain(|connection, wire| {
            let stays = !clients.contains(&wire.client);
            if !stays {
                due.push((wire.delivers_at.max(at.now + at.soon()), WireEvent::Broken(*connection)));
            }
            stays
        });
    }
}

/// Commands that block, and what the server reports of changes to connections that track.
impl Site<RedisServer> {
    /// As `execute`, in the turns of a server that reports what has changed.
    pub(crate) fn execute_in_turn(
        &mut self,
        at: &mut Moment<'_>,
        now_ms: u64,
        connection: ConnectionId,
    ) -> Option<Done> {
        let client = self.wires.get(&connection)?.client;
        if self.is_put_off(at.now, connection, client) {
            return None;
        }
        let tracked = self.server.tracks(client);
        let done = self.execute(at, now_ms, connection)?;
        if !tracked && let Some(wire) = self.wires.get_mut(&connection) {
            wire.unheard.clear();
        }
        Some(done)
    }

    /// A blocked command that can go on.
    pub(crate) fn wake(&mut self, at: &mut Moment<'_>, now_ms: u64) -> Option<Done> {
        self.server.blocked().into_iter().find_map(|client| {
            let outcome = self.server.execute(now_ms, client)?;
            let (connection, _) = self.wires.iter().find(|(_, wire)| wire.client == client)?;
            Some(self.done(at, *connection, outcome))
        })
    }

    /// What is asked on a connection that is told of changes, and has come since the turn began, waits for the next one.
    fn is_put_off(&mut self, now: u64, connection: ConnectionId, client: u64) -> bool {
        let Some(turn) = &self.turn else { return false };
        let Some((came, command)) = self.server.next(client) else { return false };
        let starts = command.name() == b"CLIENT" && command.arg(1) == b"TRACKING";
        if !starts && !self.server.tracks(client) {
            return false;
        }
        let Some(wire) = self.wires.get_mut(&connection) else { return false };
        // A connection is read once in a turn, with all that has come by then.
        let reading = (turn.since, now);
        if *came > turn.since && wire.read_in != Some(reading) {
            self.due.push((turn.ends.max(now + 1), WireEvent::Execute(connection)));
            return true;
        }
        wire.read_in = Some(reading);
        false
    }

    fn tracking(&mut self) -> impl Iterator<Item = (ConnectionId, &mut Wire)> {
        let server = &self.server;
        let wires = self.wires.iter_mut().filter(|(_, wire)| server.tracks(wire.client));
        wires.map(|(connection, wire)| (*connection, wire))
    }

    /// Who has read keys that have changed is told so at once, but for the one who changed them.
    fn report_reads(&mut self, at: &mut Moment<'_>, changes: &Changes, writer: Option<ConnectionId>) {
        let writer = writer.and_then(|writer| Some(self.wires.get(&writer)?.client));
        let changed = changes.keys.iter().map(|key| Some(key.as_slice()));
        for key in changed.chain(changes.all.then_some(None)) {
            let bytes = match key {
                Some(key) => push(Some(&BTreeSet::from([key.to_vec()]))),
                None => push(None),
            };
            for reader in self.server.take_readers(key, writer) {
                let connection = self.wires.iter().find(|(_, wire)| wire.client == reader);
                if let Some(connection) = connection.map(|(connection, _)| *connection) {
                    self.answer(at, connection, bytes.clone(), None);
                }
            }
        }
    }

    /// The next change of a key is told of because this connection has read it.
    pub(crate) fn track(&mut self, connection: ConnectionId, key: Bytes) {
        if let Some(wire) = self.wires.get(&connection) {
            self.server.track(wire.client, key);
        }
    }

    /// Keys have changed at the server, by a command on `writer` if it is a connection of a shim.
    pub(crate) fn report(&mut self, at: &mut Moment<'_>, changes: Changes, writer: Option<ConnectionId>) {
        self.report_reads(at, &changes, writer);
        let now = at.now;
        let mut heard = false;
        for (_, wire) in self.tracking() {
            wire.unheard.push_back(now);
            heard = true;
        }
        if !heard {
            return;
        }
        if changes.all {
            // Told at once, whatever has been gathered.
            return self.send_report(at, &push(None));
        }
        if self.turn.is_none() {
            let ends = now + at.random.wait(at.latency) / 2;
            self.turn = Some(Turn { since: now, ends, changed: BTreeSet::new() });
            self.due.push((ends, WireEvent::TurnEnds));
        }
        if let Some(turn) = &mut self.turn {
            turn.changed.extend(changes.keys);
        }
    }

    /// The server does nothing before.
    pub(crate) fn rest(&mut self, until: u64) {
        if let Some(turn) = &mut self.turn {
            turn.ends = until;
        }
    }

    pub(crate) fn turn_ends(&mut self, at: &mut Moment<'_>) {
        if let Some(turn) = self.turn.take() {
            self.send_report(at, &push(Some(&turn.changed)));
        }
    }

    fn send_report(&mut self, at: &mut Moment<'_>, bytes: &Bytes) {
        let connections: Vec<ConnectionId> = self.tracking().map(|(connection, _)| connection).collect();
        for connection in connections {
            self.answer(at, connection, bytes.clone(), Some(at.now));
        }
    }

    /// A report reaches the process.
    pub(crate) fn heard(&mut self, connection: ConnectionId, made: u64) {
        if let Some(wire) = self.wires.get_mut(&connection) {
            while wire.unheard.front().is_some_and(|changed| *changed <= made) {
                wire.unheard.pop_front();
            }
        }
    }

    /// When the oldest change was made of which this connection has not been told; none if it is not told of any.
    pub(crate) fn oldest_unheard(&self, connection: ConnectionId) -> Option<u64> {
        self.wires.get(&connection)?.unheard.front().copied()
    }

    /// Whether the server tells a connection of changes.
    pub(crate) fn is_told(&self, connection: ConnectionId) -> bool {
        self.wires.get(&connection).is_some_and(|wire| self.server.tracks(wire.client))
    }
}

fn push(keys: Option<&BTreeSet<Vec<u8>>>) -> Bytes {
    let mut out = Vec::new();
    reply::push_header(2, true, &mut out);
    reply::bulk(b"invalidate", &mut out);
    match keys {
        None => reply::null(true, &mut out),
        Some(keys) => {
            reply::array_header(keys.len(), &mut out);
            keys.iter().for_each(|key| reply::bulk(key, &mut out));
        }
    }
    Bytes::from(out)
}
