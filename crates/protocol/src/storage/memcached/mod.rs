//! Storage on a memcached: one connection for commands, and one that asks who else is connected. Not what is asked of it.
//!
//! The second connection is what makes an incarnation: while it lives the server is the same process, and losing it
//! means a new one, with other data and another fence. The first is open before it looks who else is there, so that
//! whoever comes later sees both.

mod census;
mod fence;
mod line;
mod mark;
mod question;

use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use wire::codec::VALUE_BYTES_MAX;
use wire::foreign::{Foreign, speaks};
use wire::memcached::{ReplyHead, next_reply};

use super::backoff::Backoff;
use super::health::{AWAY, StorageHealth};
use super::network::{Backend, ConnectionId, Endpoint, Network, StorageInput};
use super::step::StorageStep;
use super::{MarkedPart, NoteLevel, StorageEvent, StorageTraits, Store};
use crate::awake::Awake;
use crate::coherence::lease::{EarlierIncarnations, Unrecorded};
use crate::time::Time;
use census::{Census, Changes};
use fence::{Addresses, Fence, Listing};
use line::Line;
use mark::ItemMark;
pub use mark::MARK_QUESTION;

/// How often the list of connections is asked for while somebody is waited for.
const LIST: Duration = Duration::from_millis(20);
/// A look at the server in between, so that what others change is noticed within a second.
const LOOK: Duration = Duration::from_millis(800);
const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Who waits for this long comes again after all others: of two that wait for each other one must go on.
const PATIENCE_US: std::ops::Range<u64> = 1_000_000..3_000_000;
const LOG_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct MemcachedSettings {
    pub endpoint: Endpoint,
    /// The address as people know it.
    pub address: String,
    /// A server that answers nothing for this long is taken for lost.
    pub timeout: Duration,
    /// No shim has had this server before: nothing was granted.
    pub is_first: bool,
    /// Whose keys the server holds.
    pub part: MarkedPart,
    /// It is taken over whatever it holds.
    pub adopts: bool,
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
    /// `stats conns`. `proves`: the first connection was open before, and still is, so that the answer tells that both lead
    /// to the same process and who does not know of it.
    Connections {
        proves: bool,
    },
    /// `mn`: a sign of life.
    Life,
    /// Whose keys the server holds.
    Mark,
    /// The mark is written, and what the server has counted asked for.
    Look,
    /// Who else is there, as somebody has changed something.
    Others,
}

/// How far the mark of a server is.
#[derive(Clone, Copy, PartialEq)]
enum Marked {
    Unknown,
    Fits,
    Written,
}

struct Watch {
    connection: ConnectionId,
    /// This end's address, once it is connected.
    own: Option<String>,
    asked: Asked,
    asked_at: Time,
    has_asked: bool,
    listing: Listing,
    /// The first connection leads to the same process, and all others who are there know of it or are waited for.
    proven: bool,
    marked: Marked,
    /// What writes the mark.
    marking: Bytes,
    /// When it gives way to others that wait.
    patience_until: Time,
}

pub struct Memcached {
    settings: MemcachedSettings,
    watch: Option<Watch>,
    line: Option<(ConnectionId, Line)>,
    fence: Fence,
    mark: ItemMark,
    census: Census,
    /// Others have changed something, and who they are is still to be asked.
    seeks_others: bool,
    incarnation: u64,
    not_before: Time,
    awake: Awake,
    backoff: Backoff,
    random: SmallRng,
    owes_fence: bool,
    health: StorageHealth,
}

impl Backend for Memcached {
    fn step(
        &mut self,
        now: Time,
        input: StorageInput,
        network: &mut dyn Network,
        events: &mut Vec<StorageEvent>,
    ) {
        let step = &mut StorageStep { now, network, events };
        match input {
            StorageInput::Store(store) => self.store(step, &store),
            // Nothing blocks there, nothing is watched, and no reply is told to be large.
            StorageInput::Control { .. } | StorageInput::Release { .. } => {}
            StorageInput::Connected(connection) if self.is_watch(connection) => {
                self.connected(step);
            }
            StorageInput::Connected(_) => {}
            StorageInput::Data { connection, bytes } if self.is_watch(connection) => {
                self.heard(step, bytes);
            }
            StorageInput::Data { bytes, .. } => self.answered(step, bytes),
            StorageInput::Closed { connection, reason } => {
                self.closed(step, connection, &reason);
            }
            StorageInput::Tick => self.tick(step),
            // Who stands by looks for the connections of this one all the time.
            StorageInput::Vacant { .. }
            | StorageInput::Record { .. }
            | StorageInput::Migrate { .. }
            | StorageInput::Prepare { .. }
            | StorageInput::EndMigration => {}
            StorageInput::HandOver => {
                step.events.push(StorageEvent::Left);
                self.leave(step);
                self.not_before = now.after(AWAY);
                self.health.handed_over(step.events);
            }
            StorageInput::Leave => self.leave(step),
        }
    }

    fn owns(&self, id: ConnectionId) -> bool {
        self.is_watch(id) || self.is_line(id)
    }

    fn is_up(&self) -> bool {
        self.health.is_up()
    }

    fn refusal(&self) -> Option<&str> {
        self.health.refusal()
    }

    fn reconnects(&self) -> u64 {
        self.health.reconnects()
    }

    fn pending_count(&self) -> usize {
        self.line.as_ref().map_or(0, |(_, line)| line.pending_count())
    }
}

impl Memcached {
    pub fn new(settings: MemcachedSettings) -> Memcached {
        let mut random = SmallRng::seed_from_u64(settings.seed);
        Memcached {
            watch: None,
            line: None,
            fence: Fence::default(),
            census: Census::default(),
            seeks_others: false,
            mark: ItemMark::new(settings.part.clone(), settings.adopts),
            incarnation: 0,
            not_before: Time(0),
            awake: Awake::default(),
            backoff: Backoff::new(BACKOFF_MIN, SmallRng::from_rng(&mut random)),
            random,
            owes_fence: false,
            health: StorageHealth::new(&settings.address, LOG_INTERVAL),
            settings,
        }
    }

    fn store(&mut self, step: &mut StorageStep<'_>, store: &Store) {
        match &mut self.line {
            Some((connection, line)) if self.health.is_up() => {
                line.store(step.now, store, step.network.out(*connection), step.events);
            }
            _ => step.events.push(StorageEvent::Lost { ticket: store.ticket, sent: false }),
        }
    }

    /// Closes everything. What was sent is executed before its connection is gone, which the next incarnation awaits.
    fn leave(&mut self, step: &mut StorageStep<'_>) {
        self.lose_line(step);
        if let Some(watch) = self.watch.take() {
            step.network.close(watch.connection);
        }
    }

    fn is_watch(&self, id: ConnectionId) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.connection == id)
    }

    fn is_line(&self, id: ConnectionId) -> bool {
        self.line.as_ref().is_some_and(|(connection, _)| *connection == id)
    }

    fn connected(&mut self, step: &mut StorageStep<'_>) {
        let Some(watch) = &mut self.watch else { return };
        match step.network.own_address(watch.connection) {
            Some(own) => watch.own = Some(own.to_string()),
            None => {
                let id = watch.connection;
                return self.closed(step, id, "the connection has no address");
            }
        }
        self.settle(step);
    }

    fn heard(&mut self, step: &mut StorageStep<'_>, mut bytes: Bytes) {
        loop {
            let Some(watch) = &mut self.watch else { return };
            let id = watch.connection;
            if !self.fence.begun()
                && let Some(foreign) = speaks(&bytes).filter(|foreign| *foreign != Foreign::Memcached)
            {
                let reason = expected(foreign);
                self.health.refuse(&reason);
                return self.closed(step, id, &reason);
            }
            let outcome = match next_reply(&mut bytes, VALUE_BYTES_MAX) {
                Ok(None) => {
                    step.network.unread(id, bytes);
                    return self.settle(step);
                }
                Ok(Some((head, text))) => self.told(step, head, &text),
                Err(error) => Err(error.to_owned()),
            };
            if let Err(reason) = outcome {
                return self.closed(step, id, &reason);
            }
        }
    }

    /// One line of an answer on the second connection.
    fn told(&mut self, step: &mut StorageStep<'_>, head: ReplyHead, text: &[u8]) -> Result<(), String> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        match (watch.asked, head) {
            (Asked::Life, ReplyHead::Noop) => watch.asked = Asked::Nothing,
            (Asked::Connections { proves }, head) => {
                let Some(present) = watch.listing.line(head, text)? else { return Ok(()) };
                watch.asked = Asked::Nothing;
                return self.listed(step, proves, &present);
            }
            (Asked::Mark, ReplyHead::Value | ReplyHead::Status) => {
                (watch.asked, watch.marked) = (Asked::Nothing, Marked::Fits);
                self.mark.found(head, text).inspect_err(|reason| self.health.refuse(reason))?;
            }
            (Asked::Look, ReplyHead::Status | ReplyHead::Error) => {
                self.census.changed();
                if let Some(warning) = self.mark.written(head, text) {
                    self.health.note(NoteLevel::Warning, &warning, step.events);
                }
            }
            (Asked::Look, ReplyHead::Stat) => self.census.hear(text),
            (Asked::Look, ReplyHead::End) => {
                (watch.asked, watch.marked) = (Asked::Nothing, Marked::Written);
                let count = self.census.close(changes_of(self.line.as_ref()), self.fence.is_clear());
                if count > 0 {
                    self.seeks_others = true;
                    step.events.push(StorageEvent::ForeignWrites { count, connections: Vec::new() });
                }
            }
            (Asked::Others, head) => {
                let Some(present) = watch.listing.line(head, text)? else { return Ok(()) };
                watch.asked = Asked::Nothing;
                let own = self.own_addresses(step);
                let connections = present.difference(&own).cloned().collect();
                step.events.push(StorageEvent::ForeignWrites { count: 0, connections });
            }
            _ => return Err(format!("an answer that fits no question: {}", text.escape_ascii())),
        }
        Ok(())
    }

    /// The server's connections, as the second of them was told.
    fn listed(
        &mut self,
        step: &mut StorageStep<'_>,
        proves: bool,
        present: &Addresses,
    ) -> Result<(), String> {
        let own = match proves {
            true => self.own_addresses(step),
            false => self.watch.iter().flat_map(|watch| watch.own.clone()).collect(),
        };
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let begun = self.fence.begun();
        if let Err(reason) = self.fence.listed(&own, present) {
            self.health.refuse(&reason);
            return Err(reason);
        }
        // Whoever came before this connection for commands does not wait for it.
        if begun && proves && !present.is_subset(&own) {
            return Err(
                "others were there before the new connection for commands, which goes after them".to_owned()
            );
        }
        watch.proven |= proves;
        if !begun && self.fence.begun() {
            self.incarnation = self.random.random();
        }
        if !self.fence.is_clear() {
            self.tell_of_waiting(step);
        }
        Ok(())
    }

    /// This end's addresses.
    fn own_addresses(&self, step: &StorageStep<'_>) -> Addresses {
        let line = self.line.as_ref().and_then(|(id, _)| step.network.own_address(*id));
        let watch = self.watch.iter().flat_map(|watch| watch.own.clone());
        watch.chain(line.map(|own| own.to_string())).collect()
    }

    fn tell_of_waiting(&mut self, step: &mut StorageStep<'_>) {
        if step.now.since(self.health.logged) < LOG_INTERVAL && self.health.logged > Time(0) {
            return;
        }
        self.health.logged = step.now;
        let all: Vec<&str> = self.fence.waits_for().take(8).collect();
        let text = format!(
            "waiting until these connections to memcached are closed: an earlier process of this shim may still write over \
             them; nobody but the shim may connect there: {}",
            all.join(", ")
        );
        self.health.note(NoteLevel::Warning, &text, step.events);
    }

    fn answered(&mut self, step: &mut StorageStep<'_>, mut bytes: Bytes) {
        let Some((id, line)) = &mut self.line else { return };
        let id = *id;
        match line.data(step.now, &mut bytes, step.events) {
            Ok(()) => {
                step.network.unread(id, bytes);
                if !self.health.is_up() {
                    self.settle(step);
                }
            }
            Err(reason) => self.closed(step, id, &reason),
        }
    }

    fn closed(&mut self, step: &mut StorageStep<'_>, id: ConnectionId, reason: &str) {
        match self.is_watch(id) || self.is_line(id) && !self.fence.begun() {
            // Whether the next process to answer is this one nobody can tell, nor who was there before the next line.
            true => self.restart(step),
            false if self.is_line(id) => self.lose_line(step),
            false => {}
        }
        self.not_before = step.now.after(self.backoff.next());
        self.health.down(step.now, reason, step.events);
        self.settle(step);
    }

    /// The incarnation, or the wait for one, is over: it comes again after those who are there then.
    fn restart(&mut self, step: &mut StorageStep<'_>) {
        self.lose_line(step);
        if let Some(watch) = self.watch.take() {
            step.network.close(watch.connection);
        }
        self.fence.restart();
        (self.owes_fence, self.seeks_others) = (false, false);
        self.census = Census::default();
    }

    fn lose_line(&mut self, step: &mut StorageStep<'_>) {
        let Some((connection, line)) = self.line.take() else { return };
        let (unwritten, own) =
            (step.network.unwritten_bytes(connection), step.network.own_address(connection));
        step.network.close(connection);
        self.census.lose(line.changes());
        if line.lose(unwritten, step.events)
            && let Some(own) = own
        {
            self.fence.lose(own.to_string());
            self.owes_fence = true;
        }
        if let Some(watch) = &mut self.watch {
            watch.proven = false;
            if watch.marked == Marked::Written {
                // The counters are looked at before the next one is used.
                watch.marked = Marked::Fits;
            }
            if let Asked::Connections { proves } = &mut watch.asked {
                *proves = false;
            }
        }
    }

    fn tick(&mut self, step: &mut StorageStep<'_>) {
        let timeout = self.awake.patience(step.now, self.settings.timeout);
        let overdue = match (&self.watch, &self.line) {
            (Some(watch), _) if watch.is_overdue(step.now, timeout) => Some(watch.connection),
            (_, Some((id, line))) if line.overdue(step.now, timeout) => Some(*id),
            (Some(watch), _) if !self.fence.begun() && step.now >= watch.patience_until => {
                // Not lost: it comes again, and then after those who wait for it now.
                self.restart(step);
                None
            }
            _ => None,
        };
        if let Some(id) = overdue {
            return self.closed(step, id, "the server does not answer");
        }
        self.settle(step);
    }

    /// Does whatever comes next on the way to being up.
    fn settle(&mut self, step: &mut StorageStep<'_>) {
        let Some(watch) = &mut self.watch else {
            if step.now >= self.not_before {
                let connection = step.network.dial(self.settings.endpoint, true);
                let patience = Duration::from_micros(self.random.random_range(PATIENCE_US));
                let patience_until = step.now.after(patience);
                self.watch = Some(Watch::new(connection, step.now, patience_until, self.mark.request()));
                self.dial_line(step);
            }
            return;
        };
        if watch.own.is_none() || watch.asked != Asked::Nothing {
            return;
        }
        let rested = step.now.since(watch.asked_at);
        let is_open = self.line.as_ref().is_some_and(|(_, line)| line.is_open());
        if !self.fence.is_clear() && (is_open || self.fence.begun()) {
            if rested >= LIST || !watch.has_asked {
                watch.ask(step.network, step.now, Asked::Connections { proves: is_open });
            }
            return;
        }
        if self.fence.is_clear() && std::mem::take(&mut self.owes_fence) {
            step.events.push(StorageEvent::Fenced);
        }
        match &self.line {
            None if step.now >= self.not_before => self.dial_line(step),
            Some(_) if is_open && !watch.proven => {
                watch.ask(step.network, step.now, Asked::Connections { proves: true });
            }
            Some(_) if is_open && !self.health.is_up() => match watch.marked {
                Marked::Unknown => watch.ask(step.network, step.now, Asked::Mark),
                Marked::Fits => self.look(step),
                Marked::Written => self.rise(step),
            },
            _ if std::mem::take(&mut self.seeks_others) => {
                watch.ask(step.network, step.now, Asked::Others);
            }
            // A sign of life, too, and the mark may have been evicted.
            Some(_) if rested >= LOOK && watch.marked == Marked::Written => self.look(step),
            _ if rested >= LOOK => watch.ask(step.network, step.now, Asked::Life),
            _ => {}
        }
    }

    fn look(&mut self, step: &mut StorageStep<'_>) {
        let Some(watch) = &mut self.watch else { return };
        watch.ask(step.network, step.now, Asked::Look);
        self.census.ask(changes_of(self.line.as_ref()));
    }

    fn dial_line(&mut self, step: &mut StorageStep<'_>) {
        let connection = step.network.dial(self.settings.endpoint, true);
        self.line =
            Some((connection, Line::new(step.now, self.mark.request(), step.network.out(connection))));
    }

    fn rise(&mut self, step: &mut StorageStep<'_>) {
        self.backoff.reset();
        // Nothing that is kept there stays for certain: items are evicted and flushed.
        let traits = StorageTraits { short_leases: true, ..StorageTraits::default() };
        let earlier = match std::mem::take(&mut self.settings.is_first) {
            true => EarlierIncarnations::NONE,
            // Their leases were short, however long they governed.
            false => EarlierIncarnations::unrecorded(Unrecorded::Within(Duration::ZERO)),
        };
        self.health.rise(self.incarnation, traits, earlier, step.events);
    }
}

fn changes_of(line: Option<&(ConnectionId, Line)>) -> Changes {
    line.map(|(_, line)| line.changes()).unwrap_or_default()
}

impl Watch {
    fn new(connection: ConnectionId, now: Time, patience_until: Time, marking: Bytes) -> Watch {
        Watch {
            connection,
            own: None,
            asked: Asked::Nothing,
            asked_at: now,
            has_asked: false,
            listing: Listing::default(),
            proven: false,
            marked: Marked::Unknown,
            marking,
            patience_until,
        }
    }

    fn ask(&mut self, network: &mut dyn Network, now: Time, asked: Asked) {
        let question: &[&[u8]] = match asked {
            Asked::Nothing => return,
            Asked::Connections { .. } | Asked::Others => &[b"stats conns\r\n"],
            Asked::Life => &[b"mn\r\n"],
            Asked::Mark => &[MARK_QUESTION.as_bytes()],
            Asked::Look => &[&self.marking, b"stats\r\n"],
        };
        let out = network.out(self.connection);
        question.iter().for_each(|part| out.extend_from_slice(part));
        (self.asked, self.asked_at, self.has_asked) = (asked, now, true);
        self.listing = Listing::default();
    }

    fn is_overdue(&self, now: Time, timeout: Duration) -> bool {
        let waits = self.own.is_none() || self.asked != Asked::Nothing;
        waits && now.since(self.asked_at) > timeout
    }
}
