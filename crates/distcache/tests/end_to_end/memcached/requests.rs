//! Requests drawn at random over few keys, so that they meet, and what of their answers no two servers share.

use std::collections::HashMap;

use rand::RngExt as _;
use rand::rngs::SmallRng;

/// What stands for the unique that a server gave a key last; each server's own is put there.
const UNIQUE: &[u8] = b"<unique of ";

const KEYS: [&str; 6] =
    ["a", "b", "counter", "key\twith\x01control", "d", "a-longer-key-of-more-than-32-bytes"];
/// Counters, none above 2^63: memcached looks for a minus sign behind those, where older values may have left one.
const NUMBERS: [&str; 7] = ["0", "1", "9", "10", "99", "4294967296", "12345678901"];
/// Never one that ends while a test runs.
const EXPTIMES: [&str; 6] = ["0", "0", "0", "1000", "-1", "2000000000"];

/// Part of a key that is too long.
const TOO_LONG: &str = "kkkk";

/// What storage can keep: Redis has no flags, no marks and no times of use.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Storage {
    Redis,
    Memcached,
}

/// One request, or some that come together.
pub(super) fn draw(random: &mut SmallRng, storage: Storage) -> Vec<u8> {
    let count = if random.random_bool(0.2) { random.random_range(2..6) } else { 1 };
    let mut bytes = Vec::new();
    for _ in 0..count {
        let request = one(random, storage);
        // A retrieval of a key that is too long takes the answers to what came with it along: memcached's, not ours.
        // A unique of Redis is the content's, so that a value which comes again in between is as good as unchanged.
        let whole = |part: &[u8]| find(&request, part).is_none();
        if count == 1 || whole(TOO_LONG.as_bytes()) && (storage == Storage::Memcached || whole(UNIQUE)) {
            bytes.extend_from_slice(&request);
        }
    }
    bytes
}

fn one(random: &mut SmallRng, storage: Storage) -> Vec<u8> {
    match random.random_range(0..20) {
        0..=4 => retrieval(random),
        5..=9 => classic_store(random, storage),
        10 => format!("delete {}{}\r\n", key(random), noreply(random)).into_bytes(),
        11 | 12 => {
            let name = pick(random, &["incr", "decr"]);
            format!("{name} {} {}{}\r\n", counted(random), pick(random, &NUMBERS), noreply(random))
                .into_bytes()
        }
        13 => {
            format!("touch {} {}{}\r\n", key(random), pick(random, &EXPTIMES), noreply(random)).into_bytes()
        }
        14 => malformed(random),
        15 | 16 => meta_get(random, storage),
        17 | 18 => meta_store(random),
        _ => meta_other(random),
    }
}

fn pick<'a>(random: &mut SmallRng, from: &[&'a str]) -> &'a str {
    from[random.random_range(0..from.len())]
}

fn key(random: &mut SmallRng) -> &'static str {
    pick(random, &KEYS)
}

/// Mostly the key that has numbers, and one that seldom has.
fn counted(random: &mut SmallRng) -> &'static str {
    if random.random_bool(0.8) { "counter" } else { "b" }
}

/// A key to append to: never one that counts, because numbers that have become shorter may be padded.
fn joined(random: &mut SmallRng) -> &'static str {
    pick(random, &["a", "d"])
}

fn noreply(random: &mut SmallRng) -> &'static str {
    if random.random_bool(0.1) { " noreply" } else { "" }
}

fn retrieval(random: &mut SmallRng) -> Vec<u8> {
    let name = pick(random, &["get", "get", "get", "gets", "gat 1000", "gats 0", "gat -1"]);
    let keys: Vec<&str> = (0..random.random_range(1..4)).map(|_| key(random)).collect();
    format!("{name} {}\r\n", keys.join(" ")).into_bytes()
}

fn value(random: &mut SmallRng, key: &str) -> Vec<u8> {
    if key == "counter" {
        return pick(random, &NUMBERS).as_bytes().to_vec();
    }
    match random.random_range(0..4) {
        0 => Vec::new(),
        1 => b"\r\nEND\r\n\0\xff".to_vec(),
        2 => vec![b'x'; random.random_range(1..3000)],
        _ => random.random::<[u8; 7]>().to_vec(),
    }
}

fn client_flags(random: &mut SmallRng, storage: Storage) -> u32 {
    if storage == Storage::Memcached && random.random_bool(0.3) { random.random() } else { 0 }
}

fn classic_store(random: &mut SmallRng, storage: Storage) -> Vec<u8> {
    let name = pick(random, &["set", "set", "set", "add", "replace", "append", "prepend", "cas"]);
    let key = match name {
        "append" | "prepend" => joined(random),
        _ => key(random),
    };
    let (value, flags) = (value(random, key), client_flags(random, storage));
    let mut bytes = format!("{name} {key} {flags} {} {}", pick(random, &EXPTIMES), value.len()).into_bytes();
    if name == "cas" {
        bytes.push(b' ');
        bytes.extend_from_slice(&unique(random, key));
    }
    bytes.extend_from_slice(noreply(random).as_bytes());
    bytes.extend([b"\r\n", &value[..], b"\r\n"].concat());
    bytes
}

fn unique(random: &mut SmallRng, key: &str) -> Vec<u8> {
    match random.random_bool(0.7) {
        true => [UNIQUE, key.as_bytes(), b">"].concat(),
        // A server counts to small ones.
        false => b"7777777777777".to_vec(),
    }
}

fn flags(random: &mut SmallRng, from: &[&str]) -> String {
    let mut left: Vec<&str> = from.to_vec();
    let mut text = String::new();
    for _ in 0..random.random_range(0..=from.len().min(4)) {
        let flag = left.swap_remove(random.random_range(0..left.len()));
        text.push(' ');
        text.push_str(flag);
    }
    text
}

fn meta_key(random: &mut SmallRng) -> (&'static str, &'static str) {
    match random.random_bool(0.1) {
        // "binary \0 key" and nothing that is base64.
        true => pick_pair(random, &[("YmluYXJ5IAAga2V5", " b"), ("no!base6", " b")]),
        false => (key(random), ""),
    }
}

fn pick_pair(random: &mut SmallRng, from: &[(&'static str, &'static str)]) -> (&'static str, &'static str) {
    from[random.random_range(0..from.len())]
}

fn meta_get(random: &mut SmallRng, storage: Storage) -> Vec<u8> {
    let (key, base64) = meta_key(random);
    let all = ["v", "v", "f", "c", "k", "Oopaque", "q", "t", "u", "T1000", "s", "v"];
    let usable = if storage == Storage::Memcached { &all[..] } else { &all[..10] };
    format!("mg {key}{base64}{}\r\n", flags(random, usable)).into_bytes()
}

fn meta_store(random: &mut SmallRng) -> Vec<u8> {
    let (key, base64) = meta_key(random);
    let flags = flags(random, &["c", "k", "O7", "q", "T0", "T1000", "MS", "ME", "MR", "MA", "MP", "MX"]);
    let joins = flags.contains(" MA") || flags.contains(" MP");
    let (key, base64) = if joins { (joined(random), "") } else { (key, base64) };
    let value = value(random, key);
    let mut bytes = format!("ms {key} {}{base64}{flags}", value.len()).into_bytes();
    if random.random_bool(0.3) && base64.is_empty() {
        bytes.extend([b" C", &unique(random, key)[..]].concat());
    }
    bytes.extend([b"\r\n", &value[..], b"\r\n"].concat());
    bytes
}

fn meta_other(random: &mut SmallRng) -> Vec<u8> {
    let (key, base64) = meta_key(random);
    let deletes = random.random_bool(0.3);
    let text = match deletes {
        true => format!("md {key}{base64}{}", flags(random, &["q", "k", "Oo", "C7777777777777"])),
        false => {
            let key = counted(random);
            // Without T, which memcached sets on the number that it replaces, if it does not count in place.
            format!("ma {key}{}", flags(random, &["v", "k", "Oo", "t", "c", "D5", "MD", "MI", "N0", "J13"]))
        }
    };
    format!("{text}\r\n").into_bytes()
}

fn malformed(random: &mut SmallRng) -> Vec<u8> {
    let long = TOO_LONG.repeat(63);
    let line = match random.random_range(0..16) {
        0 => "bogus",
        1 => "get",
        2 => "set a 0 0",
        3 => "set a x 0 1",
        4 => "incr counter -1x",
        5 => "touch a x",
        6 => "delete a 1",
        7 => "mg a x",
        8 => "mg a v v",
        9 => "ms a",
        10 => "ms a x",
        11 => "set a 0 0 -1",
        12 => "cas a 0 0 1 x",
        13 => return format!("get a {long} b\r\n").into_bytes(),
        14 => return b"set a 0 0 3\r\nlonger\r\n".to_vec(),
        _ => "ma a MX",
    };
    format!("{line}\r\n").into_bytes()
}

/// The uniques that one server has given.
#[derive(Default)]
pub(super) struct Uniques(HashMap<Vec<u8>, Vec<u8>>);

impl Uniques {
    /// The request with the server's own uniques in it; one that it never gave is zero.
    pub(super) fn fill(&self, request: &[u8]) -> Vec<u8> {
        let mut filled = Vec::new();
        let mut rest = request;
        while let Some(at) = find(rest, UNIQUE) {
            filled.extend_from_slice(&rest[..at]);
            let name = &rest[at + UNIQUE.len()..];
            let end = find(name, b">").expect("the end of a place");
            let known = self.0.get(&name[..end]).map_or(&b"0"[..], |unique| &unique[..]);
            filled.extend_from_slice(known);
            rest = &name[end + 1..];
        }
        filled.extend_from_slice(rest);
        filled
    }

    /// Learns what `gets` of all keys answers.
    pub(super) fn learn(&mut self, answer: &[u8]) {
        self.0.clear();
        let mut rest = answer;
        while let Some(line) = rest.strip_prefix(b"VALUE ") {
            let end = find(line, b"\r\n").expect("a whole line");
            let words: Vec<&[u8]> = line[..end].split(|&byte| byte == b' ').collect();
            self.0.insert(words[0].to_vec(), words[3].to_vec());
            let bytes: usize = std::str::from_utf8(words[2]).expect("a number").parse().expect("a number");
            rest = &line[end + 2 + bytes + 2..];
        }
    }

    pub(super) fn question() -> Vec<u8> {
        format!("gets {}\r\n", KEYS.join(" ")).into_bytes()
    }
}

pub(super) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
