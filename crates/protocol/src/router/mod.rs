//! The router's machine: clients' commands in, messages to nodes and shims out, replies back in order. No sockets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use wire::memcached::MemcachedRequest;
use wire::resp::{Command, ProtocolError};
use wire::{Message, Peer};

mod counters;
pub(crate) mod flow;
mod front;
mod replies;
mod settings;
mod surface;

pub use counters::{Counters, Latencies};
pub use front::closing::{ClientLimits, CloseReason, Held};
pub use front::own_command::HotKey;
pub use front::slow_log::SlowLogSettings;
pub use front::spans::{CommandSpan, RequestSpan};
pub use settings::Settings;
pub use surface::{Class, Spread, Treatment, shortest, surface};

use crate::load::LoadTable;
use crate::placement::Placement;
use crate::time::Time;
use commands::acl::Users;
use commands::memcached::{Dialect, Tallies};
use flow::breaker::Breaker;
use flow::budget::Budget;
use flow::learned::Learned;
use flow::pending::PendingTable;
use front::client::Clients;
use front::identity::Permissions;

/// The version of Redis whose behaviour clients get, as HELLO and INFO tell them.
pub use commands::REDIS_VERSION;

/// A client connection, by the number that the driver gave it; numbers are small and are used again after
/// `Input::Closed`, because tables are indexed by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// Which reads go to nodes (design, section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Routing {
    /// Those that a reply said are cached; the others go straight to the shim.
    #[default]
    Learned,
    /// All of them, as where the network itself is the node.
    OnPath,
}

/// What a router is told at its start.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    pub routing: Routing,
    /// Of the choices among equals; two routers with one seed choose alike.
    pub seed: u64,
    /// Commands of one client that may be unanswered. More makes deep pipelines faster and one client heavier.
    pub pipeline_max: usize,
    /// Bytes of them and of replies that wait for their turn, above which no more is taken from the client: one that writes
    /// large values must not fill the links that all share.
    pub pipeline_bytes_max: usize,
    /// Requests of all clients that may be in flight; above it commands are answered `-BUSY`.
    pub pending_max: usize,
    /// Longer keys are refused. No more than `wire::codec::KEY_BYTES_MAX`, which peers refuse.
    pub key_bytes_max: usize,
    /// Views that the learned table remembers; fewer than the nodes cache would send hot reads to storage.
    pub learned_max: usize,
    /// Keys that clients track (CLIENT TRACKING); the oldest are forgotten, and their clients told so.
    pub tracked_max: usize,
    /// Others write to storage, too: a copy may be older than what has been reported.
    pub bounded: bool,
    /// The shims' names in errors, by `ShimId`.
    pub shim_names: Vec<String>,
    /// What storage understands.
    pub dialect: Dialect,
    /// Its clients are connections that take a large reply in parts.
    pub streams: bool,
    /// Of a memcached client's values, as `stats settings` tells it.
    pub value_bytes_max: usize,
    pub users: UserSource,
    /// Longest that a command waits for room at a node or shim, before it is answered `-BUSY`.
    pub queue_max: Duration,
    pub client_limits: ClientLimits,
}

/// Where a router's users come from.
#[derive(Clone, Debug)]
pub enum UserSource {
    Given(Arc<Users>),
    /// Those of the storage servers. Nothing is carried out before they have told them.
    Storage,
}

impl Default for RouterConfig {
    fn default() -> RouterConfig {
        RouterConfig {
            routing: Routing::Learned,
            seed: 0,
            pipeline_max: 512,
            pipeline_bytes_max: 4 << 20,
            pending_max: 1 << 18,
            key_bytes_max: wire::codec::KEY_BYTES_MAX,
            learned_max: 1 << 16,
            tracked_max: 1 << 20,
            bounded: false,
            shim_names: Vec::new(),
            dialect: Dialect::Redis,
            streams: false,
            value_bytes_max: 1 << 20,
            users: UserSource::Given(Arc::default()),
            queue_max: Duration::from_secs(5),
            client_limits: ClientLimits::default(),
        }
    }
}

/// Everything a router can see.
#[derive(Clone, Debug)]
pub enum Input {
    Opened {
        client: ClientId,
    },
    /// Where an open client comes from and where it came to, as CLIENT LIST shows them.
    Known {
        client: ClientId,
        address: String,
        local_address: String,
    },
    /// Only while `ready(client)`.
    Command {
        client: ClientId,
        command: Command,
    },
    /// The same of a client that speaks memcached.
    Memcached {
        client: ClientId,
        request: MemcachedRequest,
    },
    /// What the client sent is no memcached text; after this answer, if any, and its earlier replies it is closed.
    Garbled {
        client: ClientId,
        told: Bytes,
    },
    /// What the client sent is no command; it is told, after its earlier replies, and closed.
    Malformed {
        client: ClientId,
        error: ProtocolError,
    },
    /// The client sends no more, but reads: it is closed once it has its replies, up to a command that blocks.
    Ended {
        client: ClientId,
    },
    Closed {
        client: ClientId,
    },
    /// The client has been given every `Effect::Part` so far and has taken them.
    Drained {
        client: ClientId,
    },
    Message {
        from: Peer,
        message: Message,
    },
    Linked(Peer),
    Unlinked(Peer),
    Map(Arc<Placement>),
    /// What has changed in the configuration while serving.
    Settings(Settings),
    /// The hottest keys of the cluster, as a controller told them last.
    HotKeys(Vec<HotKey>),
    /// Other users from now on, unless they are storage's.
    Users(Arc<Users>),
    /// What the connections of all clients hold, some times a second and when it is too much.
    Held(Vec<Held>),
    Tick,
}

/// Everything a router can do. Effects of one client keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Send {
        to: Peer,
        message: Message,
    },
    Reply {
        client: ClientId,
        bytes: Bytes,
    },
    /// The next bytes of a large reply; more come once `Input::Drained` says that there is room.
    Part {
        client: ClientId,
        bytes: Bytes,
    },
    /// Something that the client has not asked for now: a message of a channel.
    Push {
        client: ClientId,
        bytes: Bytes,
    },
    /// After what was replied so far has been written, or at once, by the reason. `Input::Closed` is still owed.
    Close {
        client: ClientId,
        reason: CloseReason,
    },
    /// The client was not `ready` and is again.
    Resume {
        client: ClientId,
    },
}

/// One router. Deterministic: the same inputs at the same times give the same effects.
#[derive(Debug)]
pub struct Router {
    config: RouterConfig,
    clients: Clients,
    pending: PendingTable,
    windows: flow::window::Windows,
    /// Of the step that is being taken.
    now: Time,
    permissions: Permissions,
    storage_users: front::storage_users::StorageUsers,
    subscriptions: front::pubsub::Subscriptions,
    tracking: front::tracking::Tracking,
    learned: Learned,
    loads: LoadTable,
    placement: Option<Arc<Placement>>,
    nodes_linked: Vec<bool>,
    shims_linked: Vec<bool>,
    /// By `NodeId`, as many as `nodes_linked`.
    breakers: Vec<Breaker>,
    budget: Budget,
    /// Until when no read is asked again there, by `ShimId`.
    shims_busy: Vec<Time>,
    ticked: Time,
    random: SmallRng,
    counters: Counters,
    tallies: Tallies,
    /// When the first client came.
    began: Option<Time>,
    latencies: Latencies,
    rate: front::info::Rate,
    /// None before a controller has told any.
    hot: Option<Vec<HotKey>>,
    slow_log: front::slow_log::SlowLog,
    sampler: front::spans::Sampler,
    /// By CLIENT KILL, in this step.
    killed: Vec<ClientId>,
    /// By CLIENT UNBLOCK: whom to tell, of which request, and whether it ends with an error.
    unblocked: Vec<(Peer, u64, bool)>,
    pause: Option<flow::pause::Pause>,
}

impl Router {
    pub fn new(config: RouterConfig) -> Router {
        Router {
            clients: Clients::default(),
            // A shim or node may yet answer what an earlier process asked in this router's name.
            pending: PendingTable::new((config.seed ^ config.seed >> 32) as u32),
            windows: flow::window::Windows::default(),
            now: Time(0),
            permissions: Permissions::new(&config.users),
            storage_users: front::storage_users::StorageUsers::default(),
            subscriptions: front::pubsub::Subscriptions::default(),
            tracking: front::tracking::Tracking::default(),
            learned: Learned::new(config.learned_max),
            loads: LoadTable::new(0),
            placement: None,
            nodes_linked: Vec::new(),
            shims_linked: Vec::new(),
            breakers: Vec::new(),
            budget: Budget::new(),
            shims_busy: Vec::new(),
            ticked: Time(0),
            random: SmallRng::seed_from_u64(config.seed),
            counters: Counters::default(),
            tallies: Tallies::default(),
            began: None,
            latencies: Latencies::default(),
            rate: front::info::Rate::default(),
            hot: None,
            slow_log: front::slow_log::SlowLog::new(),
            sampler: front::spans::Sampler::new(),
            killed: Vec::new(),
            unblocked: Vec::new(),
            pause: None,
            config,
        }
    }

    /// Whether the client's next command may be handed in.
    pub fn ready(&self, client: ClientId) -> bool {
        self.clients.get(client.0).is_some_and(|client| client.ready())
    }

    /// Whether nothing that the client sends is carried out any more: it is closed once it has its replies.
    pub fn is_closing(&self, client: ClientId) -> bool {
        self.clients.get(client.0).is_none_or(|client| client.closing)
    }

    /// Whether a reply goes to the client in parts now, and nothing else may be told in between.
    pub fn is_streaming(&self, client: ClientId) -> bool {
        self.clients.get(client.0).is_some_and(|client| client.pipeline.streams())
    }

    /// Channels and patterns that clients have, each counted once.
    pub fn subscriptions_count(&self) -> usize {
        self.subscriptions.len()
    }

    /// Keys that clients keep in caches of their own.
    pub fn tracked_count(&self) -> usize {
        self.tracking.keys_count()
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Times from a command's arrival to its reply, for the driver to drain.
    pub fn latencies(&mut self) -> &mut Latencies {
        &mut self.latencies
    }

    pub fn clients_count(&self) -> usize {
        self.clients.count()
    }

    /// Commands per second over the last whole second.
    pub fn rate(&self) -> u64 {
        self.rate.per_second()
    }

    /// Commands that the slow log has taken since the start.
    pub fn slow_total(&self) -> u64 {
        self.slow_log.total()
    }

    /// The spans of commands that have ended since this was asked last.
    pub fn take_spans(&mut self) -> Vec<CommandSpan> {
        self.sampler.take()
    }

    /// Commands of the sample whose spans nobody took in time.
    pub fn spans_dropped(&self) -> u64 {
        self.sampler.dropped()
    }

    /// Views believed to be cached (learned routing).
    pub fn learned_count(&self) -> usize {
        self.learned.len()
    }

    /// Of the map in use; zero before the first.
    pub fn epoch(&self) -> u32 {
        self.placement.as_ref().map_or(0, |placement| placement.epoch())
    }

    /// Shims whose keys this router cannot reach now.
    pub fn shims_missing(&self) -> impl Iterator<Item = wire::ShimId> + '_ {
        let missing = self.shims_linked.iter().enumerate().filter(|(_, linked)| !**linked);
        missing.map(|(index, _)| wire::ShimId(index as u16))
    }

    /// Nodes that are left alone, or tried with one read at a time.
    pub fn breakers_open(&self) -> usize {
        self.breakers
            .iter()
            .zip(&self.nodes_linked)
            .filter(|(breaker, linked)| **linked && breaker.is_open())
            .count()
    }

    /// Requests in flight to nodes and shims.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// The load of each node as this router sees it, by `NodeId`, in requests per second over capacity.
    pub fn loads(&self, now: Time) -> impl Iterator<Item = u32> + '_ {
        (0..self.nodes_linked.len()).map(move |node| self.loads.load(now, wire::NodeId(node as u16)))
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        self.now = now;
        match input {
            Input::Opened { client } => {
                self.counters.clients_opened += 1;
                self.began.get_or_insert(now);
                let identity = self.permissions.newcomer();
                self.clients.open(now, client, identity);
            }
            Input::Known { client, address, local_address } => {
                if let Some(client) = self.clients.get_mut(client.0) {
                    client.known = Some(Box::new((address, local_address)));
                }
            }
            Input::Command { client, command } => {
                if !self.speaks_memcached_only(now, client.0, effects) {
                    self.command(now, client.0, command, effects);
                }
            }
            Input::Memcached { client, request } => self.memcached(now, client.0, request, effects),
            Input::Garbled { client, told } => self.hang_up(now, client.0, told, effects),
            Input::Malformed { client, error } => self.malformed(now, client.0, &error, effects),
            Input::Ended { client } => self.ended(client, effects),
            Input::Closed { client } => self.closed(client, effects),
            Input::Drained { client } => self.drained(client.0, effects),
            Input::Message { from, message: Message::Reply(reply) } => self.reply(now, from, reply, effects),
            Input::Message { from, message: Message::Part(part) } => self.part(now, from, part, effects),
            Input::Message { message: Message::Deliver(deliver), .. } => self.delivered(deliver, effects),
            Input::Message { from, message: Message::Changed(changed) } => {
                self.changed(from, &changed, effects)
            }
            Input::Message { from, message: Message::Window(window) } => self.window_told(from, &window),
            // Peers send a router nothing else; what comes anyway is as late as can be.
            Input::Message { .. } => self.counters.late_replies += 1,
            Input::Linked(peer) => {
                self.set_linked(peer, true);
                if let Peer::Shim(shim) = peer {
                    self.subscribe_again(shim, effects);
                }
            }
            Input::Unlinked(peer) => {
                self.set_linked(peer, false);
                self.watches_lost(peer);
                if let Peer::Shim(shim) = peer {
                    self.all_changed(shim, effects);
                }
                self.vanished(now, |asked| asked == peer, effects);
            }
            Input::Map(placement) => self.map(now, placement, effects),
            Input::Settings(settings) => self.set(settings),
            Input::HotKeys(hot) => self.hot = Some(hot),
            Input::Users(users) => {
                if matches!(self.config.users, UserSource::Given(_)) {
                    self.adopt_users(users, None, effects);
                }
            }
            Input::Held(all) => self.close_clients(now, &all, effects),
            Input::Tick => self.tick(now, effects),
        }
        self.deal_turns(now, effects);
        self.forget_tracked(effects);
        if !self.unblocked.is_empty() {
            self.tell_unblocked(effects);
        }
        if !self.killed.is_empty() {
            effects.extend(
                self.killed.drain(..).map(|client| Effect::Close { client, reason: CloseReason::Answered }),
            );
        }
    }

    fn tick(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.rate.tick(now, self.counters.requests);
        self.budget.tick(now);
        self.ask_for_users(now, effects);
        self.look_for_hanging_nodes(now, effects);
        self.end_pause(now, effects);
        self.expire_turns(now, effects);
    }

    fn set_linked(&mut self, peer: Peer, linked: bool) {
        let (table, index) = match peer {
            Peer::Node(node) => (&mut self.nodes_linked, usize::from(node.0)),
            Peer::Shim(shim) => (&mut self.shims_linked, usize::from(shim.0)),
            Peer::Router(_) => return,
        };
        if table.len() <= index {
            table.resize(index + 1, false);
        }
        table[index] = linked;
        self.window_linked(peer, linked);
        if let Peer::Node(node) = peer {
            self.loads.set_reachable(node, linked);
            self.breakers.resize_with(self.nodes_linked.len(), Breaker::new);
            if !linked {
                self.breakers[index].lost();
            }
        }
    }

    /// Takes a newer map; an older one is ignored. Reads at nodes that are down now are asked again.
    fn map(&mut self, now: Time, placement: Arc<Placement>, effects: &mut Vec<Effect>) {
        if self.placement.as_ref().is_some_and(|known| known.epoch() > placement.epoch()) {
            return;
        }
        let members = placement.map().layers.iter().flat_map(|layer| &layer.nodes);
        let nodes = members.clone().map(|node| usize::from(node.id.0) + 1).max().unwrap_or(0);
        if self.placement.is_none() || nodes > self.nodes_linked.len() {
            self.loads = LoadTable::new(nodes);
        }
        self.nodes_linked.resize(nodes.max(self.nodes_linked.len()), false);
        self.breakers.resize_with(self.nodes_linked.len(), Breaker::new);
        for (node, linked) in self.nodes_linked.iter().enumerate() {
            self.loads.set_reachable(wire::NodeId(node as u16), *linked);
        }
        let shims = placement.map().shims.len();
        self.shims_linked.resize(shims.max(self.shims_linked.len()), false);
        self.shims_busy.resize(shims.max(self.shims_busy.len()), Time(0));
        let mut down = vec![false; self.nodes_linked.len()];
        members.filter(|node| !node.is_up()).for_each(|node| down[usize::from(node.id.0)] = true);
        self.placement = Some(placement.clone());
        if down.contains(&true) {
            self.vanished(
                now,
                |asked| matches!(asked, Peer::Node(node) if down[usize::from(node.0)]),
                effects,
            );
        }
    }

    fn ended(&mut self, id: ClientId, effects: &mut Vec<Effect>) {
        let Some(client) = self.clients.get_mut(id.0).filter(|client| !client.closing) else { return };
        client.closing = true;
        // What a command that blocks would take belongs to others.
        let given_up = client.pipeline.end_before_blocking();
        given_up.iter().for_each(|turn| self.windows.left(turn.peer));
        let blocks = |request| self.pending.get(request).is_some_and(|pending| pending.blocking);
        let blocked = client.pipeline.requests().any(blocks);
        match client.pipeline.last_mut().filter(|_| !blocked) {
            Some(operation) => operation.closes = true,
            None => effects.push(Effect::Close { client: id, reason: CloseReason::Answered }),
        }
    }

    fn closed(&mut self, id: ClientId, effects: &mut Vec<Effect>) {
        let Some(mut client) = self.clients.close(id.0) else { return };
        if client.tracking.is_some() {
            self.stop_tracking(id.0, effects);
        }
        let (subscribed, subscribing) = (client.subscribed.take(), client.subscribing.take());
        self.leave_all(id.0, subscribed, subscribing, effects);
        if let Some(watch) = client.watch {
            watch.end(effects);
        }
        client.pipeline.turns().for_each(|turn| self.windows.left(turn.peer));
        for request in client.pipeline.requests() {
            let Some(pending) = self.forget(request) else { continue };
            if pending.blocking || pending.streams {
                let message = Message::Cancel(wire::message::Cancel { request });
                effects.push(Effect::Send { to: pending.peer, message });
            }
        }
    }
}
