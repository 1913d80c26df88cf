//! The shim's side of client-side caching: who is told of what storage reports, and whose change it was. Not storage
//! itself, whose part the tests speak.

mod shim_alone;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::placement::Placement;
use protocol::shim::{Effect, Input, Shim};
use protocol::storage::{Lane, StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use wire::message::{Execute, Follow, Track};
use wire::resp::{Command, reply};
use wire::{Message, Peer, RouterId};

struct World {
    now: Time,
    shim: Shim,
    placement: Arc<Placement>,
    /// Asked on the feed and not answered.
    feed: Vec<Store>,
    /// Writes at storage.
    writes: Vec<Store>,
    told: Vec<String>,
}

impl World {
    fn new() -> World {
        let (shim, placement) = shim_alone::shim(1, |config| config.settings.key_queue_max = 100);
        let (feed, writes, told) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = World { now: Time(10_000_000), shim, placement, feed, writes, told };
        let up = StorageEvent::Up {
            incarnation: 1,
            traits: StorageTraits::default(),
            earlier: EarlierIncarnations::NONE,
        };
        world.step(Input::Storage(up));
        // The leases of an earlier incarnation are over.
        world.tick(2000);
        world
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shim.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Store(store) if store.lane == Lane::Feed => self.feed.push(store),
                // The proof that the shim governs storage.
                Effect::Store(store) if store.commands[0].ends_with(b"PING\r\n") => {}
                Effect::Store(store) => self.writes.push(store),
                Effect::Send { to: Peer::Router(RouterId(to)), message } => self.told.push(match message {
                    Message::Reply(reply) => {
                        format!("{to} r{} {}", reply.request, String::from_utf8_lossy(&reply.value).trim())
                    }
                    Message::Changed(changed) if changed.keys.is_empty() => format!("{to} all"),
                    Message::Changed(changed) => {
                        let keys = Command::parse(changed.keys).expect("an array of strings");
                        let keys: Vec<_> = keys.args().map(String::from_utf8_lossy).collect();
                        let writer = changed.writer.map_or(String::new(), |writer| format!(" by r{writer}"));
                        format!("{to} {}{writer}", keys.join(" "))
                    }
                    other => panic!("unexpected {other:?}"),
                }),
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    fn say(&mut self, router: u16, message: Message) {
        self.step(Input::Message { from: Peer::Router(RouterId(router)), message });
    }

    fn follow(&mut self, router: u16, request: Option<u64>, prefixes: &[&str]) {
        let prefixes = match prefixes {
            [] => Bytes::new(),
            prefixes => Command::from_args(prefixes).frame().clone(),
        };
        self.say(router, Message::Follow(Follow { request, follows: true, writers: true, prefixes }));
    }

    fn track(&mut self, router: u16, key: &str) {
        let key = self.placement.key(0, key.to_owned().into());
        self.say(router, Message::Track(Track { key }));
    }

    fn set(&mut self, router: u16, request: u64, key: &str) {
        self.execute(router, request, key, &["SET", key, "v"]);
    }

    /// A write that storage has answered.
    fn wrote(&mut self, router: u16, request: u64, key: &str) {
        self.set(router, request, key);
        self.write_done("+OK\r\n");
    }

    fn execute(&mut self, router: u16, request: u64, key: &str, words: &[&str]) {
        let command = Command::from_args(words).frame().clone();
        let key = self.placement.key(0, key.to_owned().into());
        let (resp3, ordered, watch) = (false, false, None);
        self.say(
            router,
            Message::Execute(Execute { request, key, resp3, ordered, watch, waited_ms: 0, command }),
        );
    }

    /// Storage answers the oldest thing asked on the feed.
    fn answer(&mut self, expected: &str, answer: &str) {
        let store = self.feed.remove(0);
        let command = Command::parse(store.commands[0].clone()).expect("a whole command");
        let words: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        assert_eq!(words.join(" "), expected);
        let replies = [Bytes::copy_from_slice(answer.as_bytes())].into_iter().collect();
        self.step(Input::Storage(StorageEvent::Replies { ticket: store.ticket, replies }));
    }

    fn open(&mut self) {
        let told = self.told.len();
        self.tick(100);
        self.answer("CLIENT TRACKING ON BCAST", "+OK\r\n");
        // Every router, of all that its clients have read before.
        let all: Vec<String> = self.told.drain(told..).collect();
        assert!(all.iter().any(|text| text.ends_with(" all")), "{all:?}");
        self.told.extend(all.into_iter().filter(|text| !text.ends_with(" all")));
    }

    fn write_done(&mut self, answer: &str) {
        let ticket = self.writes.remove(0).ticket;
        let replies = [Bytes::copy_from_slice(answer.as_bytes())].into_iter().collect();
        self.step(Input::Storage(StorageEvent::Replies { ticket, replies }));
    }

    /// Storage reports; no key: all of them.
    fn report(&mut self, keys: &[&str]) {
        let mut push = Vec::new();
        reply::push_header(2, true, &mut push);
        reply::bulk(b"invalidate", &mut push);
        match keys {
            [] => reply::null(true, &mut push),
            keys => {
                reply::array_header(keys.len(), &mut push);
                keys.iter().for_each(|key| reply::bulk(key.as_bytes(), &mut push));
            }
        }
        self.step(Input::Storage(StorageEvent::Changed(push.into())));
    }

    fn tick(&mut self, milliseconds: u64) {
        self.now = self.now.after(Duration::from_millis(milliseconds));
        self.step(Input::Tick);
    }

    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }
}

#[test]
fn the_feed_is_open_while_somebody_follows() {
    let mut world = World::new();
    world.tick(1000);
    assert!(world.feed.is_empty(), "nobody has asked for it");
    world.follow(0, Some(1), &[]);
    assert_eq!(world.told(), [""; 0], "storage does not report yet");
    world.open();
    assert_eq!(world.told(), ["0 r1 +OK"]);
    world.follow(1, Some(2), &[]);
    assert_eq!(world.told(), ["1 r2 +OK"]);
    world.tick(100);
    world.answer("PING", "+PONG\r\n");
    for router in [0, 1] {
        world.step(Input::Unlinked(Peer::Router(RouterId(router))));
    }
    world.tick(10);
    world.answer("CLIENT TRACKING OFF", "+OK\r\n");
    // What is still on its way is for nobody.
    world.report(&["k"]);
    world.tick(1000);
    assert!(world.feed.is_empty() && world.told().is_empty());
}

#[test]
fn a_refusal_is_told_and_not_the_end() {
    let mut world = World::new();
    world.follow(0, Some(1), &[]);
    world.tick(100);
    world.answer("CLIENT TRACKING ON BCAST", "-NOPERM no\r\n");
    assert_eq!(world.told(), ["0 r1 -ERR DistCache: storage does not report changes: -NOPERM no"]);
    world.follow(0, Some(2), &[]);
    world.open();
    assert_eq!(world.told(), ["0 r2 +OK"]);
}

#[test]
fn a_tracked_key_is_told_of_once_to_each_router() {
    let mut world = World::new();
    world.follow(0, None, &[]);
    world.follow(1, None, &[]);
    world.track(0, "early");
    assert_eq!(world.told(), ["0 early"], "nobody would report it");
    world.open();
    world.track(0, "k");
    world.track(0, "k");
    world.track(1, "k");
    world.track(1, "other");
    assert_eq!(world.shim.tracked(), 2);
    world.report(&["k", "unknown", "other"]);
    assert_eq!(world.told(), ["0 k", "1 k other"]);
    world.report(&["k", "other"]);
    assert_eq!(world.told(), [""; 0]);
    assert_eq!(world.shim.tracked(), 0);
}

#[test]
fn the_oldest_key_is_forgotten_aloud() {
    let mut world = World::new();
    world.follow(0, None, &[]);
    world.open();
    ["a", "b", "c"].iter().for_each(|key| world.track(0, key));
    // Tracked again it is the newest.
    world.track(0, "a");
    world.track(0, "d");
    assert_eq!(world.told(), ["0 b"]);
    // Keys that change at once leave nothing behind.
    for round in 0..100 {
        let key = format!("k{round}");
        world.track(0, &key);
        world.report(&[&key]);
    }
    assert!(world.shim.tracked() <= 3);
}

#[test]
fn prefixes_are_told_of_every_time() {
    let mut world = World::new();
    world.follow(0, None, &["user:", "item:"]);
    world.open();
    for _ in 0..2 {
        world.report(&["item:1", "other", "user:1"]);
        assert_eq!(world.told(), ["0 item:1 user:1"]);
    }
    world.follow(0, None, &[]);
    world.report(&["user:1"]);
    assert_eq!(world.told(), [""; 0]);
}

#[test]
fn a_report_names_the_router_s_own_write() {
    let mut world = World::new();
    world.follow(0, None, &[""]);
    world.follow(1, None, &[""]);
    world.open();
    world.set(0, 7, "k");
    // The report may come before the answer or behind it.
    world.report(&["k"]);
    world.write_done("+OK\r\n");
    assert_eq!(world.told(), ["0 k by r7", "1 k", "0 r7 +OK"]);
    world.wrote(1, 8, "k");
    world.report(&["a", "k"]);
    assert_eq!(world.told(), ["1 r8 +OK", "0 a k", "1 a", "1 k by r8"]);
    // Somebody else's.
    world.report(&["k"]);
    assert_eq!(world.told(), ["0 k", "1 k"]);
}

#[test]
fn a_write_that_is_never_reported_is_nobody_s_soon() {
    let mut world = World::new();
    world.follow(0, None, &[""]);
    world.open();
    // It fails, and may have changed something before.
    world.set(0, 7, "k");
    world.write_done("-OOM no\r\n");
    world.report(&["k"]);
    world.tick(100);
    world.answer("PING", "+PONG\r\n");
    // It changes nothing, and a PING that was sent later is answered.
    world.wrote(0, 8, "k");
    world.tick(200);
    world.report(&["k"]);
    world.wrote(0, 9, "k");
    world.answer("PING", "+PONG\r\n");
    world.tick(100);
    world.answer("PING", "+PONG\r\n");
    world.report(&["k"]);
    assert_eq!(world.told(), ["0 r7 -OOM no", "0 k", "0 r8 +OK", "0 k by r8", "0 r9 +OK", "0 k"]);
}

/// Storage reports one moment's changes of a key once, and none for a write that changes nothing.
#[test]
fn a_report_that_may_be_of_several_writers_names_none() {
    let mut world = World::new();
    world.follow(0, None, &[""]);
    world.open();
    // Both at once: this is the second one's as well, or the first one's alone.
    world.set(0, 7, "k");
    world.set(1, 8, "k");
    world.report(&["k"]);
    world.report(&["k"]);
    world.write_done("+OK\r\n");
    world.write_done("+OK\r\n");
    assert_eq!(world.told(), ["0 k", "0 k", "0 r7 +OK", "1 r8 +OK"]);
    // The first changed nothing.
    world.tick(200);
    world.answer("PING", "+PONG\r\n");
    world.wrote(0, 9, "k");
    world.set(1, 10, "k");
    world.report(&["k"]);
    world.write_done("+OK\r\n");
    assert_eq!(world.told(), ["0 r9 +OK", "0 k", "1 r10 +OK"]);
    // A script that may have written any key, until a PING that was sent behind it.
    world.tick(200);
    world.answer("PING", "+PONG\r\n");
    world.execute(1, 11, "k", &["EVAL", "return redis.call('DEL', 'k')", "0"]);
    world.write_done("+OK\r\n");
    world.wrote(0, 12, "k");
    world.report(&["k"]);
    world.tick(200);
    world.answer("PING", "+PONG\r\n");
    world.set(0, 13, "k");
    world.report(&["k"]);
    world.write_done("+OK\r\n");
    assert_eq!(world.told(), ["1 r11 +OK", "0 r12 +OK", "0 k", "0 k by r13", "0 r13 +OK"]);
}

/// The one that has written may have read the key since, and is not told of its own write.
#[test]
fn a_router_s_own_write_leaves_its_interest() {
    let mut world = World::new();
    world.follow(0, None, &[]);
    world.follow(1, None, &[]);
    world.open();
    world.track(0, "k");
    world.track(1, "k");
    world.wrote(0, 7, "k");
    world.report(&["k"]);
    world.wrote(1, 8, "k");
    world.report(&["k"]);
    world.report(&["k"]);
    assert_eq!(world.told(), ["0 r7 +OK", "0 k by r7", "1 k", "1 r8 +OK", "0 k"]);
}

/// What is remembered of writers ends with a PING, which comes the sooner the more there are.
#[test]
fn many_writers_are_not_waited_for_long() {
    let mut world = World::new();
    world.follow(0, None, &[]);
    world.open();
    for number in 1..1 << 15 {
        world.set(0, number, &format!("k{number}"));
        assert!(world.feed.is_empty(), "after {number}");
        world.write_done("+OK\r\n");
    }
    world.set(0, 1 << 15, "k");
    world.answer("PING", "+PONG\r\n");
    world.set(0, 1 + (1 << 15), "l");
    assert!(world.feed.is_empty(), "the first ones are done with");
}

#[test]
fn what_cannot_be_told_is_told_as_everything() {
    let mut world = World::new();
    world.follow(0, None, &[]);
    world.follow(1, None, &["x"]);
    world.open();
    world.track(0, "k");
    world.report(&[]);
    assert_eq!(world.told(), ["0 all", "1 all"]);
    world.track(0, "k");
    world.step(Input::Storage(StorageEvent::FeedDown));
    assert_eq!(world.told(), ["0 all", "1 all"]);
    world.step(Input::Storage(StorageEvent::FeedDown));
    world.track(0, "k");
    assert_eq!(world.told(), ["0 k"]);
    world.open();
    world.track(0, "k");
    world.report(&["k"]);
    assert_eq!(world.told(), ["0 k"]);
}

/// A client that is told of all keys reads without saying so, also while nobody reports.
#[test]
fn what_was_read_before_reports_began_is_told_as_changed() {
    let mut world = World::new();
    world.follow(0, None, &[""]);
    world.open();
    world.step(Input::Storage(StorageEvent::FeedDown));
    assert_eq!(world.told(), ["0 all"]);
    world.tick(100);
    assert_eq!(world.told(), [""; 0]);
    world.answer("CLIENT TRACKING ON BCAST", "+OK\r\n");
    assert_eq!(world.told(), ["0 all"]);
}
