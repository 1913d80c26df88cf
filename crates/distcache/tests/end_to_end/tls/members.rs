//! TLS toward storage and between members in processes of their own, and what is said when it is not right.

use wire::resp::Value;

use super::{Authority, ca, table};
use crate::cluster::{Cluster, Layout, RedisServer, UP, free_port, installed, shared, text, until};

/// Arguments of a redis-server that talks TLS.
pub(super) fn server_options(authority: &Authority, mutual: bool) -> Vec<String> {
    let path = |name: &str| authority.path(name).display().to_string();
    let clients = if mutual { "yes" } else { "no" };
    let options = [
        ("--tls-cert-file", path("redis.crt")),
        ("--tls-key-file", path("redis.key")),
        ("--tls-ca-cert-file", path("ca.crt")),
        ("--tls-auth-clients", clients.to_owned()),
    ];
    options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// A server that only talks TLS, and wants a certificate if `mutual`; and its port.
fn redis_with_tls(authority: &Authority, mutual: bool) -> (RedisServer, u16) {
    let port = free_port();
    let (options, port_text) = (server_options(authority, mutual), port.to_string());
    let options = options.iter().map(String::as_str);
    let server =
        RedisServer::with(&["--tls-port", &port_text].into_iter().chain(options).collect::<Vec<_>>());
    (server, port)
}

#[test]
fn storage_is_reached_over_tls_and_mutual_tls() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let authority = Authority::new();
    ["redis", "shim"].iter().for_each(|name| authority.sign(name));
    let servers = [redis_with_tls(&authority, true), redis_with_tls(&authority, false)];
    let storage = servers.iter().map(|(_, port)| format!("rediss://localhost:{port}")).collect();
    let tables = table(&authority, "storage", "shim", &ca(&authority));
    let cluster = Cluster::up(Layout { tables, ..Layout::new(storage) });
    let mut client = cluster.connect(0);
    for index in 0..100 {
        let key = format!("k{index}");
        assert_eq!(text(&client.call(&["SET", &key, &key])), "OK");
        assert_eq!(text(&client.call(&["GET", &key])), key);
    }
    let keys: i64 = servers
        .iter()
        .map(|(server, _)| match server.connect().call(&["DBSIZE"]) {
            Value::Integer(count) => count,
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(keys, 100);
    // A command that blocks has a connection of its own.
    assert_eq!(client.call(&["RPUSH", "list", "a"]), Value::Integer(1));
    assert!(matches!(client.call(&["BLPOP", "list", "1"]), Value::Array(popped) if text(&popped[1]) == "a"));
}

#[test]
fn what_is_wrong_toward_storage_is_in_the_log() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let authority = Authority::new();
    let other = Authority::new();
    ["redis", "shim"].iter().for_each(|name| authority.sign(name));
    let (_server, port) = redis_with_tls(&authority, true);
    let no_certificate = format!("[tls.storage]\n{}\n", ca(&authority));
    let elsewhere = format!("{}\nserver_name = \"storage.example\"", ca(&authority));
    for (tables, reason) in [
        (table(&authority, "storage", "shim", &ca(&other)), "the other end's certificate is refused"),
        (table(&authority, "storage", "shim", &elsewhere), "storage.example is wanted"),
        (no_certificate, "it wants a certificate, and none is configured"),
    ] {
        let storage = vec![format!("rediss://127.0.0.1:{port}")];
        let mut cluster = Cluster::unstarted(Layout { tables, ..Layout::new(storage) });
        cluster.start(UP);
        until(reason, || cluster.process(UP).log().contains(reason).then_some(()));
    }
}

#[test]
fn members_talk_mutual_tls_and_refuse_who_does_not() {
    let _machine = shared();
    let authority = Authority::new();
    authority.sign("member");
    let tables = table(&authority, "peers", "member", &ca(&authority));
    let mut cluster = Cluster::apart(Layout { tables, racks: 2, ..Layout::embedded(2) });
    let mut client = cluster.connect(0);
    for index in 0..200 {
        let key = format!("k{}", index % 20);
        client.call(&["SET", &key, &index.to_string()]);
        assert_eq!(text(&client.call(&["GET", &key])), index.to_string());
    }

    // A member of another cluster's CA: shims do not let it in, and it does not trust them.
    let other = Authority::new();
    other.sign("member");
    let good = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let from = authority.path("").display().to_string();
    let to = other.path("").display().to_string();
    std::fs::write(&cluster.config, good.replace(&from, &to)).expect("written");
    cluster.kill("leaf-0");
    cluster.start("leaf-0");
    let reason = "the other end's certificate is refused";
    until("the member says why", || cluster.process("leaf-0").log().contains(reason).then_some(()));
    let mut linked = || text(&client.call(&["INFO", "distcache"])).contains("nodes_linked:2\r\n");
    until("only the other nodes are linked", || linked().then_some(()));
    std::fs::write(&cluster.config, good).expect("written");
    cluster.kill("leaf-0");
    cluster.start("leaf-0");
    cluster.wait_linked();

    // Certificates that name roles: a router's does not make a node.
    authority.sign_with("member", 2099, &["distcache:router"]);
    cluster.kill("leaf-0");
    cluster.start("leaf-0");
    let reason = "node 0 shows a certificate that vouches for router alone";
    until("both ends say why", || {
        let ends = ["leaf-0", "shim-0"].map(|id| cluster.process(id).log().contains(reason));
        (ends == [true; 2]).then_some(())
    });
    cluster.fresh_status(|status| {
        status["shims"][0]["links_refused"][0].as_str().is_some_and(|told| told.contains(reason))
    });
    authority.sign_with("member", 2099, &["distcache:node"]);
    cluster.kill("leaf-0");
    cluster.start("leaf-0");
    cluster.wait_linked();
}
