//! Valkey as storage: what is tried over redis-server is tried over valkey-server, too. Not what is tried.

use wire::resp::Value;

use crate::cluster::{Client, Cluster, Layout, Program, RedisServer, shared, text};
use crate::{bounded, pubsub, redis_cluster, scripts, tracking, transactions};

/// Clients are told what they were told by earlier servers, whatever is behind the router.
#[test]
fn it_is_valkey_and_clients_find_a_redis() {
    if !Program::Valkey.is_installed() {
        return;
    }
    let _machine = shared();
    let servers: [RedisServer; 2] = [Program::Valkey.start(), Program::Valkey.start()];
    let said = text(&servers[0].connect().call(&["INFO", "server"]));
    assert!(said.contains("valkey_version:8."), "{said}");
    let cluster = Cluster::up(Layout::before(&servers));
    let mut client = cluster.connect(0);
    let greeting = format!("{:?}", client.call(&["HELLO", "3"]));
    assert!(greeting.contains("redis") && !greeting.contains("valkey"), "{greeting}");
    for number in 0..200 {
        let key = format!("key:{number}");
        assert_eq!(text(&client.call(&["SET", &key, "v"])), "OK");
        assert_eq!(text(&client.call(&["GET", &key])), "v");
    }
    assert_eq!(client.call(&["DBSIZE"]), Value::Integer(200));
}

/// Commands of every type; each read twice, so that the second may be a hit.
const SESSION: &str = "\
SET s 1
INCR s
APPEND s 0
GETRANGE s 0 -1
SET s x EX 100 GET
GETEX s PERSIST
TTL s
OBJECT ENCODING s
LCS s s
SETBIT b 7 1
BITCOUNT b
BITFIELD b GET u8 0
BITFIELD_RO b GET u4 4
RPUSH l a b c d
LRANGE l 0 -1
LPOS l c
LINDEX l -1
LMPOP 1 l LEFT COUNT 2
HSET h f 1 g 2
HINCRBY h f 5
HGETALL h
HMGET h f none
HRANDFIELD h 0
SADD t a b c
SMISMEMBER t a z
SCARD t
SINTERCARD 1 t
ZADD z 1 a 2 b 3 c
ZRANGE z 0 -1 WITHSCORES
ZRANGEBYSCORE z (1 +inf
ZRANK z b
ZSCORE z c
ZMPOP 1 z MAX
XADD x 1-1 f v
XADD x 1-2 f w
XRANGE x - +
XLEN x
XINFO STREAM x
GEOADD g 13.361389 38.115556 p 15.087269 37.502669 c
GEOPOS g p
GEOSEARCH g FROMMEMBER p BYRADIUS 200 km ASC WITHDIST
PFADD hll a b c
PFCOUNT hll
SORT l ALPHA DESC
TYPE z
COPY s copy
RENAME copy renamed
EXISTS s renamed copy
GET l
INCR renamed
EVAL return{KEYS[1],redis.call('GET',KEYS[1])} 1 s
EVAL return{err='MINE'} 0
GET s
SET s v NX XX
HSET s f v
DEL s l h t z x g hll b renamed
";

fn replies(mut client: Client) -> Vec<String> {
    let mut replies = Vec::new();
    for line in SESSION.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        for _ in 0..2 {
            let reply = client.ask(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
            replies.push(format!("{line}: {}", reply.escape_ascii()));
        }
    }
    replies
}

#[test]
fn commands_of_every_type_are_answered_as_valkey_does() {
    if !Program::Valkey.is_installed() {
        return;
    }
    let _machine = shared();
    let plain = Program::Valkey.start();
    let servers = [Program::Valkey.start()];
    let cluster = Cluster::up(Layout::before(&servers));
    for resp3 in [false, true] {
        let speaking = |client: Client| if resp3 { client.resp3() } else { client };
        let (ours, theirs) = (replies(speaking(cluster.connect(0))), replies(speaking(plain.connect())));
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "RESP3: {resp3}");
        }
    }
}

#[test]
fn transactions_answer_as_redis_does() {
    transactions::check_sessions(Program::Valkey);
}

#[test]
fn scripts_run_and_are_ended() {
    scripts::check_busy(Program::Valkey);
}

#[test]
fn subscribers_see_what_redis_shows_them() {
    pubsub::check_session(Program::Valkey);
}

#[test]
fn clients_that_cache_are_told_what_valkey_tells_them() {
    tracking::check_session(Program::Valkey);
}

#[test]
fn copies_follow_whoever_writes() {
    bounded::check_followed(Program::Valkey);
}

#[test]
fn a_valkey_cluster_is_served() {
    if Program::Valkey.is_installed() {
        let _machine = shared();
        redis_cluster::check_commands(Program::Valkey, 3);
    }
}

#[test]
fn slots_of_a_valkey_cluster_move_under_clients() {
    redis_cluster::check_moves(Program::Valkey);
}
