//! A router that stops: first it says that it is not ready, later it takes no more clients. And who is ready at all.

use std::net::SocketAddr;

use rustix::process::Signal;

use crate::cluster::{Cluster, Layout, free_port, shared, text, until};
use crate::status::http;

fn cluster(drain_ms: u64) -> (Cluster, SocketAddr) {
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let router_keys = format!("drain_ms = {drain_ms}\nadmin = \"{admin}\"");
    (Cluster::unstarted(Layout { router_keys, ..Layout::embedded(1) }), admin)
}

#[test]
fn a_router_is_ready_while_it_reaches_its_shims_and_takes_clients_for_a_while_after() {
    let _machine = shared();
    let (mut cluster, admin) = cluster(600_000);
    cluster.start("controller");
    cluster.start("router-0");
    assert!(http(admin, "/health").starts_with("HTTP/1.1 200"));
    let lacking = until("it has said what it lacks", || {
        Some(http(admin, "/ready")).filter(|reply| reply.contains("is not linked"))
    });
    assert!(lacking.starts_with("HTTP/1.1 503") && lacking.contains("shim-0"), "{lacking}");
    for id in ["shim-0", "leaf-0", "spine-0"] {
        cluster.start(id);
    }
    until("it is ready", || http(admin, "/ready").starts_with("HTTP/1.1 200").then_some(()));

    cluster.signal("router-0", Signal::TERM);
    until("it says that it stops", || http(admin, "/ready").contains("is stopping").then_some(()));
    assert!(http(admin, "/ready").starts_with("HTTP/1.1 503"));
    assert!(http(admin, "/health").starts_with("HTTP/1.1 200"));
    let mut late = cluster.connect(0);
    assert_eq!(text(&late.call(&["SET", "a", "1"])), "OK", "who has not seen it yet is served");
    // Nobody has to wait who does not want to.
    cluster.signal("router-0", Signal::TERM);
    assert_eq!(cluster.process("router-0").wait().code(), Some(128 + 15));
}

#[test]
fn after_that_it_stops_in_order() {
    let _machine = shared();
    let (mut cluster, _) = cluster(300);
    cluster.start(crate::cluster::UP);
    cluster.wait_linked();
    cluster.signal(crate::cluster::UP, Signal::TERM);
    assert!(cluster.process(crate::cluster::UP).wait().success());
}
