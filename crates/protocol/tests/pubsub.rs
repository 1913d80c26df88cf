//! The shim's side of publish and subscribe: one subscription at storage for all routers, receivers counted, topics
//! restored. Not storage itself, whose part the tests speak.

mod shim_alone;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::placement::Placement;
use protocol::shim::{Effect, Input, Shim};
use protocol::storage::{Lane, StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use wire::message::{Execute, Subscribe, Subscribers};
use wire::resp::Command;
use wire::{Key, Message, Peer, RouterId, ShimId, TopicKind};

struct World {
    now: Time,
    shim: Shim,
    placement: Arc<Placement>,
    /// At storage and not answered, oldest first.
    stores: Vec<Store>,
    /// What routers were told since they were asked last.
    told: Vec<String>,
}

impl World {
    fn new(shims: u16) -> World {
        let (shim, placement) = shim_alone::shim(shims, |config| {
            config.lease.duration = Duration::from_secs(60);
            (config.settings.key_queue_max, config.tracked_max) = (100, 1000);
        });
        let mut world =
            World { now: Time(10_000_000), shim, placement, stores: Vec::new(), told: Vec::new() };
        world.up();
        world
    }

    fn up(&mut self) {
        let up = StorageEvent::Up {
            incarnation: 1,
            traits: StorageTraits::default(),
            earlier: EarlierIncarnations::NONE,
        };
        self.step(Input::Storage(up));
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shim.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Store(store) if store.lane == Lane::Subscriber => self.stores.push(store),
                // The proof that the shim governs storage.
                Effect::Store(_) => {}
                Effect::Send { to: Peer::Router(RouterId(to)), message } => self.told.push(match message {
                    Message::Reply(reply) => {
                        format!("{to} r{} {}", reply.request, reply.value.escape_ascii())
                    }
                    Message::Deliver(deliver) => {
                        format!("{to} {:?} {}", deliver.kind, deliver.name.bytes.escape_ascii())
                    }
                    other => panic!("unexpected {other:?}"),
                }),
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    fn key(&self, name: &str) -> Key {
        self.placement.key(0, name.to_owned().into())
    }

    fn say(&mut self, router: u16, message: Message) {
        self.step(Input::Message { from: Peer::Router(RouterId(router)), message });
    }

    fn subscribe(&mut self, router: u16, request: u64, kind: TopicKind, name: &str, clients: u32) {
        let name = self.key(name);
        self.say(router, Message::Subscribe(Subscribe { request, kind, name, clients }));
    }

    fn subscribers(&mut self, router: u16, kind: TopicKind, name: &str, clients: u32) {
        let name = self.key(name);
        self.say(router, Message::Subscribers(Subscribers { kind, name, clients }));
    }

    fn ask(&mut self, router: u16, request: u64, words: &[&str]) {
        let command = Command::from_args(words).frame().clone();
        let (key, resp3, ordered) = (Key::default(), false, false);
        self.say(
            router,
            Message::Execute(Execute { request, key, resp3, ordered, watch: None, waited_ms: 0, command }),
        );
    }

    /// What storage has been asked on the subscriber connection and not answered.
    fn asked(&self) -> Vec<String> {
        let words = |store: &Store| {
            let command = Command::parse(store.commands[0].clone()).expect("a whole command");
            command.args().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
        };
        self.stores.iter().map(words).collect()
    }

    /// Storage answers the oldest command.
    fn answer(&mut self, expected: &str, reply: &str) {
        assert_eq!(self.asked().first().map(String::as_str), Some(expected));
        let ticket = self.stores.remove(0).ticket;
        let replies = [Bytes::copy_from_slice(reply.as_bytes())].into_iter().collect();
        self.step(Input::Storage(StorageEvent::Replies { ticket, replies }));
    }

    fn confirm(&mut self, expected: &str) {
        let (word, name) = expected.split_once(' ').expect("a word and a name");
        self.answer(expected, &format!("{}:1\r\n", push(&[&word.to_lowercase(), name], 3)));
    }

    fn publish(&mut self, words: &[&str]) {
        self.step(Input::Storage(StorageEvent::Published(push(words, words.len()).into())));
    }

    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    fn tick(&mut self, milliseconds: u64) {
        self.now = self.now.after(Duration::from_millis(milliseconds));
        self.step(Input::Tick);
    }

    /// The connection is lost, and with it what it had been asked.
    fn cut(&mut self) {
        for store in std::mem::take(&mut self.stores) {
            self.step(Input::Storage(StorageEvent::Lost { ticket: store.ticket, sent: true }));
        }
        self.step(Input::Storage(StorageEvent::Unsubscribed));
    }
}

fn push(words: &[&str], elements: usize) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!(">{elements}\r\n{}", words.collect::<String>())
}

#[test]
fn storage_is_asked_once_for_all_routers_and_each_gets_a_message_once() {
    let mut world = World::new(1);
    world.subscribe(1, 10, TopicKind::Channel, "news", 1);
    world.subscribe(1, 11, TopicKind::Channel, "news", 2);
    world.subscribe(2, 20, TopicKind::Channel, "news", 1);
    assert_eq!(world.asked(), ["SUBSCRIBE news"]);
    assert_eq!(world.told(), [""; 0], "nothing is confirmed before storage has");
    world.confirm("SUBSCRIBE news");
    assert_eq!(world.told(), ["1 r10 +OK\\r\\n", "1 r11 +OK\\r\\n", "2 r20 +OK\\r\\n"]);
    world.subscribe(2, 21, TopicKind::Channel, "news", 2);
    assert_eq!((world.told(), world.asked()), (vec!["2 r21 +OK\\r\\n".to_owned()], vec![]));
    world.publish(&["message", "news", "m"]);
    assert_eq!(world.told(), ["1 Channel news", "2 Channel news"]);
    world.subscribers(1, TopicKind::Channel, "news", 0);
    world.publish(&["message", "news", "m"]);
    assert_eq!(world.told(), ["2 Channel news"]);
    world.step(Input::Unlinked(Peer::Router(RouterId(2))));
    world.publish(&["message", "news", "late"]);
    assert_eq!(world.told(), [""; 0]);
    world.confirm("UNSUBSCRIBE news");
    assert_eq!(world.shim.subscriptions(), 0);
}

#[test]
fn who_comes_back_while_storage_unsubscribes_is_subscribed_again() {
    let mut world = World::new(1);
    world.subscribe(1, 10, TopicKind::ShardChannel, "s", 1);
    world.subscribers(1, TopicKind::ShardChannel, "s", 0);
    world.confirm("SSUBSCRIBE s");
    world.subscribe(1, 11, TopicKind::ShardChannel, "s", 1);
    assert_eq!(world.told(), ["1 r10 +OK\\r\\n"]);
    world.confirm("SUNSUBSCRIBE s");
    assert_eq!(world.told(), [""; 0], "storage does not send it yet");
    world.confirm("SSUBSCRIBE s");
    assert_eq!(world.told(), ["1 r11 +OK\\r\\n"]);
}

#[test]
fn receivers_are_the_clients_behind_the_routers_and_whoever_else_storage_has() {
    let mut world = World::new(1);
    world.subscribers(1, TopicKind::Channel, "news", 3);
    world.subscribers(2, TopicKind::Channel, "news", 2);
    world.subscribers(2, TopicKind::Pattern, "n?ws", 4);
    world.subscribers(2, TopicKind::Pattern, "other*", 4);
    world.subscribers(2, TopicKind::ShardChannel, "news", 6);
    let asked = ["SUBSCRIBE news", "PSUBSCRIBE n?ws", "PSUBSCRIBE other*", "SSUBSCRIBE news"];
    asked.iter().for_each(|expected| world.confirm(expected));
    // Storage counts this shim's connection twice, and somebody who is connected to it directly.
    world.ask(1, 1, &["PUBLISH", "news", "m"]);
    world.answer("PUBLISH news m", ":3\r\n");
    world.ask(1, 2, &["SPUBLISH", "news", "m"]);
    world.answer("SPUBLISH news m", ":1\r\n");
    world.ask(1, 3, &["PUBSUB", "NUMSUB", "news", "none"]);
    world.answer("PUBSUB NUMSUB news none", "*4\r\n$4\r\nnews\r\n:2\r\n$4\r\nnone\r\n:0\r\n");
    world.ask(1, 4, &["PUBSUB", "SHARDNUMSUB", "news"]);
    world.answer("PUBSUB SHARDNUMSUB news", "*2\r\n$4\r\nnews\r\n:1\r\n");
    world.ask(1, 5, &["PUBLISH", "news", "m"]);
    world.answer("PUBLISH news m", "-NOPERM no\r\n");
    let expected = [
        "1 r1 :10\\r\\n",
        "1 r2 :6\\r\\n",
        "1 r3 *4\\r\\n$4\\r\\nnews\\r\\n:6\\r\\n$4\\r\\nnone\\r\\n:0\\r\\n",
        "1 r4 *2\\r\\n$4\\r\\nnews\\r\\n:6\\r\\n",
        "1 r5 -NOPERM no\\r\\n",
    ];
    assert_eq!(world.told(), expected);
}

/// Storage answers in the order in which it was asked, so what it answers first it did first.
#[test]
fn whoever_subscribes_after_a_message_is_not_counted_as_its_receiver() {
    let mut world = World::new(1);
    world.subscribers(1, TopicKind::Channel, "news", 3);
    world.confirm("SUBSCRIBE news");
    world.ask(2, 1, &["PUBLISH", "news", "m"]);
    world.subscribe(1, 2, TopicKind::Pattern, "n*", 1);
    world.subscribe(2, 3, TopicKind::Channel, "later", 5);
    world.publish(&["message", "news", "m"]);
    world.answer("PUBLISH news m", ":1\r\n");
    assert_eq!(world.told(), ["1 Channel news", "2 r1 :3\\r\\n"]);
    world.confirm("PSUBSCRIBE n*");
    world.ask(2, 4, &["PUBSUB", "NUMSUB", "later"]);
    world.confirm("SUBSCRIBE later");
    world.answer("PUBSUB NUMSUB later", "*2\r\n$5\r\nlater\r\n:1\r\n");
    world.ask(2, 5, &["PUBLISH", "news", "m"]);
    // The last one leaves while it is published: it gets nothing any more.
    world.subscribers(1, TopicKind::Pattern, "n*", 0);
    world.answer("PUBLISH news m", ":2\r\n");
    world.confirm("PUNSUBSCRIBE n*");
    let expected =
        ["1 r2 +OK\\r\\n", "2 r3 +OK\\r\\n", "2 r4 *2\\r\\n$5\\r\\nlater\\r\\n:5\\r\\n", "2 r5 :3\\r\\n"];
    assert_eq!(world.told(), expected);
}

#[test]
fn channels_of_other_shims_are_theirs_to_publish_and_to_count() {
    let mut world = World::new(2);
    let names: Vec<String> = (0..50).map(|index| format!("c{index}")).collect();
    let owner = |world: &World, name: &str| world.placement.shim(&world.key(name)) == ShimId(0);
    let foreign = names.iter().find(|name| !owner(&world, name)).expect("two shims share fifty channels");
    world.ask(1, 1, &["PUBLISH", foreign, "m"]);
    assert!(world.told()[0].contains("does not own"), "it is not published here");
    world.ask(1, 2, &["PUBSUB", "NUMSUB", foreign]);
    let name = format!("${}\r\n{foreign}\r\n", foreign.len());
    world.answer(&format!("PUBSUB NUMSUB {foreign}"), &format!("*2\r\n{name}:5\r\n"));
    assert!(world.told()[0].ends_with(":0\\r\\n"));
}

#[test]
fn a_lost_connection_is_subscribed_on_again() {
    let mut world = World::new(1);
    world.subscribers(1, TopicKind::Channel, "a", 1);
    world.confirm("SUBSCRIBE a");
    world.subscribe(1, 10, TopicKind::Pattern, "p*", 1);
    world.ask(1, 11, &["PUBLISH", "a", "m"]);
    world.cut();
    let told = world.told();
    assert!(told[0].contains("r10 -ERR") && told[0].contains("before the subscription began"), "{told:?}");
    assert!(told[1].contains("r11 -ERR") && told[1].contains("is unknown"), "{told:?}");
    // The router has told its client, and takes it back.
    world.subscribers(1, TopicKind::Pattern, "p*", 0);
    assert_eq!(world.asked(), [""; 0], "not in a hurry");
    world.tick(200);
    world.confirm("SUBSCRIBE a");
    world.publish(&["message", "a", "m"]);
    assert_eq!(world.told(), ["1 Channel a"]);
    assert_eq!(world.shim.subscriptions(), 1);
}

#[test]
fn storage_that_is_down_is_an_error_and_is_subscribed_to_when_it_comes() {
    let mut world = World::new(1);
    world.step(Input::Storage(StorageEvent::Down { reason: "it rests".into(), gone: true }));
    world.subscribe(1, 10, TopicKind::Channel, "a", 1);
    assert!(world.told()[0].contains("storage cannot be reached: it rests"));
    world.subscribers(1, TopicKind::Channel, "b", 1);
    world.subscribers(1, TopicKind::Channel, "a", 0);
    assert_eq!(world.asked(), [""; 0]);
    world.up();
    world.confirm("SUBSCRIBE b");
    assert_eq!(world.shim.subscriptions(), 1);
}

#[test]
fn a_refusal_of_storage_is_everybodys_and_tried_again_while_somebody_waits() {
    let mut world = World::new(1);
    world.subscribers(2, TopicKind::Channel, "a", 1);
    world.subscribe(1, 10, TopicKind::Channel, "a", 1);
    world.answer("SUBSCRIBE a", "-NOPERM no\r\n");
    assert_eq!(world.told(), ["1 r10 -NOPERM no\\r\\n"]);
    world.subscribers(1, TopicKind::Channel, "a", 0);
    world.tick(200);
    world.stores.retain(|store| !store.commands[0].ends_with(b"PING\r\n"));
    world.confirm("SUBSCRIBE a");
    world.publish(&["message", "a", "m"]);
    assert_eq!(world.told(), ["2 Channel a"]);
}

#[test]
fn an_idle_connection_is_asked_for_a_sign_of_life() {
    let mut world = World::new(1);
    world.tick(5000);
    assert_eq!(world.asked(), [""; 0], "there is none without subscriptions");
    world.subscribers(1, TopicKind::Channel, "a", 1);
    world.confirm("SUBSCRIBE a");
    world.tick(5000);
    world.answer("PING", "+PONG\r\n");
    assert_eq!(world.told(), [""; 0]);
}
