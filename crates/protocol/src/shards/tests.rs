//! Servers that redirect, as scripts and as a random cluster whose slots move under a stream of commands.

mod tickets;

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
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
    let down = StorageEvent::Down { reason: "gone".to_owned() };
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

#[test]
fn the_feed_is_open_while_every_server_in_use_reports() {
    let mut world = World::new();
    let feed = |world: &mut World, ticket: u64, command: &str| {
        let commands = std::iter::once(frame(command)).collect();
        world.step(Input::Store(Store { ticket, lane: Lane::Feed, reach: Reach::Whole, commands }));
    };
    let changed = |world: &mut World, number: u16| {
        let push = Bytes::from_static(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");
        world.said.clear();
        world.step(Input::Server { server: server(number), event: StorageEvent::Changed(push) });
        world.said.len()
    };
    feed(&mut world, 1, "CLIENT TRACKING ON BCAST");
    world.answer(1, &["+OK"]);
    assert_eq!(world.replies(), [told(1, "+OK")]);
    assert_eq!(changed(&mut world, 1), 1);
    // A server comes into use that does not report.
    world.seen(1, &[(1, "master", 1, "0-99"), (2, "master", 2, "100-16383")]);
    world.up(2, 22);
    assert!(world.said.contains(&StorageEvent::FeedDown));
    feed(&mut world, 2, "PING");
    assert_eq!(world.replies().last(), Some(&told(2, "lost, sent false")), "an old PING proves nothing");
    assert_eq!(changed(&mut world, 2), 0);
    feed(&mut world, 3, "CLIENT TRACKING ON BCAST");
    world.answer(1, &["+OK"]);
    assert_eq!(world.replies(), [], "both have to");
    world.answer(2, &["+OK"]);
    assert_eq!(world.replies(), [told(3, "+OK")]);
    assert_eq!((changed(&mut world, 1), changed(&mut world, 2)), (1, 1));
    feed(&mut world, 4, "PING");
    world.answer(2, &["+PONG"]);
    world.answer(1, &["-BUSY a script runs"]);
    assert_eq!(world.replies(), [told(4, "-BUSY a script runs")], "one that is silent speaks for all");
    // One goes out of use, and its silence means nothing any more.
    world.seen(1, &[(1, "master", 3, ""), (2, "master", 4, "0-16383")]);
    assert!(!world.said.contains(&StorageEvent::FeedDown));
    feed(&mut world, 5, "PING");
    world.step(Input::Server { server: server(1), event: StorageEvent::FeedDown });
    assert!(!world.said.contains(&StorageEvent::FeedDown));
    world.step(Input::Server { server: server(2), event: StorageEvent::FeedDown });
    assert!(world.said.contains(&StorageEvent::FeedDown));
}

#[test]
fn the_read_feed_is_open_while_every_server_in_use_reports() {
    let mut world = World::new();
    let ping = |world: &mut World, ticket: u64| {
        let commands = std::iter::once(frame("PING")).collect();
        world.step(Input::Store(Store { ticket, lane: Lane::ReadFeed, reach: Reach::Whole, commands }));
    };
    let changed = |world: &mut World, number: u16, key: &str| {
        let push = Bytes::from(format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\n{key}\r\n"));
        world.said.clear();
        world.step(Input::Server { server: server(number), event: StorageEvent::ReadChanged(push) });
        world.said.len()
    };
    let views = |world: &mut World| {
        let asked = world.sent.iter().filter(|(_, _, commands)| commands[0] == "CLUSTER NODES").count();
        world.sent.clear();
        asked
    };
    assert_eq!(changed(&mut world, 1, "a"), 0, "nobody wants to know");
    ping(&mut world, 1);
    world.answer(1, &["+PONG"]);
    assert_eq!(world.replies(), [told(1, "+PONG")]);
    views(&mut world);
    assert_eq!(changed(&mut world, 1, "a"), 1);
    assert_eq!(views(&mut world), 1, "whether its slot moves");
    world.now = Time(world.now.0 + 1);
    assert_eq!(
        (changed(&mut world, 1, "b"), views(&mut world)),
        (1, 1),
        "what was asked before may be too old"
    );
    world.seen(1, &[(1, "master", 1, &format!("0-16383 [{}->-x]", slot(b"a")))]);
    world.now = Time(world.now.0 + 1);
    assert_eq!((changed(&mut world, 1, "a"), views(&mut world)), (1, 0), "it is known to move");
    world.seen(1, &[(1, "master", 1, "0-99"), (2, "master", 2, "100-16383")]);
    // A server has come into use that does not report.
    world.up(2, 22);
    assert!(world.said.contains(&StorageEvent::ReadFeedDown));
    assert_eq!(changed(&mut world, 1, "a"), 0);
    world.sent.clear();
    ping(&mut world, 2);
    world.answer(1, &["+PONG"]);
    assert_eq!(world.replies(), [], "both have to");
    world.answer(2, &["+PONG"]);
    assert_eq!(world.replies(), [told(2, "+PONG")]);
    assert_eq!((changed(&mut world, 1, "a"), changed(&mut world, 2, "a")), (1, 1));
    world.step(Input::Server { server: server(2), event: StorageEvent::ReadFeedDown });
    assert!(world.said.contains(&StorageEvent::ReadFeedDown));
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
fn changes_of_slots_that_other_shims_have_are_left_to_them() {
    let mut world = World::first_of(2);
    world.seen(1, &[(1, "master", 1, "0-16383")]);
    world.up(1, 11);
    let commands = std::iter::once(frame("CLIENT TRACKING ON BCAST")).collect();
    world.step(Input::Store(Store { ticket: 1, lane: Lane::Feed, reach: Reach::Whole, commands }));
    world.answer(1, &["+OK"]);
    world.said.clear();
    assert!(slot(b"a") > 8191 && slot(b"b") < 8192);
    let push = |keys: &str| Bytes::from(format!(">2\r\n$10\r\ninvalidate\r\n{keys}"));
    for keys in ["*1\r\n$1\r\na\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n", "_\r\n"] {
        world.step(Input::Server { server: server(1), event: StorageEvent::Changed(push(keys)) });
    }
    let expected = ["*1\r\n$1\r\nb\r\n", "_\r\n"].map(|keys| StorageEvent::Changed(push(keys)));
    assert_eq!(world.said, expected);
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

/// Two primaries between which one slot moves to and fro, key by key, while commands are on their way.
struct Migration {
    random: SmallRng,
    owner: usize,
    /// The slot is on its way to the other.
    moving: bool,
    epoch: u64,
    /// Per server: the keys that it has, with all that was appended.
    keys: [BTreeMap<String, Vec<u64>>; 2],
    /// What each has been asked and has not carried out, and what it has answered that is still on its way.
    asked: [VecDeque<(u64, Vec<String>)>; 2],
    answers: [VecDeque<StorageEvent>; 2],
}

impl Migration {
    fn execute(&mut self, here: usize, words: &str, asking: bool) -> String {
        let there = server(2 - here as u16);
        let (_, rest) = words.split_once(' ').expect("a key");
        let (key, number) = rest.split_once(' ').unwrap_or((rest, ""));
        if here != self.owner && !(asking && self.moving) {
            return format!("-MOVED 1 {there}");
        }
        if here == self.owner && self.moving && !self.keys[here].contains_key(key) {
            return format!("-ASK 1 {there}");
        }
        let list = self.keys[here].entry(key.to_owned()).or_default();
        if number.is_empty() {
            return ":0".to_owned();
        }
        list.push(number.parse().expect("a number"));
        format!(":{}", list.len())
    }

    fn serve(&mut self, here: usize) {
        let Some((ticket, commands)) = self.asked[here].pop_front() else { return };
        let mut asking = false;
        let replies = commands.iter().map(|command| {
            let reply = match command.as_str() {
                "ASKING" | "CLIENT CACHING YES" => "+OK".to_owned(),
                "CLUSTER NODES" => self.nodes(),
                words => self.execute(here, words, asking),
            };
            asking = command == "ASKING";
            Bytes::from(reply + "\r\n")
        });
        let replies = replies.collect::<Vec<_>>().into();
        self.answers[here].push_back(StorageEvent::Replies { ticket, replies });
    }

    fn nodes(&self) -> String {
        let own = slot(b"{s}").to_string();
        let slots = |index| if index == self.owner { own.as_str() } else { "" };
        let text = view(&[
            (1, "master", if self.owner == 0 { self.epoch } else { 0 }, slots(0)),
            (2, "master", if self.owner == 1 { self.epoch } else { 0 }, slots(1)),
        ]);
        format!("${}\r\n{}", text.len(), String::from_utf8_lossy(&text))
    }

    /// One step of a migration.
    fn shift(&mut self) {
        let (from, to) = (self.owner, 1 - self.owner);
        let next = self.keys[from].pop_first();
        match (self.moving, next) {
            (false, key) => {
                self.keys[from].extend(key);
                self.moving = true;
            }
            (true, Some((key, list))) => {
                let before = self.keys[to].insert(key.clone(), list.clone());
                assert_eq!(before, None, "{key} {list:?} from {from}");
            }
            // A slot that leaves a server and is back before what was sent there meanwhile is beyond what can be promised.
            (true, None) if self.asked.iter().any(|asked| !asked.is_empty()) => {}
            (true, None) if self.answers.iter().any(|answers| !answers.is_empty()) => {}
            (true, None) => {
                (self.owner, self.moving) = (to, false);
                self.epoch += 1;
            }
        }
    }
}

/// Behind every other one it is read back, which may be turned away alone.
fn append(world: &mut World, random: &mut SmallRng, number: u64) {
    let key = format!("{{s}}{}", random.random_range(0..3));
    let append = format!("APPEND {key} {number}");
    match number % 2 {
        0 => world.store(number, &key, &[&append]),
        _ => world.store(number, &key, &[&append, "CLIENT CACHING YES", &format!("STRLEN {key}")]),
    }
}

#[test]
fn whatever_moves_every_command_is_carried_out_once_and_in_order() {
    let mut redirected = 0;
    for case in cases::seeds(150) {
        let seed = case.seed;
        let mut world = World::with(&slot(b"{s}").to_string());
        let mut cluster = Migration {
            random: SmallRng::seed_from_u64(seed),
            owner: 0,
            moving: false,
            epoch: 2,
            keys: Default::default(),
            asked: Default::default(),
            answers: Default::default(),
        };
        let mut answered = BTreeSet::new();
        let mut second_up = false;
        let mut next = 0;
        // Most of it only drains: one command at a time takes its time.
        for turn in 0..30_000 {
            if turn > 600 && answered.len() == next as usize {
                break;
            }
            for (to, ticket, commands) in std::mem::take(&mut world.sent) {
                cluster.asked[usize::from(to.port() - 7001)].push_back((ticket, commands));
            }
            let here = cluster.random.random_range(0..2usize);
            match cluster.random.random_range(0..10) {
                0..=2 if turn < 600 => {
                    next += 1;
                    append(&mut world, &mut cluster.random, next);
                }
                0..=2 => world.wait(5),
                3..=5 => cluster.serve(here),
                6..=7 => {
                    if let Some(event) = cluster.answers[here].pop_front() {
                        world.step(Input::Server { server: server(here as u16 + 1), event });
                    }
                }
                // Slower than ASK is forgotten.
                8 if turn < 600 => {
                    cluster.shift();
                    world.wait(20);
                }
                _ => {
                    if !second_up {
                        world.up(2, 22);
                        second_up = world.shards.is_serving(&server(2));
                    }
                    world.wait(1);
                }
            }
            for (ticket, reply) in world.replies() {
                assert!(reply.starts_with(':'), "seed {seed}: {ticket} {reply}");
                assert!(answered.insert(ticket), "seed {seed}: {ticket} was answered twice");
            }
        }
        let lists = cluster.keys.iter().flat_map(|keys| keys.values());
        let mut done = 0;
        for list in lists {
            assert!(list.is_sorted(), "seed {seed}: {list:?}");
            done += list.len();
        }
        assert_eq!((done, answered.len()), (next as usize, next as usize), "seed {seed}");
        redirected += usize::from(cluster.epoch > 2);
    }
    assert!(cases::alone() || redirected > 100, "only {redirected} runs saw the slot move");
}
