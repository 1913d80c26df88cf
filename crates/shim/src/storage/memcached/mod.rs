//! Storage on a memcached: one connection for commands, and one that asks who else is connected. Not what is asked of it.
//!
//! The second connection is what makes an incarnation: while it lives the server is the same process, and losing it
//! means a new one, with other data and another fence.

mod fence;
mod line;
mod question;

use bytes::Bytes;
use protocol::storage::{StorageEvent, StorageTraits, Store};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use runtime::address::Address;
use runtime::reactor::{ConnectionId, Event, Io};
use wire::foreign::{Foreign, speaks};
use wire::memcached::{ReplyHead, next_reply};

use super::standing::Standing;
use fence::{Fence, Listing};
use line::Line;

/// How often the list of connections is asked for while somebody is waited for.
const LIST_US: u64 = 20_000;
/// A sign of life in between, for servers that close idle connections.
const IDLE_US: u64 = 1_000_000;
const BACKOFF_MIN_US: u64 = 20_000;
const BACKOFF_MAX_US: u64 = 1_000_000;
/// Who waits for this long comes again after all others: of two that wait for each other one must go on.
const PATIENCE_US: std::ops::Range<u64> = 1_000_000..3_000_000;
const LOG_INTERVAL_US: u64 = 5_000_000;
/// `stats conns` has no longer lines.
const NO_VALUES: usize = 0;

#[derive(Clone, Debug)]
pub struct MemcachedSettings {
    pub address: Address,
    pub shim: String,
    /// A server that answers nothing for this long is taken for lost.
    pub timeout_us: u64,
    pub seed: u64,
}

/// Why what listens at the address is no memcached, and what to write.
fn expected(foreign: Foreign) -> String {
    let advice = match foreign {
        Foreign::Redis => "write redis:// in `storage`, or the address of a memcached",
        Foreign::Tls => "DistCache speaks to memcached without TLS; give it a plain port",
        _ => "give the address of a memcached in `storage`",
    };
    format!("memcached's text protocol expected, this speaks {foreign}: {advice}")
}

/// What the second connection has asked.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Nothing,
    Connections,
    /// `mn`: a sign of life.
    Life,
    /// The same: whether the server is still the same one, now that the first connection is open.
    Proof,
}

struct Watch {
    connection: ConnectionId,
    /// This end's address, once it is connected.
    own: Option<String>,
    asked: Asked,
    asked_us: u64,
    has_asked: bool,
    listing: Listing,
    /// The server was still the same one once the first connection was open.
    proven: bool,
    /// When it gives way to others that wait.
    patience_us: u64,
}

pub struct Memcached {
    settings: MemcachedSettings,
    watch: Option<Watch>,
    line: Option<(ConnectionId, Line)>,
    fence: Fence,
    incarnation: u64,
    not_before_us: u64,
    backoff_us: u64,
    random: SmallRng,
    owes_fence: bool,
    standing: Standing,
}

impl Memcached {
    pub fn new(settings: MemcachedSettings) -> Memcached {
        Memcached {
            watch: None,
            line: None,
            fence: Fence::default(),
            incarnation: 0,
            not_before_us: 0,
            backoff_us: BACKOFF_MIN_US,
            random: SmallRng::seed_from_u64(settings.seed),
            owes_fence: false,
            standing: Standing::new(&settings.shim, &settings.address, LOG_INTERVAL_US),
            settings,
        }
    }

    /// Why only a person can make this storage usable, if so.
    pub fn refusal(&self) -> Option<&str> {
        self.standing.refusal()
    }

    pub fn is_up(&self) -> bool {
        self.standing.is_up()
    }

    /// How often storage came back with its connections made anew.
    pub fn reconnects(&self) -> u64 {
        self.standing.reconnects()
    }

    /// Commands without a reply.
    pub fn pending_count(&self) -> usize {
        self.line.as_ref().map_or(0, |(_, line)| line.pending_count())
    }

    pub fn store(&mut self, io: &mut Io, now_us: u64, store: &Store, events: &mut Vec<StorageEvent>) {
        match &mut self.line {
            Some((connection, line)) if self.standing.is_up() => {
                line.store(now_us, store, io.out(*connection), events);
            }
            _ => events.push(StorageEvent::Lost { ticket: store.ticket, sent: false }),
        }
    }

    /// Gives back what is not its own.
    pub fn event(&mut self, io: &mut Io, event: Event, events: &mut Vec<StorageEvent>) -> Option<Event> {
        match event {
            Event::Data { connection, bytes, now_us } if self.is_watch(connection) => {
                self.heard(io, now_us, bytes, events);
            }
            Event::Data { connection, bytes, now_us } if self.is_line(connection) => {
                self.answered(io, now_us, bytes, events);
            }
            Event::Connected(connection) if self.is_watch(connection) => self.connected(io, events),
            Event::Closed { connection, ref error } if self.owns(connection) => {
                let reason =
                    error.as_ref().map_or("the server closed the connection".into(), ToString::to_string);
                self.closed(io, connection, &reason, events);
            }
            Event::Connected(connection) | Event::Writable(connection) if self.owns(connection) => {}
            Event::Tick => {
                self.tick(io, events);
                return Some(Event::Tick);
            }
            other => return Some(other),
        }
        None
    }

    /// Closes everything. What was sent is executed before its connection is gone, which the next incarnation awaits.
    pub fn stop(&mut self, io: &mut Io, events: &mut Vec<StorageEvent>) {
        self.lose_line(io, events);
        if let Some(watch) = self.watch.take() {
            io.close(watch.connection);
        }
    }

    fn is_watch(&self, id: ConnectionId) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.connection == id)
    }

    fn is_line(&self, id: ConnectionId) -> bool {
        self.line.as_ref().is_some_and(|(connection, _)| *connection == id)
    }

    fn owns(&self, id: ConnectionId) -> bool {
        self.is_watch(id) || self.is_line(id)
    }

    fn connected(&mut self, io: &mut Io, events: &mut Vec<StorageEvent>) {
        let Some(watch) = &mut self.watch else { return };
        match io.own_address(watch.connection) {
            Some(own) => watch.own = Some(own.to_string()),
            None => {
                let id = watch.connection;
                return self.closed(io, id, "the connection has no address", events);
            }
        }
        self.settle(io, io.now_us(), events);
    }

    fn heard(&mut self, io: &mut Io, now_us: u64, mut bytes: Bytes, events: &mut Vec<StorageEvent>) {
        loop {
            let Some(watch) = &mut self.watch else { return };
            let id = watch.connection;
            if !self.fence.begun()
                && let Some(foreign) = speaks(&bytes).filter(|foreign| *foreign != Foreign::Memcached)
            {
                let reason = expected(foreign);
                self.standing.refuse(&reason);
                return self.closed(io, id, &reason, events);
            }
            let outcome = match next_reply(&mut bytes, NO_VALUES) {
                Ok(None) => {
                    io.unread(id, bytes);
                    return self.settle(io, now_us, events);
                }
                Ok(Some((head, text))) => self.told(now_us, head, &text),
                Err(error) => Err(error.to_owned()),
            };
            if let Err(reason) = outcome {
                return self.closed(io, id, &reason, events);
            }
        }
    }

    /// One line of an answer on the second connection.
    fn told(&mut self, now_us: u64, head: ReplyHead, text: &[u8]) -> Result<(), String> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        match (watch.asked, head) {
            (asked @ (Asked::Life | Asked::Proof), ReplyHead::Noop) => {
                watch.asked = Asked::Nothing;
                watch.proven |= asked == Asked::Proof && self.line.is_some();
            }
            (Asked::Connections, head) => {
                let Some(present) = watch.listing.line(head, text)? else { return Ok(()) };
                watch.asked = Asked::Nothing;
                let own = watch.own.clone().unwrap_or_default();
                let begun = self.fence.begun();
                if let Err(reason) = self.fence.listed(&own, &present) {
                    self.standing.refuse(&reason);
                    return Err(reason);
                }
                if !begun && self.fence.begun() {
                    self.incarnation = self.random.random();
                }
                if !self.fence.is_clear() {
                    self.tell_of_waiting(now_us);
                }
            }
            _ => return Err(format!("an answer that fits no question: {}", text.escape_ascii())),
        }
        Ok(())
    }

    fn tell_of_waiting(&mut self, now_us: u64) {
        if now_us.saturating_sub(self.standing.logged_us) < LOG_INTERVAL_US && self.standing.logged_us > 0 {
            return;
        }
        self.standing.logged_us = now_us;
        let all: Vec<&str> = self.fence.waits_for().take(8).collect();
        tracing::warn!(
            shim = self.settings.shim,
            address = %self.settings.address,
            connections = all.join(", "),
            "waiting until these connections to memcached are closed: an earlier process of this shim may still write \
             over them; nobody but the shim may connect there"
        );
    }

    fn answered(&mut self, io: &mut Io, now_us: u64, mut bytes: Bytes, events: &mut Vec<StorageEvent>) {
        let Some((id, line)) = &mut self.line else { return };
        let id = *id;
        match line.data(now_us, &mut bytes, events) {
            Ok(()) => {
                io.unread(id, bytes);
                if !self.standing.is_up() {
                    self.settle(io, now_us, events);
                }
            }
            Err(reason) => self.closed(io, id, &reason, events),
        }
    }

    fn closed(&mut self, io: &mut Io, id: ConnectionId, reason: &str, events: &mut Vec<StorageEvent>) {
        let now_us = io.now_us();
        if self.is_watch(id) {
            io.close(id);
            self.watch = None;
            // Whether the next process to answer is this one nobody can tell.
            self.lose_line(io, events);
            self.fence.restart();
            self.owes_fence = false;
        } else if self.is_line(id) {
            self.lose_line(io, events);
        }
        self.not_before_us = now_us + self.random.random_range(self.backoff_us / 2..=self.backoff_us);
        self.backoff_us = (self.backoff_us * 2).min(BACKOFF_MAX_US);
        self.standing.down(now_us, reason, events);
        self.settle(io, now_us, events);
    }

    fn lose_line(&mut self, io: &mut Io, events: &mut Vec<StorageEvent>) {
        let Some((connection, line)) = self.line.take() else { return };
        let (unwritten, own) = (io.out_bytes(connection), io.own_address(connection));
        io.close(connection);
        if line.lose(unwritten, events)
            && let Some(own) = own
        {
            self.fence.lose(own.to_string());
            self.owes_fence = true;
        }
        if let Some(watch) = &mut self.watch {
            watch.proven = false;
            if watch.asked == Asked::Proof {
                watch.asked = Asked::Life;
            }
        }
    }

    fn tick(&mut self, io: &mut Io, events: &mut Vec<StorageEvent>) {
        let now_us = io.now_us();
        let timeout_us = self.settings.timeout_us;
        let overdue = match (&self.watch, &self.line) {
            (Some(watch), _) if watch.is_overdue(now_us, timeout_us) => Some(watch.connection),
            (_, Some((id, line))) if line.overdue(now_us, timeout_us) => Some(*id),
            (Some(watch), _) if !self.fence.begun() && now_us >= watch.patience_us => {
                // Not lost: it comes again, and then after those who wait for it now.
                io.close(watch.connection);
                self.watch = None;
                self.fence.restart();
                None
            }
            _ => None,
        };
        if let Some(id) = overdue {
            return self.closed(io, id, "the server does not answer", events);
        }
        self.settle(io, now_us, events);
    }

    /// Does whatever comes next on the way to being up.
    fn settle(&mut self, io: &mut Io, now_us: u64, events: &mut Vec<StorageEvent>) {
        let Some(watch) = &mut self.watch else {
            if now_us >= self.not_before_us {
                let connection = dial(io, &self.settings.address);
                let patience_us = now_us + self.random.random_range(PATIENCE_US);
                self.watch = Some(Watch::new(connection, now_us, patience_us));
            }
            return;
        };
        if watch.own.is_none() || watch.asked != Asked::Nothing {
            return;
        }
        let rested = now_us.saturating_sub(watch.asked_us);
        if !self.fence.is_clear() {
            if rested >= LIST_US || !watch.has_asked {
                watch.ask(io, now_us, Asked::Connections);
            }
            return;
        }
        if std::mem::take(&mut self.owes_fence) {
            events.push(StorageEvent::Fenced);
        }
        match &self.line {
            None if now_us >= self.not_before_us => {
                let connection = dial(io, &self.settings.address);
                self.line = Some((connection, Line::new(now_us, io.out(connection))));
            }
            Some((_, line)) if line.is_open() && !watch.proven => watch.ask(io, now_us, Asked::Proof),
            Some((_, line)) if line.is_open() && !self.standing.is_up() => self.rise(events),
            _ if rested >= IDLE_US => watch.ask(io, now_us, Asked::Life),
            _ => {}
        }
    }

    fn rise(&mut self, events: &mut Vec<StorageEvent>) {
        self.backoff_us = BACKOFF_MIN_US;
        self.standing.rise(self.incarnation, StorageTraits::default(), events);
    }
}

impl Watch {
    fn new(connection: ConnectionId, now_us: u64, patience_us: u64) -> Watch {
        Watch {
            connection,
            own: None,
            asked: Asked::Nothing,
            asked_us: now_us,
            has_asked: false,
            listing: Listing::default(),
            proven: false,
            patience_us,
        }
    }

    fn ask(&mut self, io: &mut Io, now_us: u64, asked: Asked) {
        let question: &[u8] = match asked {
            Asked::Nothing => return,
            Asked::Connections => b"stats conns\r\n",
            Asked::Life | Asked::Proof => b"mn\r\n",
        };
        io.out(self.connection).extend_from_slice(question);
        (self.asked, self.asked_us, self.has_asked) = (asked, now_us, true);
        self.listing = Listing::default();
    }

    fn is_overdue(&self, now_us: u64, timeout_us: u64) -> bool {
        let waits = self.own.is_none() || self.asked != Asked::Nothing;
        waits && now_us.saturating_sub(self.asked_us) > timeout_us
    }
}

/// What storage says finishes work and renews leases: it goes before what peers want begun.
fn dial(io: &mut Io, address: &Address) -> ConnectionId {
    let connection = io.dial(address);
    io.set_urgent(connection);
    connection
}
