//! A memcached says whose keys it holds: items are found again in the next life of the cluster, or the server is refused.

use super::{cluster, set, single};
use crate::cluster::{Cluster, MemcachedClient, MemcachedServer, UP, distcache, installed, shared, until};

const KEYS: usize = 40;
/// What asks a server for its mark, which nobody but an operator does.
const MARK: &str = "mg distcache:mark\r\n";

/// A file from the first one and the addresses of three servers, of which that names two.
type OtherFile = fn(&str, [&str; 3]) -> String;

/// What `distcache up` says of a file that it does not serve, and `distcache doctor`.
fn refusal(cluster: &Cluster, toml: &str) -> (String, String) {
    std::fs::write(&cluster.config, toml).expect("written");
    let output = distcache().args(["up", "--config"]).arg(&cluster.config).output().expect("distcache runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let mut doctor = distcache();
    let output =
        doctor.args(["doctor", "--storage-only", "--config"]).arg(&cluster.config).output().expect("it runs");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    (said, shown)
}

/// Every item is there.
fn check_all(cluster: &Cluster) {
    let mut client = MemcachedClient::connect(cluster.router(0));
    for number in 0..KEYS {
        let found = until("the shim serves", || {
            Some(client.text(&format!("get key-{number}\r\n")))
                .filter(|said| !said.starts_with("SERVER_ERROR "))
        });
        assert_eq!(found, format!("VALUE key-{number} 0 1\r\nv\r\nEND\r\n"));
    }
}

/// Starts with this placement, fills, is started with each of the other files, and finds all again. `others`: from its file
/// and the servers' addresses, each with the words by which it is refused, if it is.
fn check(placement: &str, others: &[(OtherFile, Option<&str>)]) {
    let servers = [MemcachedServer::start(), MemcachedServer::start(), MemcachedServer::start()];
    let urls = servers.each_ref().map(MemcachedServer::url);
    let urls = urls.each_ref().map(String::as_str);
    let mut cluster = cluster(urls[..2].iter().map(|&url| url.to_owned()).collect());
    cluster.kill(UP);
    for server in &servers {
        assert_eq!(server.connect().text("flush_all\r\n"), "OK\r\n");
    }
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let toml =
        toml.replacen("[cluster]\n", &format!("[placement]\ndistribution = {placement:?}\n\n[cluster]\n"), 1);
    std::fs::write(&cluster.config, &toml).expect("written");
    cluster.start(UP);
    let mut client = MemcachedClient::connect(cluster.router(0));
    for number in 0..KEYS {
        set(&mut client, &format!("key-{number}"), "v");
    }
    cluster.kill(UP);
    for (other, words) in others {
        let other = other(&toml, urls);
        if let Some(words) = words {
            let (said, shown) = refusal(&cluster, &other);
            assert!(said.contains(words) && said.contains("--adopt"), "{said}");
            assert!(shown.contains(words) && shown.contains("--adopt"), "{shown}");
        }
        // The right file again, or another that is as good: nothing was touched.
        std::fs::write(&cluster.config, if words.is_some() { &toml } else { &other }).expect("written");
        cluster.start(UP);
        check_all(&cluster);
        cluster.kill(UP);
    }
    // What is empty may come to hold anything.
    for server in &servers {
        assert_eq!(server.connect().text("flush_all\r\n"), "OK\r\n");
    }
    std::fs::write(&cluster.config, others[0].0(&toml, urls)).expect("written");
    cluster.start(UP);
    set(&mut MemcachedClient::connect(cluster.router(0)), "key-0", "v");
}

fn swapped(toml: &str, [first, second, _]: [&str; 3]) -> String {
    toml.replace(first, "(first)").replace(second, first).replace("(first)", second)
}

fn with_another_secret(toml: &str, _: [&str; 3]) -> String {
    let (before, after) = toml.split_once("secret = \"").expect("the secret");
    let (secret, after) = after.split_once('"').expect("its end");
    format!("{before}secret = \"{}\"{after}", secret.chars().rev().collect::<String>())
}

fn with_another_server(toml: &str, [_, second, third]: [&str; 3]) -> String {
    toml.replace(second, third)
}

#[test]
fn items_are_found_again_or_the_servers_are_refused() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    check(
        "ring",
        &[
            (with_another_secret, Some("with another secret")),
            (swapped, Some("the server holds the keys of shim-")),
            (
                |toml, _| toml.replace("\"ring\"", "\"libmemcached\""),
                Some("with another [placement]: ring, and it is libmemcached now"),
            ),
        ],
    );
}

/// A pool's servers have their keys by their own names.
#[test]
fn items_of_a_pool_are_found_again_or_its_servers_are_refused() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    check(
        "libmemcached",
        &[
            (with_another_server, Some("was filled as one of the servers 127.0.0.1:")),
            (
                |toml, _| toml.replace("\"libmemcached\"", "\"ketama\"\nhash = \"md5\""),
                Some("with another [placement]: libmemcached, and it is ketama:md5 now"),
            ),
            (with_another_secret, None),
            (swapped, None),
        ],
    );
}

#[test]
fn a_mark_comes_again_and_is_nobody_s_to_change() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let (server, _cluster, mut client) = single();
    set(&mut client, "k", "v");
    let mut operator = server.connect();
    assert_eq!(operator.text(MARK), "HD\r\n");
    for request in
        ["set distcache:mark 0 0 1\r\nx\r\n", "delete distcache:mark\r\n", "get distcache:mark\r\n"]
    {
        let said = client.text(request);
        assert!(said.starts_with("CLIENT_ERROR ") && said.contains("DistCache's own"), "{request:?}: {said}");
    }
    // In one go with what takes it away.
    assert_eq!(client.text("flush_all\r\n"), "OK\r\n");
    assert_eq!(operator.text("mg k\r\n"), "EN\r\n");
    assert_eq!(operator.text(MARK), "HD\r\n");
    // As if it were evicted.
    assert_eq!(operator.text("md distcache:mark\r\n"), "HD\r\n");
    until("it is written again", || (operator.text(MARK) == "HD\r\n").then_some(()));
    set(&mut client, "k", "v");
}
