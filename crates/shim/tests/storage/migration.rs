//! Keys that move from one real server to another while they are written and read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use config::Address;
use protocol::migration::{Departures, MigrationConfig, MigrationPhase};
use protocol::storage::network::{Backend, Endpoint, StorageInput};
use protocol::storage::redis::{FenceName, FenceShare, Redis, RedisSettings};
use protocol::storage::redis_migration::RedisMigration;
use protocol::storage::{MarkedPart, StorageEvent};
use shim::storage::Storage as Backed;
use wire::ShimId;

use crate::redis::{PATIENCE, PINNED, RESP2, RESP3, Storage, settings, users};
use crate::server::Server;

/// How many move, and how many stay.
const KEYS: usize = 2000;
const THERE: ShimId = ShimId(1);
/// Functions of clients.
const LIBRARY: &str =
    "#!lua name=own\nredis.register_function('get', function(keys) return redis.call('GET', keys[1]) end)";
const SHIMS: [&str; 2] = ["shim-0", "shim-1"];

/// Keys that begin with an `m`.
#[derive(Debug)]
struct Moving;

impl Departures for Moving {
    fn destination(&self, key: &[u8]) -> Option<ShimId> {
        (key.first() == Some(&b'm')).then_some(THERE)
    }
}

fn part(shim: &str) -> MarkedPart {
    let shims = SHIMS.iter().map(|name| (*name).to_owned()).collect();
    MarkedPart {
        id: "test".to_owned(),
        cluster: "test".to_owned(),
        shims,
        shim: shim.to_owned(),
        next: Vec::new(),
    }
}

fn of(server: &Server, shim: &str, seed: u64) -> RedisSettings {
    let own = settings(&Address::Unix(server.socket()), seed);
    let fence = FenceName { shim: shim.to_owned(), ..own.fence.clone() };
    RedisSettings { fence, mark: Some(part(shim)), ..own }
}

/// The first shim's storage, which can bring keys to the second's.
fn storage(home: &Server, there: &Server, seed: u64) -> Storage {
    let [before, after] = [vec!["shim-0".to_owned()], part("shim-0").shims];
    let mark = MarkedPart { shims: before, next: after, ..part("shim-0") };
    let own = RedisSettings { mark: Some(mark), ..of(home, "shim-0", seed) };
    let guest = RedisSettings {
        endpoint: Endpoint::Of(THERE),
        fence: FenceName { share: FenceShare::Arriving, ..own.fence.clone() },
        ..of(there, "shim-1", seed + 1000)
    };
    let config = MigrationConfig {
        patience: Duration::from_secs(5),
        transfers_max: 16,
        transfers_beside_max: 8,
        keys_per_second_max: 0,
    };
    let open = move |_| -> Box<dyn Backend> { Box::new(Redis::new(guest.clone())) };
    let backend = RedisMigration::new(config, Box::new(Redis::new(own)), Box::new(open));
    let others = BTreeMap::from([(THERE, (Address::Unix(there.socket()), None))]);
    let address = Address::Unix(home.socket());
    Storage::over(|_| Backed::new(Box::new(backend), Some(address), None).with_others(others))
}

fn begin(storage: &mut Storage) {
    // What there was before, the server has on record.
    let (departures, destinations, again) = (Arc::new(Moving), vec![THERE], false);
    storage.step(StorageInput::Migrate { departures, destinations, again });
}

fn until_moved(storage: &mut Storage) {
    let deadline = Instant::now() + PATIENCE;
    while storage.migration().is_none_or(|progress| progress.phase != MigrationPhase::Moved) {
        assert!(Instant::now() < deadline, "{:?}", storage.migration());
        storage.turn();
    }
}

fn fill(server: &Server) {
    let mut client = server.client();
    for number in 0..KEYS {
        for letter in ["m", "s"] {
            client.ask(&["SET", &format!("{letter}:{number}"), "0"]);
        }
    }
    client.ask(&["RPUSH", "m:list", "a", "b"]);
    client.ask(&["HSET", "m:hash", "f", "v"]);
    client.ask(&["SET", "m:brief", "x", "PX", "3600000"]);
    client.ask(&["FUNCTION", "LOAD", LIBRARY]);
}

fn ask(server: &Server, args: &[&str]) -> Bytes {
    server.client().ask(args)
}

/// How often keys were counted up: certainly, and perhaps.
type Counts = BTreeMap<String, [u64; 2]>;

/// Counts keys up, each several times, some of them while they move.
fn count_up(storage: &mut Storage, rounds: std::ops::Range<usize>, counts: &mut Counts) {
    let mut asked = VecDeque::new();
    for round in rounds {
        let number = round * 7919 % KEYS;
        let key = format!("{}:{number}", if round % 3 == 0 { "s" } else { "m" });
        // The commands of one key are on one connection.
        let lane = if number.is_multiple_of(2) { RESP2 } else { RESP3 };
        asked.push_back((storage.store(lane, &[&["INCR", &key]]), key));
        if asked.len() < 50 && round % 1000 != 999 {
            continue;
        }
        for (ticket, key) in asked.drain(..) {
            let counted = storage.ended(ticket).is_some_and(|reply| reply.starts_with(b":"));
            counts.entry(key).or_default()[usize::from(!counted)] += 1;
        }
    }
}

/// Whether each key is at its server alone, with what was counted.
fn check(home: &Server, there: &Server, counts: &Counts) {
    assert_eq!(ask(home, &["KEYS", "m*"]), "*0\r\n");
    assert_eq!(ask(home, &["DBSIZE"]), format!(":{KEYS}\r\n"));
    let [mut home, mut there] = [home.client(), there.client()];
    for (key, [certain, perhaps]) in counts {
        let server = if key.starts_with('m') { &mut there } else { &mut home };
        let value = server.ask(&["GET", key]);
        let value = String::from_utf8_lossy(&value).split("\r\n").nth(1).expect("a value").to_owned();
        let value: u64 = value.parse().expect("a number");
        assert!((*certain..=certain + perhaps).contains(&value), "{key}: {value}, {certain} and {perhaps}");
    }
}

#[test]
fn keys_are_written_and_read_while_they_move() {
    let (Some(home), Some(there)) = (Server::start(&[]), Server::start(&[])) else { return };
    fill(&home);
    let mut host = Storage::with(of(&there, "shim-1", 5));
    host.until_up();
    let mut storage = storage(&home, &there, 1);
    let incarnation = storage.until_up();
    let blocked = storage.store(PINNED, &[&["BLPOP", "m:queue", "0"]]);
    begin(&mut storage);
    let mut counts = Counts::new();
    count_up(&mut storage, 0..20_000, &mut counts);
    assert!(counts.len() > KEYS && counts.values().all(|[_, perhaps]| *perhaps == 0));
    until_moved(&mut storage);
    check(&home, &there, &counts);
    assert_eq!(storage.ask(RESP2, &["RPUSH", "m:queue", "job"]), ":1\r\n");
    assert_eq!(storage.ended(blocked).expect("a job"), "*2\r\n$7\r\nm:queue\r\n$3\r\njob\r\n");
    assert_eq!(storage.ask(RESP2, &["LRANGE", "m:list", "0", "-1"]), "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert_eq!(storage.ask(RESP2, &["HGET", "m:hash", "f"]), "$1\r\nv\r\n");
    assert_eq!(storage.ask(RESP2, &["FCALL", "get", "1", "m:brief"]), "$1\r\nx\r\n");
    let ttl = ask(&there, &["PTTL", "m:brief"]);
    let ttl: i64 = String::from_utf8_lossy(&ttl[1..]).trim().parse().expect("a number");
    assert!((3_000_000..=3_600_000).contains(&ttl), "{ttl}");
    assert!(users(&there).iter().any(|user| user.contains("shim-0/arriving")));

    storage.step(StorageInput::EndMigration);
    assert_eq!(storage.until_up(), incarnation, "nothing that was granted is void");
    storage.until("the end", |event| (*event == StorageEvent::MigrationEnded).then_some(()));
    assert!(storage.migration().is_none());
    let deadline = Instant::now() + PATIENCE;
    while users(&there).iter().any(|user| user.contains("arriving")) {
        assert!(Instant::now() < deadline, "{:?}", users(&there));
        storage.turn();
    }
    assert!(host.is_up(), "the server is its shim's as before");
}

/// What the next life of a process finds half done it ends, and what servers have of the last life comes too late.
#[test]
fn processes_die_and_connections_break_while_keys_move() {
    let (Some(home), Some(there)) = (Server::start(&[]), Server::start(&[])) else { return };
    fill(&home);
    let mut host = Storage::with(of(&there, "shim-1", 5));
    host.until_up();
    let mut counts = Counts::new();
    let mut moved = Vec::new();
    for life in 0..6 {
        let mut storage = storage(&home, &there, life + 1);
        storage.until_up();
        begin(&mut storage);
        let first = life as usize * 3000;
        for part in 0..3 {
            count_up(&mut storage, first + part * 1000..first + (part + 1) * 1000, &mut counts);
            let server = if (life as usize + part).is_multiple_of(2) { &home } else { &there };
            ask(server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            if part == 2 && life == 5 {
                until_moved(&mut storage);
            }
        }
        moved.push(storage.migration().expect("it moves").moved);
        // A process that dies leaves its users, and what it has sent.
        for number in 0..20 {
            storage.store(RESP2, &[&["INCR", &format!("m:{number}")]]);
            counts.entry(format!("m:{number}")).or_default()[1] += 1;
        }
    }
    assert!(moved.iter().sum::<u64>() >= KEYS as u64 - 200 && moved[0] < KEYS as u64, "{moved:?}");
    check(&home, &there, &counts);
}
