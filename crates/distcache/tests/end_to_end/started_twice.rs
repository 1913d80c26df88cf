//! A node that is started twice, from files that differ in its address: little is cached, and no value is wrong. Not files that
//! differ in where data are.

use std::time::{Duration, Instant};

use wire::resp::Value;

use crate::cluster::{Cluster, Layout, free_port, loopback, ok, shared, text, total};

const KEYS: usize = 4;
const LASTS: Duration = Duration::from_secs(8);

/// The file of the cluster, with another port for the leaf node.
fn other_file(cluster: &Cluster) -> std::path::PathBuf {
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let (before, leaf) = toml.split_once("id = \"leaf-0\"").expect("a leaf node");
    let (head, rest) = leaf.split_once("listen = \"127.0.0.1:").expect("its address");
    let (_, rest) = rest.split_once('"').expect("its end");
    let path = cluster.config.with_file_name("other.toml");
    let listen = format!("listen = \"127.0.0.1:{}\"", free_port());
    std::fs::write(&path, format!("{before}id = \"leaf-0\"{head}{listen}{rest}")).expect("the other file");
    path
}

#[test]
fn no_value_is_stale_while_a_node_runs_twice() {
    let _machine = shared();
    let layout = Layout { routers: vec![loopback(), loopback()], ..Layout::embedded(1) };
    let mut cluster = Cluster::unstarted(layout);
    let (whole, other) = (cluster.config.clone(), other_file(&cluster));
    for id in ["controller", "shim-0", "leaf-0", "spine-0", "router-0"] {
        cluster.start(id);
    }
    cluster.config = other;
    cluster.start("router-1");
    let second = cluster.launch("leaf-0");
    second.wait_for_line("ready");
    cluster.config = whole;
    let mut clients = [cluster.connect(0), cluster.connect(1)];
    let (until, mut round, mut reads, mut refused) = (Instant::now() + LASTS, 0, 0, 0);
    while Instant::now() < until {
        round += 1;
        for key in 0..KEYS {
            let key = format!("key-{key}");
            ok(&mut clients[round % 2], &["SET", &key, &round.to_string()]);
            for client in &mut clients {
                for _ in 0..25 {
                    let value = client.call(&["GET", &key]);
                    reads += 1;
                    if let Value::Error(error) = &value {
                        // It was at the second leaf node, which no shim links.
                        assert!(error.starts_with(b"BUSY"), "{value:?}");
                        refused += 1;
                        continue;
                    }
                    assert_eq!(text(&value), round.to_string(), "{key}");
                }
            }
        }
    }
    assert!(refused * 50 < reads, "{refused} of {reads} reads were refused");
    let told = "is connected already from another process; every process needs an id of its own";
    assert!(second.log().contains(told), "{}", second.log());
    let status = cluster.fresh_status(|status| total(status, "nodes", "hits_total") > 0);
    assert!(total(&status, "shims", "invalidated_copies_total") > 0, "{status}");
}
