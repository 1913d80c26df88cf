//! memcached at the front door: what real servers and real clients say to it. Not Redis' protocol.

mod clients;
mod differential;
mod foreign_writers;
mod front;
mod ketama;
mod marks;
mod requests;
mod storage;

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Layout, MemcachedClient, MemcachedServer, total, until};

/// A cluster whose caches are so small that all is admitted and evicted all the time.
fn cluster(storage: Vec<String>) -> Cluster {
    Cluster::up(Layout {
        protocol: "memcached",
        objects_max: 4,
        spines: 2,
        tables: "[heat]\nthreshold = 1\nhold_off_ms = 10".to_owned(),
        ..Layout::new(storage)
    })
}

/// A cluster before one server, and a client of it.
fn single() -> (MemcachedServer, Cluster, MemcachedClient) {
    let server = MemcachedServer::start();
    let cluster = cluster(vec![server.url()]);
    let client = MemcachedClient::connect(cluster.router(0));
    (server, cluster, client)
}

/// Sets a key to one byte, as soon as writes are taken.
fn set(client: &mut MemcachedClient, key: &str, value: &str) {
    let request = format!("set {key} 0 0 1\r\n{value}\r\n");
    until("a write is taken", || (client.text(&request) == "STORED\r\n").then_some(()));
}

/// Nothing that this cluster has done is taken for what others did. The servers are looked at more than once a second.
fn check_alone(cluster: &Cluster) {
    let start = Instant::now();
    until("all servers were looked at", || (start.elapsed() >= Duration::from_secs(2)).then_some(()));
    let status = cluster.fresh_status(|status| total(status, "shims", "requests_total") > 0);
    assert_eq!(total(&status, "shims", "foreign_writes_total"), 0, "{status}");
}
