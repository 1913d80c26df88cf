//! The embedded store against a real redis-server: the same random commands, byte for byte the same replies.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use shim::storage::embedded::{Embedded, StoreClock};
use wire::resp::{Command, Value};

use crate::server::{Client, Server};

/// Distance of the store's clock from the wall clock: any will do.
const CLOCK_OFFSET_MS: u64 = 1_000_000_000;

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Carries out a command.
pub(crate) type Answer = Box<dyn FnMut(&Command) -> Bytes>;

pub(crate) struct Twins {
    embedded: Answer,
    client: Client,
}

fn in_memory(resp3: bool) -> Answer {
    let mut store = Embedded::new(1);
    Box::new(move |command| {
        let unix = unix_ms();
        let clock = StoreClock { now: (unix - CLOCK_OFFSET_MS) as i64, unix: unix as i64 };
        store.execute(clock, command, resp3)
    })
}

impl Twins {
    pub(crate) fn new(server: &Server, resp3: bool, embedded: Answer) -> Twins {
        let mut client = server.client();
        client.ask(&["FLUSHALL"]);
        if resp3 {
            client.ask(&["HELLO", "3"]);
        }
        Twins { embedded, client }
    }

    fn ask(&mut self, args: &[Vec<u8>]) -> (Bytes, Bytes) {
        let embedded = (self.embedded)(&Command::from_args(args));
        (embedded, self.client.ask(args))
    }

    fn check(&mut self, args: &[Vec<u8>]) {
        let (embedded, redis) = self.ask(args);
        let name = args[0].to_ascii_lowercase();
        let same = match name.as_slice() {
            b"ttl" | b"expiretime" => close(&embedded, &redis, 2),
            b"pttl" | b"pexpiretime" => close(&embedded, &redis, 5_000),
            b"keys" => sorted(&embedded) == sorted(&redis),
            b"randomkey" => embedded == redis || (embedded.starts_with(b"$") && redis.starts_with(b"$")),
            _ => embedded == redis,
        };
        let words: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
        let (embedded, redis) = (embedded.escape_ascii(), redis.escape_ascii());
        assert!(same, "{words:?}\n embedded: {embedded}\n redis:    {redis}");
    }

    fn check_text(&mut self, command: &str) {
        let args: Vec<Vec<u8>> = command.split(' ').map(|arg| arg.replace('_', " ").into_bytes()).collect();
        self.check(&args);
    }
}

/// Equal, or positive integers that differ by no more than the time between the two commands.
fn close(embedded: &Bytes, redis: &Bytes, tolerance: u64) -> bool {
    match (Value::parse(embedded), Value::parse(redis)) {
        (Ok(Value::Integer(left)), Ok(Value::Integer(right))) if left > 0 && right > 0 => {
            left.abs_diff(right) <= tolerance
        }
        _ => embedded == redis,
    }
}

fn sorted(reply: &Bytes) -> Vec<String> {
    let value = Value::parse(reply).expect("well formed");
    let Some(keys) = value.elements() else { return vec![format!("{value:?}")] };
    let mut keys: Vec<_> = keys.iter().map(|key| format!("{key:?}")).collect();
    keys.sort();
    keys
}

struct Source(SmallRng);

impl Source {
    fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    fn pick(&mut self, words: &str) -> Vec<u8> {
        let words: Vec<&str> = words.split(' ').collect();
        words[self.below(words.len())].as_bytes().to_vec()
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key:{}", self.below(8)).into_bytes()
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self
                .pick("9223372036854775807 -9223372036854775808 9223372036854775808 9223372036854775 -1 0"),
            1 => self.pick("abc 1.5 01 +1 -0 1e3 0x10"),
            _ => self.0.random_range(-20i64..40).to_string().into_bytes(),
        }
    }

    fn float(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => self.pick(
                "1e400 -1e400 inf -inf nan abc 5e5000 1e-20 .5 5. -.25 1e18 123456789012345678901234567890",
            ),
            1 => self.integer(),
            2 => self.0.random_range(-1e6f64..1e6).to_string().into_bytes(),
            3 => format!("{}e{}", self.0.random_range(-99i32..99), self.0.random_range(-12i32..25))
                .into_bytes(),
            _ => format!("{:.2}", self.0.random_range(-1000f64..1000.0)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(5) {
            0 => self.integer(),
            1 => self.float(),
            _ => {
                let len = self.pick("0 1 3 19 20 21 43 44 45 64 300");
                let len: usize = String::from_utf8(len).expect("digits").parse().expect("a number");
                (0..len).map(|_| self.0.random()).collect()
            }
        }
    }

    /// Far ahead, far back or refused, so that neither store sees it pass while the test runs. Spread widely,
    /// so that two of them never differ by as little as the time between the two stores' clocks.
    fn time(&mut self, absolute: bool) -> Vec<u8> {
        if self.below(4) == 0 {
            return self.pick("0 -1 -100000 9223372036854775807 9223372036854775 -9223372036854775808 x 1.5");
        }
        let ahead = self.0.random_range(100_000u64..10_000_000_000_000);
        let base = if absolute && self.below(8) > 0 { unix_ms() } else { 0 };
        (base + ahead).to_string().into_bytes()
    }

    fn arguments(&mut self, form: &str) -> Vec<Vec<u8>> {
        let (mut args, mut is_whole) = (Vec::new(), true);
        for (index, word) in form.split(' ').enumerate() {
            if index > 0 && self.below(60) == 0 {
                is_whole = false;
                continue;
            }
            match word {
                "K" => args.push(self.key()),
                "V" => args.push(self.value()),
                "I" => args.push(self.integer()),
                "F" => args.push(self.float()),
                "T" => args.push(self.time(false)),
                "A" => args.push(self.time(true)),
                "?cond" => self.some(&mut args, "nx xx gt lt NX XX zz", 2),
                "?set" => self.set_options(&mut args),
                "?getex" => self.getex_options(&mut args),
                "?keys" => (0..self.below(3)).for_each(|_| args.push(self.key())),
                "?pairs" => (0..self.below(3)).for_each(|_| args.extend([self.key(), self.value()])),
                "?copy" => self.some(&mut args, "replace REPLACE db 0 99", 2),
                "?pattern" => args.push(self.pick("* key:* key:[0-3] k?y:1 *:[^5] \\key:1 nothing key:[2-")),
                word => args.push(word.as_bytes().to_vec()),
            }
        }
        // One too many, but not in the place of one that is missing: a value would be a time that passes meanwhile.
        if self.below(60) == 0 && is_whole {
            args.push(self.value());
        }
        args
    }

    fn some(&mut self, args: &mut Vec<Vec<u8>>, words: &str, most: usize) {
        if self.below(2) == 0 {
            (0..=self.below(most)).for_each(|_| args.push(self.pick(words)));
        }
    }

    fn set_options(&mut self, args: &mut Vec<Vec<u8>>) {
        for _ in 0..self.below(4) {
            match self.below(5) {
                0 => args.extend([self.pick("ex px EX PX"), self.time(false)]),
                1 => args.extend([self.pick("exat pxat"), (unix_ms() * 1000).to_string().into_bytes()]),
                _ => args.push(self.pick("nx xx get keepttl NX XX GET KEEPTTL persist ex bad")),
            }
        }
    }

    fn getex_options(&mut self, args: &mut Vec<Vec<u8>>) {
        match self.below(5) {
            0 => args.extend([self.pick("ex px"), self.time(false)]),
            1 => args.extend([self.pick("exat pxat"), self.time(true)]),
            2 => self.some(args, "persist PERSIST keepttl nx ex", 3),
            _ => {}
        }
    }
}

const FORMS: &[&str] = &[
    "GET K",
    "SET K V ?set",
    "set K V",
    "SETEX K T V",
    "PSETEX K T V",
    "SETNX K V",
    "GETSET K V",
    "GETDEL K",
    "GETEX K ?getex",
    "APPEND K V",
    "STRLEN K",
    "GETRANGE K I I",
    "SUBSTR K I I",
    "SETRANGE K I V",
    "MGET K ?keys",
    "MSET K V ?pairs",
    "MSETNX K V ?pairs",
    "INCR K",
    "DECR K",
    "INCRBY K I",
    "DECRBY K I",
    "INCRBYFLOAT K F",
    "INCRBYFLOAT K F",
    "EXPIRE K T ?cond",
    "PEXPIRE K T ?cond",
    "EXPIREAT K A ?cond",
    "PEXPIREAT K A ?cond",
    "TTL K",
    "PTTL K",
    "EXPIRETIME K",
    "PEXPIRETIME K",
    "PERSIST K",
    "DEL K ?keys",
    "UNLINK K ?keys",
    "EXISTS K ?keys",
    "TOUCH K ?keys",
    "TYPE K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K ?copy",
    "KEYS ?pattern",
    "DBSIZE",
    "RANDOMKEY",
    "OBJECT ENCODING K",
    "PING",
    "PING V",
    "ECHO V",
    "SELECT 0",
];

/// So many commands for each of so many seeds.
pub(crate) fn random_commands(twins: &mut Twins, seeds: u32, commands: usize) {
    for case in cases::seeds(seeds) {
        let mut source = Source(SmallRng::seed_from_u64(case.seed));
        for _ in 0..commands {
            let form = FORMS[source.below(FORMS.len())];
            let args = source.arguments(form);
            twins.check(&args);
        }
        // The next seed begins with nothing, or none could be tried alone.
        twins.check_text("FLUSHALL");
    }
}

#[test]
fn random_commands_are_answered_as_by_redis_in_resp2() {
    random_commands_in_memory(false);
}

#[test]
fn random_commands_are_answered_as_by_redis_in_resp3() {
    random_commands_in_memory(true);
}

fn random_commands_in_memory(resp3: bool) {
    // The embedded store has one database.
    let Some(server) = Server::start(&["--databases", "1"]) else { return };
    random_commands(&mut Twins::new(&server, resp3, in_memory(resp3)), 6, 5_000);
}

#[test]
fn chosen_commands_are_answered_as_by_redis() {
    let Some(server) = Server::start(&[]) else { return };
    for resp3 in [false, true] {
        let mut twins = Twins::new(&server, resp3, in_memory(resp3));
        let odd = [&b"EXPIRE"[..], b"k", b"100", b"a\rb\n\r\n"].map(<[u8]>::to_vec);
        twins.check(&odd);
        for command in [
            "SETRANGE big 536870911 xy",
            "SETRANGE big 9223372036854775807 x",
            "SETRANGE k -1 x",
            "SETRANGE k 3 x",
            "GET k",
            "SET n 10 EX 100 EX 200",
            "TTL n",
            "INCR n",
            "TTL n",
            "APPEND n 5",
            "OBJECT ENCODING n",
            "OBJECT ENCODING nothing",
            "DECRBY n -9223372036854775808",
            "EXPIRE n 100 NX GT",
            "EXPIRE n 100 GT LT",
            "EXPIRE n 100 FOO_BAR",
            "SELECT 9223372036854775807",
            "SELECT -2147483649",
            "SELECT x",
            "COPY k l DB 2147483648",
            "COPY k k DB 0",
            "SCAN x",
            "SCAN 0 COUNT 0",
            "SCAN 0 COUNT x",
            "SCAN 0 MATCH",
            "SCAN 0 FOO 1",
            "SCAN 0 TYPE hash",
            "FLUSHALL FOO",
            "FLUSHDB ASYNC",
            "DBSIZE",
            "RANDOMKEY",
            "SELECT 16",
            "SELECT x",
            "CONFIG GET nothing",
            "PING a b",
            "OBJECT ENCODING",
        ] {
            twins.check_text(command);
        }
    }
}

#[test]
fn a_scan_returns_every_key_that_stays_although_others_come_and_go() {
    let mut store = Embedded::new(1);
    let mut run =
        |args: &[&str]| store.execute(StoreClock { now: 1, unix: 1 }, &Command::from_args(args), false);
    for number in 0..100 {
        run(&["SET", &format!("stays:{number}"), "v"]);
        run(&["SET", &format!("goes:{number}"), "v"]);
    }
    let (mut cursor, mut found, mut round) = ("0".to_string(), Vec::new(), 0);
    loop {
        let reply =
            Value::parse(&run(&["SCAN", &cursor, "MATCH", "stays:*", "COUNT", "7"])).expect("well formed");
        let [next, keys] = reply.elements().expect("an array") else { panic!("{reply:?}") };
        found.extend(keys.elements().expect("keys").iter().map(|key| format!("{key:?}")));
        cursor = String::from_utf8_lossy(next.bytes().expect("a cursor")).into_owned();
        if cursor == "0" {
            break;
        }
        run(&["DEL", &format!("goes:{round}")]);
        run(&["SET", &format!("comes:{round}"), "v"]);
        round += 1;
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 100);
}

#[test]
fn time_passes_by_the_clock_that_is_passed_in() {
    let mut store = Embedded::new(1);
    let mut run = |now: i64, args: &[&str]| {
        store.execute(StoreClock { now, unix: 5_000_000 + now }, &Command::from_args(args), false)
    };
    run(10, &["SET", "k", "v", "PX", "100"]);
    assert_eq!(run(60, &["PTTL", "k"]), ":50\r\n");
    assert_eq!(run(60, &["PEXPIRETIME", "k"]), ":5000110\r\n");
    assert_eq!(run(110, &["PTTL", "k"]), ":0\r\n");
    assert_eq!(run(111, &["GET", "k"]), "$-1\r\n");
    assert_eq!(run(111, &["DBSIZE"]), ":0\r\n");
}

#[test]
fn other_commands_name_the_storage_that_serves_them() {
    let mut store = Embedded::new(1);
    let reply =
        store.execute(StoreClock { now: 1, unix: 1 }, &Command::from_args(&["HSET", "h", "f", "v"]), false);
    let reply = String::from_utf8_lossy(&reply).into_owned();
    assert!(reply.starts_with("-ERR ") && reply.contains("'hset'"), "{reply}");
    assert!(reply.contains("--storage redis") && reply.contains("redis://"), "{reply}");
}
