//! A Redis Cluster as storage: equal replies, slots that move and primaries that fail under clients. Not its own rules.

use wire::resp::Value;

use crate::bounded::warm;
use crate::cluster::{
    Client, Cluster, Layout, PRIMARIES, Program, RedisCluster, installed, shared, text, total, until,
};
use crate::history::History;

fn layout(storage: &RedisCluster, shims: usize) -> Layout {
    two_routers(Layout::new(vec![storage.url(); shims]))
}

pub(crate) fn two_routers(layout: Layout) -> Layout {
    let second = Layout::embedded(1).routers;
    Layout { routers: [&layout.routers[..], &second].concat(), ..layout }
}

/// Each command with its reply.
fn check_all(client: &mut Client, expected: &[(&[&str], &str)]) {
    for (command, expected) in expected {
        let frame = client.ask(command).expect("a reply");
        assert_eq!(String::from_utf8_lossy(&frame), expected.replace(' ', "\r\n") + "\r\n", "{command:?}");
    }
}

pub(crate) fn check_commands(program: Program, shims: usize) {
    let storage = RedisCluster::of(program);
    check_commands_over(layout(&storage, shims));
}

pub(crate) fn check_commands_over(layout: Layout) {
    let cluster = Cluster::up(layout);
    let mut client = cluster.connect(0);
    check_all(
        &mut client,
        &[
            (&["MSET", "a", "1", "b", "2", "c", "3", "d", "4"], "+OK"),
            (&["MGET", "a", "b", "none", "d"], "*4 $1 1 $1 2 $-1 $1 4"),
            (&["EXISTS", "a", "b", "c", "none"], ":3"),
            (&["DEL", "a", "b", "none"], ":2"),
            (&["MSET", "{t}a", "1", "{t}b", "2"], "+OK"),
            (&["MGET", "{t}a", "{t}b"], "*2 $1 1 $1 2"),
            (&["RPUSH", "{t}list", "x", "y"], ":2"),
            (&["LMOVE", "{t}list", "{t}other", "LEFT", "RIGHT"], "$1 x"),
            (&["EVAL", "return redis.call('GET', KEYS[1])", "1", "{t}a"], "$1 1"),
            (&["MULTI"], "+OK"),
            (&["INCR", "{t}a"], "+QUEUED"),
            (&["GET", "{t}b"], "+QUEUED"),
            (&["EXEC"], "*2 :2 $1 2"),
            (&["WATCH", "{t}a"], "+OK"),
            (&["MULTI"], "+OK"),
            (&["SET", "{t}a", "9"], "+QUEUED"),
            (&["EXEC"], "*1 +OK"),
            (&["DBSIZE"], ":6"),
            (&["PUBLISH", "channel", "message"], ":0"),
        ],
    );
    for crossing in [
        &["SINTERSTORE", "a", "b"][..],
        &["RENAME", "c", "d"],
        &["SMOVE", "c", "d", "member"],
        &["EVAL", "return 1", "2", "c", "d"],
    ] {
        let reply = text(&client.call(crossing));
        assert!(reply.starts_with("CROSSSLOT "), "{crossing:?}: {reply}");
    }
    check_keyspace(&mut client);
    check_messages(&cluster);
}

/// Keys of every server, as one keyspace.
fn check_keyspace(client: &mut Client) {
    assert_eq!(text(&client.call(&["FLUSHALL"])), "OK");
    let mut names: Vec<String> = (0..300).map(|number| format!("key:{number}")).collect();
    names.sort();
    for name in &names {
        assert_eq!(text(&client.call(&["SET", name, "v"])), "OK");
    }
    assert_eq!(client.call(&["DBSIZE"]), Value::Integer(300));
    assert!(names.contains(&text(&client.call(&["RANDOMKEY"]))));
    let listed = |reply: &Value| match reply {
        Value::Array(keys) => keys.iter().map(text).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let mut keys = listed(&client.call(&["KEYS", "*"]));
    keys.sort();
    assert_eq!(keys, names);
    let (mut cursor, mut scanned) = ("0".to_owned(), Vec::new());
    loop {
        let Value::Array(reply) = client.call(&["SCAN", &cursor, "COUNT", "20"]) else { panic!("no array") };
        scanned.extend(listed(&reply[1]));
        cursor = text(&reply[0]);
        if cursor == "0" {
            break;
        }
    }
    scanned.sort();
    scanned.dedup();
    assert_eq!(scanned, names);
    let sha = text(&client.call(&["SCRIPT", "LOAD", "return KEYS[1]"]));
    assert_eq!(client.call(&["SCRIPT", "EXISTS", &sha]), Value::Array(vec![Value::Integer(1)]));
    for name in &names[..20] {
        assert_eq!(text(&client.call(&["EVALSHA", &sha, "1", name])), *name);
    }
    assert_eq!(text(&client.call(&["FLUSHALL"])), "OK");
    assert_eq!(client.call(&["DBSIZE"]), Value::Integer(0));
}

/// Every message once, whichever server has the channel.
fn check_messages(cluster: &Cluster) {
    let (mut listener, mut speaker) = (cluster.connect(0), cluster.connect(1));
    let words = |value: Value| match value {
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    for (command, name) in [("SUBSCRIBE", "news"), ("PSUBSCRIBE", "c*"), ("SSUBSCRIBE", "shard")] {
        assert_eq!(words(listener.call(&[command, name]))[1], name);
    }
    for number in 0..20 {
        let (channel, message) = (format!("c{number}"), number.to_string());
        speaker.call(&["PUBLISH", "news", &message]);
        assert_eq!(words(next(&mut listener)), ["message", "news", &message]);
        speaker.call(&["PUBLISH", &channel, &message]);
        assert_eq!(words(next(&mut listener)), ["pmessage", "c*", &channel, &message]);
        speaker.call(&["SPUBLISH", "shard", &message]);
        assert_eq!(words(next(&mut listener)), ["smessage", "shard", &message]);
    }
}

fn next(client: &mut Client) -> Value {
    Value::parse(&client.frame().expect("a message")).expect("RESP")
}

#[test]
fn one_shim_for_each_primary_serves_the_whole_cluster() {
    if installed(&["redis-server"]) {
        let _machine = shared();
        check_commands(Program::Redis, 3);
    }
}

#[test]
fn shims_need_not_be_as_many_as_primaries() {
    if installed(&["redis-server"]) {
        let _machine = shared();
        check_commands(Program::Redis, 1);
    }
}

/// Once every key can be written again, what clients read is what storage holds.
pub(crate) fn check_truth(clients: &mut [Client], keys: &[String], server: impl Fn(&str) -> Client) {
    for key in keys {
        for client in &mut *clients {
            until("the key can be written", || match client.call(&["PERSIST", key]) {
                Value::Integer(_) => Some(()),
                _ => None,
            });
        }
    }
    for key in keys {
        let command: &[&str] = if key.starts_with("Hash") { &["HGETALL", key] } else { &["GET", key] };
        let truth = server(key).call(command);
        for client in &mut *clients {
            assert_eq!(client.call(command), truth, "{key}");
        }
    }
}

/// Somewhere else in a ring of primaries.
fn other(primary: usize) -> usize {
    (primary + 1) % PRIMARIES
}

#[test]
fn slots_move_while_clients_read_and_write_cached_keys_of_them() {
    check_moves(Program::Redis);
}

pub(crate) fn check_moves(program: Program) {
    if !program.is_installed() {
        return;
    }
    let _machine = shared();
    let storage = RedisCluster::of(program);
    check_moves_over(&storage, layout(&storage, 3));
}

pub(crate) fn check_moves_over(storage: &RedisCluster, layout: Layout) {
    let cluster = Cluster::up(layout);
    let history = History::start(&cluster.layout.routers, 6, 2);
    history.wait_for(3000, 100);
    for _ in 0..2 {
        for key in history.keys() {
            let slot = storage.slot(&key);
            let from = storage.owner(slot);
            let to = other(from);
            storage.begin_move(slot, from, to);
            history.wait_for(200, 20);
            while storage.move_keys(slot, from, to) {
                history.wait_for(20, 2);
            }
            history.wait_for(200, 20);
            storage.end_move(slot, from, to);
            history.wait_for(200, 20);
        }
    }
    history.wait_for_each_key();
    let report = history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
    let status = check_no_alarm(&cluster, 1000);
    assert!(total(&status, "shims", "invalidated_copies_total") > 50, "{status}");
}

/// Nobody else has written: keys that go to another server are nobody's writes. What was hit more often than this shows.
fn check_no_alarm(cluster: &Cluster, hits_min: u64) -> serde_json::Value {
    let status = cluster.fresh_status(|status| total(status, "nodes", "hits_total") > hits_min);
    assert_eq!(total(&status, "shims", "foreign_writes_total"), 0, "{status}");
    status
}

/// Somebody writes to the servers of a Redis Cluster past DistCache.
#[test]
fn foreign_writers_are_noticed() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let storage = RedisCluster::start();
    let cluster = Cluster::up(layout(&storage, 2));
    let mut client = cluster.connect(0);
    let connect = |key: &str| storage.servers[storage.owner(storage.slot(key))].connect();
    let mut writers: Vec<(&str, Client)> = ["a", "b", "c", "d"].map(|key| (key, connect(key))).into();
    for (key, direct) in &mut writers {
        direct.call(&["CLIENT", "SETNAME", "importer"]);
        for number in 0..10 {
            let value = number.to_string();
            warm(&cluster, &mut client, key);
            assert_eq!(text(&direct.call(&["SET", key, &value])), "OK");
            until("the value is read", || (text(&client.call(&["GET", key])) == value).then_some(()));
        }
    }
    let seen = |status: &serde_json::Value| total(status, "shims", "foreign_writes_total");
    let status = cluster.fresh_status(|status| seen(status) >= 20);
    assert!(seen(&status) <= 40, "{status}");
    let told = |shim: &serde_json::Value| {
        shim["foreign_writers"].as_str().is_some_and(|told| told.contains("importer"))
    };
    cluster.fresh_status(|status| status["shims"].as_array().expect("shims").iter().any(told));
}

#[test]
fn a_replica_takes_over_gracefully_under_clients() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let storage = RedisCluster::start();
    check_failovers_over(&storage, layout(&storage, 3));
}

pub(crate) fn check_failovers_over(storage: &RedisCluster, layout: Layout) {
    let cluster = Cluster::up(layout);
    let history = History::start(&cluster.layout.routers, 6, 2);
    history.wait_for(2000, 100);
    for (primary, replica) in [(0, 3), (1, 4), (3, 0)] {
        storage.fail_over(replica);
        storage.wait_whole();
        assert!(storage.is_primary(replica) && !storage.is_primary(primary));
        history.wait_for_each_key();
        history.wait_for(500, 50);
    }
    // Of what was at the old primaries some was lost with their connections, and clients were told.
    history.report();
    history.wait_for(2000, 100);
    let report = history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
    check_no_alarm(&cluster, 100);
}

#[test]
fn a_primary_that_is_killed_is_replaced_by_its_replica() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let mut storage = RedisCluster::that_fails_over();
    let cluster = Cluster::up(layout(&storage, 3));
    let history = History::start(&cluster.layout.routers, 6, 2);
    history.wait_for(3000, 200);
    let keys = history.keys();
    history.finish();
    // Redis may lose what its replica has not got; what is cached must then be what is left.
    let owners: Vec<usize> = keys.iter().map(|key| storage.owner(storage.slot(key))).collect();
    let victim = owners[0];
    storage.servers[victim].kill();
    until("the replica has taken over", || storage.is_primary(victim + PRIMARIES).then_some(()));
    let mut clients = [cluster.connect(0), cluster.connect(1)];
    check_truth(&mut clients, &keys, |key| {
        let place = keys.iter().position(|known| known == key).expect("one of the keys");
        let promoted = if owners[place] == victim { PRIMARIES } else { 0 };
        storage.servers[owners[place] + promoted].connect()
    });
    assert_eq!(text(&clients[0].call(&["FLUSHALL"])), "OK");
    let history = History::start(&cluster.layout.routers, 6, 2);
    history.wait_for(2000, 100);
    // The old primary returns as a replica.
    storage.servers[victim].run();
    storage.wait_whole();
    history.wait_for(500, 50);
    let report = history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}
