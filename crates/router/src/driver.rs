//! Drives a router on a reactor: client bytes to commands, effects to sockets. Decides nothing.

use std::sync::Arc;

use bytes::Bytes;
use hdrhistogram::Histogram;
use protocol::router::{ClientId, HotKey, Input, UserSource};
use protocol::time::Time;
use runtime::address::Address;
use runtime::config::{Config, FrontProtocol};
use runtime::instance::MapCell;
use runtime::orders::{Order, Orders};
use runtime::reactor::{ConnectionId, Driver, Event, Io, ListenerId};
use runtime::spans::{Span, SpanQueue};
use runtime::status::{HotKeyView, StatusCell, key_bytes};
use wire::memcached;
use wire::resp::{Limits, ProtocolError, Taken, next_command};

use crate::engine::{Engine, settings};
use crate::front::Connections;
use crate::spans::span;
use crate::users::users;

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";
const TOO_MANY_MEMCACHED_CLIENTS: &[u8] = b"ERROR Too many open connections\r\n";
/// Input that may be a large command, which waits while links are congested; small ones go on.
const LARGE_BYTES: usize = 64 << 10;
/// How long a stopping router waits for replies, so that a command that blocks does not hold it.
const DRAIN_US_MAX: u64 = 3_000_000;

pub(crate) struct RouterDriver {
    pub(crate) id: String,
    pub(crate) engine: Engine,
    pub(crate) connections: Connections,
    pub(crate) latencies: Histogram<u64>,
    pub(crate) refused_total: u64,
    /// Closed because all clients together held too much.
    pub(crate) memory_total: u64,
    /// Closed because they did not show who they are in time.
    pub(crate) strangers_total: u64,
    /// As they were last told to the log.
    users_differing: Vec<String>,
    pub(crate) status: StatusCell,
    pub(crate) status_next_us: u64,
    pub(crate) config: Arc<Config>,
    /// They wait, with large commands, for links that have much to take yet.
    held_back: Vec<ClientId>,
    listeners: Vec<ListenerId>,
    maps: MapCell,
    orders: Orders,
    /// What the exporter has not had time for yet.
    spans_left: Vec<Span>,
    pub(crate) spans: SpanQueue,
    limits: Limits,
    /// Where the clients speak memcached.
    memcached: Option<memcached::Limits>,
    /// Of those who have to show who they are.
    strangers: Limits,
    drain_until_us: Option<u64>,
    tls_told_us: u64,
}

enum Next {
    Input(Input),
    /// No command is whole before there are so many bytes.
    Needs(usize),
    /// Nothing after it can be trusted any more.
    Last(Input),
}

fn memcached_limits(config: &Config) -> memcached::Limits {
    let default = memcached::Limits::default();
    let value_bytes_max = default.value_bytes_max.min(config.limits.command_bytes_max.0 as usize);
    memcached::Limits { value_bytes_max, ..default }
}

impl RouterDriver {
    pub(crate) fn new(
        (id, protocol): (&str, FrontProtocol),
        config: &Arc<Config>,
        engine: Engine,
        listeners: Vec<ListenerId>,
        (status, maps, orders, spans): (StatusCell, MapCell, Orders, SpanQueue),
    ) -> RouterDriver {
        RouterDriver {
            id: id.to_owned(),
            engine,
            connections: Connections::new(config.limits.output_bytes_max.0 as usize),
            latencies: crate::status::histogram(),
            refused_total: 0,
            memory_total: 0,
            strangers_total: 0,
            users_differing: Vec::new(),
            status,
            status_next_us: 0,
            held_back: Vec::new(),
            listeners,
            maps,
            orders,
            spans_left: Vec::new(),
            spans,
            limits: limits(config),
            memcached: (protocol == FrontProtocol::Memcached).then(|| memcached_limits(config)),
            strangers: Limits { authenticated: false, ..limits(config) },
            drain_until_us: None,
            tls_told_us: 0,
            config: Arc::clone(config),
        }
    }

    fn accepted(&mut self, io: &mut Io, connection: ConnectionId, listener: ListenerId) {
        if self.connections.count() >= self.config.limits.clients_max {
            self.refused_total += 1;
            let told = if self.memcached.is_some() { TOO_MANY_MEMCACHED_CLIENTS } else { TOO_MANY_CLIENTS };
            io.out(connection).extend_from_slice(told);
            io.close_flushed(connection);
            return;
        }
        let now_us = io.now_us();
        let client = self.connections.insert(connection, now_us);
        self.step(io, Time(now_us), Input::Opened { client });
        let own = io.peer_address(connection).map_or_else(String::new, |address| shown(&address));
        let (address, local_address) = match io.local_address(listener) {
            // A Unix socket's client has no name of its own.
            local @ Address::Unix(_) => (shown(&local), shown(&local)),
            local => (own, shown(&local)),
        };
        self.step(io, Time(now_us), Input::Known { client, address, local_address });
    }

    /// Hands commands in while the client may have more in flight; the rest waits in the connection.
    fn data(&mut self, io: &mut Io, connection: ConnectionId, mut bytes: Bytes, now_us: u64) {
        let Some(client) = self.connections.client(connection) else { return };
        let now = Time(now_us);
        match self.connections.get_mut(client) {
            Some(state) if bytes.len() < state.needs => return io.unread(connection, bytes),
            // The next command may be shorter than the one that had to be waited for.
            Some(state) => (state.seen_us, state.needs) = (now_us, 0),
            None => return,
        }
        loop {
            if !self.engine.router.ready(client) || self.connections.output_full(io, connection) {
                self.connections.halt(io, client);
                return io.unread(connection, bytes);
            }
            if bytes.len() > LARGE_BYTES && self.engine.is_congested(io) {
                self.connections.halt(io, client);
                self.held_back.push(client);
                return io.unread(connection, bytes);
            }
            match self.next_input(client, &mut bytes) {
                Next::Input(input) => self.step(io, now, input),
                Next::Needs(needs) => {
                    if let Some(state) = self.connections.get_mut(client) {
                        state.needs = needs;
                    }
                    return io.unread(connection, bytes);
                }
                Next::Last(input) => {
                    if let Input::Malformed { error, .. } = &input {
                        self.tell_of_tls(io, connection, error);
                    }
                    self.connections.halt(io, client);
                    return self.step(io, now, input);
                }
            }
            if self.connections.client(connection).is_none() {
                return;
            }
        }
    }

    /// The first whole command of what a client has sent.
    fn next_input(&mut self, client: ClientId, bytes: &mut Bytes) -> Next {
        let stranger = self.engine.router.unauthenticated_since(client).is_some();
        let Some(limits) = &self.memcached else {
            return match next_command(bytes, if stranger { &self.strangers } else { &self.limits }) {
                Ok(Taken::Command(command)) => Next::Input(Input::Command { client, command }),
                Ok(Taken::Needs(needs)) => Next::Needs(needs),
                Err(error) => Next::Last(Input::Malformed { client, error }),
            };
        };
        let Some(state) = self.connections.get_mut(client) else { return Next::Needs(usize::MAX) };
        match state.requests.next(bytes, if stranger { &memcached::Limits::STRANGER } else { limits }) {
            memcached::Taken::Request(request) => Next::Input(Input::Memcached { client, request }),
            memcached::Taken::Needs(needs) => Next::Needs(needs),
            memcached::Taken::Hangup(told) => Next::Last(Input::Garbled { client, told }),
        }
    }

    /// The client does not understand the reply, so the log says it too; at most once a second.
    fn tell_of_tls(&mut self, io: &Io, connection: ConnectionId, error: &ProtocolError) {
        let now_us = io.now_us();
        if *error == ProtocolError::TlsHello && now_us >= self.tls_told_us + 1_000_000 {
            self.tls_told_us = now_us;
            let from = io.peer_address(connection).map_or_else(String::new, |from| from.to_string());
            tracing::warn!(router = self.id, from, "a client that speaks TLS came to a plain port");
        }
    }

    fn closed(&mut self, io: &mut Io, connection: ConnectionId) {
        if let Some(client) = self.connections.client(connection) {
            self.connections.remove(client);
            self.step(io, Time(io.now_us()), Input::Closed { client });
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

    fn tick(&mut self, io: &mut Io) {
        let now_us = io.now_us();
        self.step(io, Time(now_us), Input::Tick);
        if !self.held_back.is_empty() && !self.engine.is_congested(io) {
            for client in std::mem::take(&mut self.held_back) {
                if self.engine.router.ready(client) {
                    self.connections.resume_if_drained(io, client);
                }
            }
        }
        self.hand_spans_over();
        let refreshes = now_us >= self.status_next_us;
        if refreshes || io.held_bytes() as u64 > self.config.limits.client_buffers_bytes_max.0 {
            self.close_largest(io);
        }
        if refreshes {
            self.refresh_status(now_us);
            self.take_orders(io);
            self.close_idle(io, now_us);
            self.close_strangers(io, now_us);
            self.tell_of_users();
        }
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

    /// Keeps what clients hold under its limit: those that hold the most have to go.
    fn close_largest(&mut self, io: &mut Io) {
        let bytes_max = self.config.limits.client_buffers_bytes_max.0;
        let router = &self.engine.router;
        let held = |(client, connection): (ClientId, &crate::front::Connection)| {
            ((io.held_bytes_of(connection.id) + router.held_bytes(client)) as u64, connection.id)
        };
        let total: u64 = self.connections.all().map(|found| held(found).0).sum();
        let Some(mut excess) = total.checked_sub(bytes_max).filter(|excess| *excess > 0) else { return };
        let mut all: Vec<(u64, ConnectionId)> = self.connections.all().map(held).collect();
        all.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        tracing::warn!(
            router = self.id,
            bytes = total,
            bytes_max,
            "clients that hold the most memory are closed"
        );
        for (bytes, connection) in all {
            self.closed(io, connection);
            io.close(connection);
            self.memory_total += 1;
            excess = excess.saturating_sub(bytes);
            if excess == 0 {
                return;
            }
        }
    }

    fn close_idle(&mut self, io: &mut Io, now_us: u64) {
        let idle_us_max = self.config.limits.client_idle_ms_max.saturating_mul(1_000);
        if idle_us_max == 0 {
            return;
        }
        let idle = |(client, connection): &(ClientId, &crate::front::Connection)| {
            now_us.saturating_sub(connection.seen_us) > idle_us_max
                && self.engine.router.is_idle(*client)
                && !self.engine.router.is_subscribed(*client)
        };
        let idle: Vec<ConnectionId> =
            self.connections.all().filter(idle).map(|(_, connection)| connection.id).collect();
        for connection in idle {
            self.closed(io, connection);
            io.close_flushed(connection);
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
                router = self.id,
                users,
                "these users are not the same at all storage servers, or have rules that are not known here: the \
                 strictest counts"
            );
        }
        self.users_differing = differing.to_vec();
    }

    /// Whoever does not show who he is in time makes room.
    fn close_strangers(&mut self, io: &mut Io, now_us: u64) {
        let us_max = self.config.limits.authentication_ms_max.saturating_mul(1_000);
        if us_max == 0 {
            return;
        }
        let late = |client| {
            let since = self.engine.router.unauthenticated_since(client);
            since.is_some_and(|since: Time| now_us.saturating_sub(since.0) > us_max)
        };
        let late: Vec<ConnectionId> =
            self.connections.all().filter(|(client, _)| late(*client)).map(|(_, found)| found.id).collect();
        for connection in late {
            self.strangers_total += 1;
            self.closed(io, connection);
            io.close_flushed(connection);
        }
    }

    fn woken(&mut self, io: &mut Io) {
        if self.engine.adopt(io, &self.maps, &mut self.connections) {
            tracing::info!(
                router = self.id,
                epoch = self.engine.router.epoch(),
                "acting on a newer cluster map"
            );
            self.forget_dropped(io, Time(io.now_us()));
        }
        self.take_orders(io);
    }

    fn take_orders(&mut self, io: &mut Io) {
        for order in self.orders.take() {
            match order {
                Order::Settings(config) => self.set(io, config),
                Order::HotKeys(hot) => {
                    let hot = hot.iter().map(hot_key).collect();
                    self.step(io, Time(io.now_us()), Input::HotKeys(hot));
                }
                // Routers hold no copies.
                Order::Purge { .. } => {}
            }
        }
    }

    /// Clients that are there stay, whatever the new limits.
    fn set(&mut self, io: &mut Io, config: Arc<Config>) {
        self.config = config;
        self.limits = limits(&self.config);
        self.strangers = Limits { authenticated: false, ..self.limits };
        self.memcached = self.memcached.map(|_| memcached_limits(&self.config));
        self.connections.set_out_bytes_max(self.config.limits.output_bytes_max.0 as usize);
        io.set_handshakes_max(self.config.limits.handshakes_max);
        // The file was checked by who read it again.
        if let Ok(UserSource::Given(users)) = users(&self.config) {
            self.step(io, Time(io.now_us()), Input::Users(users));
        }
        self.tell_settings(io);
    }

    pub(crate) fn tell_settings(&mut self, io: &mut Io) {
        let settings = settings(&self.config);
        self.step(io, Time(io.now_us()), Input::Settings(settings));
    }
}

fn hot_key(view: &HotKeyView) -> HotKey {
    HotKey {
        key: key_bytes(&view.key).into(),
        rate: view.heat,
        share: view.share,
        layers: view.cached.iter().map(|layer| Bytes::from(layer.clone())).collect(),
    }
}

/// Of the commands that clients send.
fn limits(config: &Config) -> Limits {
    let command_bytes_max = config.limits.command_bytes_max.0 as usize;
    let default = Limits::default();
    Limits {
        arguments_max: config.limits.arguments_max,
        bulk_bytes_max: command_bytes_max.min(default.bulk_bytes_max),
        frame_bytes_max: command_bytes_max.min(default.frame_bytes_max),
        ..default
    }
}

impl Driver for RouterDriver {
    fn event(&mut self, io: &mut Io, event: Event) {
        let foreign = self.engine.event(io, event, &mut self.connections);
        if !self.connections.dropped.is_empty() {
            self.forget_dropped(io, Time(io.now_us()));
        }
        match foreign {
            None | Some(Event::Connected(_)) => {}
            Some(Event::Accepted { connection, listener }) => self.accepted(io, connection, listener),
            Some(Event::Data { connection, bytes, now_us }) => self.data(io, connection, bytes, now_us),
            Some(Event::Writable(connection)) => {
                let Some(client) = self.connections.client(connection) else { return };
                self.step(io, Time(io.now_us()), Input::Drained { client });
                if self.engine.router.ready(client) {
                    self.connections.resume_if_drained(io, client);
                }
            }
            Some(Event::Closed { connection, .. }) => self.closed(io, connection),
            Some(Event::Tick) => self.tick(io),
            Some(Event::Woken) => self.woken(io),
        }
    }

    /// A client that only sends no more gets its replies.
    fn ended(&mut self, io: &mut Io, connection: ConnectionId) -> bool {
        let Some(client) = self.connections.client(connection) else { return false };
        if !self.connections.get_mut(client).is_some_and(|state| state.halted) {
            self.step(io, Time(io.now_us()), Input::Ended { client });
        }
        true
    }

    /// Accepts and reads nothing more; each client is closed when its last command is answered.
    fn stopping(&mut self, io: &mut Io) -> bool {
        let now_us = io.now_us();
        let until_us = *self.drain_until_us.get_or_insert_with(|| now_us + DRAIN_US_MAX);
        self.listeners.drain(..).for_each(|listener| io.close_listener(listener));
        self.connections.halt_all(io);
        let done: Vec<ConnectionId> = self
            .connections
            .all()
            .filter(|(client, _)| self.engine.router.is_idle(*client) || now_us >= until_us)
            .map(|(_, connection)| connection.id)
            .collect();
        for connection in done {
            self.closed(io, connection);
            io.close_flushed(connection);
        }
        self.hand_spans_over();
        self.connections.count() == 0
    }
}

/// As CLIENT LIST shows it.
fn shown(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("{}:0", path.display()),
    }
}
