//! Mode `strict` before real redis-servers that others write to although they must not. Where they may is in `bounded`.

use wire::resp::Value;

use crate::bounded::{check_stalest, warm};
use crate::cluster::{
    Client, Cluster, Layout, Program, RedisServer, alone, installed, shared, text, total, until,
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
    let cluster = Cluster::up(Layout::before(&servers));
    let mut clients: Vec<Client> = (0..2).map(|_| cluster.connect(0)).collect();
    clients.push(cluster.connect(0).resp3());
    assert_eq!(text(&clients[0].call(&["SET", "k", "-1"])), "OK");
    warm(&cluster, &mut clients[1], "k");
    warm(&cluster, &mut clients[2], "k");
    for number in 0..2000 {
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
    // The shim's own numbers, of after the last write.
    let status = cluster.fresh_status(|status| {
        total(status, "shims", "storage_writes_total") >= 2000 && total(status, "nodes", "hits_total") > 500
    });
    assert_eq!(total(&status, "shims", "foreign_writes_total"), 0, "{status}");
    assert!(total(&status, "shims", "commits_total") > 10, "{status}");
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
        direct.call(&["SET", "k", &value]);
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
