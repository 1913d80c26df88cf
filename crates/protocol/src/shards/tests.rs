//! Servers that redirect, as scripts. A random cluster whose slots move, what servers report, and tickets have files of their own.

mod feeds;
mod migration;
mod tickets;

use core::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::ShimId;
use wire::resp::Command;

use super::{Effect, Input, Shards, ShardsConfig};
use crate::coherence::lease::EarlierIncarnations;
use crate::placement::slot::slot;
use crate::storage::{Lane, Reach, StorageEvent, StorageTraits, Store};
use crate::time::Time;

const MS: u64 = 1000;

fn server(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + number))
}

/// CLUSTER NODES: each server with its flags, its epoch and its slots.
fn view(servers: &[(u16, &str, u64, &str)]) -> Bytes {
    let lines = servers.iter().map(|(number, flags, epoch, slots)| {
        format!("{number} {}@1 {flags} - 0 0 {epoch} connected {slots}\n", server(*number))
    });
    lines.collect::<String>().into()
}

struct World {
    shards: Shards,
    now: Time,
    /// At the servers: the ticket there, and the commands as text.
    sent: Vec<(SocketAddr, u64, Vec<String>)>,
    said: Vec<StorageEvent>,
}

impl World {
    /// All slots at server 1.
    fn new() -> World {
        World::with("0-16383")
    }

    /// The first of so many shims, which has seen nobody yet.
    fn first_of(shims_count: usize) -> World {
        let config = ShardsConfig {
            shim: ShimId(0),
            shims_count,
            seeds: vec![server(1)],
            patience: Duration::from_secs(60),
            seed: 7,
        };
        let shards = Shards::new(config);
        World { shards, now: Time(10_000 * MS), sent: Vec::new(), said: Vec::new() }
    }

    fn with(slots: &str) -> World {
        let mut world = World::first_of(1);
        world.seen(1, &[(1, "master", 1, slots), (2, "master", 2, ""), (3, "slave", 1, "")]);
        world.up(1, 11);
        assert!(matches!(world.said[..], [StorageEvent::Up { .. }, StorageEvent::Moving(_)]));
        world.said.clear();
        world
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shards.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Report(event) => self.said.push(event),
                Effect::Store { server, store } => {
                    let text = |frame: &Bytes| {
                        let command = Command::parse(frame.clone()).expect("a command");
                        let words = command.args().map(String::from_utf8_lossy).map(String::from);
                        words.collect::<Vec<_>>().join(" ")
                    };
                    self.sent.push((server, store.ticket, store.commands.iter().map(text).collect()));
                }
                _ => {}
            }
        }
    }

    fn seen(&mut self, from: u16, servers: &[(u16, &str, u64, &str)]) {
        self.step(Input::Seen { server: server(from), text: view(servers) });
    }

    fn up(&mut self, number: u16, incarnation: u64) {
        let event = StorageEvent::Up {
            incarnation,
            traits: StorageTraits::default(),
            earlier: EarlierIncarnations::NONE,
        };
        self.step(Input::Server { server: server(number), event });
    }

    fn store(&mut self, ticket: u64, key: &str, commands: &[&str]) {
        let commands = commands.iter().map(|text| frame(text)).collect();
        let (lane, reach) = (Lane::Shared { resp3: false }, Reach::Slot(slot(key.as_bytes())));
        self.step(Input::Store(Store { ticket, lane, reach, commands }));
    }

    /// Every server but for what it was asked about itself.
    fn take(&mut self) -> Vec<(u16, String)> {
        let all = self.sent.iter().filter(|(_, _, commands)| commands[0] != "CLUSTER NODES");
        all.map(|(server, _, commands)| (server.port() - 7000, commands.join(" / "))).collect()
    }

    /// The first that waits at this server is answered.
    fn answer(&mut self, number: u16, replies: &[&str]) {
        let found = self
            .sent
            .iter()
            .position(|(at, _, commands)| *at == server(number) && commands[0] != "CLUSTER NODES");
        let (_, ticket, _) = self.sent.remove(found.expect("something was asked"));
        let replies = replies.iter().map(|reply| Bytes::from(format!("{reply}\r\n"))).collect();
        self.step(Input::Server { server: server(number), event: StorageEvent::Replies { ticket, replies } });
    }

    fn replies(&mut self) -> Vec<(u64, String)> {
        let events = std::mem::take(&mut self.said);
        let replies = events.into_iter().filter_map(|event| match event {
            StorageEvent::Replies { ticket, replies } => {
                let texts = replies.iter().map(|reply| String::from_utf8_lossy(reply).trim_end().to_owned());
                Some((ticket, texts.collect::<Vec<_>>().join(" ")))
            }
            StorageEvent::Lost { ticket, sent } => Some((ticket, format!("lost, sent {sent}"))),
            _ => None,
        });
        replies.collect()
    }

    fn wait(&mut self, ms: u64) {
        self.now = Time(self.now.0 + ms * MS);
        self.step(Input::Tick);
    }
}

fn frame(text: &str) -> Bytes {
    Command::from_args(&text.split(' ').collect::<Vec<_>>()).frame().clone()
}

fn told(number: u64, text: &str) -> (u64, String) {
    (number, text.to_owned())
}

fn at(number: u16, text: &str) -> (u16, String) {
    (number, text.to_owned())
}

#[test]
fn commands_that_are_asked_elsewhere_keep_their_order() {
    let mut world = World::new();
    world.store(1, "{s}a", &["SET {s}a 1"]);
    world.store(2, "{s}b", &["SET {s}b 2"]);
    world.store(3, "{s}a", &["PTTL {s}a", "GET {s}a"]);
    world.answer(1, &["-ASK 1 127.0.0.1:7002"]);
    world.up(2, 22);
    world.store(4, "{s}b", &["GET {s}b"]);
    assert_eq!(world.take(), [at(1, "SET {s}b 2"), at(1, "PTTL {s}a / GET {s}a")], "two are on their way");
    world.answer(1, &["+OK"]);
    world.answer(1, &[":-2", "-ASK 1 127.0.0.1:7002"]);
    assert_eq!(world.take(), [at(2, "ASKING / SET {s}a 1")], "the first that came");
    world.answer(2, &["+OK", "+OK"]);
    assert_eq!(world.take(), [at(2, "ASKING / PTTL {s}a / ASKING / GET {s}a")]);
    world.answer(2, &["+OK", ":-1", "+OK", "$1\r\n1"]);
    assert_eq!(world.take(), [at(1, "GET {s}b")], "whose slot it is, as long as it is");
    world.answer(1, &["$1\r\n2"]);
    let replies = world.replies();
    assert_eq!(replies, [told(2, "+OK"), told(1, "+OK"), told(3, ":-1 $1\r\n1"), told(4, "$1\r\n2")]);
    world.store(5, "{s}a", &["GET {s}a"]);
    world.store(6, "{s}a", &["GET {s}a"]);
    assert_eq!(world.take().len(), 2, "it is calm again");
}

#[test]
fn a_transaction_is_asked_elsewhere_as_one() {
    let mut world = World::new();
    world.up(2, 22);
    world.store(1, "a", &["MULTI", "INCR a", "EXEC"]);
    let asked = ["+OK", "-ASK 1 127.0.0.1:7002", "-EXECABORT Transaction discarded"];
    world.answer(1, &asked);
    assert_eq!(world.take(), [], "there is no connection yet");
    world.up(2, 22);
    world.wait(20);
    // Whose slot it is has to say so again.
    world.answer(1, &asked);
    assert_eq!(world.take(), [at(2, "ASKING / MULTI / INCR a / EXEC")]);
    world.answer(2, &["+OK", "+OK", "+QUEUED", "*1\r\n:1"]);
    assert_eq!(world.replies(), [told(1, "+OK +QUEUED *1\r\n:1")]);
}

#[test]
fn nothing_overtakes_what_is_at_a_slot_s_former_owner() {
    let mut world = World::new();
    world.store(1, "a", &["SET a 1"]);
    world.seen(2, &[(1, "master", 1, ""), (2, "master", 2, "0-16383")]);
    world.up(2, 22);
    world.store(2, "a", &["SET a 2"]);
    assert_eq!(world.take(), [at(1, "SET a 1")]);
    world.answer(1, &["-MOVED 1 127.0.0.1:7002"]);
    assert_eq!(world.take(), [at(2, "SET a 1")]);
    world.answer(2, &["+OK"]);
    assert_eq!(world.take(), [at(2, "SET a 2")]);
    let moving = |event: &StorageEvent| matches!(event, StorageEvent::Moving(slots) if slots.len() == 16_384);
    assert!(world.said.iter().any(moving));
}

#[test]
fn slots_handed_over_are_the_same_storage_and_a_replica_s_are_another() {
    let numbers = |world: &World| {
        let number = |event: &StorageEvent| match event {
            StorageEvent::Up { incarnation, .. } => Some(*incarnation),
            _ => None,
        };
        world.said.iter().filter_map(number).collect::<Vec<_>>()
    };
    let mut world = World::new();
    world.seen(1, &[(1, "master", 1, "0-99"), (2, "master", 2, "100-16383"), (3, "slave", 1, "")]);
    world.up(2, 22);
    let joined = numbers(&world);
    assert_eq!(joined.len(), 1);
    assert!(world.shards.is_up());
    world.seen(2, &[(1, "master,fail", 1, ""), (2, "master", 2, "100-16383"), (3, "master", 3, "0-99")]);
    assert!(!world.shards.is_up(), "until the replica is taken over");
    world.up(3, 33);
    assert!(world.shards.is_up());
    let after = numbers(&world);
    assert_ne!(after.last(), joined.first(), "everything granted is void");
    // The deposed one comes back and tells what it knew.
    world.seen(1, &[(1, "master", 1, "0-99"), (2, "master", 2, "100-16383"), (3, "slave", 1, "")]);
    assert_eq!(world.shards.owner(5), Some(server(3)), "the later epoch counts");
}

#[test]
fn a_server_that_restarts_is_another_storage() {
    let mut world = World::new();
    let down = StorageEvent::Down { reason: "gone".to_owned(), gone: true };
    let gone = Input::Server { server: server(1), event: down.clone() };
    world.step(gone.clone());
    assert_eq!(world.said, [down]);
    world.up(1, 11);
    let first = world.said.iter().position(|event| matches!(event, StorageEvent::Up { .. }));
    let StorageEvent::Up { incarnation: same, .. } = world.said[first.expect("it is up")] else { return };
    world.said.clear();
    world.step(gone);
    world.up(1, 12);
    let other = world.said.iter().find_map(|event| match event {
        StorageEvent::Up { incarnation, .. } => Some(*incarnation),
        _ => None,
    });
    assert!(other.is_some_and(|other| other != same));
}

/// A write whose reading back is turned away has been carried out.
#[test]
fn a_write_with_its_reading_back_is_not_asked_twice() {
    let mut world = World::new();
    world.up(2, 22);
    let all = ["SET a 1", "CLIENT CACHING YES", "GET a"];
    world.store(1, "a", &all);
    world.answer(1, &["+OK", "+OK", "-MOVED 1 127.0.0.1:7002"]);
    assert_eq!(world.replies(), [told(1, "+OK +OK -MOVED 1 127.0.0.1:7002")]);
    world.store(2, "a", &all);
    world.take();
    world.answer(1, &["-ASK 1 127.0.0.1:7002", "+OK", "-ASK 1 127.0.0.1:7002"]);
    assert_eq!(world.replies(), []);
    // A read that is announced is turned away as a whole.
    let mut world = World::new();
    world.store(3, "a", &["CLIENT CACHING YES", "PTTL a", "GET a"]);
    world.answer(1, &["+OK", ":-1", "-TRYAGAIN"]);
    assert_eq!(world.replies(), []);
}

#[test]
fn a_slot_that_nobody_serves_is_tried_again_until_it_is_enough() {
    let mut world = World::new();
    world.store(1, "a", &["SET a 1"]);
    world.store(2, "b", &["SET b 1"]);
    world.answer(1, &["-CLUSTERDOWN The cluster is down"]);
    assert_eq!(world.take(), [at(1, "SET b 1")], "other slots do not wait");
    world.wait(20);
    world.answer(1, &["+OK"]);
    world.answer(1, &["-CLUSTERDOWN The cluster is down"]);
    world.wait(60_100);
    assert_eq!(world.replies(), [told(2, "+OK"), told(1, "-CLUSTERDOWN The cluster is down")]);
    world.store(3, "a", &["SET a 1"]);
    assert_eq!(world.take(), [at(1, "SET a 1")]);
}

#[test]
fn only_an_answer_of_every_server_is_a_proof() {
    let check = |answers: [&str; 2], expected: bool| {
        let mut world = World::new();
        world.seen(1, &[(1, "master", 1, "0-99"), (2, "master", 2, "100-16383")]);
        world.up(2, 22);
        world.said.clear();
        let commands = SmallVec::from_elem(frame("PING"), 1);
        let lane = Lane::Shared { resp3: false };
        world.step(Input::Store(Store { ticket: 1, lane, reach: Reach::Proof, commands }));
        let probes = world.take();
        assert!(probes.len() == 2 && probes[1].1.starts_with("EXISTS distcache:proof:{"), "{probes:?}");
        world.answer(1, &answers[..1]);
        assert_eq!(world.replies(), [], "not before all have answered");
        world.answer(2, &answers[1..]);
        let proven = world.replies() == [told(1, "+PONG")];
        assert_eq!(proven, expected, "{answers:?}");
    };
    check([":0", ":0"], true);
    check([":0", "-ASK 1 127.0.0.1:7001"], true);
    check([":0", "-CLUSTERDOWN The cluster is down"], false);
    check(["-MOVED 1 127.0.0.1:7002", ":0"], false);
    check([":0", "-NOPERM this user has no permissions"], false);
}

fn keyless(world: &mut World, ticket: u64, commands: &[&str]) {
    let commands = commands.iter().map(|text| frame(text)).collect();
    let lane = Lane::Shared { resp3: false };
    world.step(Input::Store(Store { ticket, lane, reach: Reach::Whole, commands }));
}

#[test]
fn commands_without_keys_are_asked_of_every_server() {
    let mut world = World::new();
    world.seen(1, &[(1, "master", 1, "0-99"), (2, "master", 2, "100-16383")]);
    world.up(2, 22);
    world.said.clear();
    keyless(&mut world, 1, &["DBSIZE"]);
    assert_eq!(world.take(), [at(1, "DBSIZE"), at(2, "DBSIZE")]);
    world.answer(1, &[":2"]);
    world.answer(2, &[":40"]);
    keyless(&mut world, 2, &["SCAN 3 COUNT 5"]);
    assert_eq!(world.take(), [at(2, "SCAN 1 COUNT 5")], "the second server's cursor 1");
    world.answer(2, &["*2\r\n$1\r\n7\r\n*0"]);
    keyless(&mut world, 3, &["RANDOMKEY"]);
    world.answer(1, &["$-1"]);
    world.answer(2, &["$1\r\nk"]);
    keyless(&mut world, 4, &["TIME"]);
    world.answer(1, &["*0"]);
    let replies = world.replies();
    let scanned = told(2, "*2\r\n$2\r\n15\r\n*0");
    assert_eq!(replies, [told(1, ":42"), scanned, told(3, "$1\r\nk"), told(4, "*0")]);
    world.store(5, "a", &["MULTI", "GET a", "DBSIZE", "EXEC"]);
    let [(5, refused)] = &world.replies()[..] else { panic!("one reply") };
    assert!(refused.contains("'dbsize' is about all of several primaries"), "{refused}");
    assert_eq!(world.take(), []);
}

#[test]
fn a_primary_of_two_shims_is_asked_by_the_one_with_its_lowest_slot() {
    let shim = |shim: u16, seen: &[(u16, &str, u64, &str)], ups: &[u16]| {
        let mut world = World::new();
        let config = ShardsConfig { shim: ShimId(shim), shims_count: 2, ..world.shards.config.clone() };
        world.shards = Shards::new(config);
        world.seen(1, seen);
        ups.iter().for_each(|number| world.up(*number, 11));
        assert!(world.shards.is_up());
        world.said.clear();
        world
    };
    let one = [(1, "master", 1, "0-16383")];
    let (mut first, mut second) = (shim(0, &one, &[1]), shim(1, &one, &[1]));
    for world in [&mut first, &mut second] {
        keyless(world, 1, &["DBSIZE"]);
        keyless(world, 2, &["FLUSHALL"]);
    }
    assert_eq!(first.take(), [at(1, "DBSIZE")]);
    assert_eq!(second.take(), []);
    let shared = |replies: &[(u64, String)]| replies.iter().any(|(_, text)| text.contains("another shim's"));
    assert!(shared(&first.replies()), "FLUSHALL would take the other shim's keys");
    let replies = second.replies();
    assert_eq!(replies[0], told(1, ":0"));
    assert!(shared(&replies));
    let halves = [(1, "master", 1, "0-8191"), (2, "master", 2, "8192-16383")];
    let mut alone = shim(1, &halves, &[2]);
    keyless(&mut alone, 1, &["FLUSHALL"]);
    assert_eq!(alone.take(), [at(2, "FLUSHALL")]);
}
