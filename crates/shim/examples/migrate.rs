//! Moves all keys from one Redis server to another and compares it with what copies them without asking anybody: DUMP, RESTORE and
//! UNLINK in pipelines. Both servers are emptied. Arguments: the Unix sockets of two servers, the number of keys, bytes of a value.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use config::Address;
use protocol::coherence::lease::LeaseLimits;
use protocol::migration::{Departures, MigrationConfig, MigrationPhase};
use protocol::storage::StorageEvent;
use protocol::storage::network::{Backend, Endpoint, StorageInput};
use protocol::storage::redis::{FenceDemand, FenceName, FenceShare, LeaseRecord, Redis, RedisSettings};
use protocol::storage::redis_migration::RedisMigration;
use runtime::reactor::{Driver, Event, Io, Reactor};
use shim::storage::Storage;
use wire::ShimId;
use wire::resp::{Command, ReplyScanner, Value};

const THERE: ShimId = ShimId(1);
const PIPELINE: usize = 256;
const ROUNDS: usize = 3;

#[derive(Debug)]
struct All;

impl Departures for All {
    fn destination(&self, _key: &[u8]) -> Option<ShimId> {
        Some(THERE)
    }
}

struct Mover {
    storage: Storage,
    events: Vec<StorageEvent>,
}

impl Driver for Mover {
    fn event(&mut self, io: &mut Io, event: Event) {
        self.storage.event(io, event, &mut self.events);
    }
}

fn settings(address: &Address, endpoint: Endpoint, share: FenceShare) -> RedisSettings {
    RedisSettings {
        endpoint,
        address: address.to_string(),
        tls: false,
        user: None,
        password: None,
        fence: FenceName { cluster: "c".to_owned(), shim: "s".to_owned(), share },
        fence_demand: FenceDemand::Always,
        mark: None,
        adopts: true,
        lease_record: LeaseRecord {
            wait: Duration::from_secs(1),
            limits: LeaseLimits::default(),
            is_first: true,
        },
        standby: None,
        cluster_mode: false,
        timeout: Duration::from_secs(5),
        pinned_max: 4,
        seed: 1,
    }
}

fn move_as_a_shim(home: &Address, there: &Address) -> Duration {
    let guest = settings(there, Endpoint::Of(THERE), FenceShare::Arriving);
    let open = move |_| -> Box<dyn Backend> { Box::new(Redis::new(guest.clone())) };
    let own = Redis::new(settings(home, Endpoint::Configured, FenceShare::Whole));
    let transfers_max = std::env::var("TRANSFERS").ok().and_then(|text| text.parse().ok()).unwrap_or(64);
    let config = MigrationConfig {
        patience: Duration::from_secs(5),
        transfers_max,
        transfers_beside_max: 8,
        keys_per_second_max: 0,
    };
    let backend = RedisMigration::new(config, Box::new(own), Box::new(open));
    let others = BTreeMap::from([(THERE, (there.clone(), None))]);
    let storage = Storage::new(Box::new(backend), Some(home.clone()), None).with_others(others);
    let mut mover = Mover { storage, events: Vec::new() };
    let mut reactor = Reactor::new(Io::new().expect("a reactor"));
    let is_up = |event: &StorageEvent| matches!(event, StorageEvent::Up { .. });
    while !mover.events.iter().any(is_up) {
        reactor.turn(&mut mover, None).expect("a turn");
    }
    let input = StorageInput::Migrate { departures: Arc::new(All), destinations: vec![THERE], again: false };
    let now = reactor.io().now();
    mover.storage.step(reactor.io(), now, input, &mut mover.events);
    let phase = |mover: &Mover| mover.storage.migration().expect("it moves").phase;
    while phase(&mover) < MigrationPhase::Moving {
        reactor.turn(&mut mover, None).expect("a turn");
    }
    let begun = Instant::now();
    while phase(&mover) < MigrationPhase::Moved {
        reactor.turn(&mut mover, None).expect("a turn");
    }
    begun.elapsed()
}

/// A connection that sends many commands and then reads.
struct Client {
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Client {
    fn new(address: &Address) -> Client {
        let Address::Unix(path) = address else { panic!("{address}: give a Unix socket") };
        Client { stream: UnixStream::connect(path).expect("a server"), bytes: Vec::new() }
    }

    fn ask(&mut self, commands: &[Command]) -> Vec<Bytes> {
        let all: Vec<u8> = commands.iter().flat_map(|command| command.frame().to_vec()).collect();
        self.stream.write_all(&all).expect("the server reads");
        self.bytes.clear();
        let (mut replies, mut read, mut chunk) = (Vec::new(), 0, vec![0; 1 << 16]);
        let mut scanner = ReplyScanner::new();
        while replies.len() < commands.len() {
            match scanner.scan(&self.bytes[read..]).expect("a reply") {
                Some(length) => {
                    replies.push(Bytes::copy_from_slice(&self.bytes[read..read + length]));
                    read += length;
                    scanner = ReplyScanner::new();
                }
                None => {
                    let count = self.stream.read(&mut chunk).expect("bytes");
                    self.bytes.extend_from_slice(&chunk[..count]);
                }
            }
        }
        replies
    }

    fn fill(&mut self, keys: usize, value: &str) {
        self.ask(&[Command::from_args(&["FLUSHALL"])]);
        for first in (0..keys).step_by(PIPELINE) {
            let sets = (first..keys.min(first + PIPELINE)).map(|number| format!("key:{number}"));
            let sets: Vec<Command> = sets.map(|key| Command::from_args(&["SET", &key, value])).collect();
            self.ask(&sets);
        }
    }

    fn count(&mut self) -> Bytes {
        self.ask(&[Command::from_args(&["DBSIZE"])]).remove(0)
    }
}

/// SCAN, and for each page the three commands of all its keys at once.
fn move_bare(home: &mut Client, there: &mut Client) -> Duration {
    let begun = Instant::now();
    let mut cursor = "0".to_owned();
    loop {
        let page = home.ask(&[Command::from_args(&["SCAN", &cursor, "COUNT", "256"])]).remove(0);
        let page = Value::parse(&page).expect("a page");
        let [next, keys] = page.elements().expect("a cursor and keys") else { panic!("{page:?}") };
        let keys: Vec<&[u8]> =
            keys.elements().expect("keys").iter().filter_map(|key| Some(&key.bytes()?[..])).collect();
        let each = |words: &dyn Fn(&[u8]) -> Command| keys.iter().map(|key| words(key)).collect::<Vec<_>>();
        let dumps = home.ask(&each(&|key| Command::from_args(&[b"DUMP", key])));
        let values = dumps.iter().map(|dump| Value::parse(dump).expect("a value"));
        let restores = keys.iter().zip(values).filter_map(|(key, value)| {
            Some(Command::from_args(&[b"RESTORE", *key, b"0", &value.bytes()?[..], b"REPLACE"]))
        });
        there.ask(&restores.collect::<Vec<_>>());
        home.ask(&each(&|key| Command::from_args(&[b"UNLINK", key])));
        cursor = String::from_utf8_lossy(next.bytes().expect("a cursor")).into_owned();
        if cursor == "0" {
            return begun.elapsed();
        }
    }
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [home, there, keys, bytes] = &arguments[..] else { panic!("give two sockets, keys and bytes") };
    let [home, there] = [home, there].map(|path| Address::Unix(path.into()));
    let (keys, value) = (keys.parse().expect("a number"), "v".repeat(bytes.parse().expect("a number")));
    let [mut source, mut target] = [&home, &there].map(Client::new);
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let mut moved = [Duration::ZERO; 2];
        for (index, moved) in moved.iter_mut().enumerate() {
            target.ask(&[Command::from_args(&["FLUSHALL"])]);
            source.fill(keys, &value);
            *moved = match index {
                0 => move_bare(&mut source, &mut target),
                _ => move_as_a_shim(&home, &there),
            };
            assert_eq!(
                (&source.count()[..], target.count()),
                (&b":0\r\n"[..], format!(":{keys}\r\n").into())
            );
        }
        let rate = moved.map(|moved| keys as f64 / moved.as_secs_f64());
        ratios.push(rate[1] / rate[0]);
        println!(
            "bare {:.0} keys/s, as a shim {:.0} keys/s, {:.2} of it",
            rate[0],
            rate[1],
            rate[1] / rate[0]
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:.2}", ratios[ROUNDS / 2]);
}
