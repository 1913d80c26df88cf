//! What a driver may do with its reactor's sockets. The turns themselves are `turn`'s.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mio::{Interest, Poll, Registry};
use protocol::time::Time;

use crate::clock;
use crate::reactor::connection::{ReactorConnection, ReactorConnections, WAKER};
use crate::reactor::deal::Seat;
use crate::reactor::handshakes::Handshakes;
use crate::reactor::input::{Input, keep};
use crate::reactor::listener::Listener;
use crate::reactor::output::Spares;
use crate::reactor::socket::Stream;
use crate::reactor::{ConnectionId, Event, ListenerId, OUT_LOW_BYTES, TICK, Waker};
use crate::tls::{Dialer, VouchedRoles};
use config::Address;

/// A client that does not take its last reply is dropped after this long.
const CLOSE_FLUSHED: Duration = Duration::from_secs(5);
/// The same for one that may have much to send before it reads.
const CLOSE_LINGERING: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Io {
    /// Until a `Reactor` waits for it.
    pub(crate) poll: Option<Poll>,
    pub(crate) registry: Registry,
    waker: Arc<mio::Waker>,
    pub(crate) listeners: Vec<Option<Listener>>,
    pub(crate) connections: ReactorConnections,
    pub(crate) input: Input,
    spares: Spares,
    /// Bytes of all connections, as of their last flush or `unread`.
    held_bytes: usize,
    /// Where output for connections that are gone ends up; emptied at each use.
    void: Vec<u8>,
    /// Has output to write at the end of the turn.
    dirty: Vec<ConnectionId>,
    /// The same, to be written first.
    dirty_urgent: Vec<ConnectionId>,
    /// Reads that are not urgent wait for the next turn from then on.
    pub(crate) turn_end: Time,
    /// Whether a connection that is not urgent has been read in this turn: one always is, or none might ever be.
    pub(crate) turn_progressed: bool,
    /// To be read in a coming turn without a new edge, in this order.
    pub(crate) ready: VecDeque<ConnectionId>,
    /// The same for those that have something new and have not been read since: they come before the others.
    pub(crate) ready_new: VecDeque<ConnectionId>,
    /// To be read, or accepted from, in the next turn without a new edge.
    pub(crate) ready_urgent: Vec<ConnectionId>,
    pub(crate) ready_listeners: Vec<ListenerId>,
    /// Handed to the driver at the start of the next turn.
    pub(crate) queued: Vec<Event>,
    closing: Vec<(ConnectionId, Time)>,
    pub(crate) handshakes: Handshakes,
    /// Where its listeners are shared with other reactors.
    pub(crate) seat: Option<Seat>,
    pub(crate) tick_next: Time,
    pub(crate) ticked: Time,
    /// How long it has waited for something to do, ever.
    pub(crate) idle: Duration,
}

impl Io {
    pub fn new() -> io::Result<Io> {
        let poll = Poll::new()?;
        let waker = Arc::new(mio::Waker::new(poll.registry(), WAKER)?);
        Ok(Io {
            registry: poll.registry().try_clone()?,
            poll: Some(poll),
            waker,
            listeners: Vec::new(),
            connections: ReactorConnections::default(),
            input: Input::new(),
            spares: Spares::default(),
            held_bytes: 0,
            void: Vec::new(),
            dirty: Vec::new(),
            dirty_urgent: Vec::new(),
            turn_end: Time(u64::MAX),
            turn_progressed: false,
            ready: VecDeque::new(),
            ready_new: VecDeque::new(),
            ready_urgent: Vec::new(),
            ready_listeners: Vec::new(),
            queued: Vec::new(),
            closing: Vec::new(),
            handshakes: Handshakes::default(),
            seat: None,
            tick_next: clock::now().after(TICK),
            ticked: clock::now(),
            idle: Duration::ZERO,
        })
    }

    /// Starts to connect; the outcome is `Event::Connected` or `Event::Closed`. Output may be appended at once.
    pub fn dial(&mut self, address: &Address) -> ConnectionId {
        self.dialled(Stream::connect(address))
    }

    /// As `dial`; with a `dialer`, `Connected` comes when the TLS handshake is over. A Unix socket stays plain.
    pub fn dial_tls(&mut self, address: &Address, dialer: Option<&Dialer>) -> ConnectionId {
        let Some(dialer) = dialer else { return self.dial(address) };
        let id = self.dialled(Stream::connect_tls(address, dialer));
        if self.is_tls(id) {
            self.watch_dialled(id, clock::now());
        }
        id
    }

    fn dialled(&mut self, stream: io::Result<Stream>) -> ConnectionId {
        let (stream, error) = match stream {
            Ok(stream) => (Some(stream), None),
            Err(error) => (None, Some(error)),
        };
        let mut connection = ReactorConnection::new(stream, None);
        connection.connecting = true;
        let id = self.connections.insert(connection);
        let error = error.or_else(|| self.register(id, Interest::READABLE | Interest::WRITABLE).err());
        if let Some(error) = error {
            self.fail(id, error);
        }
        id
    }

    /// The output of a connection, to append to. It is written at the end of the turn, all in one call. What
    /// is appended for a connection that is gone is dropped.
    pub fn out(&mut self, id: ConnectionId) -> &mut Vec<u8> {
        match self.connections.get_mut(id) {
            Some(connection) if !connection.dead && !connection.closing => {
                if !connection.dirty {
                    connection.dirty = true;
                    let dirty = if connection.urgent { &mut self.dirty_urgent } else { &mut self.dirty };
                    dirty.push(id);
                }
                connection.out(&mut self.spares)
            }
            _ => {
                self.void.clear();
                &mut self.void
            }
        }
    }

    /// Bytes appended and not yet taken by the kernel.
    pub fn out_bytes(&self, id: ConnectionId) -> usize {
        self.connections.get(id).map_or(0, ReactorConnection::pending)
    }

    /// Ends a connection now; pending output is lost. No event follows.
    pub fn close(&mut self, id: ConnectionId) {
        self.forget(id);
    }

    /// Ends a connection once its output is written, or after five seconds. No event follows.
    pub fn close_flushed(&mut self, id: ConnectionId) {
        self.close_later(id, CLOSE_FLUSHED);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.paused = true;
        }
    }

    /// As `close_flushed` for one that may read its output only when it has sent everything: what it sends is thrown
    /// away until it ends, or for ten seconds.
    pub fn close_lingering(&mut self, id: ConnectionId) {
        self.linger(id, CLOSE_LINGERING);
    }

    /// As `close_flushed` where the other end has to hear the last that is said: it is waited for until it ends, too, for
    /// five seconds, also by a driver that has come to its end. A reset for what it says meanwhile would take from it what it
    /// has not read.
    pub fn close_confirmed(&mut self, id: ConnectionId) {
        self.linger(id, CLOSE_FLUSHED);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.confirms = true;
        }
    }

    fn linger(&mut self, id: ConnectionId, max: Duration) {
        self.close_later(id, max);
        if let Some(connection) = self.connections.get_mut(id) {
            (connection.lingers, connection.paused) = (true, false);
            self.read_next_turn(id);
        }
    }

    fn close_later(&mut self, id: ConnectionId, max: Duration) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.dead {
            self.forget(id);
            return;
        }
        connection.closing = true;
        connection.rest = BytesMut::new();
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(id);
        }
        self.closing.push((id, clock::now().after(max)));
    }

    /// From now on it is read and written before the others in every turn: a flood on those does not delay it.
    pub fn set_urgent(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.urgent = true;
        }
    }

    pub(crate) fn is_urgent(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.urgent)
    }

    /// Stops reading: what the other end sends stays in the kernel, and then with the other end. The driver
    /// still learns at once when the other end is gone and nothing is left to read.
    pub fn pause(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.paused = true;
        }
    }

    /// Reads again, from the next turn on. What was given back comes again even if nothing new is there.
    pub fn resume(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.paused && !connection.closing {
            connection.paused = false;
            connection.replay = true;
            self.read_next_turn(id);
        }
    }

    /// Calls the driver in the next turn with `Event::Data`, which has no bytes unless some have come. Paused or not.
    pub fn call_again(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.again = true;
            self.read_next_turn(id);
        }
    }

    pub fn is_paused(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.paused)
    }

    /// Gives back the end of `Event::Data` that could not be used yet: it opens the next one.
    pub fn unread(&mut self, id: ConnectionId, rest: Bytes) {
        if rest.is_empty() {
            return;
        }
        if let Some(connection) = self.connections.get_mut(id) {
            assert!(connection.rest.is_empty(), "bytes can be given back once per event");
            connection.rest = keep(rest);
        }
        self.count(id);
    }

    /// Memory that the buffers of all connections take: input that is not a whole frame yet, and unwritten output.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The part of one connection.
    pub fn held_bytes_of(&self, id: ConnectionId) -> usize {
        self.connections.get(id).map_or(0, ReactorConnection::held_bytes)
    }

    /// Takes notice of what a connection's buffers have grown or shrunk by.
    pub(crate) fn count(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            let held = connection.held_bytes();
            self.held_bytes = self.held_bytes - connection.counted_bytes + held;
            connection.counted_bytes = held;
        }
    }

    /// The roles that the other end's certificate vouches for.
    pub(crate) fn vouched_roles(&self, id: ConnectionId) -> VouchedRoles {
        let stream = self.connections.get(id).and_then(|connection| connection.stream.as_ref());
        stream.map_or(VouchedRoles::ALL, Stream::vouched_roles)
    }

    /// Where the other end is; an unnamed Unix socket has an empty path.
    pub fn peer_address(&self, id: ConnectionId) -> Option<Address> {
        self.connections.get(id)?.stream.as_ref()?.peer_address()
    }

    /// From where it was dialled, once it is connected; `None` for a Unix socket.
    pub fn own_address(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.connections.get(id)?.stream.as_ref()?.own_address()
    }

    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.waker))
    }

    /// A fresh sample of CLOCK_BOOTTIME.
    pub fn now(&self) -> Time {
        clock::now()
    }

    pub(crate) fn read_next_turn(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.queued
        {
            connection.queued = true;
            match connection.urgent {
                true => self.ready_urgent.push(id),
                false => self.ready.push_back(id),
            }
        }
    }

    /// Puts a connection off that has something new and is not queued yet.
    pub(crate) fn read_new_next_turn(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.queued = true;
            self.ready_new.push_back(id);
        }
    }

    /// Dialled or accepted and not open yet.
    pub(crate) fn is_opening(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.connecting && !connection.dead)
    }

    pub(crate) fn is_tls(&self, id: ConnectionId) -> bool {
        self.connections.get(id).and_then(|found| found.stream.as_ref()).is_some_and(Stream::is_tls)
    }

    /// Whether its TLS handshake is yet to be done.
    pub(crate) fn is_shaking_hands(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.connecting) && self.is_tls(id)
    }

    /// Counts a handshake that failed, and tells of which table of the configuration it was.
    pub(crate) fn count_failed_handshake(&self, id: ConnectionId) -> &'static str {
        let stream = self.connections.get(id).and_then(|found| found.stream.as_ref());
        stream.map_or("", Stream::count_failure)
    }

    pub(crate) fn register(&mut self, id: ConnectionId, interest: Interest) -> io::Result<()> {
        match self.connections.get_mut(id).and_then(|connection| connection.stream.as_mut()) {
            Some(stream) => stream.register(&self.registry, id.token(), interest),
            None => Ok(()),
        }
    }

    pub(crate) fn reregister(&mut self, id: ConnectionId, interest: Interest) {
        let Some(stream) = self.connections.get_mut(id).and_then(|connection| connection.stream.as_mut())
        else {
            return;
        };
        if let Err(error) = stream.reregister(&self.registry, id.token(), interest) {
            self.fail(id, error);
        }
    }

    /// The connection is broken: the driver learns at the start of the next turn.
    pub(crate) fn fail(&mut self, id: ConnectionId, error: io::Error) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let is_unknown = connection.connecting && connection.listener.is_some();
        if connection.closing || is_unknown {
            self.forget(id);
        } else if !connection.dead {
            connection.dead = true;
            self.queued.push(Event::Closed { connection: id, error: Some(error) });
        }
    }

    pub(crate) fn is_closing(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.closing)
    }

    /// Whether there was such a connection.
    pub(crate) fn forget(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.remove(id) else { return false };
        self.held_bytes -= connection.counted_bytes;
        if let Some(seat) = self.seat.as_ref().filter(|_| connection.listener.is_some()) {
            seat.left();
        }
        true
    }

    /// One write for every connection with output.
    pub fn flush(&mut self) {
        let mut urgent = std::mem::take(&mut self.dirty_urgent);
        for id in urgent.drain(..) {
            self.flush_one(id);
        }
        self.dirty_urgent = urgent;
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            self.flush_one(id);
        }
        // Nothing above appends output, so the empty list keeps its memory for the next turn.
        self.dirty = dirty;
    }

    pub(crate) fn flush_one(&mut self, id: ConnectionId) {
        self.write_out(id);
        self.count(id);
    }

    fn write_out(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.dirty = false;
        connection.high |= connection.pending() > OUT_LOW_BYTES;
        if connection.connecting || connection.blocked || connection.dead {
            return;
        }
        match connection.write(&mut self.spares) {
            Ok(true) if connection.closing => return self.end(id),
            Ok(true) => {}
            Ok(false) => {
                connection.blocked = true;
                if !connection.watched {
                    connection.watched = true;
                    self.reregister(id, Interest::READABLE | Interest::WRITABLE);
                }
            }
            Err(error) => return self.fail(id, error),
        }
        self.after_write(id);
    }

    fn after_write(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.high && connection.pending() <= OUT_LOW_BYTES && !connection.closing {
            connection.high = false;
            self.queued.push(Event::Writable(id));
        }
        if connection.watched && !connection.blocked {
            // A Unix socket would report writability after every read of the other end.
            connection.watched = false;
            self.reregister(id, Interest::READABLE);
        }
    }

    /// Closes without a reset where possible: the kernel answers unread input with one, and a reset may
    /// overtake the last reply.
    fn end(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(stream) = &mut connection.stream {
            stream.shutdown_output();
            if connection.lingers {
                return;
            }
            let _ = stream.read(&mut self.input.scratch);
        }
        self.forget(id);
    }

    /// The other end of a connection that lingers has ended, too.
    pub(crate) fn linger_no_longer(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        (connection.lingers, connection.paused) = (false, true);
        if connection.is_flushed() {
            self.forget(id);
        }
    }

    /// Drops connections that should be closed by now and do not take their output.
    pub(crate) fn give_up_closing(&mut self, now: Time) {
        let mut closing = std::mem::take(&mut self.closing);
        closing.retain(|&(id, deadline)| {
            let waits = self.connections.get(id).is_some() && now < deadline;
            if !waits {
                self.forget(id);
            }
            waits
        });
        self.closing = closing;
    }

    /// Whether all output is written, and was heard where that matters.
    pub fn is_flushed(&self) -> bool {
        let done = |connection: &ReactorConnection| connection.is_flushed() && !connection.confirms;
        self.connections.iter().all(|connection| connection.connecting || connection.dead || done(connection))
    }
}
