//! Storage on a Redis or Valkey server: few connections, fenced, made again when lost. Not what is asked of it.
//!
//! Commands run as an ACL user that only this incarnation of the shim has. Deleting the user ends its
//! connections, which a closed socket does not: a stopped server executes what it has in its buffers.

mod acl;
mod admin;
pub mod clients;
mod farewell;
mod line;
mod listener;
mod mark;
mod pinned;
pub mod server;
mod settings;
mod silence;
mod takeover;

use std::time::Duration;

use bytes::Bytes;
use rand::{SeedableRng as _, rngs::SmallRng};
use smallvec::SmallVec;
use wire::resp::Command;

use super::backoff::Backoff;
use super::health::StorageHealth;
use super::network::{Backend, ConnectionId, Network, StorageInput};
use super::step::StorageStep;
use super::{CommandControl, Lane, NoteLevel, PING, Reach, StorageEvent, Store};
use crate::awake::Awake;
use crate::coherence::lease::EarlierIncarnations;
use crate::time::Time;
pub use acl::{FenceName, FenceShare};
use admin::{Admin, News};
use line::{Fault, Line, Listens};
use listener::Listener;
pub use mark::MarkSeen;
use mark::ServerMark;
pub use settings::{FenceDemand, LeaseRecord, RedisSettings};
use takeover::{Takeover, Trouble};

/// Pinned connections that are kept for the next blocking command.
const IDLE_MAX: usize = 8;
/// Ticket of what is asked for nobody: its replies are dropped.
const NOBODYS_TICKET: u64 = u64::MAX;
/// Ticket of the mark, whose reply is the connection's own.
const MARK_TICKET: u64 = u64::MAX - 1;
const LOG_INTERVAL: Duration = Duration::from_secs(1);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Up for this long counts as success. Shims that displace each other never get there, so they do it ever more
/// rarely, down to once a second.
const STABLE: Duration = Duration::from_secs(10);
/// How often a shim says something to its server, as its incarnation: whoever stands by for it looks how long that is ago.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);

/// The connections to one server. Every call appends what became known to `events`.
pub struct Redis {
    settings: RedisSettings,
    admin: Admin,
    /// By RESP version: the shared connections.
    shared: [Option<(ConnectionId, Line)>; 2],
    wants_resp3: bool,
    /// The one with subscriptions, the one that reports changes, and the one that reports those of tracked reads.
    listeners: [Listener; 3],
    pinned: Vec<(ConnectionId, Line)>,
    /// The largest number of a watching connection.
    watches: u64,
    backoff: Backoff,
    dial_not_before: Time,
    up_since: Time,
    /// When it has given a sign of life last.
    alive: Time,
    awake: Awake,
    /// Commands were lost, and `Fenced` has not been said since.
    owes_fence: bool,
    health: StorageHealth,
    /// It is logged that another process has the server.
    stands_by: bool,
    /// The last incarnation that came up.
    governed: Option<u64>,
    /// Somebody wants to know when the mark says what it is to say.
    awaits_mark: bool,
}

impl Backend for Redis {
    fn step(
        &mut self,
        now: Time,
        input: StorageInput,
        network: &mut dyn Network,
        events: &mut Vec<StorageEvent>,
    ) {
        let step = &mut StorageStep { now, network, events };
        match input {
            StorageInput::Store(store) => self.store(step, store),
            StorageInput::Control { ticket, control } => self.control(step, ticket, control),
            StorageInput::Release { number, clean } => self.release(step, number, clean),
            StorageInput::Connected(connection) if self.admin.is(connection) => {
                self.admin.connected(step.network, step.now);
            }
            StorageInput::Connected(_) => {}
            StorageInput::Data { connection, bytes } => self.data(step, connection, bytes),
            StorageInput::Closed { connection, reason } => {
                self.closed(step, connection, &reason);
            }
            StorageInput::Tick => self.tick(step),
            StorageInput::Vacant { gone } => self.admin.alert(step.network, step.now, gone),
            StorageInput::Record { left } => self.put_on_record(step, left),
            // Its keys leave through `RedisMigration`.
            StorageInput::Migrate { .. } | StorageInput::Prepare { .. } | StorageInput::EndMigration => {}
            StorageInput::HandOver => self.hand_over(step),
            StorageInput::Leave => self.leave(step),
        }
        self.hear_of_mark(step);
    }

    fn owns(&self, id: ConnectionId) -> bool {
        let listeners = self.listeners.iter().filter_map(|listener| listener.line.as_ref());
        let mut lines = self.shared.iter().flatten().chain(&self.pinned).chain(listeners);
        lines.any(|(connection, _)| *connection == id) || self.admin.is(id)
    }

    fn is_up(&self) -> bool {
        self.health.is_up()
    }

    fn refusal(&self) -> Option<&str> {
        self.health.refusal()
    }

    fn is_replaced(&self) -> bool {
        self.admin.takeover.is_replaced()
    }

    fn reconnects(&self) -> u64 {
        self.health.reconnects()
    }

    fn pending_count(&self) -> usize {
        let listeners = self.listeners.iter().filter_map(|listener| listener.line.as_ref());
        let lines = self.shared.iter().flatten().chain(&self.pinned).chain(listeners);
        lines.map(|(_, line)| line.pending_count()).sum()
    }
}

impl Redis {
    pub fn new(settings: RedisSettings) -> Redis {
        let mut random = SmallRng::seed_from_u64(settings.seed);
        let mut fork = || SmallRng::from_rng(&mut random);
        let takeover = Takeover::new(&settings, fork());
        Redis {
            admin: Admin::new(&settings, Backoff::new(BACKOFF_MIN, fork()), takeover),
            shared: [None, None],
            wants_resp3: false,
            listeners: [Listens::Topics, Listens::Changes, Listens::ReadChanges]
                .map(|listens| Listener::new(listens, Backoff::new(BACKOFF_MIN, fork()))),
            pinned: Vec::new(),
            watches: 0,
            backoff: Backoff::new(BACKOFF_MIN, fork()),
            dial_not_before: Time(0),
            up_since: Time(0),
            alive: Time(0),
            awake: Awake::default(),
            owes_fence: false,
            health: StorageHealth::new(&settings.address, LOG_INTERVAL),
            stands_by: false,
            governed: None,
            awaits_mark: false,
            settings,
        }
    }

    /// The largest number under which a connection has watched.
    pub fn watch_last(&self) -> u64 {
        self.watches
    }

    /// Connections that watched under these numbers were another server's: nothing may be executed in their name.
    pub fn forget_watches(&mut self, number_max: u64) {
        self.watches = self.watches.max(number_max);
    }

    fn store(&mut self, step: &mut StorageStep<'_>, store: Store) {
        let lost = StorageEvent::Lost { ticket: store.ticket, sent: false };
        if !self.health.is_up() || store.commands.is_empty() {
            step.events.push(lost);
            return;
        }
        let line = match store.lane {
            Lane::Shared { resp3 } => {
                self.alive = step.now;
                self.wants_resp3 |= resp3;
                self.dial_shared(step);
                self.shared[usize::from(resp3)].as_mut()
            }
            Lane::Pinned { resp3 } => self.pinned_line(step, resp3),
            Lane::Scripts { resp3 } => self.scripts_line(step, resp3),
            Lane::Subscriber => self.listening_line(step, Listens::Topics),
            Lane::Feed => self.listening_line(step, Listens::Changes),
            Lane::ReadFeed => self.listening_line(step, Listens::ReadChanges),
            Lane::Watching { number, resp3 } => self.watching_line(step, number, resp3),
        };
        match line {
            Some((connection, line)) => line.store(step.now, store, step.network.out(*connection)),
            None => step.events.push(lost),
        }
    }

    fn control(&mut self, step: &mut StorageStep<'_>, ticket: u64, control: CommandControl) {
        match control {
            CommandControl::Abort => self.abort(step, ticket),
            CommandControl::Unblock { error } => {
                if let Some((_, line)) = self.pinned.iter_mut().find(|(_, line)| line.holds(ticket)) {
                    // Its next command must not be ended in place of this one.
                    line.retire(error);
                    self.end_retired(step);
                }
            }
            CommandControl::Skip => {
                self.lines_mut().any(|(_, line)| line.skip(ticket));
            }
            CommandControl::Take { bytes } => self.take(step, ticket, bytes),
        }
    }

    fn abort(&mut self, step: &mut StorageStep<'_>, ticket: u64) {
        if let Some(index) = self.pinned.iter().position(|(_, line)| line.holds(ticket)) {
            let (connection, line) = self.pinned.swap_remove(index);
            self.lose(step, connection, line);
            self.settle(step);
        }
    }

    fn take(&mut self, step: &mut StorageStep<'_>, ticket: u64, bytes: u64) {
        let found =
            self.lines_mut().find_map(|(id, line)| line.take(ticket, bytes).then_some((*id, line.is_full())));
        if let Some((connection, false)) = found {
            step.network.resume(connection);
        }
    }

    fn lines_mut(&mut self) -> impl Iterator<Item = &mut (ConnectionId, Line)> {
        self.pinned.iter_mut().chain(self.shared.iter_mut().flatten())
    }

    /// Asks the server for the end of what must end, which knows what it has got; again and again, because it may hear of
    /// it before it hears of the command.
    fn end_retired(&mut self, step: &mut StorageStep<'_>) {
        let ends: Vec<Command> =
            self.pinned.iter_mut().filter_map(|(_, line)| line.end_retired(step.events)).collect();
        for command in ends {
            let commands = SmallVec::from_elem(command.frame().clone(), 1);
            let (ticket, lane, reach) = (NOBODYS_TICKET, Lane::Shared { resp3: false }, Reach::Whole);
            self.store(step, Store { ticket, lane, reach, commands });
        }
    }

    /// A watching connection serves nobody any more. If it watches nothing, the next may have it.
    fn release(&mut self, step: &mut StorageStep<'_>, number: u64, clean: bool) {
        let found = self.pinned.iter().position(|(_, line)| line.watch() == Some(number));
        let Some(index) = found else { return };
        self.pinned[index].1.set_watch(None);
        if clean && self.pinned[index].1.is_idle() {
            return self.trim_idle(step);
        }
        let (connection, line) = self.pinned.swap_remove(index);
        self.lose(step, connection, line);
        self.settle(step);
    }

    fn data(&mut self, step: &mut StorageStep<'_>, id: ConnectionId, mut bytes: Bytes) {
        let listeners = self.listeners.iter_mut().filter_map(|listener| listener.line.as_mut());
        let mut lines = self.shared.iter_mut().flatten().chain(&mut self.pinned).chain(listeners);
        let Some((_, line)) = lines.find(|(connection, _)| *connection == id) else {
            let news = self.admin.data(step.network, step.now, bytes);
            self.news(step, news);
            return;
        };
        let (was_open, was_told) = (line.is_open(), line.has_told());
        // An open line answers nothing; asking for its output would have it flushed for nothing.
        let mut nothing = Vec::new();
        let out = if was_open { &mut nothing } else { step.network.out(id) };
        match line.data(step.now, &mut bytes, out, step.events) {
            Ok(()) => {
                let told = line.has_told() && !was_told;
                if line.is_full() || told {
                    step.network.pause(id);
                }
                step.network.unread(id, bytes);
                if told {
                    // It comes again in the next turn, when the machine has heard of it.
                    step.network.resume(id);
                }
                if line.take_suspicion() {
                    // A replica, or one that is becoming one: the admin connection asks at once.
                    self.admin.takeover.recheck();
                    self.settle(step);
                } else if line.is_open() != was_open {
                    self.settle(step);
                }
                self.trim_idle(step);
            }
            Err(fault) => self.fault(step, id, fault),
        }
    }

    fn fault(&mut self, step: &mut StorageStep<'_>, id: ConnectionId, fault: Fault) {
        match fault {
            Fault::Broken(reason) => self.closed(step, id, &reason),
            Fault::Refused(reason) => {
                self.health.refuse(&reason);
                self.closed(step, id, &reason);
            }
            Fault::UserGone => {
                self.renounce(step);
                self.health.unusable(
                    step.now,
                    "the server was restarted, or another process has taken it over",
                    step.events,
                );
                self.settle(step);
            }
        }
    }

    fn closed(&mut self, step: &mut StorageStep<'_>, id: ConnectionId, reason: &str) {
        if self.admin.is(id) {
            let news = self.admin.closed(step.now, reason);
            self.news(step, Some(news));
            return;
        }
        if let Some(index) = self.pinned.iter().position(|(connection, _)| *connection == id) {
            let (connection, line) = self.pinned.swap_remove(index);
            self.lose(step, connection, line);
        }
        if let Some(listener) = self.listeners.iter_mut().find(|listener| listener.is(id)) {
            listener.rest(step.now);
            listener.lose(step.network, step.events);
        }
        for index in 0..self.shared.len() {
            if let Some((connection, line)) = self.shared[index].take_if(|(connection, _)| *connection == id)
            {
                self.lose(step, connection, line);
                // What was read on it is tracked no longer.
                self.listeners[Listens::ReadChanges as usize].lose(step.network, step.events);
                self.dial_not_before = step.now.after(self.backoff.next());
                // Whether the server is still the same one has to be known before the next `Up`.
                self.admin.takeover.recheck();
                self.health.down(step.now, reason, step.events);
            }
        }
        self.settle(step);
    }

    fn lose(&mut self, step: &mut StorageStep<'_>, connection: ConnectionId, line: Line) {
        let unwritten = step.network.unwritten_bytes(connection);
        step.network.close(connection);
        if let Some(client) = line.lose(unwritten, step.events) {
            self.admin.takeover.lost(client);
            self.owes_fence = true;
        }
    }

    fn close_lines(&mut self, step: &mut StorageStep<'_>) {
        self.listeners.iter_mut().for_each(|listener| listener.lose(step.network, step.events));
        let shared = self.shared.iter_mut().filter_map(Option::take);
        let lines: Vec<_> = shared.chain(self.pinned.drain(..)).collect();
        for (connection, line) in lines {
            self.lose(step, connection, line);
        }
    }

    fn news(&mut self, step: &mut StorageStep<'_>, news: Option<News>) {
        match news {
            None => {}
            Some(News::Left) => return self.handed_over(step),
            Some(News::Void) => {
                self.close_lines(step);
                self.health.void(step.now, step.events);
            }
            // The data connections may be as good as ever.
            Some(News::Trouble(Trouble::Wait(_) | Trouble::Broken(_))) if self.health.is_up() => {}
            Some(News::Trouble(Trouble::Wait(reason) | Trouble::Broken(reason))) => {
                self.health.down(step.now, &reason, step.events);
            }
            Some(News::Trouble(Trouble::Replaced(reason))) => {
                let meant = self.settings.standby.is_some();
                let level = if meant { NoteLevel::Info } else { NoteLevel::Warning };
                if !std::mem::replace(&mut self.stands_by, true) {
                    self.health.note(level, &format!("standing by: {reason}"), step.events);
                }
                if meant && !self.health.is_up() {
                    self.health.wait(&reason, step.events);
                } else {
                    self.health.unusable(step.now, &reason, step.events);
                }
            }
            Some(News::Trouble(Trouble::Unfit(reason))) => {
                self.close_lines(step);
                self.health.unusable(step.now, &reason, step.events);
            }
            Some(News::Trouble(Trouble::Refused(reason))) => {
                self.health.refuse(&reason);
                self.health.unusable(step.now, &reason, step.events);
            }
        }
        self.settle(step);
    }

    fn tick(&mut self, step: &mut StorageStep<'_>) {
        let timeout = self.awake.patience(step.now, self.settings.timeout).max(self.patience(step.now));
        if self.health.is_up() && step.now.since(self.up_since) >= STABLE {
            self.backoff.reset();
            self.listeners.iter_mut().for_each(Listener::reset_backoff);
            self.admin.reset_backoff();
        }
        self.end_retired(step);
        self.give_sign_of_life(step);
        let news = self.admin.tick(step.network, step.now, timeout);
        self.news(step, news);
        let listeners = self.listeners.iter_mut().filter_map(|listener| listener.line.as_mut());
        let lines = self.shared.iter_mut().flatten().chain(&mut self.pinned);
        for (connection, line) in lines.chain(listeners) {
            if line.is_rested(step.now) {
                line.probe_again(step.network.out(*connection));
            }
        }
        self.close_silent(step, timeout);
    }

    /// A shim that says nothing is taken for one that hangs by whoever stands by.
    fn give_sign_of_life(&mut self, step: &mut StorageStep<'_>) {
        // Also where nobody is known to stand by: their files may know of him.
        let is_due = step.now.since(self.alive) >= SIGN_OF_LIFE;
        if !self.health.is_up() || !is_due {
            return;
        }
        let commands = SmallVec::from_elem(PING, 1);
        let (ticket, lane, reach) = (NOBODYS_TICKET, Lane::Shared { resp3: false }, Reach::Whole);
        self.store(step, Store { ticket, lane, reach, commands });
    }

    /// Goes on towards `Up`: connections, then the fence, then the word.
    fn settle(&mut self, step: &mut StorageStep<'_>) {
        self.admin.ask(step.network, step.now);
        let Some(settled) = self.admin.takeover.settled() else { return };
        let (number, mut traits, earlier) = (settled.number, settled.traits, settled.earlier);
        let mark = self.admin.takeover.mark.as_ref();
        traits.divided = mark.is_some_and(ServerMark::is_divided);
        traits.keys_left = mark.is_some_and(ServerMark::has_left);
        if std::mem::take(&mut self.owes_fence) {
            step.events.push(StorageEvent::Fenced);
        }
        self.dial_shared(step);
        self.report_reads(step);
        let wanted = if self.wants_resp3 { &self.shared[..] } else { &self.shared[..1] };
        let open = wanted.iter().all(|line| line.as_ref().is_some_and(|(_, line)| line.is_open()));
        let marked = open && self.write_mark(step);
        if marked && !self.health.is_up() {
            self.up_since = step.now;
            self.stands_by = false;
            let before = self.governed.replace(number);
            // Who brings keys to another shim's server has nothing of it that leases would be for.
            if before.is_none() && self.settings.fence.share != FenceShare::Arriving {
                self.tell_of_waiting(step, earlier);
            }
            if before != Some(number)
                && let Some(text) = self.admin.takeover.lacks()
            {
                self.health.note(NoteLevel::Warning, &text, step.events);
            }
            self.health.rise(number, traits, earlier, step.events);
        }
    }

    /// Writes the mark if that is due, as the user of this incarnation, so that none of an earlier one comes later. Whether none
    /// is on its way.
    fn write_mark(&mut self, step: &mut StorageStep<'_>) -> bool {
        if let Some((connection, line)) = &mut self.shared[0]
            && let Some(command) = self.admin.takeover.mark_command(step.now)
        {
            let commands = SmallVec::from_elem(command.frame().clone(), 1);
            let (ticket, lane, reach) = (MARK_TICKET, Lane::Shared { resp3: false }, Reach::Whole);
            line.store(step.now, Store { ticket, lane, reach, commands }, step.network.out(*connection));
        }
        !self.admin.takeover.mark.as_ref().is_some_and(ServerMark::is_asked)
    }

    fn put_on_record(&mut self, step: &mut StorageStep<'_>, left: bool) {
        if let Some(mark) = &mut self.admin.takeover.mark {
            if left {
                mark.leave()
            } else {
                mark.divide()
            }
            let is_there = mark.is_current() && !mark.is_asked();
            self.awaits_mark = !is_there;
            if is_there {
                return step.events.push(StorageEvent::Marked);
            }
            self.settle(step);
        }
    }

    /// Takes what became of the mark out of what others are told.
    fn hear_of_mark(&mut self, step: &mut StorageStep<'_>) {
        let Some(mark) = self.admin.takeover.mark.as_mut().filter(|mark| mark.is_asked()) else { return };
        let is_it = |event: &StorageEvent| {
            matches!(
                event,
                StorageEvent::Replies { ticket: MARK_TICKET, .. }
                    | StorageEvent::Lost { ticket: MARK_TICKET, .. }
            )
        };
        let Some(at) = step.events.iter().position(is_it) else { return };
        match step.events.remove(at) {
            StorageEvent::Replies { replies, .. } => {
                let replies = replies.concat();
                let is_taken = !replies.starts_with(b"-");
                if let Some(warning) = mark.answered(&replies) {
                    self.health.note(NoteLevel::Warning, &warning, step.events);
                }
                if is_taken && mark.is_current() && std::mem::take(&mut self.awaits_mark) {
                    step.events.push(StorageEvent::Marked);
                }
                self.settle(step);
            }
            _ => mark.lost(),
        }
    }

    /// Says why writes wait, at the start of a process.
    fn tell_of_waiting(&self, step: &mut StorageStep<'_>, earlier: EarlierIncarnations) {
        if let Some(text) = self.settings.lease_record.why_to_wait(earlier) {
            self.health.note(NoteLevel::Warning, &text, step.events);
        }
    }

    fn dial_shared(&mut self, step: &mut StorageStep<'_>) {
        let Some(incarnation) = self.admin.takeover.incarnation() else { return };
        if step.now < self.dial_not_before {
            return;
        }
        for (index, place) in self.shared.iter_mut().enumerate() {
            let resp3 = index == 1;
            if place.is_none() && (!resp3 || self.wants_resp3) {
                let connection = step.network.dial(self.settings.endpoint, true);
                let mut line = Line::new(step.now, resp3, incarnation, step.network.out(connection));
                if let Some(client) = self.listeners[Listens::ReadChanges as usize].client() {
                    line.report_to(step.now, client, step.network.out(connection));
                }
                *place = Some((connection, line));
            }
        }
    }

    /// Has the server report changes of what is read on the shared connections on the one that listens for them.
    fn report_reads(&mut self, step: &mut StorageStep<'_>) {
        let Some(client) = self.listeners[Listens::ReadChanges as usize].client() else { return };
        for (connection, line) in self.shared.iter_mut().flatten() {
            if !line.reports_to(client) {
                line.report_to(step.now, client, step.network.out(*connection));
            }
        }
    }

    fn listening_line(
        &mut self,
        step: &mut StorageStep<'_>,
        listens: Listens,
    ) -> Option<&mut (ConnectionId, Line)> {
        let listener = &mut self.listeners[listens as usize];
        if listener.may_dial(step.now) {
            let incarnation = self.admin.takeover.incarnation()?;
            let connection = step.network.dial(self.settings.endpoint, true);
            let line = Line::listening(step.now, listens, incarnation, step.network.out(connection));
            listener.line = Some((connection, line));
        }
        listener.line.as_mut()
    }
}
