//! Reads through DistCache are never stale while copies are hit and everything works. Faults are in `failures`.

use std::time::{Duration, Instant};

use serde_json::Value as Json;
use wire::resp::Value;

use crate::cluster::{Client, Cluster, Layout, RedisServer, alone, installed, total};
use crate::history::History;

/// One leaf, one spine, two routers before two Redis servers.
pub(crate) fn layout(servers: &[RedisServer]) -> Layout {
    let layout = Layout::before(servers);
    let second = Layout::embedded(1).routers;
    Layout { routers: [&layout.routers[..], &second].concat(), ..layout }
}

/// The share of reads that were answered from a copy. As routers count both: what nodes say may be older.
pub(crate) fn hit_ratio(status: &Json) -> f64 {
    let reads =
        total(status, "routers", "reads_to_nodes_total") + total(status, "routers", "reads_to_shims_total");
    total(status, "routers", "hits_total") as f64 / reads.max(1) as f64
}

fn check(cluster: &Cluster) {
    let history = History::start(&cluster.layout.routers, 8, 2);
    history.wait_for(8000, 400);
    let report = history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
    let status = cluster.fresh_status(|status| {
        let nodes = total(status, "routers", "reads_to_nodes_total");
        nodes + total(status, "routers", "reads_to_shims_total") >= report.reads
    });
    assert!(hit_ratio(&status) > 0.3, "hit ratio {:.2}: {status}", hit_ratio(&status));
    let copies = total(&status, "shims", "invalidated_copies_total");
    let messages = total(&status, "shims", "coherence_messages_total");
    assert!(copies > 50, "{status}");
    assert!(messages as f64 <= copies as f64 * 2.1, "{messages} messages for {copies} copies");
    assert!(total(&status, "shims", "commits_total") <= copies, "{status}");
    assert_eq!(total(&status, "shims", "foreign_writes_total"), 0, "nobody else writes: {status}");
}

#[test]
fn reads_are_never_stale_between_processes() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::start(), RedisServer::start()];
    check(&Cluster::apart(layout(&servers)));
}

#[test]
fn reads_are_never_stale_when_every_read_passes_a_node() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::start(), RedisServer::start()];
    check(&Cluster::up(Layout { routing: "on-path", racks: 2, spines: 2, ..layout(&servers) }));
}

/// Whether it was read more than a few times in its life.
fn is_read_until_gone(clients: &mut [Client; 2], key: &str, round: u32, life_ms: u32) -> bool {
    let life = life_ms.to_string();
    match round {
        0 | 1 => clients[0].call(&["SET", key, "v", "PX", &life]),
        _ => {
            clients[0].call(&["SET", key, "v"]);
            (0..200).for_each(|_| assert_eq!(clients[1].call(&["GET", key]), Value::Bulk("v".into())));
            clients[0].call(&["PEXPIRE", key, &life])
        }
    };
    let latest = Instant::now() + Duration::from_millis(u64::from(life_ms));
    reads_until_gone(clients, key, latest) > 20
}

/// Reads `key` until it is gone; it must be by `latest`, but for Redis' clock, which ticks in milliseconds.
fn reads_until_gone(clients: &mut [Client], key: &str, latest: Instant) -> u64 {
    const TICKS: Duration = Duration::from_millis(3);
    let mut reads = 0;
    loop {
        for client in clients.iter_mut() {
            let asked = Instant::now();
            match client.call(&["GET", key]) {
                Value::Null => return reads,
                Value::Bulk(_) => assert!(asked <= latest + TICKS, "read {:?} too late", asked - latest),
                other => panic!("{other:?}"),
            }
            reads += 1;
        }
    }
}

#[test]
fn cached_keys_expire_in_time() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::apart(layout(&servers));
    let mut clients = [cluster.connect(0), cluster.connect(1)];
    for key in ["expires", "expires:b", "expires:c"] {
        // The first life fills the cache, the second arrives there as the value of an INV, the third by PEXPIRE.
        for round in 0..3 {
            // A loaded machine has few reads in a short life, which says nothing: then it lives longer.
            let mut life_ms = 300;
            while !is_read_until_gone(&mut clients, key, round, life_ms) {
                life_ms *= 2;
                assert!(life_ms < 30_000, "{key} has lived for a few reads only");
            }
        }
    }
    let status = cluster.fresh_status(|status| total(status, "nodes", "hits_total") > 300);
    assert!(hit_ratio(&status) > 0.3, "{status}");
}
