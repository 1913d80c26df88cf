//! Settings that change while the cluster serves: by `distcache reload`, by SIGHUP, by the admin address. Not certificates.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;
use wire::resp::Value;

use crate::cluster::{Cluster, Layout, free_port, shared, text, total, until};

const LIMITS: &str = "[limits]\nkey_bytes_max = \"64KiB\"\n";

fn rewrite(cluster: &Cluster, old: &str, new: &str) {
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    assert!(toml.contains(old), "{old:?} is not in the configuration");
    std::fs::write(&cluster.config, toml.replace(old, new)).expect("written");
}

#[test]
fn every_process_acts_on_a_new_file() {
    let _machine = shared();
    let tables = format!("{LIMITS}[[policy]]\nprefix = \"a\"\ncache = \"always\"\n");
    let cluster = Cluster::apart(Layout { tables, ..Layout::embedded(2) });
    let mut client = cluster.connect(0);
    client.call(&["SET", "ab", "1"]);
    until("the key is cached", || {
        assert_eq!(text(&client.call(&["GET", "ab"])), "1");
        (total(&cluster.status(), "nodes", "objects") == 2).then_some(())
    });
    rewrite(&cluster, "cache = \"always\"", "cache = \"never\"");
    rewrite(&cluster, "64KiB", "4B");
    rewrite(&cluster, "lease_ms = 1000", "lease_ms = 900");
    let reloaded = cluster.command(cluster.layout.controller, &["reload"]).expect("reloaded");
    assert_eq!(reloaded["epoch"], 1);
    let members = reloaded["members"].as_object().expect("members");
    assert_eq!(members.len(), 5, "two shims, two nodes, a router: {reloaded}");
    for member in members.values() {
        let changed = member["changed"].as_array().expect("names");
        assert!(changed.contains(&"[[policy]] \"a\" cache".into()), "{reloaded}");
        assert_eq!(member["restart_needed"], serde_json::json!(["[cluster] lease_ms"]), "{reloaded}");
    }
    let error = until("the router has the new limit", || match client.call(&["GET", "long-key"]) {
        Value::Error(error) => Some(String::from_utf8_lossy(&error).into_owned()),
        _ => None,
    });
    assert!(error.contains("over the limit of 4"), "{error}");
    until("the copies are gone", || {
        assert_eq!(text(&client.call(&["GET", "ab"])), "1");
        (total(&cluster.status(), "nodes", "objects") == 0).then_some(())
    });
}

/// A controller that has just started has heard of nobody yet: it waits, and says of whom it hears nothing.
#[test]
fn a_new_controller_waits_for_members() {
    let _machine = shared();
    let controller_keys = "member_lease_ms = 20000".to_owned();
    let mut cluster =
        Cluster::apart(Layout { controller_keys, tables: LIMITS.to_owned(), ..Layout::embedded(1) });
    cluster.kill("controller");
    cluster.start("controller");
    rewrite(&cluster, "64KiB", "63KiB");
    let reloaded = cluster.command(cluster.layout.controller, &["reload"]).expect("reloaded");
    let members = reloaded["members"].as_object().expect("members");
    assert_eq!(members.len(), 4, "a shim, two nodes, a router: {reloaded}");
    assert_eq!(reloaded["unheard"], serde_json::json!([]));
}

#[test]
fn a_file_that_is_no_good_changes_nothing() {
    let _machine = shared();
    let mut cluster = Cluster::up(Layout { tables: LIMITS.to_owned(), ..Layout::embedded(1) });
    let mut client = cluster.connect(0);
    rewrite(&cluster, "64KiB", "4B\"\npipeline_max = \"x");
    let error = cluster.command(cluster.layout.controller, &["reload"]).expect_err("no configuration");
    assert!(error.contains("pipeline_max"), "{error}");
    cluster.signal(crate::cluster::UP, Signal::HUP);
    until("the log tells why", || {
        cluster.process(crate::cluster::UP).log().contains("the configuration in use stays").then_some(())
    });
    assert_eq!(client.call(&["GET", "long-key"]), Value::Null);
    rewrite(&cluster, "\npipeline_max = \"x\"", "");
    cluster.signal(crate::cluster::UP, Signal::HUP);
    until("the router has the new limit", || {
        matches!(client.call(&["GET", "long-key"]), Value::Error(_)).then_some(())
    });
}

#[test]
fn the_admin_address_reloads_its_process() {
    let _machine = shared();
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let router_keys = format!("admin = \"{admin}\"");
    let cluster = Cluster::up(Layout { tables: LIMITS.to_owned(), router_keys, ..Layout::embedded(1) });
    rewrite(&cluster, "64KiB", "4B");
    let token = cluster.token();
    let post = |marked: bool| {
        let mut stream = TcpStream::connect(admin).expect("the port accepts");
        let token = if marked { &token } else { "1" };
        let mark = format!("x-distcache-command: {token}\r\n");
        let head = format!("POST /reload HTTP/1.1\r\nHost: {admin}\r\n{mark}");
        write!(stream, "{head}Content-Length: 0\r\nConnection: close\r\n\r\n").expect("written");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply in UTF-8");
        reply
    };
    assert!(post(false).starts_with("HTTP/1.1 403"), "a browser's page could send it");
    let reply = post(true);
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("[limits] key_bytes_max"), "{reply}");
    let mut client = cluster.connect(0);
    until("the router has the new limit", || {
        matches!(client.call(&["GET", "long-key"]), Value::Error(_)).then_some(())
    });
    rewrite(&cluster, "4B", "no size");
    let reply = post(true);
    assert!(reply.starts_with("HTTP/1.1 422") && reply.contains("key_bytes_max"), "{reply}");
}
