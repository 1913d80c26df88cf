//! A random cluster whose slots move under a stream of commands.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::{World, server, view};
use crate::placement::slot::slot;
use crate::shards::Input;
use crate::storage::StorageEvent;

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
