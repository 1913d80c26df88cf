//! Each way of changing a key is seen by the next read of every cached view, through any router. One client at a time.

use crate::cluster::{Client, Cluster, Layout, RedisServer, installed, shared, text, until};
use crate::coherence::layout;

/// What prepares the key, what reads it, what changes it.
type Case = (&'static [&'static [&'static str]], &'static [&'static str], &'static [&'static str]);

const CASES: &[Case] = &[
    (&[&["SET", "a1", "old"]], &["GET", "a1"], &["SET", "a1", "new"]),
    (&[&["SET", "a2", "old"]], &["GET", "a2"], &["SET", "a2", "new", "EX", "100", "GET"]),
    (&[&["SET", "a3", "old"]], &["GET", "a3"], &["SETEX", "a3", "100", "new"]),
    (&[&["SET", "a4", "old"]], &["STRLEN", "a4"], &["PSETEX", "a4", "100000", "newer"]),
    (&[], &["GET", "a5"], &["SETNX", "a5", "new"]),
    (&[&["SET", "a6", "old"]], &["GET", "a6"], &["MSET", "a6", "new", "m1", "1", "m2", "2", "m3", "3"]),
    (&[&["SET", "a7", "old"]], &["GET", "a7"], &["DEL", "m1", "a7", "m2", "m3"]),
    (&[&["SET", "a8", "old"]], &["GET", "a8"], &["UNLINK", "a8", "m1", "m2"]),
    (&[&["SET", "a9", "old"]], &["GET", "a9"], &["PEXPIRE", "a9", "0"]),
    (&[&["SET", "b1", "old"]], &["GET", "b1"], &["EXPIREAT", "b1", "1"]),
    (&[&["SET", "b2", "old"]], &["GET", "b2"], &["GETDEL", "b2"]),
    (&[&["SET", "b3", "old"]], &["GET", "b3"], &["GETSET", "b3", "new"]),
    (&[&["SET", "b4", "old"]], &["GETRANGE", "b4", "0", "1"], &["SETRANGE", "b4", "0", "new"]),
    (&[&["SET", "b5", "1"]], &["GET", "b5"], &["INCRBYFLOAT", "b5", "0.5"]),
    (&[&["SET", "b6", "1"]], &["GET", "b6"], &["DECRBY", "b6", "5"]),
    (&[&["SET", "{c1}a", "1"], &["SET", "{c1}b", "2"]], &["GET", "{c1}a"], &["RENAME", "{c1}b", "{c1}a"]),
    (&[&["SET", "{c2}a", "1"], &["SET", "{c2}b", "2"]], &["GET", "{c2}b"], &["RENAME", "{c2}b", "{c2}a"]),
    (&[&["SET", "{c3}b", "2"]], &["GET", "{c3}a"], &["COPY", "{c3}b", "{c3}a"]),
    (&[&["SET", "{c4}a", "old"]], &["GET", "{c4}a"], &["MSETNX", "{c4}b", "1", "{c4}c", "2"]),
    (&[&["SET", "c5", "old"]], &["GET", "c5"], &["EVAL", "redis.call('SET', KEYS[1], 'lua')", "1", "c5"]),
    (&[&["SET", "c6", "text"]], &["GET", "c6"], &["INCR", "c6"]),
    (&[&["SET", "c7", "text"]], &["TYPE", "c7"], &["DEL", "c7"]),
    (&[&["SET", "c8", "text"]], &["EXISTS", "c8"], &["DEL", "c8"]),
    (&[&["HSET", "h1", "f", "1", "g", "2"]], &["HGETALL", "h1"], &["HSET", "h1", "f", "3", "x", "4"]),
    (&[&["HSET", "h2", "f", "1", "g", "2"]], &["HKEYS", "h2"], &["HDEL", "h2", "f"]),
    (&[&["HSET", "h3", "f", "1"]], &["HGET", "h3", "f"], &["HINCRBYFLOAT", "h3", "f", "1.5"]),
    (&[&["HSET", "h4", "f", "1"]], &["HLEN", "h4"], &["DEL", "h4"]),
    (&[&["RPUSH", "l1", "a", "b"]], &["LRANGE", "l1", "0", "-1"], &["RPUSH", "l1", "c"]),
    (&[&["RPUSH", "l2", "a", "b"]], &["LLEN", "l2"], &["LPOP", "l2", "5"]),
    (
        &[&["RPUSH", "{l3}a", "a"]],
        &["LRANGE", "{l3}b", "0", "-1"],
        &["LMOVE", "{l3}a", "{l3}b", "LEFT", "LEFT"],
    ),
    (&[&["RPUSH", "{l4}a", "a"]], &["LRANGE", "{l4}a", "0", "-1"], &["RPOPLPUSH", "{l4}a", "{l4}b"]),
    (&[&["RPUSH", "l5", "a", "b"]], &["LINDEX", "l5", "0"], &["BLPOP", "l5", "1"]),
    (&[&["RPUSH", "l6", "a", "b"]], &["LRANGE", "l6", "0", "-1"], &["LMPOP", "1", "l6", "RIGHT"]),
    (&[&["RPUSH", "l7", "b", "a"]], &["LRANGE", "l7", "0", "-1"], &["SORT", "l7", "ALPHA", "STORE", "l7"]),
    (
        &[&["SADD", "{s1}a", "1"], &["SADD", "{s1}b", "2"]],
        &["SMEMBERS", "{s1}a"],
        &["SMOVE", "{s1}b", "{s1}a", "2"],
    ),
    (&[&["SADD", "{s2}b", "2"]], &["SMEMBERS", "{s2}a"], &["SUNIONSTORE", "{s2}a", "{s2}b"]),
    (&[&["SADD", "s3", "1"]], &["SCARD", "s3"], &["SPOP", "s3"]),
    (&[&["SADD", "s4", "1"]], &["SISMEMBER", "s4", "1"], &["SREM", "s4", "1"]),
    (&[&["ZADD", "z1", "1", "a"]], &["ZRANGE", "z1", "0", "-1", "WITHSCORES"], &["ZINCRBY", "z1", "2", "a"]),
    (&[&["ZADD", "z2", "1", "a", "2", "b"]], &["ZCARD", "z2"], &["BZPOPMIN", "z2", "1"]),
    (
        &[&["ZADD", "{z3}a", "1", "a"]],
        &["ZRANGE", "{z3}b", "0", "-1"],
        &["ZRANGESTORE", "{z3}b", "{z3}a", "0", "-1"],
    ),
    (&[&["ZADD", "z4", "1", "a"]], &["ZSCORE", "z4", "a"], &["ZADD", "z4", "GT", "5", "a"]),
    (&[&["ZADD", "{z5}a", "1", "a"]], &["ZCARD", "{z5}b"], &["ZUNIONSTORE", "{z5}b", "1", "{z5}a"]),
    (&[&["XADD", "x1", "1-1", "f", "v"]], &["XRANGE", "x1", "-", "+"], &["XADD", "x1", "2-1", "f", "v"]),
    (&[&["XADD", "x2", "1-1", "f", "v"]], &["XLEN", "x2"], &["XTRIM", "x2", "MAXLEN", "0"]),
    (&[&["SETBIT", "{bit}a", "1", "1"]], &["BITCOUNT", "{bit}b"], &["BITOP", "NOT", "{bit}b", "{bit}a"]),
    (
        &[&["SETBIT", "bit2", "1", "1"]],
        &["GETBIT", "bit2", "1"],
        &["BITFIELD", "bit2", "SET", "u8", "0", "0"],
    ),
    (&[&["PFADD", "{p1}a", "x"]], &["STRLEN", "{p1}b"], &["PFMERGE", "{p1}b", "{p1}a"]),
    (&[&["GEOADD", "g1", "13", "38", "a"]], &["GEOPOS", "g1", "a"], &["GEOADD", "g1", "14", "38", "a"]),
    (&[&["SET", "f1", "old"]], &["GET", "f1"], &["FLUSHDB"]),
    (&[&["HSET", "f2", "f", "old"]], &["HGETALL", "f2"], &["FLUSHALL", "ASYNC"]),
];

/// Reads until copies answer, always the same.
fn warm(routers: &mut [Client; 2], read: &[&str]) -> bytes::Bytes {
    let hits = |client: &mut Client| {
        let info = text(&client.call(&["INFO", "distcache"]));
        let line = info.lines().find_map(|line| line.strip_prefix("hits:")).expect("hits");
        line.trim().parse::<u64>().expect("a number")
    };
    let before = routers.each_mut().map(hits);
    let expected = routers[0].ask(read).expect("a reply");
    until(&format!("{read:?} is answered from copies"), || {
        for client in routers.iter_mut() {
            (0..5).for_each(|_| assert_eq!(client.ask(read).expect("a reply"), expected, "{read:?}"));
        }
        let after = routers.each_mut().map(hits);
        (after[0] > before[0] + 3 && after[1] > before[1] + 3).then_some(())
    });
    expected
}

#[test]
fn every_write_is_seen_by_the_next_read() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(layout(&servers));
    let direct = RedisServer::start();
    let mut direct = direct.connect();
    let mut routers = [cluster.connect(0), cluster.connect(1)];
    for (setup, read, write) in CASES {
        for command in *setup {
            assert_eq!(routers[0].ask(command).expect("a reply"), direct.ask(command).expect("a reply"));
        }
        let before = warm(&mut routers, read);
        assert_eq!(before, direct.ask(read).expect("a reply"), "{read:?}");
        let written = routers[0].ask(write).expect("a reply");
        assert_eq!(written, direct.ask(write).expect("a reply"), "{write:?}");
        let after = direct.ask(read).expect("a reply");
        for _ in 0..3 {
            for client in routers.iter_mut().rev() {
                assert_eq!(client.ask(read).expect("a reply"), after, "{read:?} after {write:?}");
            }
        }
    }
}

#[test]
fn writes_to_keys_that_no_command_names_are_seen() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let cluster = Cluster::up(layout(&servers));
    let mut routers = [cluster.connect(0), cluster.connect(1)];
    for round in 0..5 {
        routers[0].call(&["SET", "k", "old"]);
        warm(&mut routers, &["GET", "k"]);
        let script = format!("return redis.call('SET', 'k', 'lua{round}')");
        assert_eq!(text(&routers[0].call(&["EVAL", &script, "0"])), "OK");
        assert_eq!(text(&routers[1].call(&["GET", "k"])), format!("lua{round}"));
    }
}

#[test]
fn what_wakes_a_blocked_client_is_seen_as_taken() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(Layout { lease_ms: 500, ..layout(&servers) });
    let mut routers = [cluster.connect(0), cluster.connect(1)];
    let mut blocked = cluster.connect(0);
    for round in 0..5 {
        let queue = format!("queue{}", round % 2);
        warm(&mut routers, &["LRANGE", &queue, "0", "-1"]);
        blocked.write(format!("BLPOP {queue} 0\r\n").as_bytes()).expect("written");
        until("the client blocks", || {
            let info = text(&servers.each_ref().map(|server| server.connect().call(&["INFO", "clients"]))[0]);
            let other = text(&servers[1].connect().call(&["INFO", "clients"]));
            (info + &other).contains("blocked_clients:1").then_some(())
        });
        // Whatever is read while it blocks may be kept nowhere.
        for client in &mut routers {
            (0..20).for_each(|_| assert_eq!(client.ask(&["LLEN", &queue]).expect("a reply"), ":0\r\n"));
        }
        assert_eq!(routers[1].ask(&["RPUSH", &queue, "taken", "left"]).expect("a reply"), ":2\r\n");
        let taken = blocked.frame().expect("BLPOP ends");
        assert_eq!(taken, format!("*2\r\n$6\r\n{queue}\r\n$5\r\ntaken\r\n"));
        for client in &mut routers {
            assert_eq!(client.ask(&["LLEN", &queue]).expect("a reply"), ":1\r\n");
            assert_eq!(client.ask(&["LRANGE", &queue, "0", "-1"]).expect("a reply"), "*1\r\n$4\r\nleft\r\n");
        }
        routers[0].call(&["DEL", &queue]);
    }
}
