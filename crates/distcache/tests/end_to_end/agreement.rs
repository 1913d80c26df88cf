//! Members whose files differ in what decides where data are: refused in words, and nobody else is the worse for it. Not the
//! marks of storage servers.

use wire::resp::Value;

use crate::cluster::{Cluster, Layout, distcache, loopback, ok, shared, text, until};

const KEYS: usize = 100;

/// The file of the cluster with its `[[shim]]` tables as `change` has them, beside it.
fn other_file(
    cluster: &Cluster,
    name: &str,
    change: impl FnOnce(Vec<String>) -> Vec<String>,
) -> std::path::PathBuf {
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let (before, rest) = toml.split_once("[[shim]]\n").expect("shims");
    let (shims, routers) = rest.split_once("[[router]]\n").expect("routers");
    let shims = change(shims.split("[[shim]]\n").map(str::to_owned).collect());
    let shims: String = shims.iter().map(|shim| format!("[[shim]]\n{shim}")).collect();
    let path = cluster.config.with_file_name(name);
    std::fs::write(&path, format!("{before}{shims}[[router]]\n{routers}")).expect("the other file");
    path
}

fn three_shims() -> Cluster {
    Cluster::unstarted(Layout { routers: vec![loopback(), loopback()], ..Layout::embedded(3) })
}

fn key(number: usize) -> String {
    format!("key-{number}")
}

#[test]
fn who_lists_fewer_shims_is_refused_and_the_others_go_on() {
    let _machine = shared();
    let mut cluster = three_shims();
    let whole = cluster.config.clone();
    let shorter = other_file(&cluster, "shorter.toml", |mut shims| {
        shims.pop();
        shims
    });
    for id in ["controller", "shim-0", "shim-1", "shim-2", "leaf-0", "router-0"] {
        cluster.start(id);
    }
    cluster.config = shorter;
    for id in ["spine-0", "router-1"] {
        cluster.start(id);
    }
    cluster.config = whole;
    let (mut right, mut wrong) = (cluster.connect(0), cluster.connect(1));
    until("the three shims serve", || {
        let value =
            |number| matches!(right.call(&["SET", &key(number), "v"]), Value::Simple(_)).then_some(());
        (0..KEYS).try_for_each(value)
    });
    for number in 0..KEYS {
        for command in [["GET", &key(number), ""].as_slice(), &["SET", &key(number), "w"]] {
            let command = if command[0] == "GET" { &command[..2] } else { command };
            let reply = wrong.call(command);
            assert!(
                matches!(&reply, Value::Error(_)),
                "{command:?} was answered {reply:?} by who looks elsewhere"
            );
        }
    }
    let shims = "[[shim]] entries: 3 here and 2 there";
    let told = until("the status tells who is refused", || {
        let output = distcache()
            .args(["status", "--controller", &cluster.layout.controller.to_string()])
            .output()
            .expect("distcache runs");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let both = ["spine-0", "router-1"]
            .map(|id| shown.contains(&format!("the controller refuses {id}: {shims}")));
        (both == [true; 2]
            && shown.contains(&format!("shim-0: router 1: {shims}"))
            && !shown.contains("no heartbeat from"))
        .then_some((shown, output.status.code()))
    });
    assert_eq!(told.1, Some(3), "{}", told.0);
    let log = cluster.process("router-1").log();
    assert!(log.contains(&format!("router 1 has another configuration than shim 0: {shims}")), "{log}");
    for number in 0..KEYS {
        assert_eq!(text(&right.call(&["GET", &key(number)])), "v", "{number}");
    }
}

#[test]
fn the_order_of_shims_in_a_file_moves_no_key() {
    let _machine = shared();
    let mut cluster = three_shims();
    let reversed = other_file(&cluster, "reversed.toml", |mut shims| {
        shims.reverse();
        shims
    });
    for id in ["controller", "shim-0", "shim-2", "leaf-0", "router-0"] {
        cluster.start(id);
    }
    cluster.config = reversed;
    for id in ["shim-1", "spine-0", "router-1"] {
        cluster.start(id);
    }
    cluster.wait_linked();
    let (mut first, mut second) = (cluster.connect(0), cluster.connect(1));
    for number in 0..KEYS {
        ok(&mut first, &["SET", &key(number), "v"]);
    }
    for number in 0..KEYS {
        assert_eq!(text(&second.call(&["GET", &key(number)])), "v", "{number}");
    }
}
