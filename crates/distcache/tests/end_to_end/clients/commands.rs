//! Replies that come from a node's copy are, byte for byte, those of storage. Not which commands there are.

use crate::cluster::{Client, Cluster, Layout, RedisServer, alone, installed, total};

const WRITES: [&[&str]; 11] = [
    &["SET", "c:s", "value"],
    &["SET", "c:n", "42"],
    &["HSET", "c:h", "f1", "v1", "f2", "v2"],
    &["RPUSH", "c:l", "a", "b", "c", "a"],
    &["SADD", "c:set", "1", "2", "3"],
    &["ZADD", "c:z", "1", "one", "2.5", "two", "inf", "three"],
    &["XADD", "c:x", "1-1", "f", "v"],
    &["GEOADD", "c:g", "13.361389", "38.115556", "Palermo", "15.087269", "37.502669", "Catania"],
    &["SETBIT", "c:b", "5", "1"],
    &["PFADD", "c:p", "a", "b", "c"],
    &["SET", "c:empty", ""],
];

const READS: [&[&str]; 40] = [
    &["GET", "c:s"],
    &["GET", "c:empty"],
    &["GET", "c:none"],
    &["STRLEN", "c:s"],
    &["GETRANGE", "c:s", "1", "2"],
    &["TYPE", "c:z"],
    &["EXISTS", "c:s"],
    &["HGETALL", "c:h"],
    &["HGET", "c:h", "f1"],
    &["HMGET", "c:h", "f2", "none"],
    &["HLEN", "c:h"],
    &["HKEYS", "c:h"],
    &["HVALS", "c:h"],
    &["HEXISTS", "c:h", "f1"],
    &["LRANGE", "c:l", "0", "-1"],
    &["LRANGE", "c:l", "1", "1"],
    &["LINDEX", "c:l", "-1"],
    &["LLEN", "c:l"],
    &["LPOS", "c:l", "a", "COUNT", "0"],
    &["SMEMBERS", "c:set"],
    &["SCARD", "c:set"],
    &["SISMEMBER", "c:set", "2"],
    &["SMISMEMBER", "c:set", "2", "9"],
    &["ZRANGE", "c:z", "0", "-1"],
    &["ZRANGE", "c:z", "0", "-1", "WITHSCORES"],
    &["ZRANGEBYSCORE", "c:z", "-inf", "+inf", "WITHSCORES"],
    &["ZSCORE", "c:z", "two"],
    &["ZMSCORE", "c:z", "one", "none", "three"],
    &["ZRANK", "c:z", "two"],
    &["ZCARD", "c:z"],
    &["XRANGE", "c:x", "-", "+"],
    &["XLEN", "c:x"],
    &["GEOPOS", "c:g", "Palermo", "none"],
    &["GEODIST", "c:g", "Palermo", "Catania"],
    &["GETBIT", "c:b", "5"],
    &["BITCOUNT", "c:b"],
    &["PFCOUNT", "c:p"],
    // Errors are never cached.
    &["GET", "c:l"],
    &["HGETALL", "c:s"],
    &["LRANGE", "c:l", "x", "y"],
];

fn compare(through: &mut Client, direct: &mut Client, arguments: &[&str]) {
    let expected = direct.ask(arguments).expect("Redis answers");
    let reply = through.ask(arguments).expect("the router answers");
    assert_eq!(reply, expected, "{arguments:?}");
}

fn check(routing: &'static str) {
    let servers = [RedisServer::start(), RedisServer::start()];
    let direct = RedisServer::start();
    let cluster = Cluster::up(Layout { routing, ..Layout::before(&servers) });
    let mut through = [cluster.connect(0), cluster.connect(0).resp3()];
    let mut direct = [direct.connect(), direct.connect().resp3()];
    for write in WRITES {
        compare(&mut through[0], &mut direct[0], write);
    }
    let rounds = 60;
    for _ in 0..rounds {
        for (through, direct) in through.iter_mut().zip(&mut direct) {
            READS.iter().for_each(|read| compare(through, direct, read));
        }
    }
    let reads = rounds * 2 * READS.len() as u64;
    let status = cluster.fresh_status(|status| total(status, "routers", "requests_total") >= reads);
    let hits = total(&status, "nodes", "hits_total");
    assert!(hits * 2 > reads, "only {hits} of {reads} reads were hits: {status}");

    // Each write changes every view of its key.
    let changes: [&[&str]; 8] = [
        &["APPEND", "c:s", "more"],
        &["SET", "c:none", "something"],
        &["HSET", "c:h", "f1", "other", "f3", "new"],
        &["RPUSH", "c:l", "d"],
        &["SREM", "c:set", "2"],
        &["ZADD", "c:z", "9", "two"],
        &["SETBIT", "c:b", "6", "1"],
        &["DEL", "c:x", "c:g", "c:p"],
    ];
    for change in changes {
        compare(&mut through[0], &mut direct[0], change);
    }
    for _ in 0..3 {
        for (through, direct) in through.iter_mut().zip(&mut direct) {
            READS.iter().for_each(|read| compare(through, direct, read));
        }
    }
}

#[test]
fn cached_replies_are_those_of_storage() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    check("learned");
    check("on-path");
}
