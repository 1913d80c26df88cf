//! Routers with near copies before a real shim: what they answer themselves, when they must not, and what the shim asks of them.
//! Messages arrive at once and in order, but for those that a test holds.

mod shim_alone;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use commands::acl::Users;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::placement::Placement;
use protocol::policy::{Eligibility, Policies, Rule};
use protocol::router::{
    self, ClientId, NearSettings, Router, RouterConfig, RouterSettings, Routing, UserSource,
};
use protocol::shim::{self, Shim};
use protocol::storage::{StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use wire::resp::Command;
use wire::{Message, NodeId, Peer, RouterId, ShimId};

const SHIM: Peer = Peer::Shim(ShimId(0));

struct World {
    now: Time,
    shim: Shim,
    placement: Arc<Placement>,
    routers: Vec<Router>,
    data: BTreeMap<Vec<u8>, Bytes>,
    /// What the router of this number is sent is kept back.
    deaf: Option<usize>,
    kept_back: Vec<Message>,
    /// Under way: to the shim from a router, or to a router.
    under_way: VecDeque<(Peer, Peer, Message)>,
    /// Replies, as `router.client reply`.
    replies: Vec<String>,
    /// Read messages that the shim was sent, and copies that it was asked for.
    reads: usize,
    fetches: usize,
}

fn settings(objects_max: usize) -> RouterSettings {
    let near = NearSettings { objects_max, heat_min: 1, ..NearSettings::default() };
    RouterSettings { near, ..RouterSettings::default() }
}

impl World {
    /// Two routers with room for `objects_max` near copies each, and no node that is there.
    fn new(objects_max: usize) -> World {
        let (shim, placement) = shim_alone::shim(1, |config| config.early_value_bytes_max = 64);
        let users = [
            ("default", vec!["on", "nopass", "+@all", "~*", "&*"]),
            ("other", vec!["on", "nopass", "+@all", "~other*"]),
        ];
        let named = |(name, rules): &(&str, Vec<&str>)| {
            ((*name).to_owned(), rules.iter().map(|rule| (*rule).to_owned()).collect())
        };
        let users: Vec<(String, Vec<String>)> = users.iter().map(named).collect();
        let users = Arc::new(Users::configured(&users).expect("right rules"));
        let router = |seed| {
            let users = UserSource::Given(Arc::clone(&users));
            Router::new(RouterConfig {
                seed,
                users,
                settings: settings(objects_max),
                ..RouterConfig::default()
            })
        };
        let mut world = World {
            now: Time(10_000_000),
            shim,
            placement,
            routers: vec![router(1), router(2)],
            data: BTreeMap::new(),
            deaf: None,
            kept_back: Vec::new(),
            under_way: VecDeque::new(),
            replies: Vec::new(),
            reads: 0,
            fetches: 0,
        };
        let (traits, earlier) = (StorageTraits::default(), EarlierIncarnations::NONE);
        world.step_shim(shim::Input::Storage(StorageEvent::Up { incarnation: 1, traits, earlier }));
        for index in 0..2 {
            world.step_shim(shim::Input::Linked(Peer::Router(RouterId(index as u16))));
            world.step_router(index, router::Input::Map(Arc::clone(&world.placement)));
            world.step_router(index, router::Input::Linked(SHIM));
            for client in 0..2 {
                world.step_router(index, router::Input::Opened { client: ClientId(client) });
            }
        }
        world.wait(2_000);
        world
    }

    /// Two routers that hold `k`, which is 1.
    fn with_a_copy_each() -> World {
        let mut world = World::new(4);
        world.ask(0, 0, "SET k 1");
        (0..2).for_each(|index| world.warm(index, "k"));
        world
    }

    fn step_shim(&mut self, input: shim::Input) {
        let mut effects = Vec::new();
        self.shim.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                shim::Effect::Send { to, message } => self.under_way.push_back((SHIM, to, message)),
                shim::Effect::Store(store) => self.store(&store),
                _ => {}
            }
        }
    }

    fn store(&mut self, store: &Store) {
        let data = &mut self.data;
        let answer = |frame: &Bytes| {
            let command = Command::parse(frame.clone()).expect("a whole command");
            let bulk = |value: &Bytes| {
                Bytes::from(format!("${}\r\n{}\r\n", value.len(), String::from_utf8_lossy(value)))
            };
            match command.name() {
                b"GET" => data.get(command.arg(1)).map_or(Bytes::from_static(b"$-1\r\n"), bulk),
                b"SET" => {
                    data.insert(command.arg(1).to_vec(), command.arg_bytes(2));
                    Bytes::from_static(b"+OK\r\n")
                }
                b"PTTL" => Bytes::from_static(b":-1\r\n"),
                b"PING" => Bytes::from_static(b"+PONG\r\n"),
                _ => Bytes::from_static(b"+OK\r\n"),
            }
        };
        let (ticket, replies) = (store.ticket, store.commands.iter().map(answer).collect());
        self.step_shim(shim::Input::Storage(StorageEvent::Replies { ticket, replies }));
    }

    fn step_router(&mut self, index: usize, input: router::Input) {
        let mut effects = Vec::new();
        self.routers[index].step(self.now, input, &mut effects);
        let own = Peer::Router(RouterId(index as u16));
        for effect in effects {
            match effect {
                router::Effect::Send { to, message } => self.under_way.push_back((own, to, message)),
                router::Effect::Reply { client, bytes } => {
                    let text = String::from_utf8_lossy(&bytes).replace("\r\n", " ");
                    self.replies.push(format!("{index}.{} {}", client.0, text.trim()));
                }
                _ => {}
            }
        }
    }

    fn run(&mut self) {
        while let Some((from, to, message)) = self.under_way.pop_front() {
            match to {
                SHIM => {
                    self.reads += usize::from(matches!(message, Message::Read(_)));
                    self.fetches += usize::from(matches!(message, Message::Fetch(_)));
                    self.step_shim(shim::Input::Message { from, message });
                }
                Peer::Router(RouterId(index)) if self.deaf == Some(usize::from(index)) => {
                    self.kept_back.push(message);
                }
                Peer::Router(RouterId(index)) => {
                    self.step_router(usize::from(index), router::Input::Message { from, message });
                }
                _ => {}
            }
        }
    }

    fn wait(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 10 {
            self.now = self.now.after(Duration::from_millis(10));
            self.step_shim(shim::Input::Tick);
            (0..2).for_each(|index| self.step_router(index, router::Input::Tick));
            self.run();
        }
    }

    fn send(&mut self, index: usize, client: u32, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let command = Command::from_args(&words);
        self.step_router(index, router::Input::Command { client: ClientId(client), command });
    }

    /// The reply of a command that is answered at once.
    fn ask(&mut self, index: usize, client: u32, text: &str) -> String {
        let before = self.replies.len();
        self.send(index, client, text);
        self.run();
        assert_eq!(self.replies.len(), before + 1, "{text}: {:?}", &self.replies[before..]);
        self.replies[before].split_once(' ').expect("a reply").1.to_owned()
    }

    /// The value that a read of `k` has, and whether the router had it itself.
    fn get(&mut self, index: usize, client: u32, key: &str) -> (String, bool) {
        let before = self.reads;
        let reply = self.ask(index, client, &format!("GET {key}"));
        (reply.rsplit(' ').next().unwrap_or_default().to_owned(), self.reads == before)
    }

    /// Reads the key until the router holds it.
    fn warm(&mut self, index: usize, key: &str) {
        for _ in 0..400 {
            if self.get(index, 0, key).1 {
                return;
            }
            self.wait(10);
        }
        panic!("router {index} never holds {key}");
    }

    fn drain(&mut self, index: usize) {
        self.step_router(index, router::Input::Drain);
        self.run();
    }

    fn set_near(&mut self, index: usize, near: NearSettings) {
        let settings = RouterSettings { near, ..settings(0) };
        self.step_router(index, router::Input::Settings(settings));
        self.run();
    }
}

fn near(value: &str) -> (String, bool) {
    (value.to_owned(), true)
}

fn far(value: &str) -> (String, bool) {
    (value.to_owned(), false)
}

#[test]
fn what_is_hot_here_is_answered_here_and_never_stale() {
    let mut world = World::with_a_copy_each();
    assert_eq!(world.shim.copies(), 2);
    for value in 2..50 {
        let written = value.to_string();
        assert_eq!(world.ask(value % 2, 0, &format!("SET k {value}")), "+OK");
        for _ in 0..20 {
            for (index, client) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                assert_eq!(world.get(index, client, "k").0, written);
            }
        }
        world.wait(200);
    }
    let [hits, reads] = [world.routers[0].measured().near_hits, world.routers[0].measured().reads_to_shims];
    assert!(hits > 10 * reads, "{hits} near hits, {reads} reads beside");
    assert_eq!(world.routers[0].measured().near_objects, 1);
}

/// The value of a SET comes with its INV, and is a copy again with the COMMIT: nothing is fetched in between, however many read.
#[test]
fn a_value_that_waits_for_its_commit_is_not_fetched() {
    let mut world = World::with_a_copy_each();
    let (before, fetches) = (world.replies.len(), world.fetches);
    world.send(0, 0, "SET k 2");
    // The INVs arrive, and the acknowledgements have not yet.
    while let Some((from, to, message)) = world.under_way.pop_front() {
        match to {
            SHIM if matches!(message, Message::Ack(_)) => world.kept_back.push(message),
            SHIM => world.step_shim(shim::Input::Message { from, message }),
            Peer::Router(RouterId(router)) => {
                world.step_router(router.into(), router::Input::Message { from, message });
            }
            _ => {}
        }
    }
    assert_eq!(world.kept_back.len(), 2);
    (0..10).for_each(|_| world.send(1, 1, "GET k"));
    for (router, message) in std::mem::take(&mut world.kept_back).into_iter().enumerate() {
        world.under_way.push_back((Peer::Router(RouterId(router as u16)), SHIM, message));
    }
    world.run();
    assert_eq!(world.replies.len(), before + 11);
    assert_eq!((world.get(0, 0, "k"), world.get(1, 1, "k"), world.fetches), (near("2"), near("2"), fetches));
}

#[test]
fn of_several_keys_those_are_answered_here_that_are_here() {
    let mut world = World::with_a_copy_each();
    world.ask(0, 0, "SET n 2");
    let (ask, before) = ("MGET k n k", world.reads);
    assert_eq!(world.ask(0, 0, ask), "*3 $1 1 $1 2 $1 1");
    assert_eq!(world.reads, before + 1, "n is not here");
    // What is here was read: a write of it by the same client does not wait for the rest, and is not seen by it.
    let told = world.replies.len();
    world.send(0, 0, ask);
    world.send(0, 0, "SET k 4");
    world.send(0, 0, ask);
    world.run();
    assert_eq!(world.replies[told..], ["0.0 *3 $1 1 $1 2 $1 1", "0.0 +OK", "0.0 *3 $1 4 $1 2 $1 4"]);
    world.ask(0, 0, "SET k 1");
    world.warm(0, "k");
    world.warm(0, "n");
    let before = world.reads;
    assert_eq!(world.ask(0, 0, ask), "*3 $1 1 $1 2 $1 1");
    assert_eq!(world.ask(0, 0, "MGET k absent"), "*2 $1 1 $-1");
    assert_eq!(world.reads, before + 1);
    // Behind a write of one of them.
    let told = world.replies.len();
    world.send(0, 0, "SET n 3");
    world.send(0, 0, ask);
    world.run();
    assert_eq!(world.replies[told..], ["0.0 +OK", "0.0 *3 $1 1 $1 3 $1 1"]);
}

/// A client that sends everything before it reads has always some reads under way.
#[test]
fn reads_behind_reads_of_the_key_make_it_hot() {
    let (_, placement) = shim_alone::shim(1, |_| ());
    let near = NearSettings { objects_max: 4, heat_min: 8, ..NearSettings::default() };
    let settings = RouterSettings { near, ..RouterSettings::default() };
    let mut router =
        Router::new(RouterConfig { routing: Routing::OnPath, seed: 1, settings, ..RouterConfig::default() });
    let (now, client, nodes) = (Time(10_000_000), ClientId(0), placement.nodes_count() as u16);
    assert!(nodes > 0, "without nodes reads go to the shim");
    let mut effects = Vec::new();
    let linked = (0..nodes).map(|node| router::Input::Linked(Peer::Node(NodeId(node))));
    let begin =
        [router::Input::Map(placement), router::Input::Linked(SHIM), router::Input::Opened { client }];
    begin.into_iter().chain(linked).for_each(|input| router.step(now, input, &mut effects));
    effects.clear();
    while router.ready(client) {
        let command = Command::from_args(&["GET", "k"]);
        router.step(now, router::Input::Command { client, command }, &mut effects);
    }
    let sent = |wanted: fn(&Message) -> bool| {
        let is_wanted = |effect: &&router::Effect| matches!(effect, router::Effect::Send { message, .. } if wanted(message));
        effects.iter().filter(is_wanted).count()
    };
    assert!(sent(|message| matches!(message, Message::Read(_))) >= 16);
    // It wants to hold the key: a session is opened for that.
    assert_eq!(sent(|message| matches!(message, Message::Hello(_))), 1);
}

#[test]
fn none_without_room() {
    let mut world = World::new(0);
    world.ask(0, 0, "SET k 1");
    for _ in 0..300 {
        assert_eq!(world.get(0, 0, "k"), far("1"));
        world.wait(10);
    }
    assert!(world.routers[0].near().is_none() && world.shim.copies() == 0);
}

#[test]
fn earlier_commands_a_pause_and_permissions_come_first() {
    let mut world = World::with_a_copy_each();
    // Both in one go: the GET is behind the SET, which has not been answered.
    let before = world.replies.len();
    world.send(0, 0, "SET k 2");
    world.send(0, 0, "GET k");
    assert_eq!(world.replies.len(), before);
    world.run();
    assert_eq!(world.replies[before..], ["0.0 +OK", "0.0 $1 2"]);

    world.warm(0, "k");
    world.ask(0, 1, "CLIENT PAUSE 100 ALL");
    let before = world.replies.len();
    world.send(0, 0, "GET k");
    world.run();
    assert_eq!(world.replies.len(), before, "it is held back");
    world.wait(200);
    assert_eq!(world.replies[before..], ["0.0 $1 2"]);

    assert_eq!(world.get(0, 1, "k"), near("2"));
    assert_eq!(world.ask(0, 1, "AUTH other x"), "+OK");
    assert!(world.ask(0, 1, "GET k").starts_with("-NOPERM"));
    assert_eq!(world.get(0, 0, "k"), near("2"));
}

#[test]
fn a_client_that_keeps_what_it_reads_reads_at_the_shim_first() {
    let mut world = World::with_a_copy_each();
    world.send(0, 0, "HELLO 3");
    world.send(0, 0, "CLIENT TRACKING ON");
    world.run();
    assert_eq!(world.get(0, 0, "k"), far("1"), "behind the interest in the key");
    assert_eq!(world.get(0, 0, "k"), near("1"), "which stands");
    assert_eq!(world.get(0, 1, "k"), near("1"));
}

#[test]
fn who_stops_or_may_hold_nothing_any_more_gives_its_copies_back() {
    let mut world = World::with_a_copy_each();
    world.drain(0);
    assert_eq!(world.shim.copies(), 1);
    assert_eq!(world.get(0, 0, "k"), far("1"));
    assert_eq!(world.ask(0, 0, "SET k 2"), "+OK");

    world.warm(1, "k");
    world.set_near(1, NearSettings { objects_max: 0, ..NearSettings::default() });
    assert_eq!((world.shim.copies(), world.get(1, 0, "k")), (0, far("2")));
    world.set_near(1, settings(4).near);
    world.warm(1, "k");
    let never = Policies::new(vec![(Bytes::new(), Rule { cache: Eligibility::Never, ..Rule::default() })]);
    world.set_near(1, NearSettings { policies: never, ..settings(4).near });
    assert_eq!((world.shim.copies(), world.get(1, 0, "k")), (0, far("2")));
}

#[test]
fn a_router_that_does_not_answer_is_granted_nothing() {
    let mut world = World::with_a_copy_each();
    world.deaf = Some(1);
    let (before, began) = (world.replies.len(), world.now);
    world.send(0, 0, "SET k 2");
    world.run();
    assert_eq!(world.replies.len(), before, "it waits for the other router");
    while world.replies.len() == before {
        world.wait(10);
    }
    let waited = world.now.since(began);
    assert!((Duration::from_millis(100)..=Duration::from_millis(800)).contains(&waited), "{waited:?}");
    assert_eq!(world.shim.measured(world.now).near_shunned, 1);

    // It goes on, and its clients read what is right.
    world.deaf = None;
    for message in std::mem::take(&mut world.kept_back) {
        world.step_router(1, router::Input::Message { from: SHIM, message });
    }
    world.run();
    for _ in 0..900 {
        assert_eq!(world.get(1, 0, "k"), far("2"), "at {:?} after the write", world.now.since(began));
        world.wait(10);
    }
    world.wait(1_000);
    world.warm(1, "k");
    assert_eq!(world.get(1, 0, "k"), near("2"));
}

/// The shim hears that the link is gone, and the router, which is cut off, does not.
#[test]
fn a_router_whose_link_is_lost_is_waited_for() {
    let mut world = World::with_a_copy_each();
    world.deaf = Some(1);
    world.step_shim(shim::Input::Unlinked(Peer::Router(RouterId(1))));
    assert_eq!(world.get(1, 0, "k"), near("1"), "its lease runs");
    let before = world.replies.len();
    world.send(0, 0, "SET k 2");
    world.run();
    while world.replies.len() == before {
        let begun = world.replies.len();
        world.send(1, 0, "GET k");
        let own: Vec<String> = world.replies.drain(begun..).collect();
        assert!(own.is_empty() || own == ["1.0 $1 1"], "{own:?}");
        world.wait(10);
    }
    world.send(1, 1, "GET k");
    let last = world.replies.last().expect("replies");
    assert!(!last.starts_with("1.1 "), "a write is done, and a router that was not asked answers {last:?}");
}

/// A router that goes on after it was stopped reads what clients have sent before it ticks, and before it hears of its shim.
#[test]
fn a_router_that_was_stopped_past_its_lease_answers_nothing_itself() {
    let mut world = World::with_a_copy_each();
    world.now = world.now.after(Duration::from_millis(2_000));
    assert_eq!(world.get(0, 0, "k"), far("1"));
}

/// A shim that has not run for long finds old INVs, and the answers in its sockets.
#[test]
fn a_shim_that_was_stopped_blames_nobody() {
    let mut world = World::with_a_copy_each();
    world.send(0, 0, "SET k 2");
    let under_way = std::mem::take(&mut world.under_way);
    world.now = world.now.after(Duration::from_millis(300));
    world.step_shim(shim::Input::Tick);
    world.under_way.extend(under_way);
    world.run();
    world.wait(100);
    assert_eq!(world.shim.measured(world.now).near_shunned, 0);
    world.warm(1, "k");
}

#[test]
fn what_is_written_too_often_does_not_stay() {
    let mut world = World::with_a_copy_each();
    // Ten writes a second, and ten reads of each router for each: fewer than a copy has to bring.
    for value in 0..1_000 {
        world.ask(0, 0, &format!("SET k {value}"));
        for index in [0, 1] {
            for _ in 0..10 {
                assert_eq!(world.get(index, 1, "k").0, value.to_string());
            }
        }
        world.wait(100);
    }
    let invalidated = world.shim.statistics().near_invalidated_copies;
    assert!((20..400).contains(&invalidated), "{invalidated} of 2,000");
}
