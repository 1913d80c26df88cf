//! CLIENT TRACKING: what clients that cache are told, beside a real Redis and under load. Not how changes travel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::resp::Value;

use crate::cluster::{
    Client, Cluster, Layout, Program, RedisServer, alone, installed, python, shared, text, until,
};
use crate::coherence::layout;

/// Who says what; see there.
const SESSION: &str = include_str!("tracking_session.txt");

/// A connection that hears of its own writes at every server, and so of all that was written before.
struct Barrier {
    client: Client,
    name: &'static str,
    round: u64,
}

/// Enough for each of some servers to have one.
const KEYS: usize = 24;

impl Barrier {
    fn new(client: Client, name: &'static str) -> Barrier {
        let mut client = client.resp3();
        assert_eq!(text(&client.call(&["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", name])), "OK");
        Barrier { client, name, round: 0 }
    }

    fn wait(&mut self) {
        self.round += 1;
        let keys: Vec<String> = (0..KEYS).map(|key| format!("{}{}:{key}", self.name, self.round)).collect();
        let sent: String = keys.iter().map(|key| format!("SET {key} 1 PX 60000\r\n")).collect();
        self.client.write(sent.as_bytes()).expect("written");
        let mut missing = 2 * KEYS;
        while missing > 0 {
            let frame = self.client.frame().expect("a reply or a push");
            match Value::parse(&frame).expect("a whole reply") {
                Value::Push(values) => {
                    let Some(Value::Array(names)) = values.get(1) else { continue };
                    missing -= names.iter().filter(|name| keys.contains(&text(name))).count();
                }
                reply => {
                    assert_eq!(text(&reply), "OK");
                    missing -= 1;
                }
            }
        }
    }
}

/// Everything that each line of the session brings to each of the clients.
fn session(connect: impl Fn() -> Client) -> Vec<String> {
    let mut clients: Vec<Client> = (0..4).map(|_| connect()).collect();
    let numbers: Vec<String> = clients
        .iter_mut()
        .map(|client| match client.call(&["CLIENT", "ID"]) {
            Value::Integer(number) => number.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    // One for each thread of a router at least: what another thread has heard by now says nothing of this one.
    let mut barriers =
        ["barrier:a", "barrier:b", "barrier:c", "barrier:d"].map(|name| Barrier::new(connect(), name));
    let mut shown = Vec::new();
    for line in SESSION.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (who, commands) = line.split_once("> ").expect("CLIENT> COMMANDS");
        let speaker = usize::from(who.as_bytes()[0] - b'a');
        let sent: String = commands.split(" / ").map(|command| format!("{command}\r\n")).collect();
        shown.push(line.to_owned());
        clients[speaker].write(sent.replace("@c", &numbers[2]).as_bytes()).expect("written");
        let mut own = clients[speaker].heard();
        barriers.iter_mut().for_each(Barrier::wait);
        own.extend(clients[speaker].heard());
        let nameless = |frame: String| frame.replace(&format!(":{}\\r\\n", numbers[2]), ":@c");
        let own: Vec<String> = own.into_iter().map(nameless).collect();
        shown.push(format!("{who} {}", own.join(" ")));
        for (index, client) in clients.iter_mut().enumerate().filter(|(index, _)| *index != speaker) {
            let frames = client.heard();
            if !frames.is_empty() {
                shown.push(format!("{} {}", char::from(b'a' + index as u8), frames.join(" ")));
            }
        }
    }
    shown
}

#[test]
fn clients_that_cache_are_told_what_redis_tells_them() {
    check_session(Program::Redis);
}

pub(crate) fn check_session(program: Program) {
    if !program.is_installed() {
        return;
    }
    let _machine = shared();
    let direct = program.start();
    let expected = session(|| direct.connect());
    for count in [1, 3] {
        let servers: Vec<RedisServer> = (0..count).map(|_| program.start()).collect();
        let cluster = Cluster::up(Layout::before(&servers));
        let seen = session(|| cluster.connect(0));
        let mut line = "";
        for (seen, expected) in seen.iter().zip(&expected) {
            assert_eq!(seen, expected, "{count} servers, after {line:?}");
            line = expected;
        }
        assert_eq!(seen.len(), expected.len());
    }
}

/// A client with a cache of its own, by the protocol: what it is told to drop, it drops.
pub(crate) struct Caching {
    client: Client,
    cache: BTreeMap<String, Value>,
    hits: u64,
}

impl Caching {
    pub(crate) fn new(client: Client) -> Caching {
        let mut client = client.resp3();
        assert_eq!(text(&client.call(&["CLIENT", "TRACKING", "ON"])), "OK");
        Caching { client, cache: BTreeMap::new(), hits: 0 }
    }

    /// The reply to a command; pushes before it are obeyed.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Value {
        self.client.write(wire::resp::Command::from_args(words).frame()).expect("written");
        loop {
            match Value::parse(&self.client.frame().expect("a reply")).expect("a whole reply") {
                Value::Push(values) => match values.get(1) {
                    Some(Value::Array(names)) => {
                        names.iter().for_each(|name| drop(self.cache.remove(&text(name))));
                    }
                    _ => self.cache.clear(),
                },
                reply => return reply,
            }
        }
    }

    pub(crate) fn holds(&self, key: &str) -> Option<&Value> {
        self.cache.get(key)
    }

    pub(crate) fn read(&mut self, key: &str) {
        if self.cache.contains_key(key) {
            self.hits += 1;
            return;
        }
        let value = self.ask(&["GET", key]);
        assert!(!matches!(value, Value::Error(_)), "{value:?}");
        self.cache.insert(key.to_owned(), value);
    }
}

/// Four clients that cache, through two routers, and somebody who writes and expires keys behind them all.
fn caches_agree(bounded: bool) {
    const ROUNDS: u64 = 3000;
    let servers = [RedisServer::start(), RedisServer::start()];
    let tables = if bounded { "mode = \"bounded\"\n".to_owned() } else { String::new() };
    let cluster = Cluster::apart(Layout { tables, ..layout(&servers) });
    let done = AtomicU64::new(0);
    let mut clients: Vec<Caching> = (0..4).map(|index| Caching::new(cluster.connect(index % 2))).collect();
    let keys: Vec<String> = (0..12).map(|key| format!("key:{key}")).collect();
    let mut directs = servers.each_ref().map(RedisServer::connect);
    std::thread::scope(|scope| {
        for (index, client) in clients.iter_mut().enumerate() {
            let (done, keys) = (&done, &keys);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let key = &keys[((round * 7 + index as u64 * 5 + round / 11) % 12) as usize];
                    let value = format!("{index}:{round}");
                    match round % 50 {
                        0 => drop(client.ask(&["SET", key, &value])),
                        // It expires while it is cached.
                        25 => drop(client.ask(&["SET", key, &value, "PX", "20"])),
                        _ => client.read(key),
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            // In strict mode nobody else writes, but storage itself lets go of keys.
            while bounded && done.load(Ordering::Relaxed) < 4 {
                for (server, direct) in directs.iter_mut().enumerate() {
                    let present = direct.call(&["RANDOMKEY"]);
                    if present != Value::Null {
                        direct.call(&["SET", &text(&present), &format!("direct:{server}")]);
                    }
                }
            }
        });
    });
    let hits: u64 = clients.iter().map(|client| client.hits).sum();
    assert!(hits > 0, "{hits} reads were answered from clients' caches");
    // Each is told of every expiry in the end, and then of nothing more.
    let mut barriers = [(0, "first"), (0, "second"), (1, "third"), (1, "fourth")]
        .map(|(router, name)| Barrier::new(cluster.connect(router), name));
    barriers.iter_mut().for_each(Barrier::wait);
    for client in &mut clients {
        // What it has been told while it did nothing.
        drop(client.ask(&["PING"]));
        keys.iter().for_each(|key| client.read(key));
    }
    let mut reader = cluster.connect(0);
    until("what clients hold is what storage holds", || {
        barriers.iter_mut().for_each(Barrier::wait);
        clients.iter_mut().for_each(|client| drop(client.ask(&["PING"])));
        let held = clients.iter().flat_map(|client| &client.cache);
        let differs = held.filter(|(key, value)| reader.call(&["GET", key]) != **value).count();
        (differs == 0).then_some(())
    });
    assert!(clients.iter().all(|client| !client.cache.is_empty()));
}

#[test]
fn what_clients_cache_is_what_storage_has() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    caches_agree(false);
}

#[test]
fn what_clients_cache_is_what_storage_has_where_others_write() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    caches_agree(true);
}

/// Whatever breaks on the way, clients are told to drop what nobody could tell them of.
#[test]
fn lost_links_empty_the_caches() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let mut cluster = Cluster::apart(Layout::before(&servers));
    let mut client = Caching::new(cluster.connect(0));
    let mut direct = servers[0].connect();
    for trouble in ["feed", "shim"] {
        until("the key is cached", || {
            drop(client.ask(&["PING"]));
            client.read("k");
            client.cache.get("k").is_some_and(|value| !matches!(value, Value::Error(_))).then_some(())
        });
        if trouble == "feed" {
            let feed = until("storage reports changes", || crate::bounded::feed_of(&servers[0]));
            direct.call(&["CLIENT", "KILL", "ID", &feed]);
        } else {
            cluster.kill("shim-0");
        }
        direct.call(&["SET", "k", trouble]);
        until("the client's cache is empty", || {
            drop(client.ask(&["PING"]));
            client.cache.is_empty().then_some(())
        });
        if trouble == "shim" {
            cluster.start("shim-0");
        }
    }
    let mut writer = cluster.connect(0);
    until("changes are told again", || {
        drop(client.ask(&["PING"]));
        if let Value::Error(_) = client.ask(&["GET", "k"]) {
            return None;
        }
        client.cache.insert("k".to_owned(), Value::Null);
        writer.call(&["SET", "k", "again"]);
        drop(client.ask(&["PING"]));
        client.cache.is_empty().then_some(())
    });
}

#[test]
fn redis_py_caches_unmodified() {
    let Some(python) = python().filter(|_| installed(&["redis-server"])) else { return };
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/redis_py_caching.py");
    let mut command = std::process::Command::new(python);
    command.args(["-B", script]).arg(cluster.router(0).port().to_string());
    let output = command.output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A client that was told OK and heard of nothing would keep what is old.
#[test]
fn where_storage_reports_nothing_nobody_tracks() {
    let _machine = shared();
    let cluster = Cluster::up(Layout::embedded(2));
    let mut client = cluster.connect(0).resp3();
    for command in [&["CLIENT", "TRACKING", "ON"][..], &["CLIENT", "TRACKING", "ON", "BCAST"]] {
        let told = text(&client.call(command));
        assert!(told.contains("embedded storage does not report changes"), "{told}");
        assert_eq!(text(&client.call(&["CLIENT", "TRACKING", "OFF"])), "OK");
    }
}
