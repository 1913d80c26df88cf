//! Keys that are written and read while they move, between servers that lose connections and processes that die. Every reply has to
//! be one that a single server could have given.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng};
use smallvec::SmallVec;
use wire::ShimId;

use super::{ByLetter, ELSEWHERE, TO, frames, up, words};
use crate::migration::servers::MigrationPlace;
use crate::migration::{Effect, Input, Migration, MigrationConfig, MigrationPhase};
use crate::storage::{Lane, Reach, StorageEvent, Store};
use crate::time::Time;

const KEYS: [&str; 5] = ["m1", "m2", "e1", "s1", "m3"];
const PLACES: [MigrationPlace; 3] =
    [MigrationPlace::Home, MigrationPlace::Destination(TO), MigrationPlace::Destination(ELSEWHERE)];
const LANES: [Lane; 2] = [Lane::Shared { resp3: false }, Lane::Shared { resp3: true }];

type Data = BTreeMap<String, String>;
/// What was sent and has not been carried out, of one connection.
type RandomPipe = VecDeque<(u64, Vec<String>)>;

#[derive(Default)]
struct RandomServer {
    data: Data,
    pipes: BTreeMap<usize, RandomPipe>,
    /// Connections that are gone; what they had may still be carried out until a fence.
    zombies: Vec<RandomPipe>,
    fence_is_due: bool,
    /// It takes nothing new.
    full: bool,
}

/// What is known of a key: the values that it can have.
type Possible = BTreeSet<Option<String>>;

struct World {
    random: SmallRng,
    machine: Migration,
    now: Time,
    servers: BTreeMap<MigrationPlace, RandomServer>,
    /// Under way, by ticket: the keys and the command.
    asked: BTreeMap<u64, (Vec<usize>, String)>,
    /// Destinations that this life has not fenced yet.
    unconnected: Vec<ShimId>,
    ticket: u64,
    lives: u64,
    possible: Vec<Possible>,
    /// Writes of unknown outcome that no fence has followed.
    unknown: bool,
    answers: u64,
}

fn run(data: &mut Data, full: bool, text: &str) -> String {
    let parts: Vec<&str> = text.split(' ').collect();
    let bulk = |value: Option<&String>| {
        value.map_or("$-1\r\n".into(), |value| format!("${}\r\n{value}\r\n", value.len()))
    };
    match parts[..] {
        ["PING"] => "+PONG\r\n".into(),
        ["FUNCTION", ..] => "*0\r\n".into(),
        ["DBSIZE"] => format!(":{}\r\n", data.len()),
        ["SCAN", cursor, ..] => {
            let at: usize = cursor.parse().expect("a cursor");
            // As a server: what is there from first to last is told, by a position that does not depend on the others.
            let slice = |key: &&String| key.bytes().map(usize::from).sum::<usize>() % 3 == at;
            let keys: Vec<String> =
                data.keys().filter(slice).map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
            let next = (at + 1) % 3;
            format!("*2\r\n$1\r\n{next}\r\n*{}\r\n{}", keys.len(), keys.concat())
        }
        ["PTTL", key] => format!(":{}\r\n", if data.contains_key(key) { -1 } else { -2 }),
        ["DUMP" | "GET", key] => bulk(data.get(key)),
        ["EXISTS", key] => format!(":{}\r\n", u8::from(data.contains_key(key))),
        ["RESTORE", ..] if full => "-OOM command not allowed when used memory > 'maxmemory'.\r\n".into(),
        ["RESTORE", key, _, value] => match data.contains_key(key) {
            true => "-BUSYKEY Target key name already exists.\r\n".into(),
            false => {
                data.insert(key.to_owned(), value.to_owned());
                "+OK\r\n".into()
            }
        },
        ["UNLINK" | "DEL", key] => format!(":{}\r\n", u8::from(data.remove(key).is_some())),
        ["APPEND", key, value] => {
            let all = data.entry(key.to_owned()).or_default();
            all.push_str(value);
            format!(":{}\r\n", all.len())
        }
        ["RENAME", from, to] => match data.remove(from) {
            None => "-ERR no such key\r\n".into(),
            Some(value) => {
                data.insert(to.to_owned(), value);
                "+OK\r\n".into()
            }
        },
        _ => panic!("{text}"),
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = SmallRng::seed_from_u64(seed);
        let data: Data = KEYS
            .iter()
            .filter(|_| random.random_bool(0.7))
            .map(|key| (key.to_string(), "0".into()))
            .collect();
        let possible = KEYS.iter().map(|key| BTreeSet::from([data.get(*key).cloned()])).collect();
        let mut servers: BTreeMap<MigrationPlace, RandomServer> =
            PLACES.iter().map(|place| (*place, RandomServer::default())).collect();
        servers.get_mut(&MigrationPlace::Home).expect("home").data = data;
        let mut world = World {
            random,
            machine: Migration::new(config()),
            now: Time(0),
            servers,
            asked: BTreeMap::new(),
            unconnected: Vec::new(),
            ticket: 0,
            lives: 0,
            possible,
            unknown: false,
            answers: 0,
        };
        world.begin_life();
        world
    }

    /// A process that takes over fences its home before anything, and destinations as it reaches them.
    fn begin_life(&mut self) {
        self.lives += 1;
        self.machine = Migration::new(config());
        self.take_over(MigrationPlace::Home);
        self.unknown = false;
        self.step(Input::Home(up(self.lives)));
        self.unconnected = vec![TO, ELSEWHERE];
        let (destinations, again) = (self.unconnected.clone(), self.lives > 1);
        self.step(Input::Begin { departures: Arc::new(ByLetter), destinations, again });
        self.step(Input::Recorded);
    }

    fn take_over(&mut self, place: MigrationPlace) {
        let server = self.server(place);
        server.zombies.clear();
        server.fence_is_due = false;
    }

    fn connect(&mut self) {
        if let Some(shim) = self.unconnected.pop() {
            self.take_over(MigrationPlace::Destination(shim));
            self.step(Input::Destination { shim, event: up(100 + self.lives) });
        }
    }

    fn server(&mut self, place: MigrationPlace) -> &mut RandomServer {
        self.servers.get_mut(&place).expect("a server")
    }

    fn event(&mut self, place: MigrationPlace, event: StorageEvent) {
        match place {
            MigrationPlace::Home => self.step(Input::Home(event)),
            MigrationPlace::Destination(shim) => self.step(Input::Destination { shim, event }),
        }
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.machine.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Store { place, store } => {
                    let lane = LANES.iter().position(|lane| *lane == store.lane).unwrap_or(LANES.len());
                    let texts = store.commands.iter().map(words).collect();
                    self.server(place).pipes.entry(lane).or_default().push_back((store.ticket, texts));
                }
                Effect::Report(StorageEvent::Replies { ticket, replies }) => self.replied(ticket, &replies),
                Effect::Report(StorageEvent::Lost { ticket, sent }) => self.lost(ticket, sent),
                Effect::Report(StorageEvent::Fenced) => self.unknown = false,
                _ => {}
            }
        }
    }

    /// What the command makes of these keys, one server having them.
    fn twin(&self, keys: &[usize], text: &str) -> Vec<(Vec<Option<String>>, String)> {
        let mut states: Vec<Vec<Option<String>>> = vec![Vec::new()];
        for key in keys {
            states = (self.possible[*key].iter())
                .flat_map(|value| {
                    states.iter().map(|state| [&state[..], std::slice::from_ref(value)].concat())
                })
                .collect();
        }
        let after = |state: Vec<Option<String>>| {
            let named = keys.iter().map(|key| KEYS[*key].to_owned());
            let mut data: Data = named.zip(state).filter_map(|(key, value)| Some((key, value?))).collect();
            let reply = run(&mut data, false, text);
            (keys.iter().map(|key| data.get(KEYS[*key]).cloned()).collect(), reply)
        };
        states.into_iter().map(after).collect()
    }

    fn set_possible(&mut self, keys: &[usize], states: &[Vec<Option<String>>]) {
        for (index, key) in keys.iter().enumerate() {
            self.possible[*key] = states.iter().map(|state| state[index].clone()).collect();
        }
    }

    fn replied(&mut self, ticket: u64, replies: &[Bytes]) {
        let Some((keys, text)) = self.asked.remove(&ticket) else { return };
        self.answers += 1;
        let reply = String::from_utf8_lossy(&replies[0]).into_owned();
        if ["-TRYAGAIN", "-CROSSSLOT", "-ERR DistCache"].iter().any(|word| reply.starts_with(word)) {
            return;
        }
        let fit: Vec<_> = self.twin(&keys, &text).into_iter().filter(|(_, given)| *given == reply).collect();
        let known: Vec<&Possible> = keys.iter().map(|key| &self.possible[*key]).collect();
        assert!(!fit.is_empty(), "{text}: {reply:?}, but it can only be {known:?}");
        let states: Vec<_> = fit.into_iter().map(|(state, _)| state).collect();
        self.set_possible(&keys, &states);
    }

    fn lost(&mut self, ticket: u64, sent: bool) {
        let Some((keys, text)) = self.asked.remove(&ticket) else { return };
        if sent {
            self.unknown = true;
            let after: Vec<_> = self.twin(&keys, &text).into_iter().map(|(state, _)| state).collect();
            for (index, key) in keys.iter().enumerate() {
                self.possible[*key].extend(after.iter().map(|state| state[index].clone()));
            }
        }
    }

    /// One command, of keys of which none is under way on another connection.
    fn ask(&mut self) {
        let key = self.random.random_range(0..KEYS.len());
        let other = self.random.random_range(0..KEYS.len());
        let token = char::from(b'a' + (self.ticket % 26) as u8);
        let (keys, text) = match self.random.random_range(0..8) {
            0..3 => (vec![key], format!("APPEND {} {token}", KEYS[key])),
            3..6 => (vec![key], format!("GET {}", KEYS[key])),
            6 => (vec![key], format!("DEL {}", KEYS[key])),
            _ if key != other => (vec![key, other], format!("RENAME {} {}", KEYS[key], KEYS[other])),
            _ => return,
        };
        if self.unknown || self.asked.values().any(|(busy, _)| busy.iter().any(|key| keys.contains(key))) {
            return;
        }
        self.ticket += 1;
        let lane = *LANES.choose(&mut self.random).expect("a lane");
        self.asked.insert(self.ticket, (keys, text.clone()));
        self.step(Input::Store(Store {
            ticket: self.ticket,
            lane,
            reach: Reach::Whole,
            commands: frames(&[&text]),
        }));
    }

    /// A server carries one thing out.
    fn carry_out(&mut self) {
        let place = *PLACES.choose(&mut self.random).expect("a place");
        let pick = self.random.random_range(0..16);
        let server = self.servers.get_mut(&place).expect("a server");
        if pick == 0 && !server.zombies.is_empty() {
            let index = self.random.random_range(0..server.zombies.len());
            if let Some((_, texts)) = server.zombies[index].pop_front() {
                texts.iter().for_each(|text| _ = run(&mut server.data, server.full, text));
            }
            return;
        }
        let busy: Vec<usize> =
            server.pipes.iter().filter(|(_, pipe)| !pipe.is_empty()).map(|(lane, _)| *lane).collect();
        let Some(lane) = busy.choose(&mut self.random) else { return };
        let (ticket, texts) = server.pipes.get_mut(lane).and_then(RandomPipe::pop_front).expect("a command");
        let replies: SmallVec<[Bytes; 2]> =
            texts.iter().map(|text| run(&mut server.data, server.full, text).into()).collect();
        self.event(place, StorageEvent::Replies { ticket, replies });
    }

    /// A connection breaks. What it had may be carried out until the fence.
    fn break_connection(&mut self) {
        let place = *PLACES.choose(&mut self.random).expect("a place");
        let server = self.servers.get_mut(&place).expect("a server");
        let Some(lane) = server.pipes.keys().copied().collect::<Vec<_>>().choose(&mut self.random).copied()
        else {
            return;
        };
        let pipe = server.pipes.remove(&lane).unwrap_or_default();
        server.fence_is_due |= !pipe.is_empty();
        server.zombies.push(pipe.clone());
        for (ticket, _) in pipe {
            self.event(place, StorageEvent::Lost { ticket, sent: true });
        }
    }

    fn fence(&mut self) {
        let place = *PLACES.choose(&mut self.random).expect("a place");
        let server = self.server(place);
        if std::mem::take(&mut server.fence_is_due) {
            server.zombies.clear();
            self.event(place, StorageEvent::Fenced);
        }
    }

    /// The process dies; the next one takes over.
    fn die(&mut self) {
        for server in self.servers.values_mut() {
            for pipe in std::mem::take(&mut server.pipes).into_values() {
                server.zombies.push(pipe);
            }
            // Some of it comes through before the fence.
            for pipe in &mut server.zombies {
                for (_, texts) in pipe.drain(..self.random.random_range(0..=pipe.len())) {
                    texts.iter().for_each(|text| _ = run(&mut server.data, server.full, text));
                }
            }
        }
        for ticket in self.asked.keys().copied().collect::<Vec<_>>() {
            self.lost(ticket, true);
        }
        self.begin_life();
    }

    fn act(&mut self) {
        self.now = self.now.after(Duration::from_millis(1));
        match self.random.random_range(0..1000) {
            0..400 => self.ask(),
            400..940 => self.carry_out(),
            940..955 => self.break_connection(),
            955..980 => self.fence(),
            980..983 => self.die(),
            983..990 => {
                let place = *PLACES[1..].choose(&mut self.random).expect("a place");
                let full = self.random.random_bool(0.3);
                self.server(place).full = full;
            }
            990..995 => self.connect(),
            _ => self.step(Input::Tick),
        }
    }

    /// Without further trouble it ends, and every key is where it belongs.
    fn end(&mut self) {
        for _ in 0..20_000 {
            self.now = self.now.after(Duration::from_millis(5));
            PLACES[1..].iter().for_each(|place| self.servers.get_mut(place).expect("a server").full = false);
            self.connect();
            self.fence();
            self.carry_out();
            self.step(Input::Tick);
        }
        assert_eq!(self.machine.progress().phase, MigrationPhase::Moved, "{:?}", self.machine.progress());
        assert!(self.asked.is_empty(), "{:?}", self.asked);
        for (index, key) in KEYS.iter().enumerate() {
            let at: Vec<_> =
                PLACES.iter().filter(|place| self.servers[place].data.contains_key(*key)).copied().collect();
            let home = match key.as_bytes()[0] {
                b'm' => PLACES[1],
                b'e' => PLACES[2],
                _ => PLACES[0],
            };
            assert!(at.is_empty() || at == [home], "{key} is at {at:?}");
            let value = self.servers[&home].data.get(*key).cloned();
            assert!(self.possible[index].contains(&value), "{key}: {value:?} of {:?}", self.possible[index]);
        }
    }
}

fn config() -> MigrationConfig {
    MigrationConfig {
        patience: Duration::from_secs(2),
        transfers_max: 2,
        transfers_beside_max: 1,
        keys_per_second_max: 0,
    }
}

#[test]
fn every_reply_is_one_that_a_single_server_could_have_given() {
    let mut answers = 0;
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..1500 {
            world.act();
        }
        world.end();
        answers += world.answers;
    }
    assert!(answers > 40_000, "{answers}");
}
