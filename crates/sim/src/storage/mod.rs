//! Storage servers and the production machines that reach and fence them for the shims. Not the data.

mod data;
pub(crate) mod links;
pub(crate) mod redis;
pub(crate) mod site;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use protocol::shim;
use protocol::storage::StorageEvent;
use protocol::storage::network::{Backend as _, ConnectionId, Endpoint, StorageInput};
use protocol::storage::redis::{Redis, RedisSettings};
use wire::resp::Command;

use crate::clock::HostClock;
use crate::cluster::{Cluster, SimEvent};
use crate::history::{Executed, Execution};
use crate::network::HostId;
use crate::random::SimRandom;
use crate::shape::Shape;
pub(crate) use data::{Changes, Data, Effect};
use links::Links;
use redis::RedisServer;
use site::{Doer, Done, Habits, Moment, Site, WireEvent};

/// What is slow takes so many times as long as the rest.
const SLOWNESS: u64 = 20;
/// The longest that a shim waits before it dials again, and what the dialogue takes: microseconds.
pub(crate) const RECONNECT: u64 = 1_500_000;
/// Connections of a process, places of processes: where their numbers begin among the bits of a connection's.
const SLOT_SHIFT: u32 = 24;
const LIFE_SHIFT: u32 = 40;

/// One storage server.
pub(crate) struct Server {
    pub(crate) site: Site<RedisServer>,
    clock: HostClock,
    pub(crate) paused_until: u64,
    pub(crate) slow_until: u64,
    /// The slot of the shim that is to have it. Until an earlier one has ended, that one may win.
    pub(crate) current: HostId,
    /// The slot of the shim that was told last that it may write.
    pub(crate) obeyed: HostId,
    /// When it carried out which write.
    pub(crate) executed: Executed,
    /// Writes carried out although their shim had given them up.
    pub(crate) late_writes: u64,
}

/// One shim process's machine for its storage.
#[derive(Default)]
pub(crate) struct Backend {
    machine: Option<Redis>,
    links: Links,
    /// What the machine has said and the shim has not heard.
    said: VecDeque<StorageEvent>,
    /// The shim is being told.
    telling: bool,
    /// It has served in this life.
    settled: bool,
}

impl Server {
    pub(crate) fn new(shape: &Shape, slot: HostId, random: &mut SimRandom) -> Server {
        let wrong = shape.faults.contains(crate::FaultKind::Clock);
        let habits =
            Habits { part_percent: 1, part_delay: shape.storage_latency * 2, late_percent: 0, late_delay: 0 };
        Server {
            site: Site::new(RedisServer::new(), habits),
            clock: HostClock::draw(random, wrong),
            paused_until: 0,
            slow_until: 0,
            current: slot,
            obeyed: slot,
            executed: Executed::new(),
            late_writes: 0,
        }
    }

    pub(crate) fn now_ms(&self, now: u64) -> u64 {
        self.clock.at(now).0 / 1000
    }

    pub(crate) fn data(&mut self) -> &mut Data {
        &mut self.site.server.data
    }

    /// When a key of it expires, in virtual time.
    pub(crate) fn expires_at(&self, key: &[u8]) -> Option<u64> {
        Some(self.clock.when(self.site.server.data.expires_ms(key)? * 1000))
    }
}

impl Backend {
    pub(crate) fn is_serving(&self) -> bool {
        self.machine.as_ref().is_some_and(Redis::is_up)
    }

    /// Whether it has served its shim.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }
}

/// Settings of a machine before a server without a password.
pub(crate) fn settings(address: String, timeout: Duration, seed: u64) -> RedisSettings {
    RedisSettings {
        endpoint: Endpoint::Configured,
        address,
        tls: false,
        user: None,
        password: None,
        cluster: "c".to_owned(),
        shim: "s".to_owned(),
        cluster_mode: false,
        timeout,
        pinned_max: 16,
        seed,
    }
}

/// The slot of the process that made a connection.
pub(crate) fn slot_of(connection: ConnectionId) -> HostId {
    (connection.0 >> SLOT_SHIFT) as usize & ((1 << (LIFE_SHIFT - SLOT_SHIFT)) - 1)
}

impl Cluster {
    fn backend(&mut self, slot: HostId) -> &mut Backend {
        &mut self.backends[slot - self.slots_first]
    }

    /// The place of the other process that may run for the same storage.
    pub(crate) fn other_slot(&self, slot: HostId) -> HostId {
        self.slots_first + ((slot - self.slots_first) ^ 1)
    }

    /// Does something at a server and its connections, and plans what follows.
    fn at_site<T>(
        &mut self,
        server: usize,
        act: impl FnOnce(&mut Site<RedisServer>, &mut Moment<'_>) -> T,
    ) -> T {
        let factor = if self.servers[server].slow_until > self.now { SLOWNESS } else { 1 };
        let latency = self.shape.storage_latency * factor;
        let mut at = Moment { now: self.now, random: &mut self.random, latency };
        let site = &mut self.servers[server].site;
        let done = act(site, &mut at);
        for (due, event) in site.take_due() {
            self.queue.push(due, SimEvent::Wire { server, event });
        }
        done
    }

    /// A shim's process starts with a machine that has no connections.
    pub(crate) fn start_backend(&mut self, slot: HostId) {
        let life = u64::from(self.hosts[slot].life);
        let address = format!("server {}", self.server_of(slot));
        let timeout = Duration::from_micros(self.shape.storage_timeout());
        let settings = settings(address, timeout, self.random.number());
        *self.backend(slot) = Backend {
            machine: Some(Redis::new(settings)),
            links: Links::new(life << LIFE_SHIFT | (slot as u64) << SLOT_SHIFT),
            ..Backend::default()
        };
    }

    /// A shim's process ends, and its connections with it; what it has written may still arrive.
    pub(crate) fn end_backend(&mut self, slot: HostId) {
        let gone = std::mem::take(self.backend(slot));
        let most = self.shape.lease;
        self.at_site(self.server_of(slot), |site, at| {
            for connection in gone.links.all() {
                let wait = at.random.below(most);
                site.gone(at.now, connection, wait);
            }
        });
    }

    /// Tells a shim's machine for its storage something, and the shim what comes of it.
    pub(crate) fn step_storage(&mut self, slot: HostId, input: StorageInput) {
        let local = self.hosts[slot].clock.at(self.now);
        let server = self.server_of(slot);
        let own = self.backend(slot);
        let Some(machine) = &mut own.machine else { return };
        let mut events = Vec::new();
        machine.step(local, input, &mut own.links, &mut events);
        own.said.extend(events);
        let actions = own.links.take_actions();
        let writing = own.links.writing();
        let mut resumed = Vec::new();
        self.at_site(server, |site, at| {
            resumed.extend(actions.into_iter().filter_map(|action| site.act(at, action)))
        });
        for connection in writing {
            self.flush_wire(server, connection);
        }
        for connection in resumed {
            self.deliver_bytes(connection, &Bytes::new());
        }
        self.tell_shim(slot);
    }

    /// What storage has said reaches the shim in order, as its driver has it.
    pub(crate) fn tell_shim(&mut self, slot: HostId) {
        if std::mem::replace(&mut self.backend(slot).telling, true) {
            return;
        }
        while !self.hosts[slot].is_paused(self.now)
            && let Some(event) = self.backend(slot).said.pop_front()
        {
            self.storage_says(slot, event);
        }
        self.backend(slot).telling = false;
    }

    fn storage_says(&mut self, slot: HostId, event: StorageEvent) {
        self.trace.event(self.now, 6, slot);
        self.note(|| format!("storage > {slot}: {event:?}"));
        match &event {
            StorageEvent::Up { .. } => {
                self.backend(slot).settled = true;
                let server = self.server_of(slot);
                self.servers[server].obeyed = slot;
            }
            StorageEvent::Down { .. } => self.watch.storage_downs += 1,
            _ => {}
        }
        self.step_shim(slot, shim::Input::Storage(event));
    }

    fn flush_wire(&mut self, server: usize, connection: ConnectionId) {
        let slot = slot_of(connection);
        let mut links = std::mem::take(&mut self.backend(slot).links);
        self.at_site(server, |site, at| site.flush(at, &mut links, connection));
        self.backend(slot).links = links;
    }

    fn deliver_bytes(&mut self, connection: ConnectionId, bytes: &Bytes) {
        let slot = slot_of(connection);
        if let Some(bytes) = self.backend(slot).links.come(connection, bytes) {
            self.step_storage(slot, StorageInput::Data { connection, bytes });
        }
    }

    /// When the server of an event does something again, if that is what it is about.
    fn rests(&self, server: usize, event: &WireEvent) -> Option<u64> {
        let until = self.servers[server].paused_until;
        (event.doer() == Doer::Server && until > self.now).then_some(until)
    }

    pub(crate) fn wire_event(&mut self, server: usize, event: WireEvent) {
        if let Some(until) = self.rests(server, &event) {
            if matches!(event, WireEvent::TurnEnds) {
                self.servers[server].site.rest(until);
            }
            return self.at(until, SimEvent::Wire { server, event });
        }
        match event {
            WireEvent::Flush(connection) => self.flush_wire(server, connection),
            WireEvent::Arrive(connection, bytes) => {
                self.at_site(server, |site, at| site.arrive(at, connection, &bytes));
            }
            WireEvent::End(connection) => self.servers[server].site.end(connection),
            WireEvent::Execute(connection) => self.execute(server, connection),
            WireEvent::TurnEnds => self.at_site(server, Site::turn_ends),
            WireEvent::Connected(connection) => {
                self.hear(connection, StorageInput::Connected(connection));
            }
            WireEvent::Deliver { connection, bytes, made } => {
                self.deliver_reply(server, connection, &bytes, made)
            }
            WireEvent::Broken(connection) => {
                let reason = "the connection broke".to_owned();
                self.hear(connection, StorageInput::Closed { connection, reason });
                self.backend(slot_of(connection)).links.forget(connection);
            }
        }
    }

    /// Tells a process about a connection that it still has.
    fn hear(&mut self, connection: ConnectionId, input: StorageInput) {
        let slot = slot_of(connection);
        if self.backend(slot).links.has(connection) {
            self.step_storage(slot, input);
        }
    }

    fn deliver_reply(&mut self, server: usize, connection: ConnectionId, bytes: &Bytes, made: Option<u64>) {
        let slot = slot_of(connection);
        if !self.backend(slot).links.has(connection) {
            return;
        }
        if let Some(made) = made {
            // Until then it must not have claimed to know of what is in it.
            self.check_exported(slot);
            self.servers[server].site.heard(connection, made);
            self.watch.reports += 1;
        }
        self.deliver_bytes(connection, bytes);
    }

    fn execute(&mut self, server: usize, connection: ConnectionId) {
        let now_ms = self.servers[server].now_ms(self.now);
        let done = self.at_site(server, |site, at| site.execute_in_turn(at, now_ms, connection));
        match done {
            Some(done) => {
                self.carried_out(server, done);
                self.wake_blocked(server);
            }
            // A command that blocks may have found that its key has expired.
            None => self.changed(server),
        }
    }

    /// Blocked commands go on if they can, those first that came first.
    fn wake_blocked(&mut self, server: usize) {
        let now_ms = self.servers[server].now_ms(self.now);
        while let Some(done) = self.at_site(server, |site, at| site.wake(at, now_ms)) {
            self.carried_out(server, done);
        }
    }

    fn carried_out(&mut self, server: usize, done: Done) {
        let Done { connection, outcome } = done;
        let late = !self.backend(slot_of(connection)).links.has(connection);
        self.trace.event(self.now, if late { 7 } else { 5 }, slot_of(connection));
        self.trace.bytes(outcome.command.frame());
        self.note(|| {
            format!("storage {server} executes {:?} of {connection:?}, late: {late}", outcome.command)
        });
        self.births.note_execution(&outcome.command, self.now);
        self.changed(server);
        if outcome.effect == Effect::Read {
            return;
        }
        self.serial += 1;
        let execution = Execution { time: self.now, serial: self.serial, reply: outcome.reply };
        let own = &mut self.servers[server];
        own.late_writes += u64::from(late);
        own.executed.entry(outcome.command.frame().clone()).or_default().push(execution);
        self.check_written(server, &outcome.command, outcome.effect);
    }

    /// Whatever has just changed at a server is remembered and reported.
    pub(crate) fn changed(&mut self, server: usize) {
        if let Some(changes) = self.servers[server].data().take_changes() {
            self.remember(server, &changes);
            self.at_site(server, |site, at| site.report(at, changes));
        }
    }

    /// Somebody writes who does not go through DistCache.
    pub(crate) fn write_outside(&mut self, server: usize, command: &Command) {
        self.note(|| format!("an outsider writes {command:?} at storage {server}"));
        let now_ms = self.servers[server].now_ms(self.now);
        self.servers[server].data().execute(now_ms, command, false);
        self.changed(server);
        self.wake_blocked(server);
    }
}

/// What goes wrong between a shim and its storage.
impl Cluster {
    fn feed_of(&self, slot: HostId) -> Option<ConnectionId> {
        let site = &self.servers[self.server_of(slot)].site;
        self.backends[slot - self.slots_first].links.all().find(|connection| site.is_told(*connection))
    }

    /// A connection breaks. What the server had of it may still be carried out, until the fence.
    fn break_wire(&mut self, slot: HostId, connection: ConnectionId) {
        let lease = self.shape.lease;
        self.at_site(self.server_of(slot), |site, at| {
            let waits = (at.random.below(lease / 10), at.random.below(lease), at.random.below(lease));
            site.break_connection(at.now, connection, waits);
        });
    }

    pub(crate) fn lose_connection(&mut self, slot: HostId) -> bool {
        let all: Vec<ConnectionId> = self.backend(slot).links.all().collect();
        if all.is_empty() {
            return false;
        }
        let connection = self.random.pick(&all);
        self.break_wire(slot, connection);
        true
    }

    pub(crate) fn lose_feed(&mut self, slot: HostId) -> bool {
        let Some(connection) = self.feed_of(slot) else { return false };
        self.watch.feed_trouble = self.watch.feed_trouble.max(self.now + self.shape.lease / 10 + RECONNECT);
        self.break_wire(slot, connection);
        true
    }

    /// Nothing comes over the feed until then, unless somebody loses patience before.
    pub(crate) fn hang_feed(&mut self, slot: HostId, until: u64) -> bool {
        let Some(connection) = self.feed_of(slot) else { return false };
        let patience = until + self.shape.storage_timeout() + RECONNECT;
        self.watch.feed_trouble = self.watch.feed_trouble.max(patience);
        let server = self.server_of(slot);
        self.servers[server].site.hang(connection, until);
        true
    }

    /// The server loses the shim's user and its connections, by somebody's hand or in a restart; it has the same data.
    pub(crate) fn lose_incarnation(&mut self, slot: HostId) {
        self.at_site(self.server_of(slot), |site, at| {
            let gone = match at.random.below(3) {
                0 => site.server.lose_users(),
                kind => site.server.restart(kind == 1, at.random.percent(30)),
            };
            site.cut(at, &gone);
        });
    }

    /// When the oldest change was made of which this shim's feed has not told it.
    pub(crate) fn oldest_unheard(&self, slot: HostId) -> Option<u64> {
        let connection = self.feed_of(slot)?;
        self.servers[self.server_of(slot)].site.oldest_unheard(connection)
    }
}
