//! Storage servers and how shims reach them: fenced incarnations, lost connections, late application. Not the data.

mod connection;
mod data;
mod feed;

use bytes::Bytes;
use protocol::shim;
use protocol::storage::{Lane, StorageEvent, StorageTraits, Store};
use wire::resp::Command;

use crate::clock::HostClock;
use crate::cluster::{Cluster, Event};
use crate::history::{Executed, Execution};
use crate::network::HostId;
use crate::random::Random;
use crate::shape::Shape;
use connection::{Connection, Output};
pub(crate) use data::{Changes, Data, Effect};

/// What is slow takes so many times as long as the rest.
const SLOWNESS: u64 = 20;

/// One storage server.
pub(crate) struct Server {
    pub(crate) data: Data,
    clock: HostClock,
    pub(crate) paused_until: u64,
    pub(crate) slow_until: u64,
    /// The slot of the shim that it obeys, or will obey.
    pub(crate) current: HostId,
    turn: Option<feed::Turn>,
    /// Lost connections of which it may still execute what it has read, with their slots.
    stranded: Vec<(HostId, Connection)>,
    /// When it carried out which write.
    pub(crate) executed: Executed,
    /// Writes applied although their shim had given them up.
    pub(crate) late_writes: u64,
}

/// One incarnation's storage as its shim sees it.
#[derive(Debug, Default)]
pub(crate) struct Backend {
    incarnation: u64,
    up: bool,
    /// Another incarnation has taken over, and this one has not been told: its commands go nowhere.
    cut: bool,
    connections: Vec<Connection>,
    /// Swallowed since the cut.
    swallowed: Vec<u64>,
}

impl Server {
    pub(crate) fn new(shape: &Shape, slot: HostId, random: &mut Random) -> Server {
        let wrong = shape.faults.contains(crate::FaultKind::Clock);
        Server {
            data: Data::default(),
            clock: HostClock::draw(random, wrong),
            paused_until: 0,
            slow_until: 0,
            current: slot,
            turn: None,
            stranded: Vec::new(),
            executed: Executed::new(),
            late_writes: 0,
        }
    }

    pub(crate) fn now_ms(&self, now: u64) -> u64 {
        self.clock.at(now).0 / 1000
    }

    /// When a key of it expires, in virtual time.
    pub(crate) fn expires_at(&self, key: &[u8]) -> Option<u64> {
        Some(self.clock.when(self.data.expires_ms(key)? * 1000))
    }
}

impl Backend {
    pub(crate) fn is_serving(&self) -> bool {
        self.up && !self.cut
    }

    pub(crate) fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Whether it has announced itself to its shim.
    pub(crate) fn is_settled(&self) -> bool {
        self.incarnation != 0
    }
}

impl Cluster {
    fn backend(&mut self, slot: HostId) -> &mut Backend {
        &mut self.backends[slot - self.slots_first]
    }

    fn storage_wait(&mut self, server: usize) -> u64 {
        let factor = if self.servers[server].slow_until > self.now { SLOWNESS } else { 1 };
        self.random.wait(self.shape.storage_latency * factor)
    }

    /// Tells a shim something about its storage, in order.
    fn announce(&mut self, slot: HostId, event: StorageEvent) {
        let life = self.hosts[slot].life;
        let now = self.now;
        self.at(now, Event::Storage { slot, life, event });
    }

    /// A shim sends commands.
    pub(crate) fn store(&mut self, slot: HostId, store: Store) {
        let server = self.server_of(slot);
        let arrives = self.now + self.storage_wait(server);
        self.serial += 1;
        let (now, number) = (self.now, self.serial as u32);
        let backend = self.backend(slot);
        if !backend.up {
            return self.announce(slot, StorageEvent::Lost { ticket: store.ticket, sent: false });
        }
        if backend.cut {
            backend.swallowed.push(store.ticket);
            return;
        }
        let shared = matches!(store.lane, Lane::Shared { .. } | Lane::Scripts { .. } | Lane::Feed);
        let known = backend.connections.iter().position(|one| shared && one.lane == store.lane);
        let index = known.unwrap_or_else(|| {
            backend.connections.push(Connection::new(number, store.lane));
            backend.connections.len() - 1
        });
        let connection = &mut backend.connections[index];
        connection.executes_at = connection.executes_at.max(arrives);
        let (due, connection_number) = (connection.executes_at, connection.number);
        connection.accept(now, store);
        self.at(due, Event::Execute { slot, connection: connection_number });
    }

    pub(crate) fn storage_event(&mut self, event: Event) {
        match event {
            Event::Execute { slot, connection } => self.execute(slot, connection),
            Event::Answer { slot, life, connection } => self.answer(slot, life, connection),
            Event::TurnEnds { server } => self.turn_ends(server),
            Event::Storage { slot, life, event } if self.hosts[slot].life == life => {
                self.storage_says(slot, event);
            }
            Event::Stranded { server, connection } => self.execute_stranded(server, connection),
            Event::Takeover { slot, life } if self.hosts[slot].life == life => self.takeover(slot, life),
            Event::Notice { slot, life } if self.hosts[slot].life == life => self.notice(slot),
            Event::Fence { slot, life } if self.hosts[slot].life == life => self.fence(slot, life),
            Event::Up { slot, life } if self.hosts[slot].life == life => self.up(slot),
            Event::NewIncarnation { slot, life } if self.hosts[slot].life == life => {
                self.new_incarnation(slot, life);
            }
            _ => {}
        }
    }

    /// Storage gets to the next command of a connection.
    fn execute(&mut self, slot: HostId, number: u32) {
        let server = self.server_of(slot);
        if self.servers[server].paused_until > self.now {
            let due = self.servers[server].paused_until;
            return self.at(due, Event::Execute { slot, connection: number });
        }
        let Some(index) = self.backend(slot).connections.iter().position(|one| one.number == number) else {
            return;
        };
        let connection = &self.backend(slot).connections[index];
        let (Some(frame), None) = (connection.head(), connection.blocked) else { return };
        let (resp3, feed) = (connection.resp3(), connection.lane == Lane::Feed);
        self.trace.event(self.now, 5, slot);
        self.trace.bytes(&frame);
        if feed {
            if let Some(reply) = self.execute_on_feed(slot, index) {
                self.executed(slot, index, reply);
            }
            return;
        }
        match self.apply(server, frame, resp3) {
            Some(reply) => self.executed(slot, index, reply),
            None => {
                self.serial += 1;
                let serial = self.serial;
                self.backend(slot).connections[index].blocked = Some(serial);
            }
        }
        self.wake_blocked(server);
    }

    fn executed(&mut self, slot: HostId, index: usize, reply: Bytes) {
        let wait = self.storage_wait(self.server_of(slot));
        let (now, life) = (self.now, self.hosts[slot].life);
        let connection = &mut self.backend(slot).connections[index];
        let number = connection.number;
        if connection.executed(reply) {
            connection.answers_at = connection.answers_at.max(now + wait);
            let due = connection.answers_at;
            self.at(due, Event::Answer { slot, life, connection: number });
        } else {
            // Commands sent together still leave room between them for those of other connections.
            let due = now + self.random.below(self.shape.storage_latency / 4 + 1);
            self.at(due, Event::Execute { slot, connection: number });
        }
    }

    /// The oldest reply of a connection reaches the shim.
    fn answer(&mut self, slot: HostId, life: u32, number: u32) {
        if self.hosts[slot].life != life {
            return;
        }
        let backend = self.backend(slot);
        let Some(index) = backend.connections.iter().position(|one| one.number == number) else { return };
        let connection = &mut backend.connections[index];
        let work = match connection.outputs.pop_front() {
            Some(Output::Replies(work)) => work,
            Some(Output::Push { made, bytes }) => return self.hear(slot, index, made, bytes),
            None => return,
        };
        if connection.is_pinned() && connection.is_empty() {
            backend.connections.swap_remove(index);
        }
        let (ticket, replies) = (work.ticket, work.replies);
        self.storage_says(slot, StorageEvent::Replies { ticket, replies });
    }

    fn storage_says(&mut self, slot: HostId, event: StorageEvent) {
        self.trace.event(self.now, 6, slot);
        self.note(|| format!("storage > {slot}: {event:?}"));
        self.step_shim(slot, shim::Input::Storage(event));
    }

    /// Storage executes one command. `None`: it blocks.
    fn apply(&mut self, server: usize, frame: Bytes, resp3: bool) -> Option<Bytes> {
        let command = Command::parse(frame.clone()).expect("the shim sends whole commands");
        let (reply, effect) = self.change(server, &command, resp3)?;
        if effect != Effect::Read {
            self.serial += 1;
            let execution = Execution { time: self.now, serial: self.serial, reply: reply.clone() };
            self.servers[server].executed.entry(frame).or_default().push(execution);
        }
        self.check_written(server, &command, effect);
        Some(reply)
    }

    fn change(&mut self, server: usize, command: &Command, resp3: bool) -> Option<(Bytes, Effect)> {
        self.note(|| format!("storage {server} executes {command:?}"));
        let now_ms = self.servers[server].now_ms(self.now);
        let done = self.servers[server].data.execute(now_ms, command, resp3);
        self.changed(server);
        done
    }

    /// Whatever has just changed at a server is remembered and reported.
    pub(crate) fn changed(&mut self, server: usize) {
        if let Some(changes) = self.servers[server].data.take_changes() {
            self.remember(server, &changes);
            self.report_changes(server, changes);
        }
    }

    /// Somebody writes who does not go through DistCache.
    pub(crate) fn write_outside(&mut self, server: usize, command: &Command) {
        self.note(|| "an outsider writes".to_owned());
        self.change(server, command, false);
        self.wake_blocked(server);
    }

    /// Blocked commands go on if they can, those first that came first.
    fn wake_blocked(&mut self, server: usize) {
        loop {
            let slots = [self.slots_first + 2 * server, self.slots_first + 2 * server + 1];
            let mut blocked: Vec<(u64, HostId, u32, Bytes, bool)> = Vec::new();
            for slot in slots {
                for one in &self.backends[slot - self.slots_first].connections {
                    let (Some(serial), Some(head)) = (one.blocked, one.head()) else { continue };
                    blocked.push((serial, slot, one.number, head, one.resp3()));
                }
            }
            blocked.sort_unstable_by_key(|(serial, ..)| *serial);
            let mut woken = false;
            for (_, slot, number, frame, resp3) in blocked {
                let Some(reply) = self.apply(server, frame, resp3) else { continue };
                let index = self.backend(slot).connections.iter().position(|one| one.number == number);
                if let Some(index) = index {
                    self.executed(slot, index, reply);
                }
                woken = true;
            }
            if !woken {
                return;
            }
        }
    }

    /// What waits for an answer for longer than the driver has patience ends the connection.
    pub(crate) fn check_storage_timeouts(&mut self, slot: HostId) {
        let timeout = self.shape.storage_timeout();
        let now = self.now;
        let late = |connection: &Connection| {
            !connection.is_pinned() && connection.waiting_since().is_some_and(|since| since + timeout < now)
        };
        if let Some(index) = self.backend(slot).connections.iter().position(late) {
            self.watch.storage_timeouts += 1;
            self.lose_connection(slot, index);
        }
    }

    /// A connection breaks. What storage had of it may still be executed, until the fence.
    pub(crate) fn lose_connection(&mut self, slot: HostId, index: usize) {
        if !self.backend(slot).is_serving() || index >= self.backend(slot).connections.len() {
            return;
        }
        let life = self.hosts[slot].life;
        let connection = &self.backend(slot).connections[index];
        let (pinned, feed) = (connection.is_pinned(), connection.lane == Lane::Feed);
        self.strand(slot, index, true);
        if feed {
            return;
        }
        let resumes = self.servers[self.server_of(slot)].paused_until.max(self.now);
        let fence = resumes + self.random.below(self.shape.lease);
        self.at(fence, Event::Fence { slot, life });
        if !pinned {
            self.down(slot, "its connection broke");
            let early = self.random.percent(30);
            let up = if early { resumes + (fence - resumes) / 2 } else { fence };
            self.at(up, Event::Up { slot, life });
        }
    }

    fn down(&mut self, slot: HostId, reason: &str) {
        if std::mem::take(&mut self.backend(slot).up) {
            self.announce(slot, StorageEvent::Down { reason: reason.to_owned() });
        }
    }

    /// The shim gives a connection up; storage does not know yet.
    fn strand(&mut self, slot: HostId, index: usize, tells: bool) {
        let server = self.server_of(slot);
        let mut connection = self.backend(slot).connections.swap_remove(index);
        let least = connection.begun();
        let written = least + self.random.index(connection.commands.len() - least + 1);
        for (ticket, sent) in connection.lose(written) {
            if tells {
                self.announce(slot, StorageEvent::Lost { ticket, sent });
            }
        }
        if connection.lane == Lane::Feed {
            // It carries nothing that changes data.
            if tells {
                self.announce(slot, StorageEvent::FeedDown);
            }
        } else if connection.blocked.is_none() && !connection.commands.is_empty() {
            let (due, number) = (self.soon(self.shape.lease), connection.number);
            self.servers[server].stranded.push((slot, connection));
            self.at(due, Event::Stranded { server, connection: number });
        }
    }

    fn strand_all(&mut self, slot: HostId, tells: bool) {
        while !self.backend(slot).connections.is_empty() {
            let last = self.backend(slot).connections.len() - 1;
            self.strand(slot, last, tells);
        }
    }

    /// Storage gets to something that it read from a connection that is no more.
    fn execute_stranded(&mut self, server: usize, number: u32) {
        if self.servers[server].paused_until > self.now {
            let due = self.servers[server].paused_until;
            return self.at(due, Event::Stranded { server, connection: number });
        }
        let stranded = &self.servers[server].stranded;
        let Some(index) = stranded.iter().position(|(_, one)| one.number == number) else { return };
        if self.step_stranded(server, index) {
            let due = self.soon(self.shape.lease / 4);
            self.at(due, Event::Stranded { server, connection: number });
        } else {
            self.servers[server].stranded.swap_remove(index);
        }
        self.wake_blocked(server);
    }

    /// Executes one command of a stranded connection; false if that was its last.
    fn step_stranded(&mut self, server: usize, index: usize) -> bool {
        let connection = &self.servers[server].stranded[index].1;
        let (Some(frame), resp3) = (connection.head(), connection.resp3()) else { return false };
        self.trace.event(self.now, 7, server);
        self.trace.bytes(&frame);
        self.servers[server].late_writes += 1;
        let Some(reply) = self.apply(server, frame, resp3) else { return false };
        let connection = &mut self.servers[server].stranded[index].1;
        connection.executed(reply);
        connection.head().is_some()
    }

    /// What is stranded of these slots happens now or never.
    fn resolve_stranded(&mut self, server: usize, slot: Option<HostId>) {
        let wanted = |owner: HostId| slot.is_none_or(|slot| slot == owner);
        while let Some(index) = self.servers[server].stranded.iter().position(|(owner, _)| wanted(*owner)) {
            while self.random.percent(60) && self.step_stranded(server, index) {}
            self.servers[server].stranded.swap_remove(index);
        }
        self.wake_blocked(server);
    }

    /// Storage obeys `slot` from now on and nobody else: earlier connections can do nothing any more.
    fn takeover(&mut self, slot: HostId, life: u32) {
        let server = self.server_of(slot);
        if self.servers[server].paused_until > self.now {
            let due = self.servers[server].paused_until;
            return self.at(due, Event::Takeover { slot, life });
        }
        let old = self.other_slot(slot);
        // Half the time the old shim still hears of what it lost.
        let tells = self.random.percent(50);
        self.strand_all(old, tells && self.hosts[old].is_alive());
        self.resolve_stranded(server, None);
        self.backend(old).cut = true;
        let (due, old_life) = (self.soon(self.shape.lease * 2), self.hosts[old].life);
        self.at(due, Event::Notice { slot: old, life: old_life });
        self.begin_incarnation(slot);
    }

    pub(crate) fn other_slot(&self, slot: HostId) -> HostId {
        self.slots_first + ((slot - self.slots_first) ^ 1)
    }

    fn begin_incarnation(&mut self, slot: HostId) {
        let incarnation = self.random.number() | 1;
        let backend = self.backend(slot);
        (backend.incarnation, backend.up) = (incarnation, true);
        self.announce(slot, StorageEvent::Up { incarnation, traits: StorageTraits::default() });
    }

    /// The driver of a shim that was replaced notices it.
    fn notice(&mut self, slot: HostId) {
        if !self.backend(slot).cut {
            return;
        }
        for ticket in std::mem::take(&mut self.backend(slot).swallowed) {
            self.announce(slot, StorageEvent::Lost { ticket, sent: true });
        }
        self.down(slot, "another shim has taken it over");
    }

    fn fence(&mut self, slot: HostId, life: u32) {
        let server = self.server_of(slot);
        if self.servers[server].paused_until > self.now {
            let due = self.servers[server].paused_until;
            return self.at(due, Event::Fence { slot, life });
        }
        if self.backend(slot).cut || !self.backend(slot).is_settled() {
            return;
        }
        self.resolve_stranded(server, Some(slot));
        self.announce(slot, StorageEvent::Fenced);
    }

    fn up(&mut self, slot: HostId) {
        let backend = self.backend(slot);
        if !backend.up && !backend.cut && backend.is_settled() {
            backend.up = true;
            let (incarnation, traits) = (backend.incarnation, StorageTraits::default());
            self.announce(slot, StorageEvent::Up { incarnation, traits });
        }
    }

    /// The server lost this incarnation's user; it has the same data.
    pub(crate) fn lose_incarnation(&mut self, slot: HostId) {
        if !self.backend(slot).is_serving() {
            return;
        }
        self.strand_all(slot, true);
        self.down(slot, "its user is gone");
        let (due, life) = (self.soon(self.shape.lease / 2), self.hosts[slot].life);
        self.at(due, Event::NewIncarnation { slot, life });
    }

    fn new_incarnation(&mut self, slot: HostId, life: u32) {
        let server = self.server_of(slot);
        if self.servers[server].paused_until > self.now {
            let due = self.servers[server].paused_until;
            return self.at(due, Event::NewIncarnation { slot, life });
        }
        let backend = self.backend(slot);
        if backend.cut || backend.up || !backend.is_settled() {
            return;
        }
        self.resolve_stranded(server, Some(slot));
        if self.random.percent(50) {
            self.announce(slot, StorageEvent::Fenced);
        }
        self.begin_incarnation(slot);
    }

    /// Gives a pinned command up: its connection goes, if it is still there.
    pub(crate) fn abort(&mut self, slot: HostId, ticket: u64) {
        let Some(index) = self.backend(slot).connections.iter().position(|one| one.holds(ticket)) else {
            return;
        };
        let life = self.hosts[slot].life;
        self.strand(slot, index, true);
        let resumes = self.servers[self.server_of(slot)].paused_until.max(self.now);
        let fence = resumes + self.random.below(self.shape.lease / 2);
        self.at(fence, Event::Fence { slot, life });
    }

    /// A shim's process ends, and its connections with it.
    pub(crate) fn end_backend(&mut self, slot: HostId) {
        self.strand_all(slot, false);
        *self.backend(slot) = Backend::default();
    }
}
