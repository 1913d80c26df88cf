//! Servers as scripts. Random ones that lose connections, processes and writes have a file of their own.

mod random;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::ShimId;
use wire::resp::Command;

use super::servers::MigrationPlace;
use super::{Departures, Effect, Input, Migration, MigrationConfig, MigrationPhase};
use crate::coherence::lease::EarlierIncarnations;
use crate::storage::{CommandControl, Lane, Reach, StorageEvent, StorageTraits, Store};
use crate::time::Time;

const TO: ShimId = ShimId(3);
const ELSEWHERE: ShimId = ShimId(4);
const HOME: MigrationPlace = MigrationPlace::Home;
const THERE: MigrationPlace = MigrationPlace::Destination(TO);
const SHARED: Lane = Lane::Shared { resp3: false };

/// By the first letter.
#[derive(Debug)]
struct ByLetter;

impl Departures for ByLetter {
    fn destination(&self, key: &[u8]) -> Option<ShimId> {
        match key.first() {
            Some(b'm') => Some(TO),
            Some(b'e') => Some(ELSEWHERE),
            _ => None,
        }
    }

    fn givers(&self) -> usize {
        2
    }
}

fn frames(commands: &[&str]) -> SmallVec<[Bytes; 2]> {
    let frame = |text: &&str| Command::from_args(&text.split(' ').collect::<Vec<_>>()).frame().clone();
    commands.iter().map(frame).collect()
}

fn words(frame: &Bytes) -> String {
    let command = Command::parse(frame.clone()).expect("a command");
    command.args().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
}

fn up(incarnation: u64) -> StorageEvent {
    StorageEvent::Up { incarnation, traits: StorageTraits::default(), earlier: EarlierIncarnations::NONE }
}

struct World {
    machine: Migration,
    now: Time,
    /// At the servers and not answered.
    asked: Vec<(MigrationPlace, u64, String)>,
    /// What was said since, in words.
    said: Vec<String>,
}

impl World {
    fn new() -> World {
        let patience = Duration::from_secs(1);
        let config =
            MigrationConfig { patience, transfers_max: 2, transfers_beside_max: 2, keys_per_second_max: 0 };
        let mut world =
            World { machine: Migration::new(config), now: Time(0), asked: Vec::new(), said: Vec::new() };
        world.home(up(7));
        world.said();
        world
    }

    /// One whose destinations are up, and whose home has been asked for its keys.
    fn moving() -> World {
        let mut world = World::new();
        world.begin();
        world.drained();
        world.said();
        world
    }

    fn begin(&mut self) {
        let destinations = vec![TO, ELSEWHERE];
        self.step(Input::Begin { departures: Arc::new(ByLetter), destinations, again: false });
        self.step(Input::Recorded);
        self.there(up(70));
        self.step(Input::Destination { shim: ELSEWHERE, event: up(71) });
        self.answer(HOME, "FUNCTION LIST WITHCODE", "*0");
    }

    fn drained(&mut self) {
        for _ in 0..4 {
            self.answer(HOME, "PING", "+PONG");
        }
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.machine.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Store { place, store } => {
                    let text = store.commands.iter().map(words).collect::<Vec<_>>().join("; ");
                    self.asked.push((place, store.ticket, text));
                }
                Effect::Report(StorageEvent::Replies { ticket, replies }) => {
                    let text = |reply: &Bytes| String::from_utf8_lossy(reply).trim_end().to_owned();
                    let replies: Vec<String> = replies.iter().map(text).collect();
                    self.said.push(format!("{ticket}: {}", replies.join("; ")));
                }
                other => self.said.push(format!("{other:?}")),
            }
        }
    }

    fn home(&mut self, event: StorageEvent) {
        self.step(Input::Home(event));
    }

    fn there(&mut self, event: StorageEvent) {
        self.step(Input::Destination { shim: TO, event });
    }

    fn event(&mut self, place: MigrationPlace, event: StorageEvent) {
        match place {
            MigrationPlace::Home => self.home(event),
            MigrationPlace::Destination(shim) => self.step(Input::Destination { shim, event }),
        }
    }

    /// Fifty keys that leave are at home.
    fn find_fifty(&mut self) {
        self.begin();
        self.drained();
        self.answer(HOME, "DBSIZE", ":50");
        let keys: Vec<String> = (10..60).map(|number| format!("$3\r\nm{number}")).collect();
        let page = format!("*2\r\n$1\r\n0\r\n*50\r\n{}", keys.join("\r\n"));
        self.answer(HOME, "SCAN 0 COUNT 256", &page);
    }

    /// How many keys have been asked for at home since the answers that were looked at.
    fn dumps(&self) -> usize {
        self.asked.iter().filter(|(_, _, text)| text.contains("DUMP")).count()
    }

    fn dumped(&self) -> Vec<String> {
        let key = |text: &str| text.split_once("DUMP ").map(|(_, key)| key.to_owned());
        self.asked.iter().filter_map(|(_, _, text)| key(text)).collect()
    }

    fn store(&mut self, ticket: u64, lane: Lane, commands: &[&str]) {
        self.step(Input::Store(Store { ticket, lane, reach: Reach::Whole, commands: frames(commands) }));
    }

    #[track_caller]
    fn take(&mut self, place: MigrationPlace, text: &str) -> u64 {
        let at = self.asked.iter().position(|(at, _, asked)| (*at, &asked[..]) == (place, text));
        let at = at.unwrap_or_else(|| panic!("{text} at {place:?} was not asked: {:?}", self.asked));
        self.asked.remove(at).1
    }

    /// Replies, which are separated as what was asked.
    #[track_caller]
    fn answer(&mut self, place: MigrationPlace, text: &str, replies: &str) {
        let ticket = self.take(place, text);
        let replies = replies.split("; ").map(|reply| Bytes::from(format!("{reply}\r\n"))).collect();
        self.event(place, StorageEvent::Replies { ticket, replies });
    }

    #[track_caller]
    fn lose(&mut self, place: MigrationPlace, text: &str, sent: bool) {
        let ticket = self.take(place, text);
        self.event(place, StorageEvent::Lost { ticket, sent });
    }

    fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    fn is_asked(&self, text: &str) -> bool {
        self.asked.iter().any(|(_, _, asked)| asked == text)
    }
}

#[test]
fn a_key_goes_before_its_command_and_others_stay() {
    let mut world = World::moving();
    world.store(1, SHARED, &["GET s"]);
    world.answer(HOME, "GET s", "$1\r\nv");
    world.store(2, SHARED, &["INCR m"]);
    assert!(!world.is_asked("INCR m"));
    world.answer(HOME, "PTTL m; DUMP m", ":0; $3\r\nabc");
    world.answer(THERE, "RESTORE m 1 abc", "+OK");
    assert!(!world.is_asked("INCR m"), "its home is the old one until that says that it is gone");
    world.answer(HOME, "UNLINK m", ":1");
    world.answer(THERE, "INCR m", ":8");
    assert_eq!(world.said(), ["1: $1\r\nv", "2: :8"]);
    world.store(3, SHARED, &["GET m"]);
    world.answer(THERE, "GET m", "$1\r\n8");
    assert_eq!(world.machine.progress().moved, 1);
}

#[test]
fn one_that_was_nowhere_is_at_its_destination() {
    let mut world = World::moving();
    world.store(1, SHARED, &["CLIENT CACHING YES", "PTTL m", "GET m"]);
    world.answer(HOME, "PTTL m; DUMP m", ":-2; $-1");
    world.answer(THERE, "PTTL m; GET m", ":-2; $-1");
    assert_eq!(world.said(), ["1: +OK; :-2; $-1"], "nobody there would say what others change");
}

#[test]
fn nothing_is_moved_before_what_was_asked_of_it() {
    let mut world = World::new();
    world.store(1, Lane::Shared { resp3: true }, &["SET m 1"]);
    world.store(2, Lane::Pinned { resp3: false }, &["BLPOP mq 0"]);
    world.store(3, Lane::Pinned { resp3: false }, &["BLPOP sq 0"]);
    world.begin();
    world.store(4, SHARED, &["GET m"]);
    let unblock = "Control { place: Home, ticket: 2, control: Unblock { error: false } }";
    assert!(world.said().iter().any(|said| said == unblock));
    world.drained();
    assert!(!world.is_asked("PTTL m; DUMP m"), "one blocks yet");
    world.answer(HOME, "BLPOP mq 0", "*-1");
    world.answer(HOME, "PTTL mq; DUMP mq", ":-2; $-1");
    assert!(world.is_asked("PTTL m; DUMP m"));
    world.answer(THERE, "BLPOP mq 0", "*2\r\n$2\r\nmq\r\n$1\r\nv");
    assert!(world.said().contains(&"2: *2\r\n$2\r\nmq\r\n$1\r\nv".to_owned()));
}

#[test]
fn commands_of_keys_in_two_places_are_refused() {
    let mut world = World::moving();
    for (number, text) in ["RENAME m s", "RENAME m e", "MSET s 1 m 2"].into_iter().enumerate() {
        world.store(number as u64, SHARED, &[text]);
        assert!(world.said()[0].contains("-CROSSSLOT"), "{text}");
    }
    world.store(9, SHARED, &["MULTI", "SET m1 1", "INCR m2", "EXEC"]);
    world.answer(HOME, "PTTL m1; DUMP m1", ":-1; $1\r\na");
    world.answer(HOME, "PTTL m2; DUMP m2", ":-2; $-1");
    world.answer(THERE, "RESTORE m1 0 a", "+OK");
    world.answer(HOME, "UNLINK m1", ":1");
    world.answer(THERE, "MULTI; SET m1 1; INCR m2; EXEC", "+OK; +QUEUED; +QUEUED; *2\r\n+OK\r\n:1");
    world.store(10, SHARED, &["MULTI", "SET m1 1", "INCR s", "EXEC"]);
    let said = world.said();
    assert!(said[1].starts_with("10: +QUEUED; +QUEUED; +QUEUED; -CROSSSLOT"), "{said:?}");
}

#[test]
fn what_cannot_be_restored_stays_and_is_tried_again() {
    let mut world = World::moving();
    world.answer(HOME, "DBSIZE", ":1");
    world.answer(HOME, "SCAN 0 COUNT 256", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nm");
    world.answer(HOME, "PTTL m; DUMP m", ":-1; $1\r\na");
    world.answer(THERE, "RESTORE m 0 a", "-ERR Bad data format");
    world.store(1, SHARED, &["APPEND m b"]);
    assert!(!world.is_asked("APPEND m b"));
    world.answer(THERE, "EXISTS m", ":0");
    let progress = world.machine.progress();
    assert_eq!(
        (progress.stuck, progress.reason.as_deref()),
        (1, Some("RESTORE at the new server: ERR Bad data format"))
    );
    world.now = Time(2_000_000);
    world.store(2, SHARED, &["RENAME m m2"]);
    world.answer(HOME, "PTTL m2; DUMP m2", ":-2; $-1");
    assert!(world.said().iter().any(|said| said.starts_with("2: -TRYAGAIN")));
    world.step(Input::Tick);
    world.answer(HOME, "DBSIZE", ":1");
    world.answer(HOME, "SCAN 0 COUNT 256", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nm");
    assert!(!world.is_asked("PTTL m; DUMP m"), "a command of it is at home");
    world.answer(HOME, "APPEND m b", ":2");
    world.now = Time(4_000_000);
    world.step(Input::Tick);
    world.answer(HOME, "DBSIZE", ":1");
    world.answer(HOME, "SCAN 0 COUNT 256", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nm");
    world.answer(HOME, "PTTL m; DUMP m", ":-1; $2\r\nab");
    world.answer(THERE, "RESTORE m 0 ab", "-OOM command not allowed");
    world.answer(THERE, "EXISTS m", ":1");
    world.answer(HOME, "UNLINK m", ":1");
    assert_eq!(world.machine.progress().stuck, 0, "an earlier try had come through");
}

#[test]
fn what_the_old_home_does_not_let_go_is_taken_back() {
    let mut world = World::moving();
    world.store(1, SHARED, &["GET m"]);
    world.answer(HOME, "PTTL m; DUMP m", ":-1; $1\r\na");
    world.answer(THERE, "RESTORE m 0 a", "+OK");
    world.answer(HOME, "UNLINK m", "-READONLY You can't write");
    assert!(!world.is_asked("GET m"));
    world.answer(THERE, "UNLINK m", ":1");
    world.answer(HOME, "GET m", "$1\r\na");
    assert_eq!(world.said(), ["1: $1\r\na"]);
}

#[test]
fn an_unknown_outcome_waits_for_a_fence() {
    let mut world = World::moving();
    world.store(1, SHARED, &["GET m"]);
    world.answer(HOME, "PTTL m; DUMP m", ":-1; $1\r\na");
    world.lose(THERE, "RESTORE m 0 a", true);
    assert!(!world.is_asked("PTTL m; DUMP m"));
    world.there(StorageEvent::Fenced);
    world.answer(HOME, "PTTL m; DUMP m", ":-1; $1\r\na");
    world.answer(THERE, "RESTORE m 0 a", "-BUSYKEY Target key name already exists.");
    world.lose(HOME, "UNLINK m", true);
    assert!(!world.is_asked("PTTL m; DUMP m"));
    world.home(StorageEvent::Fenced);
    world.answer(HOME, "PTTL m; DUMP m", ":-2; $-1");
    world.answer(THERE, "GET m", "$1\r\na");
    assert_eq!(world.said(), ["Report(Fenced)", "Report(Fenced)", "1: $1\r\na"]);
}

#[test]
fn it_ends_once_a_round_has_found_nothing() {
    let mut world = World::moving();
    world.answer(HOME, "DBSIZE", ":3");
    world.answer(
        HOME,
        "SCAN 0 COUNT 256",
        "*2\r\n$2\r\n17\r\n*4\r\n$1\r\ns\r\n$1\r\nm\r\n$2\r\nm2\r\n$2\r\nm3",
    );
    assert!(!world.is_asked("PTTL m3; DUMP m3"), "two at the same time");
    for key in ["m", "m2", "m3"] {
        world.answer(HOME, &format!("PTTL {key}; DUMP {key}"), ":-1; $1\r\na");
        world.answer(THERE, &format!("RESTORE {key} 0 a"), "+OK");
        world.answer(HOME, &format!("UNLINK {key}"), ":1");
    }
    world.answer(HOME, "SCAN 17 COUNT 256", "*2\r\n$1\r\n0\r\n*0");
    assert_eq!(world.machine.progress().phase, MigrationPhase::Moving);
    world.answer(HOME, "DBSIZE", ":1");
    world.answer(HOME, "SCAN 0 COUNT 256", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\ns");
    assert_eq!(world.machine.progress().phase, MigrationPhase::Moved);
    world.store(1, SHARED, &["SET m9 1"]);
    assert!(world.is_asked("SET m9 1"), "nothing is to be looked for any more");
    world.step(Input::Close);
    assert!(!world.said().iter().any(|said| said.contains("Leave")));
    world.answer(THERE, "SET m9 1", "+OK");
    assert!(world.said().iter().any(|said| said == "Leave { shim: ShimId(3) }"));
    assert_eq!(world.machine.progress().phase, MigrationPhase::Idle);
}

#[test]
fn a_home_that_comes_back_is_gone_through_again() {
    let mut world = World::moving();
    world.answer(HOME, "DBSIZE", ":0");
    world.answer(HOME, "SCAN 0 COUNT 256", "*2\r\n$1\r\n0\r\n*0");
    assert_eq!(world.machine.progress().phase, MigrationPhase::Moved);
    world.home(StorageEvent::Down { reason: "gone".to_owned(), gone: true });
    world.home(up(8));
    assert_eq!(world.machine.progress().phase, MigrationPhase::Moving);
    for life in [9, 10] {
        world.store(life, SHARED, &["GET m"]);
        world.answer(HOME, "PTTL m; DUMP m", ":-1; $1\r\na");
        // What it has again is older than what has been written since.
        world.answer(THERE, "RESTORE m 0 a", "-BUSYKEY Target key name already exists.");
        world.answer(HOME, "UNLINK m", ":1");
        world.answer(THERE, "GET m", "$1\r\nb");
        world.home(StorageEvent::Down { reason: "gone".to_owned(), gone: true });
        world.home(up(life));
    }
}

#[test]
fn a_round_is_not_over_while_one_of_its_keys_moves() {
    let mut world = World::moving();
    world.store(1, SHARED, &["GET m"]);
    let round = |world: &mut World, keys: &str| {
        world.answer(HOME, "DBSIZE", ":1");
        world.answer(HOME, "SCAN 0 COUNT 256", &format!("*2\r\n$1\r\n0\r\n{keys}"));
    };
    round(&mut world, "*1\r\n$1\r\nm");
    assert_eq!(world.machine.progress().phase, MigrationPhase::Moving);
    world.answer(HOME, "PTTL m; DUMP m", ":-2; $-1");
    round(&mut world, "*0");
    assert_eq!(world.machine.progress().phase, MigrationPhase::Moved);
}

#[test]
fn what_an_earlier_round_was_told_says_nothing_of_this_one() {
    let mut world = World::moving();
    world.answer(HOME, "DBSIZE", ":1");
    let old = world.take(HOME, "SCAN 0 COUNT 256");
    world.there(StorageEvent::Down { reason: "gone".to_owned(), gone: true });
    world.there(up(99));
    let replies = SmallVec::from_elem(Bytes::from_static(b"*2\r\n$1\r\n0\r\n*0\r\n"), 1);
    world.home(StorageEvent::Replies { ticket: old, replies });
    assert_eq!(world.machine.progress().phase, MigrationPhase::Moving);
    world.answer(HOME, "SCAN 0 COUNT 256", "*2\r\n$1\r\n0\r\n*0");
    assert_eq!(world.machine.progress().phase, MigrationPhase::Moved);
}

#[test]
fn a_command_of_one_key_does_not_overtake_one_of_two() {
    let mut world = World::moving();
    world.store(1, SHARED, &["GET m1"]);
    world.answer(HOME, "PTTL m1; DUMP m1", ":-2; $-1");
    world.answer(THERE, "GET m1", "$-1");
    world.store(2, SHARED, &["MSET m1 1 m2 2"]);
    world.store(3, SHARED, &["GET m1"]);
    assert!(!world.is_asked("GET m1"));
    world.answer(HOME, "PTTL m2; DUMP m2", ":-2; $-1");
    let order: Vec<&str> =
        world.asked.iter().filter(|(at, ..)| *at == THERE).map(|(_, _, text)| &text[..]).collect();
    assert_eq!(order, ["MSET m1 1 m2 2", "GET m1"]);
}

#[test]
fn a_destination_that_comes_back_voids_what_was_granted() {
    let mut world = World::moving();
    world.there(StorageEvent::Down { reason: "gone".to_owned(), gone: true });
    assert!(world.said().is_empty(), "what stays is served");
    world.there(up(70));
    assert!(world.said().is_empty(), "nothing has happened there");
    world.there(StorageEvent::Down { reason: "gone".to_owned(), gone: true });
    world.there(up(99));
    let said = world.said();
    assert!(
        said[0].contains("Up")
            && said[0].contains("same_data: false")
            && !said[0].contains("incarnation: 7,"),
        "{said:?}"
    );
}

/// A destination that cannot be reached, or does not take what functions there are, costs nothing before anything has moved.
#[test]
fn nothing_waits_before_the_first_process_moves_and_functions_come_first() {
    const LIST: &str = "FUNCTION LIST WITHCODE";
    let mut world = World::new();
    let destinations = vec![TO];
    world.step(Input::Begin { departures: Arc::new(ByLetter), destinations, again: false });
    world.step(Input::Recorded);
    world.store(1, SHARED, &["INCR m"]);
    world.answer(HOME, "INCR m", ":1");
    world.there(up(70));
    let library = |name: &str| {
        let fields = ["library_name", name, "functions", "none", "library_code", "#!lua"];
        let fields: Vec<String> =
            fields.iter().map(|field| format!("${}\r\n{field}\r\n", field.len())).collect();
        format!("*6\r\n{}", fields.concat())
    };
    let libraries = format!("*2\r\n{}{}", library("distcache"), library("own"));
    world.answer(HOME, LIST, libraries.trim_end());
    world.answer(THERE, "FUNCTION LOAD #!lua", "-OOM command not allowed");
    assert!(world.machine.progress().reason.expect("a reason").contains("FUNCTION LOAD"));
    world.store(2, SHARED, &["INCR m"]);
    world.answer(HOME, "INCR m", ":2");
    world.now = Time(2_000_000);
    world.step(Input::Tick);
    world.step(Input::Tick);
    world.answer(HOME, LIST, libraries.trim_end());
    world.answer(THERE, "FUNCTION LOAD #!lua", "-ERR Library 'own' already exists");
    assert!(world.asked.iter().all(|(_, _, text)| text == "PING"), "{:?}", world.asked);
    world.drained();
    assert_eq!(world.machine.phase(), MigrationPhase::Moving);
}

/// The process before may have moved it.
#[test]
fn what_leaves_is_not_asked_for_before_its_destination_is_reached() {
    let mut world = World::new();
    let destinations = vec![TO];
    world.step(Input::Begin { departures: Arc::new(ByLetter), destinations, again: true });
    world.step(Input::Recorded);
    world.store(1, SHARED, &["GET s"]);
    world.store(2, SHARED, &["INCR m"]);
    world.answer(HOME, "GET s", "$1");
    assert!(world.asked.is_empty(), "{:?}", world.asked);
    world.there(up(70));
    world.answer(HOME, "FUNCTION LIST WITHCODE", "*0");
    world.drained();
    world.answer(HOME, "PTTL m; DUMP m", ":-2; $-1");
    world.answer(THERE, "INCR m", ":7");
    assert!(world.said().contains(&"2: :7".to_owned()));
}

#[test]
fn who_waits_for_a_destination_that_is_away_is_told() {
    let mut world = World::moving();
    world.there(StorageEvent::Down { reason: "gone".to_owned(), gone: true });
    world.store(1, SHARED, &["GET m"]);
    world.store(2, Lane::Pinned { resp3: true }, &["BLPOP mq 0"]);
    world.step(Input::Control { ticket: 2, control: CommandControl::Unblock { error: false } });
    world.now = Time(999_000);
    world.step(Input::Tick);
    assert_eq!(world.said(), ["2: _"]);
    world.now = Time(1_000_000);
    world.step(Input::Tick);
    assert!(world.said()[0].starts_with("1: -ERR DistCache: the storage server that has the key now"));
}

#[test]
fn what_was_watched_before_counts_as_changed() {
    let mut world = World::new();
    let lane = |number| Lane::Watching { number, resp3: false };
    world.store(1, lane(1), &["WATCH m"]);
    world.answer(HOME, "WATCH m", "+OK");
    world.store(2, lane(2), &["WATCH s"]);
    world.answer(HOME, "WATCH s", "+OK");
    world.begin();
    world.drained();
    world.said();
    world.store(3, lane(1), &["MULTI", "SET m 1", "EXEC"]);
    world.store(4, lane(2), &["MULTI", "SET s 1", "EXEC"]);
    assert_eq!(world.said(), ["3: +QUEUED; +QUEUED; *-1", "4: +QUEUED; +QUEUED; *-1"]);
    world.answer(HOME, "UNWATCH", "+OK");
    world.store(5, lane(3), &["WATCH m"]);
    world.answer(HOME, "PTTL m; DUMP m", ":-2; $-1");
    world.answer(THERE, "WATCH m", "+OK");
    world.store(6, lane(3), &["MULTI", "SET m 1", "EXEC"]);
    assert!(world.asked.iter().any(|(place, ..)| *place == THERE));
    world.step(Input::Release { number: 3, clean: true });
    assert!(
        world.said().iter().any(|said| said.contains("Release { place: Destination(ShimId(3)), number: 3"))
    );
}

#[test]
fn fewer_are_under_way_while_somebody_asks() {
    let mut world = World::new();
    world.machine.config.transfers_max = 20;
    // Two shims give keys, so that each has half of these.
    world.machine.config.transfers_beside_max = 6;
    world.store(1, SHARED, &["GET a1"]);
    world.find_fifty();
    assert_eq!(world.dumps(), 3);
    for key in ["m10", "m11"] {
        world.answer(HOME, &format!("PTTL {key}; DUMP {key}"), ":-2; $-1");
    }
    assert_eq!(world.dumps(), 1, "they begin together");
    world.answer(HOME, "PTTL m12; DUMP m12", ":-2; $-1");
    assert_eq!(world.dumps(), 3);
    world.now = Time(world.now.0 + 20_000);
    world.step(Input::Tick);
    let commands = frames(&["PING"]);
    world.step(Input::Store(Store { ticket: 2, lane: SHARED, reach: Reach::Proof, commands }));
    let key = world.dumped().remove(0);
    world.answer(HOME, &format!("PTTL {key}; DUMP {key}"), ":-2; $-1");
    assert_eq!(world.dumps(), 20, "a shim's own proof is no such thing");
}

#[test]
fn no_more_begin_in_a_second_than_are_allowed() {
    let mut world = World::new();
    world.machine.config.keys_per_second_max = 10;
    world.machine.config.transfers_max = 100;
    world.find_fifty();
    let mut dumps = Vec::new();
    for tenth in 0..20 {
        world.now = Time(1_000_000 + tenth * 100_000);
        world.step(Input::Tick);
        dumps.push(world.dumps());
    }
    assert!((19..=21).contains(&dumps[19]) && dumps[9] <= 11, "{dumps:?}");
}
