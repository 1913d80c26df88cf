//! Servers hold what they held in the last life of the cluster, whatever its file says now: found again or refused in words.

use wire::resp::Value;

use crate::cluster::{
    Cluster, Layout, RedisServer, UP, distcache, installed, loopback, ok, shared, text, until,
};

const KEYS: usize = 100;

fn key(number: usize) -> String {
    format!("key-{number}")
}

/// The file with the first value of this key backwards.
fn with_other(toml: &str, key: &str) -> String {
    let (before, rest) = toml.split_once(&format!("{key} = \"")).expect("the key");
    let (value, after) = rest.split_once('"').expect("the end of its value");
    let other: String = value.chars().rev().collect();
    assert_ne!(value, other);
    format!("{before}{key} = \"{other}\"{after}")
}

/// What `distcache up` says of a file that it does not serve, without `--adopt`.
fn refusal(cluster: &Cluster, toml: &str) -> String {
    let file = cluster.config.with_file_name("other.toml");
    std::fs::write(&file, toml).expect("written");
    let output = distcache().args(["up", "--config"]).arg(&file).output().expect("distcache runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

#[test]
fn keys_are_found_again_or_the_servers_are_refused() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let servers = [RedisServer::start(), RedisServer::start()];
    let mut cluster = Cluster::up(Layout::before(&servers));
    let mut client = cluster.connect(0);
    for number in 0..KEYS {
        ok(&mut client, &["SET", &key(number), "v"]);
    }
    cluster.kill(UP);
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let [first, second] = servers.each_ref().map(|server| server.url());
    let swapped = toml.replace(&first, "(first)").replace(&second, &first).replace("(first)", &second);
    let said = refusal(&cluster, &swapped);
    assert!(said.contains("the server holds the keys of shim-1, and is `storage` of shim-0 now"), "{said}");
    let strange = with_other(&toml, "secret");
    let said = refusal(&cluster, &strange);
    assert!(said.contains("with another secret") && said.contains("--adopt"), "{said}");
    let third = RedisServer::start();
    let table = format!("[[shim]]\nid = \"shim-2\"\nlisten = \"{}\"\nrack = \"r0\"\n", loopback());
    let more = toml.replacen("[[router]]", &format!("{table}storage = \"{}\"\n\n[[router]]", third.url()), 1);
    let said = refusal(&cluster, &more);
    let told = "with [[shim]] entries shim-0, shim-1, and they are shim-0, shim-1, shim-2 now";
    assert!(said.contains(told), "{said}");

    let mut doctor = distcache();
    let file = cluster.config.with_file_name("other.toml");
    std::fs::write(&file, &swapped).expect("written");
    let output = doctor.args(["doctor", "--storage-only", "--config"]).arg(&file).output().expect("it runs");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("the server holds the keys of shim-1, and is `storage` of shim-0 now"), "{shown}");

    // The right file again: nothing was touched.
    cluster.start(UP);
    cluster.wait_linked();
    let mut client = cluster.connect(0);
    for number in 0..KEYS {
        assert_eq!(text(&client.call(&["GET", &key(number)])), "v", "{number}");
    }
}

#[test]
fn a_cluster_may_be_renamed_and_takes_over_what_it_was() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let server = RedisServer::start();
    let mut cluster = Cluster::apart(Layout::before(std::slice::from_ref(&server)));
    let mut client = cluster.connect(0);
    ok(&mut client, &["SET", "k", "1"]);
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    std::fs::write(&cluster.config, with_other(&toml, "name")).expect("written");
    cluster.kill("shim-0");
    let before = server.shim_users();
    cluster.start("shim-0");
    until("a write is done", || matches!(client.call(&["SET", "k", "2"]), Value::Simple(_)).then_some(()));
    let after = server.shim_users();
    assert!(before.len() == 1 && after.len() == 1 && before != after, "{before:?}, {after:?}");
    let log = cluster.process("shim-0").log();
    assert!(!log.contains("no shim has left a record"), "{log}");
}

#[test]
fn a_second_distcache_before_the_same_server_is_refused_while_the_first_is_there() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let server = RedisServer::start();
    let mut first = Cluster::up(Layout::before(std::slice::from_ref(&server)));
    let second = Cluster::unstarted(Layout::before(std::slice::from_ref(&server)));
    let toml = std::fs::read_to_string(&second.config).expect("the configuration");
    let strange = with_other(&toml, "secret");
    let said = refusal(&second, &strange);
    assert!(said.contains("another DistCache serves"), "{said}");
    let mut client = first.connect(0);
    ok(&mut client, &["SET", "k", "1"]);
    first.kill(UP);
    // One server has all keys, whoever hashes them: it is as good a place for another one.
    std::fs::write(&second.config, strange).expect("written");
    let mut second = second;
    second.start(UP);
    second.wait_linked();
    let mut client = second.connect(0);
    until("it is found", || (text(&client.call(&["GET", "k"])) == "1").then_some(()));
    assert!(matches!(client.call(&["SET", "k", "2"]), Value::Simple(_)));
}
