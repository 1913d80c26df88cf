//! What shims' machines for storage say to its servers and hear, and how that goes wrong. Not what they make of it.

use std::time::Duration;

use bytes::Bytes;
use protocol::shim;
use protocol::storage::StorageEvent;
use protocol::storage::network::{Backend as _, ConnectionId, StorageInput};
use protocol::storage::redis::{FenceDemand, Redis, RedisSettings};
use wire::resp::Command;

use crate::cluster::Cluster;
use crate::event::SimEvent;
use crate::history::Execution;
use crate::network::HostId;
use crate::storage::links::Links;
use crate::storage::redis::RedisServer;
use crate::storage::site::{Doer, Done, Moment, Site, WireEvent};
use crate::storage::{Backend, Effect, LIFE_SHIFT, RECONNECT, SLOT_SHIFT, settings, slot_of};

/// What is slow takes so many times as long as the rest.
const SLOWNESS: u64 = 20;

impl Cluster {
    /// The place of the other process that may run for the same storage.
    pub(crate) fn other_slot(&self, slot: HostId) -> HostId {
        self.slots_first + ((slot - self.slots_first) ^ 1)
    }

    fn backend(&mut self, slot: HostId) -> &mut Backend {
        &mut self.backends[slot - self.slots_first]
    }

    /// Does something at a server and its connections, and plans what follows.
    fn at_site<T>(
        &mut self,
        server: usize,
        act: impl FnOnce(&mut Site<RedisServer>, &mut Moment<'_>) -> T,
    ) -> T {
        let factor = if self.servers[server].slow_until > self.world.now() { SLOWNESS } else { 1 };
        let latency = self.shape.storage_latency * factor;
        let mut at = Moment { now: self.world.now(), random: &mut self.world.random, latency };
        let site = &mut self.servers[server].site;
        let done = act(site, &mut at);
        for (due, event) in site.take_due() {
            self.world.at(due, SimEvent::Wire { server, event });
        }
        done
    }

    /// A shim's process starts with a machine that has no connections.
    pub(crate) fn start_backend(&mut self, slot: HostId, seed: u64) {
        let life = u64::from(self.hosts[slot].life);
        let address = format!("server {}", self.server_of(slot));
        let timeout = Duration::from_micros(self.shape.storage_timeout());
        let record = self.shape.lease_record(seed, self.world.now() == 0);
        let settings = RedisSettings {
            fence_demand: match self.shape.bounded {
                None => FenceDemand::Always,
                Some(_) => FenceDemand::WherePossible,
            },
            ..settings(address, timeout, self.world.random.number(), record)
        };
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
        let local = self.hosts[slot].clock.at(self.world.now());
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
        while !self.hosts[slot].is_paused(self.world.now())
            && let Some(event) = self.backend(slot).said.pop_front()
        {
            self.storage_says(slot, event);
        }
        self.backend(slot).telling = false;
    }

    fn storage_says(&mut self, slot: HostId, event: StorageEvent) {
        self.world.event(6, slot);
        self.world.note(|| format!("storage > {slot}: {event:?}"));
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

    pub(crate) fn wire_event(&mut self, server: usize, event: WireEvent) {
        let now = self.world.now();
        let own = &mut self.servers[server];
        // What is due at the end of a pause does not overtake what waits for it.
        let rests = own.paused_until > now || !own.parked.is_empty();
        if event.doer() != Doer::Server || !rests {
            return self.happens(server, event);
        }
        let until = own.paused_until.max(now);
        if matches!(event, WireEvent::TurnEnds) {
            own.site.rest(until);
        }
        if own.parked.is_empty() {
            self.world.at(until, SimEvent::Awake { server });
        }
        own.parked.push_back(event);
    }

    /// A server does what it was to do during its pause, in its order.
    pub(crate) fn server_wakes(&mut self, server: usize) {
        let own = &mut self.servers[server];
        if own.paused_until > self.world.now() {
            return self.world.at(own.paused_until, SimEvent::Awake { server });
        }
        for event in std::mem::take(&mut own.parked) {
            self.happens(server, event);
        }
    }

    fn happens(&mut self, server: usize, event: WireEvent) {
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
            WireEvent::Deliver { connection, bytes, made, .. } => {
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

    pub(crate) fn execute(&mut self, server: usize, connection: ConnectionId) {
        let now_ms = self.servers[server].now_ms(self.world.now());
        let done = self.at_site(server, |site, at| site.execute_in_turn(at, now_ms, connection));
        match done {
            Some(done) => {
                self.carried_out(server, done);
                self.wake_blocked(server);
            }
            // A command that blocks may have found that its key has expired.
            None => self.changed(server, None),
        }
    }

    /// Blocked commands go on if they can, those first that came first.
    fn wake_blocked(&mut self, server: usize) {
        let now_ms = self.servers[server].now_ms(self.world.now());
        while let Some(done) = self.at_site(server, |site, at| site.wake(at, now_ms)) {
            self.carried_out(server, done);
        }
    }

    fn carried_out(&mut self, server: usize, done: Done) {
        let Done { connection, outcome } = done;
        let late = !self.backend(slot_of(connection)).links.has(connection);
        self.world.event(if late { 7 } else { 5 }, slot_of(connection));
        self.world.trace.bytes(outcome.command.frame());
        self.world.note(|| {
            format!("storage {server} executes {:?} of {connection:?}, late: {late}", outcome.command)
        });
        self.births.note_execution(connection, &outcome, self.world.now());
        self.changed(server, Some(connection));
        if let Some(key) = outcome.tracked {
            self.servers[server].site.track(connection, key);
        }
        if outcome.effect == Effect::Read {
            return;
        }
        self.serial += 1;
        let execution = Execution { time: self.world.now(), serial: self.serial, reply: outcome.reply };
        let own = &mut self.servers[server];
        own.late_writes += u64::from(late);
        own.executed.entry(outcome.command.frame().clone()).or_default().push(execution);
        self.check_written(server, &outcome.command, outcome.effect);
    }

    /// Whatever has just changed at a server is remembered and reported.
    fn changed(&mut self, server: usize, writer: Option<ConnectionId>) {
        if let Some(changes) = self.servers[server].data().take_changes() {
            self.remember(server, &changes);
            self.at_site(server, |site, at| site.report(at, changes, writer));
        }
    }

    /// Somebody writes who does not go through DistCache.
    pub(crate) fn write_outside(&mut self, server: usize, command: &Command) {
        self.world.note(|| format!("an outsider writes {command:?} at storage {server}"));
        let now_ms = self.servers[server].now_ms(self.world.now());
        self.servers[server].data().execute(now_ms, command, false);
        self.changed(server, None);
        self.wake_blocked(server);
    }

    /// Storage removes what has expired, whether or not anybody asks for it.
    pub(crate) fn sweep(&mut self) {
        for server in 0..self.servers.len() {
            if self.shape.has_feed() && self.servers[server].paused_until <= self.world.now() {
                let now_ms = self.servers[server].now_ms(self.world.now());
                self.servers[server].data().sweep(now_ms);
                self.changed(server, None);
            }
        }
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
        let connection = self.world.random.pick(&all);
        self.break_wire(slot, connection);
        true
    }

    pub(crate) fn lose_feed(&mut self, slot: HostId) -> bool {
        let Some(connection) = self.feed_of(slot) else { return false };
        self.watch.feed_trouble =
            self.watch.feed_trouble.max(self.world.now() + self.shape.lease / 10 + RECONNECT);
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

    /// A server that does not write its data down at once is killed, or a replica that is behind takes its place: it comes back
    /// without its newest writes, although clients know of them.
    pub(crate) fn roll_back(&mut self, server: usize) {
        let Some(earlier) = self.servers[server].earlier.take().filter(|_| !self.calm) else { return };
        let now = self.world.now();
        let now_ms = self.servers[server].now_ms(now);
        self.servers[server].data().sweep(now_ms);
        self.changed(server, None);
        self.at_site(server, |site, at| {
            let gone = site.server.restart(at.random.percent(50), at.random.percent(30));
            site.cut(at, &gone);
        });
        let changes = self.servers[server].data().restore(now_ms, earlier);
        self.remember(server, &changes);
        let until = now + self.shape.copies_outlive_us();
        self.servers[server].rollbacks.push((now, until));
        if self.world.random.percent(50) {
            // They were on one machine.
            self.replace_shim(server, false);
        }
        self.serial += 1;
        for key in self.keys_changed(server, &changes) {
            let found = self.servers[server].imagined(&self.keys[key].key.bytes);
            let state = found.unwrap_or_else(|| self.keys[key].initial());
            self.history.restored(now, until, self.serial, key, state);
        }
        self.disturb_until(now + self.shape.lease * 5 + RECONNECT, None);
    }
}
