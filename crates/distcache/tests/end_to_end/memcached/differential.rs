//! The same requests to a memcached and to a router: the same bytes must come back, but for the uniques, which are a
//! server's own.

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::requests::{Storage, Uniques, draw};
use super::{check_alone, cluster};
use crate::cluster::{MemcachedClient, MemcachedServer, RedisServer, installed, shared};

const CASES: u32 = 6000;

struct Side {
    client: MemcachedClient,
    uniques: Uniques,
}

impl Side {
    fn of(client: MemcachedClient) -> Side {
        Side { client, uniques: Uniques::default() }
    }

    fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        let filled = self.uniques.fill(request);
        let answer = self.client.ask(&filled);
        if find_unique(request) {
            let gets = self.client.ask(&Uniques::question());
            self.uniques.learn(&gets);
        }
        comparable(&answer)
    }
}

/// Whether anything may have given a key another unique since: all but a `get` alone.
fn find_unique(request: &[u8]) -> bool {
    !request.starts_with(b"get ") || request.iter().filter(|&&byte| byte == b'\n').count() > 1
}

/// An answer without what differs from server to server: uniques, as the last number of a line or behind `c`, and the
/// lengths of numbers.
fn comparable(answer: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in answer.split(|&byte| byte == b'\n') {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let kept: Vec<&[u8]> = match words[0] {
            b"VALUE" if words.len() == 5 => words[..4].to_vec(),
            b"VA" | b"HD" | b"NS" | b"EX" | b"NF" => {
                words.into_iter().filter(|word| !is_unique(word)).map(remaining).collect()
            }
            _ => words,
        };
        lines.push(kept.join(&b' '));
    }
    without_padding(&lines.join(&b'\n'))
}

/// Remaining seconds pass while both are asked: whether there are none, few or many.
fn remaining(word: &[u8]) -> &[u8] {
    let text = std::str::from_utf8(word).unwrap_or_default().trim_end();
    match text.strip_prefix('t').and_then(|seconds| seconds.parse::<i64>().ok()) {
        Some(0..=1000) => b"few",
        Some(1001..) => b"many",
        _ => word,
    }
}

fn is_unique(word: &[u8]) -> bool {
    let word = word.strip_suffix(b"\r").unwrap_or(word);
    matches!(word, [b'c' | b's', digits @ ..] if digits.iter().all(u8::is_ascii_digit))
}

/// memcached pads a number that a decrement made shorter with blanks, if nobody happens to read the old one at that
/// moment; over Redis it is not padded. What is compared is the number, and its length in the line before is not.
fn without_padding(text: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    for index in 1..lines.len() {
        let digits = lines[index].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let padded = lines[index][digits..].iter().all(|byte| b" \r".contains(byte));
        if digits > 0 && padded {
            lines[index].truncate(digits);
            let head = &mut lines[index - 1];
            if [&b"VALUE counter "[..], b"VALUE b ", b"VA "].iter().any(|start| head.starts_with(start)) {
                let counts = |byte: &u8| byte.is_ascii_digit();
                head.retain(|byte| !counts(byte));
            }
        }
    }
    lines.join(&b'\n')
}

fn check(storage: Storage, urls: Vec<String>) {
    let reference = MemcachedServer::start();
    let cluster = cluster(urls);
    let mut direct = Side::of(reference.connect());
    let mut through = Side::of(MemcachedClient::connect(cluster.router(0)));
    let single = cases::one();
    let seed = single.seed;
    let mut random = SmallRng::seed_from_u64(seed);
    for case in 0..cases::times(CASES) {
        let request = draw(&mut random, storage);
        let expected = direct.ask(&request);
        let got = through.ask(&request);
        assert_eq!(
            got.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "case {case} of seed {seed}: {}",
            request.escape_ascii()
        );
    }
    check_alone(&cluster);
    let stats = through.client.text("stats\r\n");
    assert!(!stats.contains("distcache_cached_hits 0\r\n"), "nothing was ever cached: {stats}");
}

#[test]
fn over_redis_it_answers_as_memcached_does() {
    if !installed(&["memcached", "redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    check(Storage::Redis, servers.iter().map(RedisServer::url).collect());
}

#[test]
fn over_memcached_it_answers_as_memcached_does() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let servers = [MemcachedServer::start(), MemcachedServer::start()];
    check(Storage::Memcached, servers.iter().map(MemcachedServer::url).collect());
}

#[test]
fn flags_of_a_new_number_are_carried_out_in_their_order() {
    if !installed(&["memcached", "redis-server"]) {
        return;
    }
    let _machine = shared();
    let (reference, server) = (MemcachedServer::start(), RedisServer::start());
    let cluster = cluster(vec![server.url()]);
    let mut direct = Side::of(reference.connect());
    let mut through = Side::of(MemcachedClient::connect(cluster.router(0)));
    for flags in
        ["T500 t N0", "T500 N0 t", "t T500 N0", "N0 T500 t", "N2000 t T500", "N0 t", "t N500", "T500 t"]
    {
        for request in ["md counter\r\n", &format!("ma counter {flags}\r\n"), "mg counter t v\r\n"] {
            let (expected, got) = (direct.ask(request.as_bytes()), through.ask(request.as_bytes()));
            assert_eq!(
                got.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{flags}: {request}"
            );
        }
    }
}
