//! Drives a router on a reactor: client bytes to commands, effects to sockets. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::{Address, Config, FrontProtocol, key_bytes};
use protocol::router::{ClientId, ClusterHotKey, Input, UserSource};
use protocol::time::Time;
use runtime::instance::NewPlacement;
use runtime::member::{NewMember, Role};
use runtime::reactor::{ConnectionId, Event, Io, ListenerId, TICK};
use runtime::spans::{Span, SpanQueue};
use runtime::status::{HotKeyView, MemberStatus};
use wire::memcached;
use wire::resp::RespLimits;

use crate::engine::{Engine, settings};
use crate::front::Connections;
use crate::intake::{limits, memcached_limits};
use crate::spans::span;
use crate::users::users;

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";
const TOO_MANY_MEMCACHED_CLIENTS: &[u8] = b"ERROR Too many open connections\r\n";
/// How long a stopping router waits for replies, so that a command that blocks does not hold it.
const DRAIN_MAX: Duration = Duration::from_secs(3);

pub(crate) struct RouterDriver {
    pub(crate) id: String,
    pub(crate) engine: Engine,
    pub(crate) connections: Connections,
    pub(crate) refused_total: u64,
    /// As they were last told to the log.
    users_differing: Vec<String>,
    pub(crate) config: Arc<Config>,
    /// Clients that wait, with large commands, for links that have much to take yet.
    pub(crate) held_back: Vec<ClientId>,
    listeners: Vec<ListenerId>,
    /// What the exporter has not had time for yet.
    spans_left: Vec<Span>,
    pub(crate) spans: SpanQueue,
    pub(crate) limits: RespLimits,
    /// Where the clients speak memcached.
    pub(crate) memcached: Option<memcached::MemcachedLimits>,
    /// Limits of clients that have to show who they are.
    pub(crate) strangers: RespLimits,
    drain_until: Option<Time>,
    pub(crate) foreigner_told: Time,
}

impl RouterDriver {
    pub(crate) fn new(
        member: &NewMember<'_>,
        protocol: FrontProtocol,
        engine: Engine,
        listeners: Vec<ListenerId>,
    ) -> RouterDriver {
        let config = member.config;
        RouterDriver {
            id: member.id.to_owned(),
            connections: Connections::new(
                config.limits.output_bytes_max.0 as usize,
                protocol,
                engine.siblings.clone(),
            ),
            engine,
            refused_total: 0,
            users_differing: Vec::new(),
            held_back: Vec::new(),
            listeners,
            spans_left: Vec::new(),
            spans: member.spans.clone(),
            limits: limits(config),
            memcached: (protocol == FrontProtocol::Memcached).then(|| memcached_limits(config)),
            strangers: RespLimits { authenticated: false, ..limits(config) },
            drain_until: None,
            foreigner_told: Time(0),
            config: Arc::clone(config),
        }
    }

    fn accepted(&mut self, io: &mut Io, connection: ConnectionId, listener: ListenerId) {
        if self.engine.siblings.clients() >= self.config.limits.clients_max {
            self.refused_total += 1;
            let told = if self.memcached.is_some() { TOO_MANY_MEMCACHED_CLIENTS } else { TOO_MANY_CLIENTS };
            io.out(connection).extend_from_slice(told);
            io.close_flushed(connection);
            return;
        }
        let now = io.now();
        let client = self.connections.insert(connection, now);
        self.step(io, now, Input::Opened { client });
        let own = io.peer_address(connection).map_or_else(String::new, |address| shown(&address));
        let (address, local_address) = match io.local_address(listener) {
            // A Unix socket's client has no name of its own.
            local @ Address::Unix(_) => (shown(&local), shown(&local)),
            local => (own, shown(&local)),
        };
        self.step(io, now, Input::Known { client, address, local_address });
    }

    pub(crate) fn closed(&mut self, io: &mut Io, connection: ConnectionId) {
        if let Some(client) = self.connections.client(connection) {
            self.connections.remove(client);
            self.step(io, io.now(), Input::Closed { client });
        }
    }

    /// It has read what kept it from going on.
    fn writable(&mut self, io: &mut Io, connection: ConnectionId) {
        let Some(client) = self.connections.client(connection) else { return };
        self.step(io, io.now(), Input::Drained { client });
        if self.engine.router.ready(client) {
            self.connections.wake(io, client);
        }
    }

    pub(crate) fn step(&mut self, io: &mut Io, now: Time, input: Input) {
        self.engine.step(io, now, input, &mut self.connections);
        self.forget_dropped(io, now);
    }

    fn forget_dropped(&mut self, io: &mut Io, now: Time) {
        while let Some(client) = self.connections.dropped.pop() {
            self.engine.step(io, now, Input::Closed { client }, &mut self.connections);
        }
    }

    /// Lets those go on that have waited until links had taken what they had.
    fn let_go_on(&mut self, io: &mut Io) {
        if self.held_back.is_empty() || self.engine.is_congested(io) {
            return;
        }
        for client in std::mem::take(&mut self.held_back) {
            if let Some(state) = self.connections.get_mut(client) {
                state.held_back = false;
                self.connections.wake(io, client);
            }
        }
    }

    fn hear_siblings(&mut self, io: &mut Io) {
        for (thread, message) in self.engine.siblings.heard() {
            self.step(io, io.now(), Input::Sibling { thread, message });
        }
    }

    /// Whether this is the thread that speaks for the router in the log.
    fn is_first(&self) -> bool {
        self.engine.siblings.place().own == 0
    }

    fn hand_spans_over(&mut self) {
        // With the exporter at the queue for so long, the machine's own bound is next.
        if self.spans_left.is_empty() {
            let spans = self.engine.router.take_spans();
            self.spans_left.extend(spans.into_iter().map(|command| span(&self.config, &self.id, command)));
        }
        if !self.spans_left.is_empty() {
            self.spans.offer(&mut self.spans_left);
        }
    }

    fn tell_of_users(&mut self) {
        let differing = self.engine.router.users_differing();
        if differing == self.users_differing {
            return;
        }
        if !differing.is_empty() {
            let users = differing.join(" ");
            tracing::warn!(
                users,
                "these users are not the same at all storage servers, or have rules that are not known here: the \
                 strictest counts"
            );
        }
        self.users_differing = differing.to_vec();
    }
}

fn hot_key(view: &HotKeyView) -> ClusterHotKey {
    ClusterHotKey {
        key: key_bytes(&view.key).into(),
        rate: view.heat,
        share: view.share,
        layers: view.cached.iter().map(|layer| Bytes::from(layer.clone())).collect(),
    }
}

impl Role for RouterDriver {
    const NAME: &'static str = "router";
    const STATUS_FIRST: Duration = Duration::ZERO;

    fn event(&mut self, io: &mut Io, event: Event) -> Option<Event> {
        let event = self.engine.event(io, event, &mut self.connections);
        if !self.connections.dropped.is_empty() {
            self.forget_dropped(io, io.now());
        }
        match event? {
            Event::Connected(_) => {}
            Event::Accepted { connection, listener } => self.accepted(io, connection, listener),
            Event::Data { connection, bytes, now } => self.data(io, connection, bytes, now),
            Event::Writable(connection) => self.writable(io, connection),
            Event::Closed { connection, .. } => self.closed(io, connection),
            Event::Woken => {
                self.hear_siblings(io);
                return Some(Event::Woken);
            }
            Event::Tick => return Some(Event::Tick),
        }
        None
    }

    fn tick(&mut self, io: &mut Io, now: Time, shows: bool) {
        self.step(io, now, Input::Tick);
        self.let_go_on(io);
        self.hand_spans_over();
        let siblings = &self.engine.siblings;
        siblings.hold((io.held_bytes() + self.connections.kept_bytes()) as u64);
        let held_bytes = siblings.held();
        if shows || held_bytes > self.config.limits.client_buffers_bytes_max.0 {
            self.tell_held(io, now);
        }
        if shows && self.is_first() {
            self.tell_of_users();
        }
    }

    fn rest(&mut self, now: Time) -> Duration {
        match self.held_back.is_empty() && self.spans_left.is_empty() {
            true => self.engine.rest(now),
            false => TICK,
        }
    }

    fn status(&mut self, now: Time) -> MemberStatus {
        self.make_status(now)
    }

    fn epoch(&self) -> u32 {
        self.engine.router.epoch()
    }

    fn adopt(&mut self, io: &mut Io, map: NewPlacement) {
        self.engine.adopt(io, map, &mut self.connections);
        if self.is_first() {
            tracing::info!(epoch = self.epoch(), "acting on a newer cluster map");
        }
        self.forget_dropped(io, io.now());
    }

    /// Clients that are there stay, whatever the new limits.
    fn set(&mut self, io: &mut Io, config: Arc<Config>) {
        self.config = config;
        self.limits = limits(&self.config);
        self.strangers = RespLimits { authenticated: false, ..self.limits };
        self.memcached = self.memcached.map(|_| memcached_limits(&self.config));
        self.connections.set_out_bytes_max(self.config.limits.output_bytes_max.0 as usize);
        io.set_handshakes_max(self.config.limits.handshakes_max);
        // The file was checked by who read it again.
        if let Ok(UserSource::Given(users)) = users(&self.config) {
            self.step(io, io.now(), Input::Users(users));
        }
        let settings = settings(&self.config);
        self.step(io, io.now(), Input::Settings(settings));
    }

    fn tell_hot_keys(&mut self, io: &mut Io, hot: &[HotKeyView]) {
        let hot = hot.iter().map(hot_key).collect();
        self.step(io, io.now(), Input::HotKeys(hot));
    }

    /// A client that only sends no more gets its replies.
    fn ended(&mut self, io: &mut Io, connection: ConnectionId) -> bool {
        let Some(client) = self.connections.client(connection) else { return false };
        let Some(state) = self.connections.get_mut(client) else { return false };
        if !state.kept.is_empty() {
            state.ended = true;
        } else if !state.halted {
            self.step(io, io.now(), Input::Ended { client });
        }
        true
    }

    /// Accepts and reads nothing more; each client is closed when its last command is answered.
    fn take_new_clients(&mut self, io: &mut Io, taken: bool) {
        for listener in &self.listeners {
            match taken {
                true => io.open_listener(*listener),
                false => io.retire_listener(*listener),
            }
        }
    }

    fn stopping(&mut self, io: &mut Io) -> bool {
        let now = io.now();
        if self.drain_until.is_none() {
            self.step(io, now, Input::Drain);
        }
        let until = *self.drain_until.get_or_insert_with(|| now.after(DRAIN_MAX));
        self.listeners.drain(..).for_each(|listener| io.close_listener(listener));
        self.connections.halt_all(io);
        let done: Vec<ConnectionId> = self
            .connections
            .all()
            .filter(|(client, _)| self.engine.router.is_idle(*client) || now >= until)
            .map(|(_, connection)| connection.id)
            .collect();
        for connection in done {
            self.closed(io, connection);
            io.close_flushed(connection);
        }
        self.hand_spans_over();
        let done = self.connections.count() == 0;
        if done {
            self.engine.siblings.tell_end();
        }
        done
    }
}

/// As CLIENT LIST shows it.
fn shown(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("{}:0", path.display()),
    }
}
