//! A shim whose keys leave, and one to which they come, as map follows map: at no time do both take a command for a key. Not how keys get
//! from one server to another.

mod shim_alone;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::{EarlierIncarnations, NodeSession};
use protocol::migration::Departures as _;
use protocol::node::{self, Node, NodeConfig, NodeSettings};
use protocol::placement::{Custody, Placement, Secret};
use protocol::policy::{Eligibility, Policies, Rule};
use protocol::shim::{Effect, Input, ReshardingPhase, Shim, ShimConfig};
use protocol::storage::{StorageEvent, StorageTraits};
use protocol::time::Time;
use wire::message::{Ack, Execute, Fetch, Fill, Grant, Invalidate, Read, Welcome};
use wire::resp::Command;
use wire::{Degree, Key, Message, NodeId, Peer, Relocation, RouterId, ShimId, ShimState, View};

const ROUTER: Peer = Peer::Router(RouterId(0));
const NODE: Peer = Peer::Node(NodeId(0));
const OLD: ShimId = ShimId(0);
const NEW: ShimId = ShimId(1);

/// The map in which the second shim joins, and can have what comes to it.
fn joining(before: &Placement, epoch: u32, relocation: Relocation) -> Arc<Placement> {
    divided(before, epoch, [relocation, Relocation::Announced])
}

/// The same with how far each of them is.
fn divided(before: &Placement, epoch: u32, relocations: [Relocation; 2]) -> Arc<Placement> {
    let mut map = before.map().clone();
    map.epoch = epoch;
    map.shims[1].state = ShimState::Joining;
    for (shim, relocation) in map.shims.iter_mut().zip(relocations) {
        shim.relocation = relocation;
    }
    Arc::new(Placement::new(Secret([7; 16]), map).expect("the map is in order"))
}

struct Tested {
    shim: Shim,
    now: Time,
    effects: Vec<Effect>,
    /// The last thing that storage was asked for by name.
    ticket: u64,
}

impl Tested {
    fn new(id: ShimId) -> (Tested, Arc<Placement>) {
        let (shim, placement) = shim_alone::shim(2, |config: &mut ShimConfig| {
            config.id = id;
            config.early_value_bytes_max = 100;
        });
        let mut tested = Tested { shim, now: Time(10_000_000), effects: Vec::new(), ticket: 0 };
        let up = StorageEvent::Up {
            incarnation: 1,
            traits: StorageTraits::default(),
            earlier: EarlierIncarnations::NONE,
        };
        for input in [Input::Storage(up), Input::Linked(ROUTER), Input::Linked(NODE)] {
            tested.step(input);
        }
        tested.effects.clear();
        (tested, placement)
    }

    fn step(&mut self, input: Input) {
        self.shim.step(self.now, input, &mut self.effects);
    }

    fn ask(&mut self, request: u64, key: &Key, words: &[&str]) {
        let command = Command::from_args(words).frame().clone();
        let key = key.clone();
        let execute =
            Execute { request, key, resp3: false, ordered: false, watch: None, waited_ms: 0, command };
        self.step(Input::Message { from: ROUTER, message: Message::Execute(execute) });
    }

    /// What storage was given and clients were told since.
    fn done(&mut self) -> Vec<String> {
        let ticket = &mut self.ticket;
        let told = self.effects.drain(..).filter_map(|effect| match effect {
            Effect::Store(store) => {
                let commands = store.commands.iter().map(|frame| {
                    let command = Command::parse(frame.clone()).expect("a command");
                    let words = command.args().map(String::from_utf8_lossy).map(String::from);
                    words.collect::<Vec<_>>().join(" ")
                });
                let text = commands.collect::<Vec<_>>().join("; ");
                if text == "PING" {
                    return None;
                }
                *ticket = store.ticket;
                Some(text)
            }
            Effect::Send { to: ROUTER, message: Message::Reply(reply) } => {
                Some(format!("{}: {}", reply.request, String::from_utf8_lossy(&reply.value).trim_end()))
            }
            Effect::Migrate { destinations, .. } if destinations.is_empty() => None,
            Effect::Migrate { destinations, .. } => Some(format!("leave for {destinations:?}")),
            Effect::Prepare { keys: Some(_), .. } => Some("prepare".to_owned()),
            Effect::Prepare { keys: None, .. } => Some("no longer prepare".to_owned()),
            Effect::EndMigration => Some("end".to_owned()),
            _ => None,
        });
        told.collect()
    }

    fn answer(&mut self, reply: &'static str) {
        self.answer_all(&[reply]);
    }

    fn answer_all(&mut self, replies: &[&'static str]) {
        let replies = replies.iter().map(|reply| Bytes::from_static(reply.as_bytes())).collect();
        self.step(Input::Storage(StorageEvent::Replies { ticket: self.ticket, replies }));
    }

    fn pass(&mut self, ms: u64) {
        self.now.0 += ms * 1000;
        self.step(Input::Tick);
    }
}

/// One that stays and one that leaves.
fn keys(placement: &Placement) -> [Key; 2] {
    let find = |leaves: bool| {
        let mut keys = (0..).map(|number| placement.key(0, Bytes::from(format!("key-{number}"))));
        keys.find(|key| placement.departure(OLD, &key.bytes).is_some() == leaves).expect("there is one")
    };
    [find(false), find(true)]
}

#[test]
fn no_two_shims_have_a_key_whatever_two_maps_they_act_on() {
    const STAGES: [Relocation; 4] =
        [Relocation::Moving, Relocation::Announced, Relocation::Closing, Relocation::Gone];
    let (_, before) = Tested::new(OLD);
    let maps: Vec<_> = (2..).zip(STAGES).map(|(epoch, stage)| joining(&before, epoch, stage)).collect();
    let all = keys(&maps[0]);
    let mut owned = 0;
    // Each map follows only once everybody acts on the one before.
    for (old, new) in (0..4).zip(0..4).chain((0..3).zip(1..4)).chain((1..4).zip(0..3)) {
        for key in &all {
            let own =
                [(OLD, old), (NEW, new)].map(|(shim, map)| maps[map].custody(shim, key) == Custody::Own);
            assert_ne!(own, [true, true], "{key:?} at maps {old} and {new}");
            owned += usize::from(own[0] | own[1]);
        }
    }
    assert!(owned > 10);
    let asked: Vec<ShimId> = maps.iter().map(|map| map.shim(&all[1])).collect();
    assert_eq!(asked, [OLD, NEW, NEW, NEW]);
    assert!(maps.iter().all(|map| map.shim(&all[0]) == OLD && map.custody(OLD, &all[0]) == Custody::Own));
}

#[test]
fn the_old_one_serves_until_nobody_asks_it_and_ends_what_it_has() {
    let (mut old, before) = Tested::new(OLD);
    let map = |epoch, stage| Input::Map(joining(&before, epoch, stage));
    let [stays, leaves] = keys(&joining(&before, 2, Relocation::Moving));
    old.step(map(2, Relocation::Moving));
    let migrate = old.effects.iter().find_map(|effect| match effect {
        Effect::Migrate { keys, .. } => Some(keys.clone()),
        _ => None,
    });
    let departing = migrate.expect("keys leave");
    let goes = |key: &Key| departing.destination(&key.bytes);
    assert_eq!((goes(&stays), goes(&leaves)), (None, Some(NEW)));
    assert_eq!(old.done(), ["leave for [ShimId(1)]"]);
    assert_eq!(old.shim.rest(old.now), Duration::ZERO, "what moves them has to be woken");
    let name = String::from_utf8_lossy(&leaves.bytes).into_owned();
    old.step(Input::Storage(StorageEvent::Migrated));
    assert_eq!(old.shim.resharding(), ReshardingPhase::Moved);
    old.step(map(3, Relocation::Announced));
    assert_eq!(old.shim.resharding(), ReshardingPhase::Moved, "copies may be granted still");
    old.ask(1, &leaves, &["INCR", &name]);
    assert_eq!(old.done(), [format!("INCR {name}")], "some act on the map before");
    old.step(map(4, Relocation::Closing));
    old.ask(2, &leaves, &["INCR", &name]);
    assert!(old.done()[0].starts_with("2: -ERR DistCache: this shim does not own the key"));
    old.pass(1000);
    assert_eq!(old.shim.resharding(), ReshardingPhase::Ending);
    assert!(old.done().is_empty(), "a command of it is at storage");
    old.answer(":1\r\n");
    old.pass(20);
    assert_eq!(old.done(), ["1: :1", "end"]);
    old.step(Input::Storage(StorageEvent::MigrationEnded));
    assert_eq!(old.shim.resharding(), ReshardingPhase::Ended);
    old.ask(3, &stays, &["GET", &String::from_utf8_lossy(&stays.bytes)]);
    assert!(old.done()[0].starts_with("GET"));
    old.step(map(5, Relocation::Gone));
    old.ask(4, &leaves, &["GET", &name]);
    assert!(old.done()[0].starts_with("4: -ERR DistCache: this shim does not own the key"));
}

#[test]
fn nothing_leaves_before_its_new_shim_can_have_it() {
    let (mut old, before) = Tested::new(OLD);
    let (mut new, _) = Tested::new(NEW);
    let unprepared = || Input::Map(divided(&before, 2, [Relocation::Moving; 2]));
    old.step(unprepared());
    new.step(unprepared());
    assert_eq!((old.done(), old.shim.resharding()), (vec![], ReshardingPhase::Settled));
    assert_eq!((new.done(), new.shim.resharding()), (vec!["prepare".to_owned()], ReshardingPhase::Preparing));
    new.step(unprepared());
    assert!(new.done().is_empty(), "it has begun");
    new.step(Input::Storage(StorageEvent::Migrated));
    assert_eq!(new.shim.resharding(), ReshardingPhase::Prepared);
    let [_, leaves] = keys(&joining(&before, 2, Relocation::Moving));
    new.ask(1, &leaves, &["INCR", "x"]);
    new.step(Input::Map(joining(&before, 3, Relocation::Moving)));
    old.step(Input::Map(joining(&before, 3, Relocation::Moving)));
    assert_eq!(old.done(), ["leave for [ShimId(1)]"]);
    assert_eq!(
        (new.done(), new.shim.resharding()),
        (vec!["no longer prepare".to_owned()], ReshardingPhase::Settled),
        "it is not asked again"
    );
}

#[test]
fn who_prepares_and_hears_that_nothing_is_divided_prepares_again_the_next_time() {
    let (mut new, before) = Tested::new(NEW);
    let leaving = |epoch| {
        let mut map = divided(&before, epoch, [Relocation::Moving; 2]).map().clone();
        map.shims[0].state = ShimState::Leaving;
        map.shims[1].state = ShimState::Normal;
        Input::Map(Arc::new(Placement::new(Secret([7; 16]), map).expect("the map is in order")))
    };
    for (epoch, known) in [(2, false), (4, true)] {
        new.step(leaving(epoch));
        let prepares = new.effects.drain(..).find_map(|effect| match effect {
            Effect::Prepare { keys: Some(_), again } => Some(again),
            _ => None,
        });
        assert_eq!(prepares, Some(!known), "whether another process may have done it, at {epoch}");
        let mut settled = before.map().clone();
        settled.epoch = epoch + 1;
        let settled = Placement::new(Secret([7; 16]), settled).expect("the map is in order");
        new.step(Input::Map(Arc::new(settled)));
        assert_eq!(new.shim.resharding(), ReshardingPhase::Settled);
    }
}

#[test]
fn nothing_is_cleared_once_keys_may_come_also_on_the_word_of_another_process() {
    let (mut new, before) = Tested::new(NEW);
    new.step(Input::Map(divided(&before, 2, [Relocation::Moving; 2])));
    assert_eq!(new.shim.resharding(), ReshardingPhase::Preparing);
    new.effects.clear();
    new.step(Input::Map(joining(&before, 3, Relocation::Moving)));
    assert!(new.effects.contains(&Effect::Prepare { keys: None, again: false }), "{:?}", new.effects);
}

#[test]
fn what_comes_is_asked_for_earlier_and_waits() {
    let (mut new, before) = Tested::new(NEW);
    let map = |epoch, stage| Input::Map(joining(&before, epoch, stage));
    let [_, leaves] = keys(&joining(&before, 2, Relocation::Moving));
    let name = String::from_utf8_lossy(&leaves.bytes).into_owned();
    new.step(map(2, Relocation::Moving));
    new.ask(1, &leaves, &["INCR", &name]);
    new.step(map(3, Relocation::Announced));
    new.ask(2, &leaves, &["INCR", &name]);
    new.step(map(4, Relocation::Closing));
    new.pass(100);
    assert!(new.done().is_empty());
    new.step(map(5, Relocation::Gone));
    assert_eq!(new.done(), vec![format!("INCR {name}"); 2], "in their order");
}

#[test]
fn who_waits_for_too_long_is_told() {
    let (mut new, before) = Tested::new(NEW);
    let [_, leaves] = keys(&joining(&before, 2, Relocation::Moving));
    let name = String::from_utf8_lossy(&leaves.bytes).into_owned();
    new.step(Input::Map(joining(&before, 3, Relocation::Closing)));
    new.ask(1, &leaves, &["INCR", &name]);
    new.pass(60_000);
    assert!(new.done()[0].starts_with("1: -BUSY"));
    new.step(Input::Map(joining(&before, 4, Relocation::Gone)));
    assert!(new.done().is_empty());
}

#[test]
fn who_may_have_begun_before_is_told() {
    for settled in [true, false] {
        let (mut shim, before) = Tested::new(OLD);
        if settled {
            shim.step(Input::Map(Arc::clone(&before)));
        }
        shim.step(Input::Map(joining(&before, 2, Relocation::Moving)));
        let again = shim.effects.iter().find_map(|effect| match effect {
            Effect::Migrate { again, .. } => Some(*again),
            _ => None,
        });
        assert_eq!(again, Some(!settled), "of a shim that has heard that nothing moves: {settled}");
    }
}

#[test]
fn a_command_about_all_keys_is_refused_meanwhile() {
    let (mut shim, before) = Tested::new(OLD);
    shim.step(Input::Map(joining(&before, 2, Relocation::Moving)));
    shim.done();
    shim.ask(1, &Key::default(), &["FLUSHALL"]);
    assert!(shim.done()[0].contains("some are on their way to other storage servers"));
}

/// A node before two shims that grant whatever it asks for.
struct Cache {
    node: Node,
    now: Time,
    /// Whom it has asked for a copy.
    fetched: Vec<Peer>,
    /// How its reads were answered: from a copy or not.
    hits: Vec<bool>,
}

impl Cache {
    fn new(placement: &Arc<Placement>) -> Cache {
        let always = Rule { cache: Eligibility::Always, ..Rule::default() };
        let policies = Policies::new(vec![(Bytes::new(), always)]);
        let settings = NodeSettings { policies, ..NodeSettings::default() };
        let node = Node::new(NodeConfig { settings, ..NodeConfig::default() }, Arc::clone(placement));
        let mut cache = Cache { node, now: Time(10_000_000), fetched: Vec::new(), hits: Vec::new() };
        [OLD, NEW].into_iter().for_each(|shim| cache.step(node::Input::Linked(Peer::Shim(shim))));
        cache
    }

    fn step(&mut self, input: node::Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            self.node.step(self.now, input, &mut effects);
            for node::Effect::Send { to, message } in effects {
                if let Some(message) = self.answer(to, message) {
                    inputs.push(node::Input::Message { from: to, message });
                }
            }
        }
    }

    fn answer(&mut self, asked: Peer, message: Message) -> Option<Message> {
        const LONG: u64 = 60_000_000;
        match message {
            Message::Hello(hello) => {
                Some(Message::Welcome(Welcome { session: 1, nonce: hello.nonce, lease: LONG, guard: 0 }))
            }
            Message::Renew(renew) => {
                let sent = renew.sent.max(self.now.0);
                Some(Message::Grant(Grant { session: 1, sent, duration: LONG, guard: 0, leave: None }))
            }
            Message::Fetch(fetch) => {
                self.fetched.push(asked);
                Some(Message::Fill(Fill {
                    session: 1,
                    fill: fetch.fill,
                    key: fetch.key,
                    view: fetch.view,
                    version: 1,
                    granted: true,
                    status: Default::default(),
                    cached: Default::default(),
                    degree: Default::default(),
                    ttl_ms: None,
                    stale_ms: 0,
                    value: Bytes::from_static(b"$1\r\nv\r\n"),
                }))
            }
            Message::Reply(reply) => {
                self.hits.push(reply.hit);
                None
            }
            _ => None,
        }
    }

    fn read(&mut self, key: &Key) {
        let read = Read {
            request: 1,
            key: key.clone(),
            view: View::GET,
            resp3: false,
            ordered: false,
            streams: false,
            waited_ms: 0,
            degree: Degree(0),
            command: Bytes::new(),
        };
        self.step(node::Input::Message { from: ROUTER, message: Message::Read(read) });
    }
}

#[test]
fn a_copy_stays_until_it_is_called_back_and_the_next_is_fetched_from_who_has_the_key() {
    let (_, before) = shim_alone::shim(2, |_| ());
    let [_, leaves] = keys(&joining(&before, 2, Relocation::Moving));
    let mut cache = Cache::new(&joining(&before, 2, Relocation::Moving));
    // The first one opens the session.
    (0..3).for_each(|_| cache.read(&leaves));
    assert_eq!((cache.fetched.as_slice(), cache.hits.last()), (&[Peer::Shim(OLD)][..], Some(&true)));
    cache.step(node::Input::Map(joining(&before, 3, Relocation::Announced)));
    cache.read(&leaves);
    assert_eq!((cache.fetched.len(), cache.hits.last()), (1, Some(&true)), "it is still what storage has");
    let invalidate = Invalidate { session: 1, key: leaves.clone(), version: 2, value: None };
    cache.step(node::Input::Message { from: Peer::Shim(OLD), message: Message::Invalidate(invalidate) });
    // Heat is reported once in a window.
    cache.now.0 += 2_000_000;
    cache.step(node::Input::Tick);
    (0..3).for_each(|_| cache.read(&leaves));
    assert_eq!(cache.fetched, [Peer::Shim(OLD), Peer::Shim(NEW)]);
    assert_eq!(cache.hits.last(), Some(&true));
}

/// A shim whose key, the one that leaves, has a copy, and the session of the node that has it.
fn with_a_copy() -> (Tested, Arc<Placement>, u64) {
    let (mut old, before) = Tested::new(OLD);
    let moving = joining(&before, 2, Relocation::Moving);
    let [_, leaves] = keys(&moving);
    old.step(Input::Map(moving));
    old.done();
    let mut session = NodeSession::new();
    let hello = session.hello(old.now, 1, 1);
    old.hear(Message::Hello(hello));
    let welcome = old.effects.iter().find_map(|effect| match effect {
        Effect::Send { message: Message::Welcome(welcome), .. } => Some(welcome.clone()),
        _ => None,
    });
    assert!(session.welcome(&welcome.expect("it is welcome")));
    let session = session.id().expect("it is open");
    let fetch = Fetch { session, fill: 1, key: leaves, view: View::GET, resp3: false, command: Bytes::new() };
    old.hear(Message::Fetch(fetch));
    assert_eq!(old.done(), ["PTTL key-0; GET key-0"]);
    old.answer_all(&[":-1\r\n", "$1\r\nv\r\n"]);
    (old, before, session)
}

impl Tested {
    /// From the node.
    fn hear(&mut self, message: Message) {
        self.step(Input::Message { from: NODE, message });
    }

    /// Has the node acknowledge what was called back from it, keeping a place for it.
    fn acknowledge(&mut self, session: u64) {
        let invalidated = self.effects.iter().find_map(|effect| match effect {
            Effect::Send { to: NODE, message: Message::Invalidate(invalidate) } => Some(invalidate.clone()),
            _ => None,
        });
        let Invalidate { key, version, .. } = invalidated.expect("the copy is called back");
        self.hear(Message::Ack(Ack { session, key, version, nothing_held: None }));
    }

    /// Everything has moved, and from now on nothing that leaves is asked for here.
    fn close(&mut self, before: &Placement) {
        self.step(Input::Map(joining(before, 3, Relocation::Announced)));
        self.step(Input::Storage(StorageEvent::Migrated));
        self.effects.clear();
        self.step(Input::Map(joining(before, 4, Relocation::Closing)));
    }
}

/// The first of two writes that overtake each other has left its value at a node, which nobody commits any more.
#[test]
fn a_value_that_is_never_committed_does_not_keep_a_shim_from_ending() {
    let (mut old, before, session) = with_a_copy();
    let [_, leaves] = keys(&joining(&before, 2, Relocation::Moving));
    old.done();
    old.ask(1, &leaves, &["SET", "key-0", "v1"]);
    old.acknowledge(session);
    assert_eq!(old.done(), ["SET key-0 v1"]);
    let first = old.ticket;
    old.ask(2, &leaves, &["SET", "key-0", "v2"]);
    assert_eq!(old.done(), ["SET key-0 v2"]);
    let second = std::mem::replace(&mut old.ticket, first);
    old.answer("+OK\r\n");
    old.ticket = second;
    old.answer("+OK\r\n");
    assert_eq!(old.done(), ["1: +OK", "2: +OK"]);
    old.close(&before);
    assert_eq!(old.shim.resharding(), ReshardingPhase::Ending, "there is no copy to call back");
    old.pass(20);
    assert_eq!(old.done(), ["end"]);
}

#[test]
fn what_was_called_back_does_not_keep_a_shim_from_ending() {
    let (mut old, before, session) = with_a_copy();
    old.close(&before);
    assert_eq!(old.shim.resharding(), ReshardingPhase::Purging);
    old.acknowledge(session);
    old.pass(20);
    assert_eq!(old.done(), ["end"], "the node has its place for it still");
    old.step(Input::Storage(StorageEvent::MigrationEnded));
    assert_eq!((old.shim.resharding(), old.shim.statistics().copies), (ReshardingPhase::Ended, 0));
}
