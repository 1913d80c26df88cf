//! A node and a shim among peers that say anything at any time: they may lose copies over it, never their footing.

#[path = "world/storage.rs"]
mod storage;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::{EarlierIncarnations, LeaseLimits, LeaseTerms};
use protocol::heat::HeatConfig;
use protocol::node::{self, Admission, Node, NodeConfig, NodeSettings};
use protocol::placement::{Placement, Secret};
use protocol::requests::{Overload, RequestLimits};
use protocol::shim::{self, Bounded, Shim, ShimConfig, ShimSettings};
use protocol::storage::{CommandControl, Lane, StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use wire::message::{
    Ack, Cancel, Changed, Commit, Credit, Deliver, EarlyValue, Evict, Execute, Fetch, Fill, Follow, Follows,
    Grant, Heat, Hello, Invalidate, LAYERS_MAX, Leave, LoadStamp, Offer, Part, Read, Refuse, Reject, Renew,
    Reply, Revoke, Revoked, SetDegree, Subscribe, Subscribers, Track, Welcome, Window,
};
use wire::resp::Command;
use wire::resp::transaction::{EXEC, MULTI};
use wire::{
    ClusterMap, Degree, Key, LayerMap, LayerSet, Message, NodeId, NodeMember, Partition, Peer, RackId,
    RouterId, SHARE_WHOLE, Sharding, ShimId, ShimMember, Status, TopicKind, View,
};

use storage::MiniStorage;

const SEEDS: u32 = 480;
const STEPS: usize = 2000;

const LEASE: LeaseTerms =
    LeaseTerms { duration: Duration::from_millis(300), guard: Duration::from_millis(3) };
const HEAT: HeatConfig =
    HeatConfig { rows: 2, counters: 64, filter_rows: 1, filter_bits: 256, window: Duration::from_millis(10) };

fn placement() -> Arc<Placement> {
    let layer = |index: u16| {
        let node = NodeMember { id: NodeId(index), rack: None, capacity: 1000, share: SHARE_WHOLE };
        LayerMap { name: format!("layer-{index}"), partition: Partition::Hash, nodes: vec![node] }
    };
    let shims = vec![ShimMember::new(ShimId(0), RackId(0))];
    let map =
        ClusterMap { epoch: 1, level: 1, sharding: Sharding::Ring, layers: vec![layer(0), layer(1)], shims };
    Arc::new(Placement::new(Secret([7; 16]), map).expect("the map is in order"))
}

/// Limits are small in half of the runs, so that they are met.
fn node_config(random: &mut SmallRng, seed: u64) -> NodeConfig {
    let small = random.random_bool(0.5);
    NodeConfig {
        id: NodeId(0),
        layer: 0,
        capacity: 1000,
        lease: LEASE,
        seed,
        settings: NodeSettings {
            objects_max: if small { 2 } else { 16 },
            bytes_max: if small { 700 } else { 1 << 20 },
            value_bytes_max: if small { 12 } else { 1 << 16 },
            heat: HEAT,
            admission: Admission { heat_min: 1, hysteresis: 250, hold_off: LEASE.duration / 2, hits_min: 1 },
            views_max: if small { 1 } else { 64 },
            forwarded_max: if small { 1 } else { 1024 },
            requests: request_limits(random, small),
            ..NodeSettings::default()
        },
    }
}

fn request_limits(random: &mut SmallRng, small: bool) -> RequestLimits {
    let overload = match random.random_bool(0.5) {
        true => Overload::Wait { patience: LEASE.duration / 2 },
        false => Overload::Refuse,
    };
    let (rate_max, queue_max) = if small { (100, 4) } else { (0, 1 << 16) };
    RequestLimits { rate_max, queue_max, window_max: 16, overload }
}

fn shim_config(random: &mut SmallRng, seed: u64) -> ShimConfig {
    let small = random.random_bool(0.5);
    ShimConfig {
        id: ShimId(0),
        lease: LEASE,
        lease_limits: LeaseLimits::default(),
        blocking_max: 10,
        large_replies_max: if small { 1 } else { 128 },
        early_value_bytes_max: if small { 0 } else { 1 << 16 },
        cache_expiring_hashes: false,
        tracked_max: 1000,
        bounded: random
            .random_bool(0.3)
            .then_some(Bounded { staleness: LEASE.duration, age: LEASE.duration }),
        seed,
        settings: ShimSettings {
            heat: HEAT,
            heat_min: 1,
            operations_max: if small { 8 } else { 1000 },
            key_queue_max: if small { 2 } else { 100 },
            requests: request_limits(random, small),
            ..ShimSettings::default()
        },
    }
}

fn tracking() -> StorageTraits {
    StorageTraits { tracks_reads: true, ..StorageTraits::default() }
}

struct Confusion {
    now: Time,
    random: SmallRng,
    placement: Arc<Placement>,
    node: Node,
    shim: Shim,
    storage: MiniStorage,
    mail: VecDeque<(Peer, Peer, Message)>,
    /// What the shim wants, in the order in which it has said so; whether it is being carried out.
    wanted: VecDeque<shim::Effect>,
    carries_out: bool,
    /// Numbers that were said: sessions, fills, versions, requests, nonces.
    heard: Vec<u64>,
}

impl Confusion {
    fn new(seed: u64) -> Confusion {
        let mut random = SmallRng::seed_from_u64(seed);
        let placement = placement();
        let mut node = Node::new(node_config(&mut random, seed), Arc::clone(&placement));
        let mut shim = Shim::new(shim_config(&mut random, seed), Arc::clone(&placement));
        let (now, traits) = (
            Time(10_000_000),
            StorageTraits {
                hash_field_expiry: random.random_bool(0.5),
                short_leases: random.random_bool(0.5),
                tracks_reads: random.random_bool(0.5),
                ..StorageTraits::default()
            },
        );
        let up = StorageEvent::Up { incarnation: 7, traits, earlier: EarlierIncarnations::NONE };
        shim.step(now, shim::Input::Storage(up), &mut Vec::new());
        node.step(now, node::Input::Linked(Peer::Shim(ShimId(0))), &mut Vec::new());
        let (storage, mail, heard) = (MiniStorage::default(), VecDeque::new(), vec![0, 1, u64::MAX]);
        let (wanted, carries_out) = (VecDeque::new(), false);
        Confusion { now, random, placement, node, shim, storage, mail, wanted, carries_out, heard }
    }

    fn number(&mut self) -> u64 {
        let heard = self.heard[self.random.random_range(0..self.heard.len())];
        heard.wrapping_add([0, 0, 0, 1, u64::MAX][self.random.random_range(0..5)])
    }

    fn key(&mut self) -> Key {
        let name = ["s0", "s1", "h", "l"][self.random.random_range(0..4)];
        let mut key = self.placement.key(0, Bytes::from_static(name.as_bytes()));
        if self.random.random_bool(0.1) {
            key.digest.0 ^= 1;
        }
        key
    }

    fn text(&mut self) -> Bytes {
        let texts: [&[u8]; 6] =
            [b"", b"$1\r\nx\r\n", b"*1\r\n$8\r\nFLUSHALL\r\n", b"*3\r\n$3\r\nSET", b"$-1\r\n", b"-ERR\r\n"];
        Bytes::from_static(texts[self.random.random_range(0..texts.len())])
    }

    /// A command that storage knows, on any key, and a view that may belong to it.
    fn command(&mut self) -> (Key, View, bool, Bytes) {
        let (key, resp3) = (self.key(), self.random.random_bool(0.3));
        let name = String::from_utf8_lossy(&key.bytes).into_owned();
        let args: &[&str] = match (&key.bytes[..1], self.random.random_range(0..4)) {
            (_, 0) => &["FLUSHALL"],
            (b"s", 1) => &["SET", &name, "v"],
            (b"s", 2) => &["INCR", &name],
            (b"h", 1) => &["HSET", &name, "f", "v"],
            (b"h", _) => &["HGETALL", &name],
            (b"l", 1) => &["LPUSH", &name, "v"],
            (b"l", 2) => &["BLPOP", &name, "0"],
            (b"l", _) => &["LLEN", &name],
            _ => &["GET", &name],
        };
        let command = Command::from_args(args);
        let classified = commands::classify(&command).expect("a command of the table");
        let view = match self.random.random_range(0..4) {
            0 => View(self.number()),
            _ => commands::view(self.placement.view_hash(), &command, &classified, resp3),
        };
        let frame = match self.random.random_range(0..10) {
            0 => self.text(),
            1 | 2 => self.transaction(&command),
            _ => command.frame().clone(),
        };
        (key, view, resp3, frame)
    }

    /// Frames in a row: often a transaction, and often not quite.
    fn transaction(&mut self, command: &Command) -> Bytes {
        let frames = [
            MULTI,
            EXEC,
            command.frame(),
            b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n",
            b"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n",
            b"*2\r\n$5\r\nWATCH\r\n$1\r\nk\r\n",
            b"*2\r\n$3\r\nGET\r\n$2\r\ns0\r\n",
        ];
        let mut row = vec![MULTI];
        for _ in 0..self.random.random_range(0..4) {
            let sane = self.random.random_bool(0.8);
            row.push(if sane { frames[2] } else { frames[self.random.random_range(0..frames.len())] });
        }
        row.extend(self.random.random_bool(0.9).then_some(EXEC));
        let whole = row.concat();
        let end =
            if self.random.random_bool(0.1) { self.random.random_range(0..whole.len()) } else { whole.len() };
        Bytes::copy_from_slice(&whole[..end])
    }

    fn large(&mut self, request: u64, bytes: u64, value: Bytes) -> Message {
        match self.random.random_range(0..4) {
            0 => Message::Part(Part { request, follows: Follows::More, value }),
            1 => Message::Part(Part { request, follows: Follows::Nothing, value }),
            2 => Message::Part(Part { request, follows: Follows::Lost, value }),
            _ => Message::Credit(Credit { request, bytes }),
        }
    }

    fn message(&mut self) -> Message {
        let (session, number, other) = (self.number(), self.number(), self.number());
        let (key, view, resp3, command) = self.command();
        let (flag, value) = (self.random.random_bool(0.5), self.text());
        let ttl_ms = flag.then_some(other);
        let status = [Status::Ok, Status::Nil, Status::Error, Status::Busy][self.random.random_range(0..4)];
        let kinds = [TopicKind::Channel, TopicKind::Pattern, TopicKind::ShardChannel];
        let (kind, clients) = (kinds[self.random.random_range(0..3)], (other % 3) as u32);
        match self.random.random_range(0..31) {
            22 | 23 => {
                Message::Follow(Follow { request: ttl_ms, follows: true, writers: flag, prefixes: command })
            }
            26 | 27 => self.large(number, other, value),
            29 | 30 => heat(flag, key, [session, number, other]),
            24 => Message::Track(Track { key }),
            25 => Message::Changed(Changed { writer: ttl_ms, keys: command }),
            19 => Message::Subscribe(Subscribe { request: number, kind, name: key, clients }),
            20 => Message::Subscribers(Subscribers { kind, name: key, clients }),
            21 => Message::Deliver(Deliver { kind, name: key, push: value }),
            0 => {
                let (request, ordered, streams, waited_ms) = (number, flag, resp3, other as u16);
                let degree = Degree(other as u8);
                Message::Read(Read {
                    request,
                    key,
                    view,
                    resp3,
                    ordered,
                    streams,
                    waited_ms,
                    degree,
                    command,
                })
            }
            1 => {
                let loads = [LoadStamp { node_plus_one: number as u32, load: other as u32 }; LAYERS_MAX];
                let cached = LayerSet(other as u8);
                let (request, hit, degree, more) = (number, flag, Degree(other as u8), resp3);
                Message::Reply(Reply { request, status, hit, cached, degree, loads, more, value })
            }
            2 => {
                let (request, ordered, watch, waited_ms) = (number, flag, ttl_ms, other as u16);
                Message::Execute(Execute { request, key, resp3, ordered, watch, waited_ms, command })
            }
            3 => Message::Cancel(Cancel { request: number }),
            4 => Message::Fetch(Fetch { session, fill: number, key, view, resp3, command }),
            5 => {
                let cached = LayerSet(other as u8);
                let (fill, version, granted) = (number, other, flag);
                Message::Fill(Fill {
                    session,
                    fill,
                    key,
                    view,
                    version,
                    granted,
                    status,
                    cached,
                    degree: Degree(other as u8),
                    ttl_ms,
                    stale_ms: other,
                    value,
                })
            }
            6 => Message::Offer(Offer { key, view, resp3, heat: number as u32, command }),
            which => self.control(which, (session, number, other), (key, flag, value)),
        }
    }

    fn control(
        &mut self,
        which: u32,
        (session, number, other): (u64, u64, u64),
        (key, flag, value): (Key, bool, Bytes),
    ) -> Message {
        let ttl_ms = flag.then_some(other);
        match which {
            7 => Message::Hello(Hello { number, nonce: other, process: number }),
            8 => Message::Welcome(Welcome { session, nonce: other, lease: number, guard: 0 }),
            9 => Message::Reject(Reject { last: number, nonce: other }),
            10 => Message::Renew(Renew { session, sent: number, heat_floor: other as u32 }),
            11 => {
                let leave = Leave { duration: other, unheard: number };
                let leave = number.is_multiple_of(2).then_some(leave);
                Message::Grant(Grant {
                    session,
                    sent: self.now.0.min(number),
                    duration: other,
                    guard: 0,
                    leave,
                })
            }
            12 => Message::Refuse(Refuse { session }),
            13 => {
                let value = flag.then_some(EarlyValue { ttl_ms, value });
                Message::Invalidate(Invalidate { session, key, version: number, value })
            }
            14 => Message::Ack(Ack { session, key, version: number, nothing_held: ttl_ms }),
            15 => Message::Commit(Commit { session, key, version: number }),
            16 => Message::Evict(Evict { session, key, fill: number }),
            17 => Message::Revoke(Revoke { session, number, spares: other.is_multiple_of(2) }),
            18 => Message::Revoked(Revoked { session, number }),
            _ => Message::Window(Window { requests: other as u32 }),
        }
    }

    fn peer(&mut self) -> Peer {
        let id = self.random.random_range(0..3);
        [Peer::Node(NodeId(id)), Peer::Shim(ShimId(id)), Peer::Router(RouterId(id))]
            [self.random.random_range(0..3)]
    }

    fn step(&mut self) {
        self.now.0 += self.random.random_range(0..4000);
        match self.random.random_bool(0.9) {
            true => self.make_sense(),
            false => self.make_none(),
        }
        for _ in 0..100 {
            let Some((from, to, message)) = self.mail.pop_front() else { break };
            match to {
                Peer::Node(NodeId(0)) => self.tell_node(node::Input::Message { from, message }),
                Peer::Shim(ShimId(0)) => self.tell_shim(shim::Input::Message { from, message }),
                _ => {}
            }
        }
        assert!(self.node.is_consistent(), "the node has lost count of its objects");
    }

    fn make_sense(&mut self) {
        let (key, request) = (self.placement.key(0, Bytes::from_static(b"s0")), self.number());
        let (from, resp3, ordered) = (Peer::Router(RouterId(0)), false, false);
        match self.random.random_range(0..8) {
            0 | 1 => {
                self.tell_node(node::Input::Tick);
                self.tell_shim(shim::Input::Tick);
            }
            3 => {
                let watch = Command::from_args(&["WATCH", "s0"]).frame().clone();
                let transaction = self.transaction(&Command::from_args(&["INCR", "s0"]));
                let belongs = if self.random.random_bool(0.8) { request } else { self.number() };
                for (number, command) in [(request, watch), (request ^ 1, transaction)] {
                    let (key, watch) = (key.clone(), Some(if number == request { request } else { belongs }));
                    let message = Message::Execute(Execute {
                        request: number,
                        key,
                        resp3,
                        ordered,
                        watch,
                        waited_ms: 0,
                        command,
                    });
                    self.mail.push_back((from, Peer::Shim(ShimId(0)), message));
                }
            }
            2 => {
                let command = Command::from_args(&["SET", "s0", "v"]).frame().clone();
                let message = Message::Execute(Execute {
                    request,
                    key,
                    resp3,
                    ordered,
                    watch: None,
                    waited_ms: 0,
                    command,
                });
                self.mail.push_back((from, Peer::Shim(ShimId(0)), message));
            }
            _ => {
                let command = Bytes::new();
                let (view, streams) = (View::GET, false);
                let message = Message::Read(Read {
                    request,
                    key,
                    view,
                    resp3,
                    ordered,
                    streams,
                    waited_ms: 0,
                    degree: Degree::BASE,
                    command,
                });
                self.mail.push_back((from, Peer::Node(NodeId(0)), message));
            }
        }
    }

    fn make_none(&mut self) {
        let (from, message) = (self.peer(), self.message());
        match self.random.random_range(0..10) {
            0 => self.tell_node(node::Input::Tick),
            1 => self.tell_shim(shim::Input::Tick),
            2 if self.random.random_bool(0.2) => {
                let peer = self.peer();
                self.tell_node(node::Input::Unlinked(peer));
                self.tell_node(node::Input::Linked(peer));
                self.tell_shim(shim::Input::Unlinked(peer));
                self.tell_shim(shim::Input::Linked(peer));
            }
            3 if self.random.random_bool(0.1) => {
                let event = self.storage_event();
                self.tell_shim(shim::Input::Storage(event));
                let (incarnation, traits) = (7, tracking());
                self.tell_shim(shim::Input::Storage(StorageEvent::Up {
                    incarnation,
                    traits,
                    earlier: EarlierIncarnations::NONE,
                }));
            }
            4..7 => self.mail.push_back((from, Peer::Node(NodeId(0)), message)),
            _ => self.mail.push_back((from, Peer::Shim(ShimId(0)), message)),
        }
    }

    fn storage_event(&mut self) -> StorageEvent {
        let ticket = self.number();
        match self.random.random_range(0..17) {
            16 => {
                StorageEvent::ForeignWrites { count: ticket % 2, connections: vec!["192.0.2.1:1".to_owned()] }
            }
            14 => StorageEvent::ReadFeedDown,
            15 => StorageEvent::ReadChanged(Bytes::from_static(
                b">2\r\n$10\r\ninvalidate\r\n*1\r\n$2\r\ns0\r\n",
            )),
            11 | 12 => StorageEvent::Large { ticket },
            13 => StorageEvent::Part { ticket, bytes: self.text(), last: self.random.random_bool(0.5) },
            7 => StorageEvent::FeedDown,
            8 | 9 => {
                StorageEvent::Changed(Bytes::from_static(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$2\r\ns0\r\n"))
            }
            10 => StorageEvent::Changed(Bytes::from_static(b">2\r\n$10\r\ninvalidate\r\n_\r\n")),
            4 => StorageEvent::Unsubscribed,
            5 => StorageEvent::Published(self.text()),
            6 => {
                StorageEvent::Published(Bytes::from_static(b">3\r\n$7\r\nmessage\r\n$2\r\ns0\r\n$1\r\nm\r\n"))
            }
            0 => StorageEvent::Down { reason: "it is confused".into(), gone: true },
            1 => StorageEvent::Up {
                incarnation: ticket,
                traits: tracking(),
                earlier: EarlierIncarnations::NONE,
            },
            2 => StorageEvent::Lost { ticket, sent: true },
            3 => StorageEvent::Replies { ticket, replies: Default::default() },
            _ => StorageEvent::Fenced,
        }
    }

    fn tell_node(&mut self, input: node::Input) {
        let mut effects = Vec::new();
        self.node.step(self.now, input, &mut effects);
        for node::Effect::Send { to, message } in effects {
            self.post(Peer::Node(NodeId(0)), to, message);
        }
    }

    fn tell_shim(&mut self, input: shim::Input) {
        let mut effects = Vec::new();
        self.shim.step(self.now, input, &mut effects);
        self.wanted.extend(effects);
        if std::mem::replace(&mut self.carries_out, true) {
            return;
        }
        while let Some(effect) = self.wanted.pop_front() {
            match effect {
                shim::Effect::Send { to, message } => self.post(Peer::Shim(ShimId(0)), to, message),
                shim::Effect::Store(store) => self.store(store),
                shim::Effect::Release { number, .. } => self.storage.release(number),
                shim::Effect::Control { ticket, control: CommandControl::Abort } => {
                    self.tell_shim(shim::Input::Storage(StorageEvent::Lost { ticket, sent: true }));
                    self.tell_shim(shim::Input::Storage(StorageEvent::Fenced));
                }
                // Such a peer's client waits on.
                shim::Effect::Purged { .. }
                | shim::Effect::Control { .. }
                | shim::Effect::Vacant { .. }
                | shim::Effect::HandOver
                | shim::Effect::Renew
                | shim::Effect::Migrate { .. }
                | shim::Effect::Prepare { .. }
                | shim::Effect::EndMigration => {}
            }
        }
        self.carries_out = false;
    }

    /// Numbers of real messages are what makes false ones plausible.
    fn post(&mut self, from: Peer, to: Peer, message: Message) {
        let numbers = match &message {
            Message::Read(read) => [read.request, 0],
            Message::Fetch(fetch) => [fetch.session, fetch.fill],
            Message::Fill(fill) => [fill.version, fill.fill],
            Message::Hello(hello) => [hello.number, hello.nonce],
            Message::Welcome(welcome) => [welcome.session, welcome.nonce],
            Message::Invalidate(invalidate) => [invalidate.session, invalidate.version],
            Message::Revoke(revoke) => [revoke.session, revoke.number],
            _ => [0, 0],
        };
        if self.heard.len() > 64 {
            self.heard.drain(3..35);
        }
        self.heard.extend(numbers.into_iter().filter(|number| *number != 0));
        self.mail.push_back((from, to, message));
    }

    /// Nothing that the subscriber connection says has to make sense.
    fn listen(&mut self, store: &Store) {
        let replies: [&[u8]; 5] = [
            b">3\r\n$9\r\nsubscribe\r\n$2\r\ns0\r\n:1\r\n",
            b":1\r\n",
            b"-NOPERM no\r\n",
            b"*2\r\n$1\r\nh\r\n$1\r\nh\r\n",
            b"",
        ];
        let reply = Bytes::from_static(replies[self.random.random_range(0..5)]);
        let ticket = store.ticket;
        match self.random.random_range(0..5) {
            0 => self.tell_shim(shim::Input::Storage(StorageEvent::Lost { ticket, sent: true })),
            1 => {}
            _ => {
                let replies = [reply].into_iter().collect();
                self.tell_shim(shim::Input::Storage(StorageEvent::Replies { ticket, replies }));
            }
        }
    }

    fn store(&mut self, store: Store) {
        self.heard.push(store.ticket);
        if store.lane == Lane::Subscriber {
            return self.listen(&store);
        }
        let now_ms = self.now.0 / 1000;
        if matches!(store.lane, Lane::Feed | Lane::ReadFeed) {
            let replies = [Bytes::from_static(b"+OK\r\n")].into_iter().collect();
            let event = StorageEvent::Replies { ticket: store.ticket, replies };
            return self.tell_shim(shim::Input::Storage(event));
        }
        let replies = match store.lane {
            Lane::Watching { number, .. } => self.storage.execute_watching(now_ms, number, &store.commands),
            _ => match self.storage.execute_all(now_ms, &store.commands) {
                Some(replies) => replies,
                None => return,
            },
        };
        if let Some(changes) = self.storage.changes() {
            let push = storage::push(changes.as_deref());
            self.tell_shim(shim::Input::Storage(StorageEvent::Changed(push.clone())));
            self.tell_shim(shim::Input::Storage(StorageEvent::ReadChanged(push)));
        }
        // What waits for another connection's answer would wait for ever.
        let alone = matches!(store.lane, Lane::Watching { .. });
        if alone || self.random.random_bool(0.9) {
            let event = StorageEvent::Replies { ticket: store.ticket, replies: replies.into() };
            self.tell_shim(shim::Input::Storage(event));
        }
    }
}

#[test]
fn nonsense_is_survived() {
    let mut numbers = [0; 5];
    for case in cases::seeds(SEEDS) {
        let mut confusion = Confusion::new(case.seed);
        for _ in 0..STEPS {
            confusion.step();
        }
        let (node, shim) = (confusion.node.statistics(), confusion.shim.statistics());
        let more = [node.fills, node.hits, node.invalidations, shim.storage_writes, shim.revokes];
        numbers.iter_mut().zip(more).for_each(|(total, more)| *total += more);
    }
    assert!(
        cases::alone() || numbers.iter().all(|number| *number > 20),
        "too little sense in it: {numbers:?}"
    );
}

/// What nodes and shims say to each other of keys that are hot.
fn heat(told: bool, key: Key, [session, number, other]: [u64; 3]) -> Message {
    let degree = Degree(other as u8);
    if told {
        return Message::SetDegree(SetDegree { key, degree });
    }
    let (permille, hits, invalidations) = (other as u32, number as u32, other as u32 % 3);
    Message::Heat(Heat { session, key, degree, permille, hits, invalidations })
}
