//! Random commands over all types, with times to live, mistakes and transactions: to a redis-server and to a router before
//! four, whose caches are so small that everything comes and goes. Every reply must be the same.

use std::collections::VecDeque;
use std::io::Write;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use wire::resp::{Command, Value};

use crate::cluster::{Client, Cluster, Layout, RedisServer, installed, shared, text, until};
use crate::table::invocations::Drawer;
use crate::table::tree::{self, Documented};
use crate::table::{compare, line, payload, seeds};

/// In CI; a long run is `cargo xtask fuzz differential --commands N`.
const COMMANDS: u32 = 20_000;
const COMMANDS_VARIABLE: &str = "DISTCACHE_DIFFERENTIAL_COMMANDS";
/// Few, so that commands meet each other's keys; over several servers.
const TAGS: [&str; 6] = ["{a}", "{b}", "{c}", "{d}", "{e}", "{f}"];
const PIPELINE: usize = 24;
/// So often one read is repeated, that a copy answers.
const READS: u64 = 12;
/// What a failure shows of what came before.
const HISTORY: usize = 2000;
const DIFFERENCES_MAX: usize = 10;
const GROUPS: [&str; 9] =
    ["string", "bitmap", "list", "set", "sorted-set", "hash", "geo", "hyperloglog", "stream"];
const FURTHER: [&str; 36] = [
    "copy",
    "dbsize",
    "del",
    "dump",
    "eval",
    "eval_ro",
    "evalsha",
    "exists",
    "expire",
    "expireat",
    "expiretime",
    "keys",
    "object|encoding",
    "object|refcount",
    "persist",
    "pexpire",
    "pexpireat",
    "pexpiretime",
    "pttl",
    "randomkey",
    "rename",
    "renamenx",
    "restore",
    "scan",
    "script|exists",
    "script|load",
    "sort",
    "sort_ro",
    "touch",
    "ttl",
    "type",
    "unlink",
    "ping",
    "echo",
    "multi",
    "memory|usage",
];
const HOT: [&str; 10] = [
    "GET {t}str",
    "HGETALL {t}hash",
    "LRANGE {t}list 0 -1",
    "SMEMBERS {t}set",
    "ZRANGE {t}zset 0 -1 WITHSCORES",
    "XRANGE {t}stream - +",
    "GEOSEARCH {t}geo FROMMEMBER m1 BYRADIUS 900 km ASC",
    "STRLEN {t}num",
    "TYPE {t}nums",
    "EXISTS {t}missing",
];
/// Chance decides what SPOP leaves behind, and PFSELFTEST takes most of a second.
const LEFT_OUT: [&str; 2] = ["pfselftest", "spop"];

/// One command, or all from MULTI to EXEC.
type Batch = Vec<Vec<Vec<u8>>>;

struct Source {
    random: SmallRng,
    plain: Vec<Drawer>,
    /// Commands that cost time, so they are drawn rarely.
    blocking: Vec<Drawer>,
}

impl Source {
    fn new(documented: &[Documented], payload: &[u8], seed: u64) -> Source {
        let wanted = |command: &&Documented| {
            let group = GROUPS.contains(&command.group.as_str()) || FURTHER.contains(&command.name.as_str());
            group && !LEFT_OUT.contains(&command.name.as_str()) && command.name != "multi"
        };
        let blocks = |command: &&Documented| {
            command.name.starts_with('b') && command.name.contains("pop") || command.name == "blmove"
        };
        let drawer = |command: &Documented| Drawer::new(command, payload);
        let all: Vec<&Documented> = documented.iter().filter(wanted).collect();
        let (blocking, plain): (Vec<&Documented>, Vec<&Documented>) = all.into_iter().partition(blocks);
        let plain: Vec<Drawer> = plain.into_iter().map(drawer).collect();
        assert!(plain.len() > 170, "{} commands only", plain.len());
        let blocking = blocking.into_iter().map(drawer).collect();
        Source { random: SmallRng::seed_from_u64(seed), plain, blocking }
    }

    fn draw(&mut self) -> Batch {
        let tag = *TAGS.choose(&mut self.random).expect("there are some");
        match self.random.random_range(0..1000) {
            0..3 => vec![reset(tag)],
            3..8 => vec![self.one(true, tag)],
            8..28 => {
                let mut batch = vec![vec![b"MULTI".to_vec()]];
                (0..self.random.random_range(0..5)).for_each(|_| {
                    let command = self.one(false, tag);
                    // About all servers, of which a transaction has one, or at home at another one.
                    let homeless =
                        command[0].starts_with(b"EVAL") && command.get(2).is_none_or(|count| count == b"0");
                    if !homeless && !everywhere(&name_of(&command)) {
                        batch.push(command);
                    }
                });
                batch.push(vec![if self.random.random_bool(0.9) {
                    b"EXEC".to_vec()
                } else {
                    b"DISCARD".to_vec()
                }]);
                batch
            }
            _ => {
                let mut command = self.one(false, tag);
                // Those that are told each key's part may have keys anywhere.
                if ["mget", "del", "exists", "touch", "unlink"].contains(&name_of(&command).as_str()) {
                    for key in command.iter_mut().skip(1) {
                        let other = TAGS.choose(&mut self.random).expect("there are some");
                        *key = String::from_utf8_lossy(key).replace(tag, other).into_bytes();
                    }
                }
                vec![command]
            }
        }
    }

    /// A read that answers with something.
    fn read(&mut self) -> Vec<Vec<u8>> {
        let tag = *TAGS.choose(&mut self.random).expect("there are some");
        let read = HOT.choose(&mut self.random).expect("there are some").replace(seeds::TAG, tag);
        read.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn one(&mut self, blocks: bool, tag: &str) -> Vec<Vec<u8>> {
        loop {
            let drawers = if blocks { &self.blocking } else { &self.plain };
            let drawer = drawers.choose(&mut self.random).expect("there are some");
            let command = drawer.draw(&mut self.random, tag);
            let name = name_of(&command);
            if is_left_out(&name, &command) {
                continue;
            }
            return command;
        }
    }
}

fn everywhere(name: &str) -> bool {
    ["dbsize", "keys", "randomkey", "scan", "script|exists", "script|load"].contains(&name)
}

/// Ids made of the clock and SORT over keys that it does not name.
fn is_left_out(name: &str, command: &[Vec<u8>]) -> bool {
    let has = |word: &str| command.iter().any(|own| own.eq_ignore_ascii_case(word.as_bytes()));
    match name {
        "xadd" => has("*"),
        "xclaim" | "xautoclaim" => has("TIME") || has("IDLE"),
        "sort" | "sort_ro" => has("BY") || has("GET"),
        // Whether one moment is later than the other.
        "expire" | "pexpire" => has("GT") || has("LT"),
        // There is one database.
        "copy" => has("DB"),
        // Blocks.
        "xread" | "xreadgroup" => has("BLOCK"),
        _ => false,
    }
}

fn name_of(command: &[Vec<u8>]) -> String {
    let word = |index: usize| command.get(index).map(|word| String::from_utf8_lossy(word).to_lowercase());
    let name = word(0).unwrap_or_default();
    match name.as_str() {
        "object" | "script" | "memory" | "xgroup" | "xinfo" => {
            format!("{name}|{}", word(1).unwrap_or_default())
        }
        _ => name,
    }
}

fn reset(tag: &str) -> Vec<Vec<u8>> {
    let script = seeds::SCRIPT.replace(seeds::TAG, tag);
    let mut words = vec![b"EVAL".to_vec(), script.into_bytes(), seeds::KEYS.len().to_string().into_bytes()];
    words.extend(seeds::KEYS.iter().map(|key| key.replace(seeds::TAG, tag).into_bytes()));
    words
}

/// The two that are compared, each with a connection per protocol version.
struct Pair {
    redis: [Client; 2],
    ours: [Client; 2],
    history: VecDeque<Vec<Vec<u8>>>,
    differences: Vec<String>,
}

impl Pair {
    /// Both get the commands in one pipeline.
    fn play(&mut self, version: usize, batches: &[Batch]) {
        let commands: Vec<&Vec<Vec<u8>>> = batches.iter().flatten().collect();
        let bytes: Vec<u8> =
            commands.iter().flat_map(|command| Command::from_args(command).frame().to_vec()).collect();
        self.redis[version].write(&bytes).expect("it reads");
        self.ours[version].write(&bytes).expect("it reads");
        let mut queued: Vec<String> = Vec::new();
        for command in commands {
            let redis = self.redis[version].frame().expect("a reply of redis");
            let ours =
                self.ours[version].frame().unwrap_or_else(|error| panic!("{}: {error}", line(command)));
            let name = name_of(command);
            if !same(&name, &queued, &redis, &ours) {
                self.difference(command, &redis, &ours);
            }
            match name.as_str() {
                "multi" | "exec" | "discard" => queued.clear(),
                _ if ours.starts_with(b"+QUEUED") => queued.push(name),
                _ => {}
            }
            self.history.push_back(command.clone());
            if self.history.len() > HISTORY {
                self.history.pop_front();
            }
        }
    }

    fn difference(&mut self, command: &[Vec<u8>], redis: &Bytes, ours: &Bytes) {
        let show = |bytes: &Bytes| bytes[..bytes.len().min(400)].escape_ascii().to_string();
        let touches = |other: &&Vec<Vec<u8>>| {
            other.iter().skip(1).any(|word| word.starts_with(b"{") && command.contains(word))
        };
        let before: Vec<String> =
            self.history.iter().rev().filter(touches).take(8).map(|command| line(command)).collect();
        self.differences.push(format!(
            "{}\n  redis: {}\n   ours: {}\n  before it: {}",
            line(command),
            show(redis),
            show(ours),
            before.join(" | ").chars().take(1500).collect::<String>()
        ));
    }
}

fn same(name: &str, queued: &[String], redis: &Bytes, ours: &Bytes) -> bool {
    if redis == ours {
        return true;
    }
    let (Ok(from_redis), Ok(from_us)) = (Value::parse(redis), Value::parse(ours)) else { return false };
    match (&from_redis, &from_us) {
        (Value::Array(redis), Value::Array(ours)) if name == "exec" => {
            let all = redis.iter().zip(ours).zip(queued);
            redis.len() == ours.len()
                && redis.len() == queued.len()
                && all.into_iter().all(|((redis, ours), name)| alike(name, redis, ours))
        }
        _ => alike(name, &from_redis, &from_us),
    }
}

fn alike(name: &str, redis: &Value, ours: &Value) -> bool {
    match (redis, ours) {
        // Of several mistakes in one command, that in its keys is told first.
        (Value::Error(redis), Value::Error(ours)) if redis != ours => {
            let known = super::intended::KEY_ERRORS;
            let in_keys = known.iter().any(|known| known.as_bytes().strip_prefix(b"-") == Some(&ours[..]));
            // A wrong argument was taken for a key, one that lives elsewhere.
            in_keys || ours.starts_with(b"CROSSSLOT ")
        }
        // SET with a moment in the past leaves a key that is counted, and takes memory, until the server comes by.
        (Value::Integer(redis), Value::Integer(ours)) if name == "dbsize" => (redis - ours).abs() <= 3,
        (Value::Integer(_), Value::Null) | (Value::Null, Value::Integer(_)) if name == "memory|usage" => true,
        _ => compare::same(name, redis, ours),
    }
}

#[test]
fn random_commands_are_answered_as_redis_does() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let reference = RedisServer::start();
    let storage: Vec<RedisServer> = (0..4).map(|_| RedisServer::start()).collect();
    let tables = "[heat]\nthreshold = 1\nwindow_ms = 20\nhold_off_ms = 1".to_owned();
    let cluster = Cluster::up(Layout { tables, objects_max: 20, ..Layout::before(&storage) });
    let payload = payload(&reference.socket());
    let documented = tree::commands(&reference.connect().call(&["COMMAND", "DOCS"]));
    let socket = cluster.unix_socket();
    let unix = |socket| Client::unix(socket).expect("it accepts");
    let mut pair = Pair {
        redis: [reference.connect(), reference.connect().resp3()],
        ours: [unix(&socket), unix(&socket).resp3()],
        history: VecDeque::new(),
        differences: Vec::new(),
    };
    let case = cases::one();
    let seed = case.seed;
    let wanted = super::number(COMMANDS_VARIABLE).unwrap_or_else(|| u64::from(cases::times(COMMANDS)));
    let mut source = Source::new(&documented, &payload, seed);
    // At every server, as EVAL loads it at one.
    let load = ["SCRIPT", "LOAD", "return 1"].map(|word| word.as_bytes().to_vec()).to_vec();
    pair.play(0, &[vec![load]]);
    pair.play(0, &TAGS.map(|tag| vec![reset(tag)]));
    let (mut played, mut rounds) = (0, 0);
    while played < wanted && pair.differences.len() < DIFFERENCES_MAX {
        let batches: Vec<Batch> = (0..PIPELINE).map(|_| source.draw()).collect();
        played += batches.iter().map(|batch| batch.len() as u64).sum::<u64>();
        pair.play(rounds % 2, &batches);
        if rounds % 4 == 0 {
            let read = source.read();
            for _ in 0..READS {
                pair.play(rounds / 4 % 2, &[vec![read.clone()]]);
                played += 1;
            }
        }
        rounds += 1;
        if rounds % 400 == 0 {
            expire(&mut pair, rounds);
        }
    }
    let info = text(&cluster.connect(0).call(&["INFO", "distcache"]));
    let hits = info.lines().find_map(|line| line.strip_prefix("hits:")?.parse::<u64>().ok()).unwrap_or(0);
    let evictions: u64 = crate::cluster::total(&cluster.status(), "nodes", "evictions_total");
    drop(writeln!(
        std::io::stderr().lock(),
        "seed {seed}: {played} commands, {hits} hits, {evictions} evictions, {} differ",
        pair.differences.len()
    ));
    assert!(pair.differences.is_empty(), "seed {seed}, {played} commands\n{}", pair.differences.join("\n"));
    assert!(hits > played / 1000, "{hits} hits only");
}

/// Keys that live for a moment: gone at both, although they were cached.
fn expire(pair: &mut Pair, round: usize) {
    let mortal: Vec<String> = TAGS.iter().map(|tag| format!("{tag}mortal")).collect();
    for key in &mortal {
        for client in [&mut pair.redis[0], &mut pair.ours[0]] {
            assert_eq!(text(&client.call(&["SET", key, "v", "PX", "30"])), "OK", "round {round}");
            client.call(&["GET", key]);
        }
    }
    for key in &mortal {
        for client in [&mut pair.redis[0], &mut pair.ours[0]] {
            until("it expires", || (client.call(&["PTTL", key]) == Value::Integer(-2)).then_some(()));
            assert_eq!(client.call(&["GET", key]), Value::Null, "round {round}");
        }
    }
}
