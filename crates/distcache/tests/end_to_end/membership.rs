//! Nodes and layers that leave and come while clients work, by the commands of an operator. Not how they fail.

use config::Config;
use router::Client;
use rustix::process::Signal;
use serde_json::Value as Json;

use crate::cluster::{Cluster, Layout, RedisServer, alone, free_port, installed, until};
use crate::coherence::layout;
use crate::failures::leases_lost;
use crate::history::History;
use crate::replicas::share_of;

/// A node's hits; none if it is not there.
fn hits(cluster: &Cluster, node: &str) -> Option<u64> {
    let status = cluster.status();
    let found = status["nodes"].as_array()?.iter().find(|found| found["id"] == node)?.clone();
    found["hits_total"].as_u64()
}

fn until_hit(cluster: &Cluster, node: &str) {
    let before = hits(cluster, node).unwrap_or(0);
    until(&format!("{node} is hit"), || (hits(cluster, node)? > before + 100).then_some(()));
}

fn epoch(status: &Json) -> Option<u64> {
    status["epoch"].as_u64()
}

/// A cluster with two spine nodes and leases so long that a write which waited for one would show.
fn start(servers: &[RedisServer]) -> (Cluster, History) {
    let controller_keys = "return_step_ms = 200".to_owned();
    let cluster = Cluster::apart(Layout { spines: 2, lease_ms: 4000, controller_keys, ..layout(servers) });
    let history = History::start(&cluster.layout.routers, 6, 4);
    // New shims hold the first writes for a lease.
    history.wait_for_each_key();
    for node in ["spine-0", "spine-1", "leaf-0"] {
        until_hit(&cluster, node);
    }
    history.report();
    (cluster, history)
}

fn no_write_waited(cluster: &Cluster, history: &History, what: &str) {
    history.wait_for_each_key();
    history.wait_for(500, 50);
    let report = history.report();
    assert!(report.errors.is_empty(), "{what}: {report:?}");
    assert_eq!(leases_lost(cluster), 0, "{what}: a write waited for a lease: {report:?}");
}

#[test]
fn a_drained_node_holds_nothing_and_holds_nobody_up() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::durable(), RedisServer::durable()];
    let (mut cluster, history) = start(&servers);
    let controller = cluster.layout.controller;
    let drain = |cluster: &Cluster, arguments: &[&str]| -> Json {
        cluster.command(controller, arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    };

    let outcome = drain(&cluster, &["drain", "spine-0"]);
    assert_eq!((&outcome[0]["node"], &outcome[0]["objects"]), (&Json::from("spine-0"), &Json::from(0)));
    no_write_waited(&cluster, &history, "drained");
    let status = cluster.status();
    let node = status["nodes"].as_array().and_then(|nodes| nodes.iter().find(|node| node["id"] == "spine-0"));
    assert_eq!(node.map(|node| &node["objects"]), Some(&Json::from(0)), "{status}");
    until_hit(&cluster, "spine-1");

    // It is no loss any more, and stays drained over a restart.
    cluster.process("spine-0").signal(Signal::TERM);
    assert_eq!(cluster.process("spine-0").wait().code(), Some(0));
    no_write_waited(&cluster, &history, "stopped");
    let outcome = drain(&cluster, &["drain", "spine-0"]);
    assert_eq!(outcome[0]["objects"], Json::Null);
    cluster.start("spine-0");
    until("it is there", || hits(&cluster, "spine-0"));
    no_write_waited(&cluster, &history, "started");
    assert_eq!(share_of(controller, "spine-0"), Some(0));

    let outcome = drain(&cluster, &["drain", "--undo", "spine-0"]);
    assert_eq!(outcome[0]["drained"], false);
    until("it has its part again", || (share_of(controller, "spine-0")? == 1000).then_some(()));
    until_hit(&cluster, "spine-0");
    no_write_waited(&cluster, &history, "undone");

    let error = cluster.command(controller, &["drain", "nobody"]).unwrap_err();
    assert!(error.contains("the nodes are leaf-0, spine-0, spine-1"), "{error}");
    history.finish();
}

#[test]
fn a_node_that_stops_in_order_is_not_waited_for() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::durable()];
    // A controller that waited for a lease to end would do so for longer than this test does.
    let controller_keys = "member_lease_ms = 600000".to_owned();
    let mut cluster = Cluster::apart(Layout { spines: 2, controller_keys, ..layout(&servers) });
    let controller = cluster.layout.controller;
    until("it is there", || hits(&cluster, "spine-0"));
    cluster.process("spine-0").signal(Signal::TERM);
    assert_eq!(cluster.process("spine-0").wait().code(), Some(0));
    until("the map is without it", || (share_of(controller, "spine-0")? == 0).then_some(()));
    cluster.start("spine-0");
    until("it has its part again", || (share_of(controller, "spine-0")? == 1000).then_some(()));
}

#[test]
fn nodes_and_layers_are_added_while_clients_work() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::durable(), RedisServer::durable()];
    let (mut cluster, history) = start(&servers);
    let controller = cluster.layout.controller;
    let reload = |cluster: &Cluster| cluster.command(controller, &["reload"]);
    let node = |id: &str, layer: &str| {
        let port = free_port();
        format!("[[node]]\nid = \"{id}\"\nlayer = \"{layer}\"\nlisten = \"127.0.0.1:{port}\"\n")
    };

    // An application with the client library is told, too.
    let config = Config::load(&cluster.config).expect("the configuration is read");
    let client = Client::connect(&config).expect("the library reaches all storage");

    cluster.append(&node("spine-2", "spine"));
    reload(&cluster).expect("the controller takes the node");
    assert_eq!(share_of(controller, "spine-2"), Some(0));
    cluster.start("spine-2");
    until_hit(&cluster, "spine-2");
    no_write_waited(&cluster, &history, "a node more");
    // Two threads of each of two routers, two shims and the library.
    until("the library has linked itself to it", || {
        let status = cluster.status();
        let peers =
            status["nodes"].as_array()?.iter().find(|node| node["id"] == "spine-2")?["peers"].as_u64();
        (peers == Some(7)).then_some(())
    });
    client.set("by-library", "1").expect("it goes on");
    assert_eq!(client.get("by-library").expect("it goes on").as_deref(), Some(b"1".as_slice()));
    drop(client);

    let layer = "[[layer]]\nname = \"core\"\npartition = \"hash\"\n";
    cluster.append(&format!("{layer}{}", node("core-0", "core")));
    reload(&cluster).expect("the controller takes the layer");
    cluster.start("core-0");
    until_hit(&cluster, "core-0");
    no_write_waited(&cluster, &history, "a layer more");

    let whole = std::fs::read_to_string(&cluster.config).expect("the configuration is there");
    let port = free_port();
    cluster.append(&format!("[[shim]]\nid = \"shim-9\"\nrack = \"r0\"\nlisten = \"127.0.0.1:{port}\"\n"));
    let refusal = reload(&cluster).expect_err("storage cannot be added");
    assert!(refusal.contains("shim-9") && refusal.contains("nobody would move their data"), "{refusal}");
    std::fs::write(&cluster.config, "[cluster]\n").expect("written");
    assert!(reload(&cluster).expect_err("no configuration").contains("[[shim]]: there is none"));
    std::fs::write(&cluster.config, whole).expect("written");

    // A controller that starts anew knows them from the file, and the members did not forget its epochs.
    let known = |status: &Json| status["nodes"].as_array().into_iter().flatten().map(epoch).max().flatten();
    let before = known(&cluster.status());
    cluster.kill("controller");
    cluster.start("controller");
    until("the members are there again", || {
        let status = cluster.status();
        let nodes = status["nodes"].as_array()?;
        let agree = nodes.iter().all(|node| epoch(node) == epoch(&status));
        (nodes.len() == 5 && agree && epoch(&status) > before).then_some(())
    });
    no_write_waited(&cluster, &history, "another controller");
    let report = history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}
