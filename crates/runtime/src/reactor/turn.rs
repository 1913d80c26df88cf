//! One turn of a reactor: wait, hand events to the driver, write. What may be done with sockets is `io`'s.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use mio::{Events, Interest, Poll};
use protocol::time::Time;
use rustix::io::Errno;

use crate::clock;
use crate::reactor::connection::TokenTarget;
use crate::reactor::{ConnectionId, Driver, Event, Io, ListenerId, TICK};
use crate::stop::Stop;

/// Events taken from the kernel per turn. More only delays the writes at the end of the turn.
const EVENTS_MAX: usize = 1024;
/// Reads of one connection per turn, of up to 256 KiB each: a fast sender must not starve the others.
const READS_MAX: usize = 4;
/// How long connections are read in one turn before those that are urgent come again. Shorter, and fewer replies share a
/// write; longer, and leases wait behind a flood.
const TURN: Duration = Duration::from_millis(5);
/// How much of that connections may have that have something new, before those that have not come to their end in earlier
/// turns: one that asks for a single thing does not wait for hundreds who ask for hundreds, nor these for ever. New ones for
/// which there is no time left are the first of the next turn.
const NEW: Duration = Duration::from_micros(2_500);
/// Connections accepted per listener and turn.
const ACCEPTS_MAX: usize = 128;
/// Accepting that fails is told of no more often than this.
const STARVED_TOLD: Duration = Duration::from_secs(1);
/// A driver that cannot come to an end is left after this long.
const STOPPING: Duration = Duration::from_secs(10);

/// Runs `driver` until `stop` is set and the driver has come to an end.
///
/// # Errors
/// Only if the kernel refuses to wait for events.
pub fn run(io: Io, driver: &mut impl Driver, stop: &Stop) -> io::Result<()> {
    let waker = io.waker();
    stop.register(move || waker.wake());
    let mut reactor = Reactor::new(io);
    while !stop.is_set() {
        reactor.turn(driver, None)?;
    }
    let deadline = clock::now().after(STOPPING);
    while clock::now() < deadline {
        let ended = driver.stopping(&mut reactor.io);
        reactor.io.flush();
        if ended && reactor.io.is_flushed() {
            break;
        }
        reactor.turn(driver, Some(TICK))?;
    }
    Ok(())
}

/// An `Io` with the loop around it. `run` is the usual way; tests take single turns.
#[derive(Debug)]
pub struct Reactor {
    io: Io,
    poller: Poller,
}

/// Waits for the kernel, apart from what happens then: who shares an `Io` may use it during the wait.
#[derive(Debug)]
pub struct Poller {
    poll: Poll,
    events: Events,
}

/// How long a `Poller` may wait, by what its `Io` has to do.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    timeout: Duration,
    /// Since when it waits, if there is anything to wait for.
    asleep: Option<Time>,
}

impl Patience {
    /// When the wait is over at the latest.
    pub fn end(self) -> Time {
        self.asleep.map_or(Time(0), |asleep| asleep.after(self.timeout))
    }
}

impl Poller {
    /// A poller of an `Io` that has none yet.
    ///
    /// # Panics
    /// When there is one.
    pub fn new(io: &mut Io) -> Poller {
        let poll = io.poll.take().expect("one poller for each Io");
        Poller { poll, events: Events::with_capacity(EVENTS_MAX) }
    }

    /// Returns when something has happened, and when patience is at its end.
    ///
    /// # Errors
    /// Only if the kernel refuses to wait for events.
    pub fn wait(&mut self, patience: Patience) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(patience.timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(())
            }
            result => result,
        }
    }

    /// Hands `driver` what has happened, and writes what it has to say.
    pub fn deliver(&self, io: &mut Io, driver: &mut impl Driver, patience: Patience) {
        let begun = clock::now();
        io.idle += patience.asleep.map_or(Duration::ZERO, |asleep| begun.since(asleep));
        io.handshakes.behind = false;
        deliver_queued(io, driver);
        let ready_listeners = std::mem::take(&mut io.ready_listeners);
        for event in &self.events {
            if is_urgent(io, event) {
                dispatch(io, driver, event);
            }
        }
        for id in std::mem::take(&mut io.ready_urgent) {
            go_on(io, driver, id);
        }
        let ready = io.ready.len();
        flush_before(io, ready);
        (io.turn_end, io.turn_progressed) = (begun.after(NEW), false);
        read_new(io, driver);
        for event in &self.events {
            if !is_urgent(io, event) {
                dispatch(io, driver, event);
            }
        }
        flush_before(io, ready);
        (io.turn_end, io.turn_progressed) = (begun.after(TURN), false);
        read_ready(io, driver, ready);
        for listener in ready_listeners {
            accept(io, driver, listener);
        }
        tick(io, driver);
        io.flush();
        rest(io, driver, begun);
    }
}

impl Reactor {
    pub fn new(mut io: Io) -> Reactor {
        let poller = Poller::new(&mut io);
        Reactor { io, poller }
    }

    /// For use between turns; what is appended is written at the end of the next turn.
    pub fn io(&mut self) -> &mut Io {
        &mut self.io
    }

    /// Waits at most `timeout`, and never beyond the next tick, for something to happen, and handles it.
    ///
    /// # Errors
    /// Only if the kernel refuses to wait for events.
    pub fn turn(&mut self, driver: &mut impl Driver, timeout: Option<Duration>) -> io::Result<()> {
        let patience = self.io.patience(timeout);
        self.poller.wait(patience)?;
        self.poller.deliver(&mut self.io, driver, patience);
        Ok(())
    }
}

impl Io {
    /// Writes what there is, and says how long to wait for more.
    pub fn patience(&mut self, timeout: Option<Duration>) -> Patience {
        self.flush();
        if self.has_more() {
            return Patience { timeout: Duration::ZERO, asleep: None };
        }
        let now = clock::now();
        let to_tick = self.tick_next.since(now);
        Patience { timeout: timeout.map_or(to_tick, |timeout| timeout.min(to_tick)), asleep: Some(now) }
    }

    /// Whether there is something to do without the kernel.
    fn has_more(&self) -> bool {
        let ready = !self.ready.is_empty() || !self.ready_new.is_empty() || !self.ready_urgent.is_empty();
        ready || !self.ready_listeners.is_empty() || !self.queued.is_empty()
    }

    /// To be called when a driver was told something outside a turn, which may have changed when its next tick is due.
    pub fn retime(&mut self, driver: &mut impl Driver, now: Time) {
        rest(self, driver, now);
    }

    /// When the next turn has something to do, whatever the kernel says.
    pub fn due(&self) -> Time {
        if self.has_more() { Time(0) } else { self.tick_next }
    }
}

fn is_urgent(io: &Io, event: &mio::event::Event) -> bool {
    matches!(TokenTarget::of(event.token()), TokenTarget::Connection(connection) if io.is_urgent(connection))
}

fn dispatch(io: &mut Io, driver: &mut impl Driver, event: &mio::event::Event) {
    match TokenTarget::of(event.token()) {
        TokenTarget::Waker => {
            take_dealt(io, driver);
            driver.event(io, Event::Woken);
        }
        TokenTarget::Listener(listener) => accept(io, driver, listener),
        TokenTarget::Connection(connection) => signal(io, driver, connection, event),
    }
}

/// Flushes early: who waits for what is done already does not wait for connections that have a long turn before them.
fn flush_before(io: &mut Io, ready: usize) {
    if ready > 0 {
        io.flush();
    }
}

/// The first `count` connections that were not read to their end, as far as there is time: who had a turn is behind those
/// that had none.
fn read_ready(io: &mut Io, driver: &mut impl Driver, count: usize) {
    for _ in 0..count {
        if is_over(io) {
            io.handshakes.behind |= io.ready.iter().any(|&id| io.is_shaking_hands(id));
            return;
        }
        let Some(id) = io.ready.pop_front() else { return };
        go_on(io, driver, id);
    }
}

/// Reads connections that had something new in an earlier turn, which had no time left for it.
fn read_new(io: &mut Io, driver: &mut impl Driver) {
    for _ in 0..io.ready_new.len() {
        if is_over(io) {
            return;
        }
        let Some(id) = io.ready_new.pop_front() else { return };
        go_on(io, driver, id);
    }
}

fn go_on(io: &mut Io, driver: &mut impl Driver, id: ConnectionId) {
    if let Some(connection) = io.connections.get_mut(id) {
        connection.queued = false;
        match connection.connecting {
            true => connect(io, driver, id),
            false => read(io, driver, id),
        }
    }
}

/// Whether there is no time left for connections that are not urgent.
fn is_over(io: &Io) -> bool {
    io.turn_progressed && clock::now() >= io.turn_end
}

/// Whether a connection has to wait for the next turn.
fn is_late(io: &mut Io, id: ConnectionId) -> bool {
    if io.is_urgent(id) {
        return false;
    }
    let over = is_over(io);
    io.turn_progressed = true;
    over
}

fn deliver_queued(io: &mut Io, driver: &mut impl Driver) {
    for event in std::mem::take(&mut io.queued) {
        let current = match &event {
            Event::Closed { connection, .. } => io.forget(*connection),
            Event::Writable(connection) => io.connections.get(*connection).is_some_and(|found| !found.dead),
            _ => true,
        };
        if current {
            driver.event(io, event);
        }
    }
}

fn tick(io: &mut Io, driver: &mut impl Driver) {
    let now = clock::now();
    if now < io.tick_next {
        return;
    }
    io.ticked = now;
    io.tick_next = io.tick_next.after(TICK).max(now.after(TICK / 2));
    io.give_up_closing(now);
    io.expire_handshakes(now);
    for index in 0..io.listeners.len() {
        if io.listeners[index].as_ref().is_some_and(|listener| listener.starved) {
            accept(io, driver, ListenerId(index as u32));
        }
    }
    driver.event(io, Event::Tick);
}

/// Puts the next tick off where none is needed so soon. What has happened in this turn may have changed that.
fn rest(io: &mut Io, driver: &mut impl Driver, now: Time) {
    let rest = driver.rest(now);
    io.tick_next = match rest > TICK {
        true => io.tick_next.max(io.ticked.after(rest)),
        false => io.tick_next.min(now.after(TICK)),
    };
}

/// Connections that another reactor has accepted for this one.
fn take_dealt(io: &mut Io, driver: &mut impl Driver) {
    let Some(seat) = &io.seat else { return };
    for (listener, stream) in seat.take() {
        if let Some(connection) = io.admit(listener, stream) {
            driver.event(io, Event::Accepted { listener, connection });
        }
    }
}

fn accept(io: &mut Io, driver: &mut impl Driver, listener: ListenerId) {
    for _ in 0..ACCEPTS_MAX {
        if io.handshakes.behind && io.is_tls_listener(listener) {
            // Whoever comes in a herd waits in the kernel rather than pushes out others.
            break;
        }
        match io.accept(listener) {
            Ok(Some(connection)) => driver.event(io, Event::Accepted { listener, connection }),
            Ok(None) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return,
                io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                _ => return starve(io, listener, &error),
            },
        }
    }
    io.ready_listeners.push(listener);
}

fn starve(io: &mut Io, id: ListenerId, error: &io::Error) {
    let Some(listener) = &mut io.listeners[id.0 as usize] else { return };
    listener.starved = true;
    let now = clock::now();
    if listener.starved_told.is_some_and(|told| now.since(told) < STARVED_TOLD) {
        return;
    }
    listener.starved_told = Some(now);
    tracing::warn!(%error, "cannot accept connections{}; trying again", remedy(error));
}

/// What a person can do about an error of `accept`.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => ": raise the limit of open files of this process (LimitNOFILE=, ulimit -n)",
        Some(Errno::NFILE) => ": raise the machine's limit of open files (sysctl fs.file-max)",
        Some(Errno::NOMEM | Errno::NOBUFS) => ": the machine has no memory left for sockets",
        _ => "",
    }
}

fn signal(io: &mut Io, driver: &mut impl Driver, id: ConnectionId, event: &mio::event::Event) {
    let Some(connection) = io.connections.get_mut(id) else { return };
    if connection.dead {
        return;
    }
    if connection.connecting {
        // In its order, if it has one already.
        if !connection.queued {
            connect(io, driver, id);
        }
        return;
    }
    connection.ending |= event.is_read_closed();
    if connection.closing && event.is_error() {
        io.forget(id);
        return;
    }
    if event.is_writable() && connection.blocked {
        connection.blocked = false;
        io.flush_one(id);
    }
    let queued = io.connections.get_mut(id).is_some_and(|connection| connection.queued);
    if !queued && (event.is_readable() || event.is_read_closed() || event.is_error()) {
        match is_over(io) && !io.is_urgent(id) {
            // Not behind those that have had a turn and want more.
            true => io.read_new_next_turn(id),
            false => read(io, driver, id),
        }
    }
}

fn connect(io: &mut Io, driver: &mut impl Driver, id: ConnectionId) {
    if io.is_tls(id) && is_late(io, id) {
        // A handshake costs more than a thousand requests.
        io.handshakes.behind = true;
        return io.read_next_turn(id);
    }
    let Some(connection) = io.connections.get_mut(id) else { return };
    match connection.stream.as_mut().and_then(|stream| stream.connected()) {
        None => {}
        Some(Err(error)) => fail_to_open(io, driver, id, error),
        Some(Ok(())) => {
            connection.connecting = false;
            if let Some(stream) = &connection.stream {
                stream.tune();
            }
            // Changing the interest makes the kernel report again what is there to read already.
            io.reregister(id, Interest::READABLE);
            match io.listener_of(id) {
                Some(listener) => driver.event(io, Event::Accepted { listener, connection: id }),
                None if io.is_closing(id) => {}
                None => driver.event(io, Event::Connected(id)),
            }
            io.flush_one(id);
            if io.is_tls(id) {
                // What came behind the handshake is in the session already.
                io.read_next_turn(id);
            }
        }
    }
}

fn fail_to_open(io: &mut Io, driver: &mut impl Driver, id: ConnectionId, error: io::Error) {
    if io.listener_of(id).is_some() {
        io.complain(id, &error, clock::now());
        io.forget(id);
        return;
    }
    io.count_failed_handshake(id);
    io.forget(id);
    driver.event(io, Event::Closed { connection: id, error: Some(error) });
}

fn read(io: &mut Io, driver: &mut impl Driver, id: ConnectionId) {
    if !replay(io, driver, id) {
        return io.read_next_turn(id);
    }
    for _ in 0..READS_MAX {
        if is_late(io, id) {
            break;
        }
        let Some(connection) = io.connections.get_mut(id) else { return };
        if connection.dead || connection.connecting || connection.closing && !connection.lingers {
            return;
        }
        let Some(stream) = &mut connection.stream else { return };
        if connection.paused {
            if connection.ending && stream.is_drained() {
                end(io, driver, id, None);
            }
            return;
        }
        match stream.read(&mut io.input.scratch) {
            Ok(count) if connection.lingers => {
                if count == 0 {
                    return io.linger_no_longer(id);
                }
            }
            Ok(0) => return end(io, driver, id, None),
            Ok(count) => {
                let now = clock::now();
                let bytes = io.input.take(&mut connection.rest, count);
                connection.replay = false;
                let more = stream.has_more(count == io.input.scratch.len()) || connection.ending;
                if connection.counted_bytes > 0 {
                    io.count(id);
                }
                driver.event(io, Event::Data { connection: id, bytes, now });
                if !more {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if connection.lingers => {
                io.forget(id);
                return;
            }
            Err(error) => return end(io, driver, id, Some(error)),
        }
    }
    io.read_next_turn(id);
}

/// After a pause the driver gets again what it gave back, whether or not more has come; and it is called if it has asked
/// for that. False: not in this turn.
fn replay(io: &mut Io, driver: &mut impl Driver, id: ConnectionId) -> bool {
    let Some(connection) = io.connections.get_mut(id) else { return true };
    let resumed = connection.replay && !connection.paused;
    if !(resumed || connection.again) || connection.dead || connection.closing {
        return true;
    }
    if connection.again && is_late(io, id) {
        return false;
    }
    let Some(connection) = io.connections.get_mut(id) else { return true };
    let calls = std::mem::take(&mut connection.again);
    let mut bytes = Bytes::new();
    if resumed {
        connection.replay = false;
        bytes = std::mem::take(&mut connection.rest).freeze();
    }
    if calls || !bytes.is_empty() {
        io.count(id);
        let now = clock::now();
        driver.event(io, Event::Data { connection: id, bytes, now });
    }
    true
}

/// Whether the driver answers an other end that only sends no more.
fn goes_on(io: &mut Io, driver: &mut impl Driver, id: ConnectionId) -> bool {
    if io.connections.get_mut(id).is_some_and(|connection| connection.ended) {
        return true;
    }
    let goes_on = driver.ended(io, id);
    if let Some(connection) = io.connections.get_mut(id) {
        connection.ended = goes_on && !connection.paused;
    }
    goes_on
}

fn end(io: &mut Io, driver: &mut impl Driver, id: ConnectionId, error: Option<io::Error>) {
    if error.is_none() && goes_on(io, driver, id) {
        return;
    }
    if error.is_none() && io.out_bytes(id) > 0 {
        // The other end may still be reading: the replies that are written already are not lost to it.
        io.close_flushed(id);
    } else {
        io.forget(id);
    }
    driver.event(io, Event::Closed { connection: id, error });
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::remedy;

    #[test]
    fn what_cannot_be_accepted_is_told_as_what_it_is() {
        let remedy = |errno: Errno| remedy(&io::Error::from(errno));
        assert!(remedy(Errno::MFILE).contains("ulimit -n"));
        assert!(remedy(Errno::NFILE).contains("fs.file-max"));
        assert!(remedy(Errno::NOBUFS).contains("memory"));
        assert_eq!(remedy(Errno::PERM), "", "the error itself is all that is known");
    }
}
