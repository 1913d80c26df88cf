//! Others who write to a memcached that only DistCache is to write to. Not what they write.

use super::storage::warm;
use super::{check_alone, set, single};
use crate::cluster::{Cluster, Layout, MemcachedClient, MemcachedServer, installed, shared, total, until};
use crate::foreign_writers::report;

#[test]
fn copies_follow_them_and_they_are_named() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let (server, cluster, mut client) = single();
    set(&mut client, "k", "0");
    check_alone(&cluster);
    let mut outsider = server.connect();
    let requests =
        ["set k 0 0 1\r\n5\r\n", "incr k 1\r\n", "decr k 3\r\n", "append k 0 0 1\r\n1\r\n", "delete k\r\n"];
    for (index, request) in requests.into_iter().enumerate() {
        warm(&mut client, "k");
        outsider.text(request);
        let now = outsider.text("get k\r\n");
        // Nobody else invalidates the copy, which would be served for as long as its node lives.
        until("the change is read", || (client.text("get k\r\n") == now).then_some(()));
        let noticed = index as u64 + 1;
        cluster.fresh_status(|status| total(status, "shims", "foreign_writes_total") == noticed);
    }
    let status = cluster.fresh_status(|status| total(status, "shims", "foreign_connections") > 0);
    assert_eq!(total(&status, "shims", "foreign_connections"), 1, "{status}");
    let told = report(&cluster);
    assert!(
        told.contains("others write to the storage of shim-0: ") && told.contains("127.0.0.1:"),
        "{told}"
    );
    // Whoever flushes the server has changed everything.
    assert_eq!(client.text("set k 0 0 1\r\n0\r\n"), "STORED\r\n");
    warm(&mut client, "k");
    assert_eq!(outsider.text("flush_all\r\n"), "OK\r\n");
    until("the change is read", || (client.text("get k\r\n") == "END\r\n").then_some(()));
}

#[test]
fn nothing_is_cached_beside_them_if_they_are_refused() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let server = MemcachedServer::start();
    let cluster = Cluster::up(Layout {
        protocol: "memcached",
        tables: "[security]\nforeign_writers = \"refuse\"\n[heat]\nthreshold = 1".to_owned(),
        ..Layout::new(vec![server.url()])
    });
    let mut client = MemcachedClient::connect(cluster.router(0));
    set(&mut client, "k", "0");
    warm(&mut client, "k");
    let mut outsider = server.connect();
    outsider.text("set k 0 0 1\r\n1\r\n");
    let status = cluster.fresh_status(|status| {
        status["shims"][0]["caching_refused"] == true && total(status, "shims", "copies") == 0
    });
    let fills = total(&status, "shims", "fills_total");
    for value in 2..4 {
        outsider.text(&format!("set k 0 0 1\r\n{value}\r\n"));
        let expected = format!("VALUE k 0 1\r\n{value}\r\nEND\r\n");
        (0..500).for_each(|_| assert_eq!(client.text("get k\r\n"), expected));
    }
    let status = cluster.status();
    assert_eq!(total(&status, "shims", "fills_total"), fills, "{status}");
    assert_eq!(client.text("set k 0 0 1\r\n9\r\n"), "STORED\r\n", "it serves");
}
