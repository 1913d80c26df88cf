//! A shim whose keys leave, and one to which they come, as map follows map: at no time do both take a command for a key. Not how keys get
//! from one server to another.

mod shim_alone;

use std::sync::Arc;

use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::migration::Departures as _;
use protocol::placement::{Custody, Placement, Secret};
use protocol::shim::{Effect, Input, ReshardingPhase, Shim, ShimConfig};
use protocol::storage::{StorageEvent, StorageTraits};
use protocol::time::Time;
use smallvec::SmallVec;
use wire::message::Execute;
use wire::resp::Command;
use wire::{Key, Message, NodeId, Peer, Relocation, RouterId, ShimId, ShimState};

const ROUTER: Peer = Peer::Router(RouterId(0));
const NODE: Peer = Peer::Node(NodeId(0));
const OLD: ShimId = ShimId(0);
const NEW: ShimId = ShimId(1);

/// The map in which the second shim joins.
fn joining(before: &Placement, epoch: u32, relocation: Relocation) -> Arc<Placement> {
    let mut map = before.map().clone();
    map.epoch = epoch;
    map.shims[1].state = ShimState::Joining;
    map.shims[0].relocation = relocation;
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
        let (shim, placement) = shim_alone::shim(2, |config: &mut ShimConfig| config.id = id);
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
            Effect::Migrate { destinations, .. } => Some(format!("leave for {destinations:?}")),
            Effect::EndMigration => Some("end".to_owned()),
            _ => None,
        });
        told.collect()
    }

    fn answer(&mut self, reply: &'static str) {
        let replies = SmallVec::from_elem(Bytes::from_static(reply.as_bytes()), 1);
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
    let name = String::from_utf8_lossy(&leaves.bytes).into_owned();
    old.step(Input::Storage(StorageEvent::Migrated));
    assert_eq!(old.shim.resharding(), ReshardingPhase::Moved);
    old.step(map(3, Relocation::Announced));
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
fn a_command_about_all_keys_is_refused_meanwhile() {
    let (mut shim, before) = Tested::new(OLD);
    shim.step(Input::Map(joining(&before, 2, Relocation::Moving)));
    shim.done();
    shim.ask(1, &Key::default(), &["FLUSHALL"]);
    assert!(shim.done()[0].contains("some are on their way to other storage servers"));
}
