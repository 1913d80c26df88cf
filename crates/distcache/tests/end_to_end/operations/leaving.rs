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
        Some(http(admin, "/ready")).filter(|reply| reply.contains("does not reach"))
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
fn a_killed_shim_leaves_its_routers_ready_and_the_keys_of_the_others_without_errors() {
    let _machine = shared();
    let admins = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
    let router_keys = format!("admin = \"{}\"\nready_shims = \"any\"", admins[0]);
    let mut layout = Layout { router_keys, ..Layout::embedded(2) };
    layout.routers.push(crate::cluster::loopback());
    let mut cluster = Cluster::unstarted(layout);
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let second = "id = \"router-1\"\n";
    let toml = toml.replace(second, &format!("{second}admin = \"{}\"\n", admins[1]));
    std::fs::write(&cluster.config, toml).expect("written");
    for id in cluster.layout.ids() {
        cluster.start(&id);
    }
    cluster.wait_linked();
    let mut clients = [0, 1].map(|router| cluster.connect(router));
    let keys: Vec<String> = (0..40).map(|index| format!("key:{index}")).collect();
    for key in &keys {
        assert_eq!(text(&clients[0].call(&["SET", key, key])), "OK");
    }
    let behind = |key: &str| {
        let found = cluster.command(cluster.layout.controller, &["inspect", key]).expect("where it lives");
        found["shim"] == "shim-0"
    };
    let kept: Vec<&String> = keys.iter().filter(|key| behind(key)).collect();
    assert!(!kept.is_empty() && kept.len() < keys.len(), "{kept:?}");

    cluster.kill("shim-1");
    for (admin, client) in admins.into_iter().zip(&mut clients) {
        let reply = until("it says that the shim is gone", || {
            let reply = http(admin, "/ready");
            assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
            for key in &kept {
                assert_eq!(&text(&client.call(&["GET", key])), *key);
                assert_eq!(text(&client.call(&["SET", key, key])), "OK");
            }
            reply.contains("does not reach shim-1").then_some(reply)
        });
        assert!(reply.contains("\"ready\":true"), "{reply}");
        assert!(http(admin, "/ready?strict").starts_with("HTTP/1.1 503"));
        let metrics = http(admin, "/metrics");
        assert!(metrics.contains("distcache_router_ready{id=\"router-"), "{metrics}");
        assert!(
            metrics.lines().any(|line| line.starts_with("distcache_router_ready{") && line.ends_with("} 1"))
        );
        assert!(
            metrics
                .lines()
                .any(|line| line.starts_with("distcache_router_shims_missing{") && line.ends_with("} 1"))
        );
    }
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
