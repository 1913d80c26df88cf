//! Random pipelines through a router against a naive twin that runs each client's commands one after the other.
//!
//! Peers execute what they were sent in any order that the protocol allows, reply in any order, and vanish.
//! Each client has keys of its own, so program order alone determines every reply.

use std::collections::{BTreeMap, VecDeque};

use crate::world;
use bytes::Bytes;
use protocol::router::{ClientId, Effect, Input, Router, RouterConfig, RouterSettings, Routing};
use protocol::time::Time;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use wire::message::Reply;
use wire::resp::{Command, reply};
use wire::{LayerSet, Message, NodeId, Peer, Status};

const CLIENTS: u32 = 3;
const KEYS: u32 = 4;
const LEAVES: u16 = 3;
const SPINES: u16 = 2;
const SHIMS: u16 = 3;

type Storage = BTreeMap<Vec<u8>, Vec<u8>>;

/// What any storage server replies; the null as `None`.
fn execute(storage: &mut Storage, command: &Command) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let keys = || command.args().skip(1);
    match command.name() {
        b"GET" => reply::bulk(storage.get(command.arg(1))?, &mut out),
        b"STRLEN" => reply::integer(storage.get(command.arg(1)).map_or(0, Vec::len) as i64, &mut out),
        b"SET" | b"MSET" => {
            for pair in keys().collect::<Vec<_>>().chunks(2) {
                storage.insert(pair[0].to_vec(), pair[1].to_vec());
            }
            out.extend_from_slice(reply::OK);
        }
        b"APPEND" => {
            let value = storage.entry(command.arg(1).to_vec()).or_default();
            value.extend_from_slice(command.arg(2));
            reply::integer(value.len() as i64, &mut out);
        }
        b"DEL" => {
            reply::integer(keys().filter(|key| storage.remove(*key).is_some()).count() as i64, &mut out)
        }
        b"EXISTS" => reply::integer(keys().filter(|key| storage.contains_key(*key)).count() as i64, &mut out),
        b"MGET" => {
            reply::array_header(command.len() - 1, &mut out);
            for key in keys() {
                match storage.get(key) {
                    Some(value) => reply::bulk(value, &mut out),
                    None => reply::null(false, &mut out),
                }
            }
        }
        b"TIME" => out.extend_from_slice(b"*0\r\n"),
        b"PING" => out.extend_from_slice(reply::PONG),
        other => panic!("not played: {}", other.escape_ascii()),
    }
    Some(out)
}

fn random_command(random: &mut SmallRng, client: u32, tag: u32) -> Command {
    let mut key = || format!("c{client}:{}", random.next_u32() % KEYS);
    let (first, second, third) = (key(), key(), key());
    let tag = format!("v{tag}");
    let words: Vec<&str> = match random.random_range(0..20) {
        0..6 => vec!["GET", &first],
        6..10 => vec!["SET", &first, &tag],
        10..12 => vec!["APPEND", &first, &tag],
        12 => vec!["STRLEN", &first],
        13 => vec!["MGET", &first, &second, &third],
        14 => vec!["MSET", &first, &tag, &second, &tag],
        15 => vec!["DEL", &first, &second],
        16 => vec!["EXISTS", &first, &second],
        17 => vec!["DEL", &third],
        18 => vec!["TIME"],
        _ => vec!["PING"],
    };
    Command::from_args(&words)
}

fn is_read(command: &Command) -> bool {
    [&b"GET"[..], b"STRLEN", b"MGET"].contains(&command.name())
}

struct Arrived {
    request: u64,
    peer: Peer,
    command: Command,
    ordered: bool,
    read: bool,
}

impl Arrived {
    fn touches(&self, other: &Arrived) -> bool {
        self.peer == other.peer
            && self.command.args().skip(1).any(|key| other.command.args().skip(1).any(|own| own == key))
    }
}

struct Run {
    router: Router,
    random: SmallRng,
    storage: Storage,
    twins: Vec<Storage>,
    expected: Vec<VecDeque<(Command, Vec<u8>)>>,
    arrived: Vec<Arrived>,
    executed: Vec<(Peer, Reply)>,
    linked: Vec<bool>,
    now: Time,
    /// Replies that said that everybody is busy.
    refused: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = SmallRng::seed_from_u64(seed);
        let routing = if random.random_bool(0.3) { Routing::OnPath } else { Routing::Learned };
        let config = RouterConfig {
            routing,
            seed,
            settings: RouterSettings { pipeline_max: 24, ..RouterSettings::default() },
            ..RouterConfig::default()
        };
        let mut router = world::router(config, world::map(LEAVES, SPINES, SHIMS, &[]));
        (0..CLIENTS).for_each(|client| {
            router.step(Time(0), Input::Opened { client: ClientId(client) }, &mut Vec::new());
        });
        Run {
            router,
            random,
            storage: Storage::new(),
            twins: vec![Storage::new(); CLIENTS as usize],
            expected: vec![VecDeque::new(); CLIENTS as usize],
            arrived: Vec::new(),
            executed: Vec::new(),
            linked: vec![true; usize::from(LEAVES + SPINES)],
            now: Time(0),
            refused: 0,
        }
    }

    /// Time passes, so that nodes with reads in flight are taken for hanging.
    fn time_passes(&mut self) {
        for _ in 0..self.random.random_range(0..20) {
            self.now = Time(self.now.0 + 10_000);
            self.step(Input::Tick);
        }
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.now = Time(self.now.0 + 50);
        self.router.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message: Message::Read(read) } => {
                    let get = || Command::from_args(&[b"GET", read.key.bytes.as_ref()]);
                    let command =
                        if read.command.is_empty() { get() } else { Command::parse(read.command).unwrap() };
                    self.arrived.push(Arrived {
                        request: read.request,
                        peer: to,
                        command,
                        ordered: read.ordered,
                        read: true,
                    });
                }
                Effect::Send { to, message: Message::Execute(execute) } => {
                    assert!(matches!(to, Peer::Shim(_)), "only shims execute");
                    let command = Command::parse(execute.command).unwrap();
                    let (request, ordered) = (execute.request, execute.ordered);
                    self.arrived.push(Arrived { request, peer: to, command, ordered, read: false });
                }
                Effect::Reply { client, bytes } => {
                    let (command, due) = self.expected[client.0 as usize].pop_front().expect("a command");
                    if bytes.starts_with(b"-BUSY") {
                        assert!(is_read(&command), "{command:?} is never refused here");
                        self.refused += 1;
                        continue;
                    }
                    assert_eq!(
                        String::from_utf8_lossy(&bytes),
                        String::from_utf8_lossy(&due),
                        "client {} got a wrong reply to {command:?}",
                        client.0
                    );
                }
                Effect::Resume { .. } | Effect::Part { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    fn client_sends(&mut self, tag: u32) {
        let client = self.random.random_range(0..CLIENTS);
        if !self.router.ready(ClientId(client)) {
            return;
        }
        let command = random_command(&mut self.random, client, tag);
        let due = execute(&mut self.twins[client as usize], &command);
        let due = due.unwrap_or_else(|| reply::null_bytes(false).to_vec());
        self.expected[client as usize].push_back((command.clone(), due));
        self.step(Input::Command { client: ClientId(client), command });
    }

    /// A peer executes any of its requests but those that have to queue.
    fn peer_executes(&mut self) {
        let free: Vec<usize> = (0..self.arrived.len())
            .filter(|&index| {
                let own = &self.arrived[index];
                !own.ordered || !self.arrived[..index].iter().any(|earlier| earlier.touches(own))
            })
            .collect();
        let Some(&index) = free.choose(&mut self.random) else { return };
        let Arrived { request, peer, command, read, .. } = self.arrived.remove(index);
        if read && self.random.random_bool(0.1) {
            let value = Bytes::from_static(b"-BUSY not now\r\n");
            let busy = Reply { request, status: Status::Busy, value, ..Reply::default() };
            return self.executed.push((peer, busy));
        }
        let value = execute(&mut self.storage, &command);
        let status = if value.is_some() { Status::Ok } else { Status::Nil };
        let cached = LayerSet((self.random.next_u32() & 3) as u8);
        let value = Bytes::from(value.unwrap_or_default());
        self.executed.push((peer, Reply { request, status, cached, value, ..Reply::default() }));
    }

    fn reply_arrives(&mut self) {
        if self.executed.is_empty() {
            return;
        }
        let index = self.random.random_range(0..self.executed.len());
        let (from, reply) = self.executed.swap_remove(index);
        self.step(Input::Message { from, message: Message::Reply(reply) });
    }

    /// Requests at a node that vanishes are lost, but some of its replies are still on their way.
    fn node_turns(&mut self) {
        let node = self.random.random_range(0..self.linked.len());
        let peer = Peer::Node(NodeId(node as u16));
        self.linked[node] = !self.linked[node];
        if self.linked[node] {
            return self.step(Input::Linked(peer));
        }
        self.arrived.retain(|arrived| arrived.peer != peer);
        self.step(Input::Unlinked(peer));
    }
}

#[test]
fn every_client_sees_its_commands_one_after_the_other() {
    let mut counters = [0; 6];
    for case in cases::seeds(800) {
        let seed = case.seed;
        let mut run = Run::new(seed);
        for tag in 0..600 {
            match run.random.random_range(0..100) {
                0..40 => run.client_sends(tag),
                40..68 => run.peer_executes(),
                68..96 => run.reply_arrives(),
                96 => run.time_passes(),
                _ => run.node_turns(),
            }
        }
        while !run.arrived.is_empty() || !run.executed.is_empty() {
            run.peer_executes();
            run.reply_arrives();
        }
        assert!(run.expected.iter().all(VecDeque::is_empty), "seed {seed}: commands without a reply");
        assert_eq!(run.router.pending_count(), 0, "seed {seed}");
        let own = run.router.statistics();
        let own = [
            own.reads_to_nodes,
            own.ordered_waits,
            own.retries,
            own.reads_lost,
            own.breakers_opened,
            run.refused,
        ];
        counters.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
    }
    let enough = [5_000, 5_000, 200, 200, 200, 200];
    assert!(
        cases::alone() || counters.iter().zip(enough).all(|(sum, least)| *sum > least),
        "{counters:?}: too little happened"
    );
}
