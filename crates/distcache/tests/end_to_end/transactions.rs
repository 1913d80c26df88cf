//! MULTI to EXEC through DistCache and directly to Redis: the same replies, all or nothing, no stale hit.

use redis::RedisResult;
use wire::resp::Value;

use crate::cluster::{Client, Cluster, Layout, Program, RedisServer, installed, shared, text, until};

/// Lines of one connection each, or of another where they begin with `2>`; every reply must be the one that Redis gives.
const SESSIONS: &[&[&str]] = &[
    &["MULTI", "SET {t}a 1", "INCR {t}a", "GET {t}a", "EXEC", "GET {t}a"],
    &["MULTI", "EXEC", "EXEC", "DISCARD", "UNWATCH"],
    &["MULTI", "SET {t}b 1", "DISCARD", "GET {t}b", "EXEC"],
    &["MULTI", "MULTI", "SET {t}b 2", "EXEC", "GET {t}b"],
    &["MULTI", "WATCH {t}a", "GET {t}b", "EXEC", "GET {t}b"],
    &["MULTI", "SET {t}b", "SET {t}b 3", "EXEC", "GET {t}b"],
    &["MULTI", "GET", "EXEC extra", "PING", "EXEC"],
    &["MULTI", "EXEC now", "EXEC", "EXEC now", "MULTI now", "DISCARD now"],
    &["MULTI", "LPUSH {t}a 1", "SET {t}b 4", "EXEC", "GET {t}b"],
    &["MULTI", "PING", "PING x", "ECHO y", "SELECT 0", "GET {t}b", "EXEC"],
    &["MULTI", "CLIENT SETNAME me", "CLIENT GETNAME", "UNWATCH", "EXEC", "CLIENT GETNAME"],
    &["MULTI", "SET {t}b 5", "RESET", "EXEC", "GET {t}b"],
    &["MULTI", "BLPOP {t}l 0", "RPUSH {t}l 1 2", "BLPOP {t}l 0", "BRPOP {t}m {t}l 0", "BLPOP {t}l 0", "EXEC"],
    &["MULTI", "XADD {t}x 1-1 f v", "XREAD BLOCK 0 STREAMS {t}x 0", "XREAD BLOCK 0 STREAMS {t}x $", "EXEC"],
    &["MULTI", "HSET {t}h f 1", "HGETALL {t}h", "ZADD {t}z 1.5 m", "ZRANGE {t}z 0 -1 WITHSCORES", "EXEC"],
    &["MULTI", "EVAL return(1) x", "EVAL return(1) 0", "EVAL return(KEYS[1]) 1 {t}k", "EXEC"],
    &[
        "MULTI",
        "MSET {t}a",
        "MSET {t}a 1 {t}b",
        "EXEC",
        "MULTI",
        "MSET {t}a 7 {t}b 8",
        "MGET {t}a {t}b",
        "EXEC",
    ],
    &["MULTI", "ZUNION 0 {t}z", "XREAD {t}x", "XREAD STREAMS {t}x", "EXEC"],
    &["MULTI", "SET {t}e 1 PX 100000", "PERSIST {t}e", "TTL {t}e", "EXEC"],
    &["MULTI", "DEL {t}a {t}b {t}none", "EXISTS {t}a {t}b", "EXEC"],
    &["SET {t}w 1", "WATCH {t}w", "GET {t}w", "MULTI", "SET {t}w 2", "EXEC", "GET {t}w"],
    &[
        "WATCH {t}w {t}v",
        "2>SET {t}v 9",
        "MULTI",
        "SET {t}w 3",
        "EXEC",
        "GET {t}w",
        "MULTI",
        "SET {t}w 4",
        "EXEC",
    ],
    &["WATCH {t}w", "SET {t}w 5", "MULTI", "GET {t}w", "EXEC"],
    &["WATCH {t}w", "2>SET {t}w 6", "UNWATCH", "MULTI", "GET {t}w", "EXEC"],
    &["WATCH {t}w", "2>SET {t}w 7", "MULTI", "DISCARD", "MULTI", "GET {t}w", "EXEC"],
    &["WATCH {t}w", "2>SETNX {t}w 8", "2>DEL {t}none", "MULTI", "GET {t}w", "EXEC"],
    &["WATCH {t}w", "2>SET {t}w 8", "MULTI", "EXEC", "WATCH {t}w", "MULTI", "EXEC"],
    &["WATCH {t}w", "2>SET {t}w 9", "MULTI", "PING", "EXEC", "WATCH {t}w", "MULTI", "PING", "EXEC"],
    &["WATCH {t}w", "WATCH {t}v", "2>EXPIRE {t}v 100", "MULTI", "GET {t}w", "EXEC"],
    &["WATCH {t}w", "2>SET {t}w 10", "MULTI", "GET", "EXEC", "MULTI", "GET {t}w", "EXEC", "WATCH"],
    &[
        "WATCH {t}none",
        "2>FLUSHALL",
        "MULTI",
        "GET {t}w",
        "EXEC",
        "SET {t}w 1",
        "WATCH {t}w",
        "2>FLUSHDB",
        "MULTI",
        "EXEC",
    ],
    &[
        "WATCH {t}w",
        "RESET",
        "2>SET {t}w 11",
        "MULTI",
        "GET {t}w",
        "EXEC",
        "WATCH {t}w",
        "MULTI",
        "FLUSHALL",
        "EXEC",
    ],
    &["MULTI", "SET {t}a 1", "FLUSHALL", "DBSIZE", "SET {t}b 2", "KEYS *", "EXEC", "GET {t}a", "GET {t}b"],
];

fn replies(connect: impl Fn() -> Client, resp3: bool) -> Vec<String> {
    let (mut client, mut other) = (connect(), connect());
    if resp3 {
        client = client.resp3();
    }
    let mut found = Vec::new();
    for session in SESSIONS {
        for line in *session {
            let (client, command) = match line.strip_prefix("2>") {
                Some(command) => (&mut other, command),
                None => (&mut client, *line),
            };
            let arguments: Vec<&str> = command.split(' ').collect();
            let reply = client.ask(&arguments).unwrap_or_else(|error| panic!("{line}: {error}"));
            found.push(format!("{session:?} {line}: {}", reply.escape_ascii()));
            if *line == "RESET" && resp3 {
                client.call(&["HELLO", "3"]);
            }
        }
    }
    found
}

#[test]
fn transactions_answer_as_redis_does() {
    check_sessions(Program::Redis);
}

/// Whatever is behind, a router answers as Redis does.
pub(crate) fn check_sessions(program: Program) {
    if !program.is_installed() || !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [program.start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let plain = RedisServer::start();
    for resp3 in [false, true] {
        let direct = replies(|| Client::unix(&plain.socket()).expect("it listens"), resp3);
        for (ours, theirs) in replies(|| cluster.connect(0), resp3).iter().zip(&direct) {
            assert_eq!(ours, theirs, "RESP3: {resp3}");
        }
    }
}

#[test]
fn transactions_of_several_servers_are_refused_whole() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let mut client = cluster.connect(0);
    client.call(&["MULTI"]);
    for index in 0..20 {
        assert_eq!(text(&client.call(&["SET", &format!("key:{index}"), "v"])), "QUEUED");
    }
    let refused = text(&client.call(&["EXEC"]));
    assert!(refused.starts_with("CROSSSLOT DistCache: ") && refused.contains("hash tag"), "{refused}");
    assert_eq!(client.call(&["DBSIZE"]), Value::Integer(0));
    client.call(&["MULTI"]);
    let refused = text(&client.call(&["FLUSHALL"]));
    assert!(refused.contains("'flushall' is about all storage servers"), "{refused}");
    assert!(text(&client.call(&["EXEC"])).starts_with("EXECABORT "));
}

/// Two counters that only transactions change, together; readers hit copies of both all the time.
#[test]
fn transactions_are_all_or_nothing_and_no_hit_is_stale() -> RedisResult<()> {
    if !installed(&["redis-server"]) {
        return Ok(());
    }
    const ROUNDS: i64 = 300;
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let url = |resp3| match resp3 {
        true => format!("redis://{}/?protocol=resp3", cluster.router(0)),
        false => format!("redis://{}/", cluster.router(0)),
    };
    std::thread::scope(|scope| {
        let work = |resp3: bool| {
            let url = url(resp3);
            move || -> RedisResult<()> {
                let mut connection = redis::Client::open(url)?.get_connection()?;
                for _ in 0..ROUNDS {
                    let mut transaction = redis::pipe();
                    transaction.atomic().incr("{t}one", 1).incr("{t}two", 1).get("{t}one");
                    let (one, two, read): (i64, i64, i64) = transaction.query(&mut connection)?;
                    assert!(one == two && one == read, "{one} {two} {read}");
                    let after: i64 = redis::cmd("GET").arg("{t}two").query(&mut connection)?;
                    assert!(after >= two, "a stale hit: {after} after {two}");
                }
                Ok(())
            }
        };
        let threads: Vec<_> = [false, true, false, true].map(|resp3| scope.spawn(work(resp3))).into();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let mut connection = redis::Client::open(url(false))?.get_connection()?;
    for key in ["{t}one", "{t}two"] {
        assert_eq!(redis::cmd("GET").arg(key).query::<i64>(&mut connection)?, 4 * ROUNDS);
    }
    Ok(())
}

/// Counters that are read, mostly from copies, and written back under a WATCH: no increment is lost.
#[test]
fn watched_keys_guard_against_every_change() -> RedisResult<()> {
    if !installed(&["redis-server"]) {
        return Ok(());
    }
    const ROUNDS: i64 = 100;
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let router = cluster.router(0);
    std::thread::scope(|scope| {
        let work = |resp3: bool| {
            let protocol = if resp3 { "?protocol=resp3" } else { "" };
            let url = format!("redis://{router}/{protocol}");
            move || -> RedisResult<()> {
                let mut connection = redis::Client::open(url)?.get_connection()?;
                for _ in 0..ROUNDS {
                    redis::transaction(&mut connection, &["{w}one"], |connection, pipe| {
                        let old: Option<i64> = redis::cmd("GET").arg("{w}one").query(connection)?;
                        pipe.set("{w}one", old.unwrap_or(0) + 1).ignore().incr("{w}two", 1).query(connection)
                    })
                    .map(|_: (i64,)| ())?;
                }
                Ok(())
            }
        };
        let threads: Vec<_> = [false, true, false, true].map(|resp3| scope.spawn(work(resp3))).into();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let mut client = cluster.connect(0);
    for key in ["{w}one", "{w}two"] {
        assert_eq!(text(&client.call(&["GET", key])), (4 * ROUNDS).to_string());
    }
    Ok(())
}

/// A server that dies takes what was watched with it; too many that watch are told so.
#[test]
fn a_watch_that_is_lost_lets_nothing_through() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let mut servers = [RedisServer::durable()];
    let mut layout = Layout::before(&servers);
    layout.tables = "[limits]\nblocking_max = 2\n".to_owned();
    let cluster = Cluster::up(layout);
    let mut clients = [cluster.connect(0), cluster.connect(0), cluster.connect(0)];
    for client in &mut clients[..2] {
        assert_eq!(text(&client.call(&["WATCH", "k"])), "OK");
    }
    let refused = text(&clients[2].call(&["WATCH", "k"]));
    assert!(refused.contains("too many clients watch keys"), "{refused}");
    clients[1].call(&["UNWATCH"]);
    let client = &mut clients[2];
    until("there is room for another watch", || {
        client.call(&["UNWATCH"]);
        (text(&client.call(&["WATCH", "k"])) == "OK").then_some(())
    });
    servers[0].kill();
    servers[0].run();
    let client = &mut clients[0];
    assert_eq!(text(&client.call(&["MULTI"])), "OK");
    assert_eq!(text(&client.call(&["SET", "k", "v"])), "QUEUED");
    let reply = client.call(&["EXEC"]);
    assert!(matches!(reply, Value::Null | Value::Error(_)), "{reply:?}");
    until("writes are served again", || (text(&client.call(&["SET", "other", "v"])) == "OK").then_some(()));
    assert_eq!(client.call(&["GET", "k"]), Value::Null);
    client.call(&["WATCH", "k"]);
    client.call(&["MULTI"]);
    client.call(&["SET", "k", "v"]);
    assert_eq!(client.call(&["EXEC"]), Value::Array(vec![Value::Simple("OK".into())]));
}
