//! Mode `strict` before real redis-servers that others write to although they must not. Where they may is in `bounded`.

use serde_json::Value as Json;
use wire::resp::Value;

use crate::bounded::{check_stalest, warm};
use crate::cluster::{
    Client, Cluster, Layout, Program, RedisServer, Sentinels, alone, distcache, installed, shared, text,
    total, until,
};
use crate::coherence::layout;

#[test]
fn copies_follow_them_and_they_are_counted() {
    check_noticed(Program::Redis);
}

pub(crate) fn check_noticed(program: Program) {
    if !program.is_installed() {
        return;
    }
    let _machine = alone();
    let servers = [program.start()];
    let cluster = Cluster::apart(layout(&servers));
    let mut outsider = servers[0].connect();
    outsider.call(&["SET", "seen", "one"]);
    warm(&cluster, &mut cluster.connect(0), "seen");
    let (writes, status) = check_stalest(&cluster, &servers[0]);
    assert!(total(&status, "shims", "invalidated_copies_total") > 20, "{status}");
    let noticed = total(&status, "shims", "foreign_writes_total");
    assert!((1..=writes).contains(&noticed), "{noticed} of {writes}: {status}");
}

/// Clients of DistCache are none, whatever they speak: what they write is committed to the copies, or read again.
#[test]
fn own_clients_are_not_among_them() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    // What was flushed is cached again at once, so that most writes meet copies.
    let tables = "[[policy]]\nprefix = \"\"\ncache = \"always\"\n".to_owned();
    let cluster = Cluster::up(Layout { tables, ..Layout::before(&servers) });
    let mut clients: Vec<Client> = (0..2).map(|_| cluster.connect(0)).collect();
    clients.push(cluster.connect(0).resp3());
    assert_eq!(text(&clients[0].call(&["SET", "k", "-1"])), "OK");
    warm(&cluster, &mut clients[1], "k");
    warm(&cluster, &mut clients[2], "k");
    let mut written = 0;
    // A node that was refused a fill holds the key off for longer than two thousand writes take.
    until("writes have met copies", || {
        for number in written..written + 2000 {
            let value = number.to_string();
            let writer = number % 3;
            match number % 7 {
                0 => drop(clients[writer].call(&["FLUSHALL"])),
                1 => drop(clients[writer].call(&["EVAL", "return redis.call('SET', 'k', 'x')", "0"])),
                2 => drop(clients[writer].call(&["SET", "k", &value, "PX", "3"])),
                _ => {}
            }
            assert_eq!(text(&clients[writer].call(&["SET", "k", &value])), "OK");
            for _ in 0..10 {
                assert_eq!(text(&clients[(number + 1) % 3].call(&["GET", "k"])), value);
            }
        }
        written += 2000;
        // The shim's own numbers, of after the last write.
        let status =
            cluster.fresh_status(|status| total(status, "shims", "storage_writes_total") >= written as u64);
        assert_eq!(total(&status, "shims", "foreign_writes_total"), 0, "{status}");
        let (hits, commits) =
            (total(&status, "nodes", "hits_total"), total(&status, "shims", "commits_total"));
        (hits > 500 && commits > 10).then_some(())
    });
}

#[test]
fn nothing_is_cached_beside_them_if_they_are_refused() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let tables = "[security]\nforeign_writers = \"refuse\"\n".to_owned();
    let cluster = Cluster::up(Layout { tables, ..Layout::before(&servers) });
    let (mut direct, mut client) = (servers[0].connect(), cluster.connect(0));
    let mut number = 0;
    let noticed = until("the shim has noticed", || {
        number += 1;
        let value = number.to_string();
        // What a script does shows by what it changes, and not before.
        direct.call(&["EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", "k", &value]);
        until("the value is read", || (text(&client.call(&["GET", "k"])) == value).then_some(()));
        (0..100).for_each(|_| drop(client.call(&["GET", "k"])));
        let status = cluster.status();
        (total(&status, "shims", "foreign_writes_total") > 0).then_some(status)
    });
    assert_eq!(total(&noticed, "shims", "copies"), 0, "{noticed}");
    let before = total(&noticed, "shims", "fills_total");
    for value in ["a", "b"] {
        direct.call(&["SET", "k", value]);
        (0..1000).for_each(|_| assert_eq!(text(&client.call(&["GET", "k"])), value));
    }
    let after = cluster.status();
    assert_eq!(total(&after, "shims", "fills_total"), before, "{after}");
    assert_ne!(client.call(&["SET", "k", "c"]), Value::Null);
}

const REFUSE: &str = "[security]\nforeign_writers = \"refuse\"\n";

/// What `distcache status` prints for people.
pub(crate) fn report(cluster: &Cluster) -> String {
    let url = format!("http://{}", cluster.layout.controller);
    let output = distcache().args(["status", "--controller", &url]).output().expect("status runs");
    String::from_utf8(output.stdout).expect("text")
}

/// Whether the shim says that it caches nothing because of others.
fn is_refused(status: &Json) -> bool {
    status["shims"][0]["caching_refused"] == true
}

/// A writer is named before he has changed anything that is cached, and keeps it from being cached where he is refused.
#[test]
fn connections_that_write_are_named() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let mut outsider = servers[0].connect();
    outsider.call(&["CLIENT", "SETNAME", "importer"]);
    outsider.call(&["SET", "k", "v"]);
    let cluster = Cluster::up(Layout { tables: REFUSE.to_owned(), ..Layout::before(&servers) });
    let mut client = cluster.connect(0);
    let status = cluster.fresh_status(is_refused);
    assert_eq!(total(&status, "shims", "foreign_connections"), 1, "{status}");
    let told = report(&cluster);
    let line = "others write to the storage of shim-0: now ";
    assert!(
        told.contains(line) && told.contains("(user default, name importer, last command SET)"),
        "{told}"
    );
    assert!(told.contains("; nothing of it is cached"), "{told}");
    (0..1000).for_each(|_| assert_eq!(text(&client.call(&["GET", "k"])), "v"));
    let status = cluster.fresh_status(|status| total(status, "shims", "requests_total") >= 1000);
    assert_eq!(
        (total(&status, "shims", "copies"), total(&status, "nodes", "hits_total")),
        (0, 0),
        "{status}"
    );
    drop(outsider);
    warm(&cluster, &mut client, "k");
    assert!(!report(&cluster).contains("others write"), "{}", report(&cluster));
}

#[test]
fn a_server_that_evicts_is_found() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::with(&["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"])];
    let cluster = Cluster::up(Layout { tables: REFUSE.to_owned(), ..Layout::before(&servers) });
    let (mut client, mut direct) = (cluster.connect(0), servers[0].connect());
    let status = cluster.fresh_status(is_refused);
    assert_eq!(total(&status, "shims", "storage_evicts"), 1, "{status}");
    let told = report(&cluster);
    assert!(told.contains("the storage of shim-0 evicts (allkeys-lru); nothing of it is cached"), "{told}");
    assert_eq!(text(&client.call(&["SET", "k", "v"])), "OK");
    assert_eq!(text(&direct.call(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])), "OK");
    warm(&cluster, &mut client, "k");
}

/// Replicas, sentinels, whoever watches, saves or asks, other shims, and DistCache's own tools: all at once.
#[test]
fn friends_are_not_among_them() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let watched = Sentinels::start();
    let plain = RedisServer::start();
    let mut primaries = [watched.servers[watched.primary()].connect(), plain.connect()];
    let mut friends: Vec<Client> = Vec::new();
    for primary in &mut primaries {
        assert_eq!(text(&primary.call(&["CONFIG", "SET", "save", "1 1"])), "OK");
    }
    for server in [&watched.servers[watched.primary()], &plain] {
        let mut monitor = server.connect();
        assert_eq!(text(&monitor.call(&["MONITOR"])), "OK");
        let mut listener = server.connect();
        listener.call(&["PSUBSCRIBE", "*"]);
        friends.extend([monitor, listener]);
    }
    let storage = vec![watched.url(), plain.url()];
    let cluster = Cluster::up(Layout { tables: REFUSE.to_owned(), ..Layout::new(storage) });
    let mut client = cluster.connect(0);
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(text(&client.call(&["SET", key, "v"])), "OK");
    }
    warm(&cluster, &mut client, "k0");
    for round in 0..5 {
        for primary in &mut primaries {
            for question in [&["INFO"][..], &["SLOWLOG", "GET"], &["DBSIZE"], &["SCAN", "0"], &["BGSAVE"]] {
                primary.call(question);
            }
        }
        let doctor = distcache().args(["doctor", "--config"]).arg(&cluster.config).output().expect("it runs");
        let found = String::from_utf8_lossy(&doctor.stdout);
        assert!(!found.contains("others than DistCache"), "{found}");
        for key in &keys {
            assert_eq!(text(&client.call(&["SET", key, &round.to_string()])), "OK");
            (0..20).for_each(|_| assert_eq!(text(&client.call(&["GET", key])), round.to_string()));
        }
        // The shim lists connections anew when it hears of changes again.
        for primary in &mut primaries {
            let connections = text(&primary.call(&["CLIENT", "LIST"]));
            let listed = listings(primary);
            let mut told = connections.split(' ').filter_map(|word| word.strip_prefix("redir="));
            let feed = told.rfind(|id| *id != "-1").expect("reads are tracked");
            assert_eq!(primary.call(&["CLIENT", "KILL", "ID", feed]), Value::Integer(1));
            until("the connections are listed again", || (listings(primary) > listed).then_some(()));
        }
    }
    let status = cluster.fresh_status(|status| total(status, "shims", "read_feed_losses_total") > 0);
    let (writes, strangers) =
        (total(&status, "shims", "foreign_writes_total"), total(&status, "shims", "foreign_connections"));
    assert_eq!((writes, strangers), (0, 0), "{status}");
    assert!(!report(&cluster).contains("others write"), "{}", report(&cluster));
    drop(friends);
}

/// How often the connections of a server's clients were listed.
fn listings(server: &mut Client) -> u64 {
    let info = text(&server.call(&["INFO", "commandstats"]));
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_client|list:calls="));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}
