//! The front door with TLS beside a plain one: who gets in, what goes through, how it ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::client::TlsClient;
use super::{Authority, ca, printed, redis_cli, table};
use crate::cluster::{Cluster, Layout, RedisServer, UP, free_port, installed, python, shared, until};
use crate::pipelines::flood;

/// With TLS at the port that is given back.
fn layout(authority: &Authority, servers: &[RedisServer], more: &str) -> (Layout, u16) {
    let port = free_port();
    let router_keys = format!("listen_tls = \"127.0.0.1:{port}\"");
    let tables = table(authority, "clients", "router", more);
    (Layout { router_keys, tables, ..Layout::before(servers) }, port)
}

#[test]
fn redis_cli_and_plain_clients_use_both_doors() {
    if !installed(&["redis-server", "redis-cli"]) {
        return;
    }
    let _machine = shared();
    let authority = Authority::new();
    authority.sign("router");
    let servers = [RedisServer::start(), RedisServer::start()];
    let (layout, port) = layout(&authority, &servers, "");
    let mut cluster = Cluster::up(layout);
    assert_eq!(printed(&redis_cli(&authority, port, None, &["SET", "k", "v"])), "OK");
    let plain = cluster.router(0).port().to_string();
    let output = Command::new("redis-cli").args(["-p", &plain, "GET", "k"]).output().expect("redis-cli runs");
    assert_eq!(printed(&output), "v");

    // A stranger's CA, and each kind of client at the other's door.
    let other = Authority::new();
    let refused = printed(&redis_cli(&other, port, None, &["PING"]));
    assert!(refused.contains("certificate verify failed"), "{refused}");
    // The log names one a second.
    until("the log names both", || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.write_all(b"*1\r\n$4\r\nPING\r\n").expect("written");
        drop(stream.read_to_end(&mut Vec::new()));
        let refused = redis_cli(&authority, plain.parse().expect("a port"), None, &["PING"]);
        assert!(!refused.status.success());
        let log = cluster.process(UP).log();
        let named =
            log.contains("the other end does not speak TLS") && log.contains("TLS came to a plain port");
        named.then_some(())
    });
}

#[test]
fn large_values_and_long_pipelines_go_through() {
    let _machine = shared();
    let authority = Authority::new();
    authority.sign("router");
    // Storage that is never too slow for a flood.
    let (layout, port) = layout(&authority, &[], "");
    let _cluster = Cluster::up(Layout { storage: vec!["embedded:".to_owned()], ..layout });
    const BYTES: usize = 12 << 20;
    const COMMANDS: usize = 20_000;
    let value: Vec<u8> = (0..BYTES).map(|index| b'a' + (index * 7 + index / 5000) as u8 % 26).collect();
    let mut client = TlsClient::connect(&authority, port).expect("a connection");
    client.write(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${BYTES}\r\n").as_bytes());
    client.write(&value);
    client.write(b"\r\n");
    // Replies pile up unread while the commands are written: the router stops reading and goes on.
    let writes: String = (0..COMMANDS).map(|index| format!("SET k:{index} {index}\r\n")).collect();
    client.write(writes.as_bytes());
    client.write(b"GET big\r\nGET big\r\nQUIT\r\n");
    let replies = client.rest().expect("close_notify after the last reply");
    let expected = format!("${BYTES}\r\n");
    let mut wanted = b"+OK\r\n".repeat(COMMANDS + 1);
    for _ in 0..2 {
        wanted.extend_from_slice(expected.as_bytes());
        wanted.extend_from_slice(&value);
        wanted.extend_from_slice(b"\r\n");
    }
    wanted.extend_from_slice(b"+OK\r\n");
    assert_eq!(replies.len(), wanted.len());
    assert!(replies == wanted, "a byte is wrong");
}

#[test]
fn everything_may_be_written_before_anything_is_read() {
    let _machine = shared();
    let authority = Authority::new();
    authority.sign("router");
    let (layout, port) = layout(&authority, &[], "");
    let _cluster = Cluster::up(Layout { storage: vec!["embedded:".to_owned()], ..layout });
    let (commands, replies) = flood();
    let mut client = TlsClient::connect(&authority, port).expect("a connection");
    client.write(&commands);
    client.write(b"QUIT\r\n");
    let found = client.rest().expect("close_notify after the last reply");
    assert_eq!(found.len(), replies.len() + 5);
    assert!(found.starts_with(&replies) && found.ends_with(b"+OK\r\n"), "a byte is wrong");
}

#[test]
fn client_certificates_are_verified() {
    if !installed(&["redis-server", "redis-cli"]) {
        return;
    }
    let _machine = shared();
    let authority = Authority::new();
    ["router", "good"].iter().for_each(|name| authority.sign(name));
    authority.sign_until("old", 2020);
    let servers = [RedisServer::start()];
    let more = format!("client_certificates = \"required\"\n{}", ca(&authority));
    let (layout, port) = layout(&authority, &servers, &more);
    let mut cluster = Cluster::up(layout);
    assert_eq!(printed(&redis_cli(&authority, port, Some("good"), &["PING"])), "PONG");
    let other = Authority::new();
    other.sign("stranger");
    for end in ["crt", "key"] {
        let name = format!("stranger.{end}");
        std::fs::copy(other.path(&name), authority.path(&name)).expect("copied");
    }
    // The log names one a second.
    for (shows, reason) in [
        (None, "the other end shows no certificate"),
        (Some("old"), "it has expired"),
        (Some("stranger"), "the other end's certificate is refused"),
    ] {
        until(reason, || {
            let refused = redis_cli(&authority, port, shows, &["PING"]);
            assert!(!printed(&refused).contains("PONG"), "{}", printed(&refused));
            cluster.process(UP).log().contains(reason).then_some(())
        });
    }
}

#[test]
fn redis_py_works_over_tls() {
    let Some(python) = python().filter(|_| installed(&["redis-server"])) else { return };
    let _machine = shared();
    let authority = Authority::new();
    ["router", "good"].iter().for_each(|name| authority.sign(name));
    let servers = [RedisServer::start(), RedisServer::start()];
    let more = format!("client_certificates = \"required\"\n{}", ca(&authority));
    let (layout, port) = layout(&authority, &servers, &more);
    let _cluster = Cluster::up(layout);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/redis_py_tls.py");
    for protocol in ["2", "3"] {
        let mut command = Command::new(&python);
        command.arg("-B").arg(&script).args([&port.to_string(), protocol]);
        let files = ["ca.crt", "good.crt", "good.key"].map(|name| authority.path(name));
        let output = command.args(files).stdin(Stdio::null()).output().expect("Python runs");
        assert!(output.status.success(), "{protocol}: {}", printed(&output));
    }
}

#[test]
fn sigterm_ends_connections_with_close_notify() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let authority = Authority::new();
    authority.sign("router");
    let servers = [RedisServer::start()];
    let (layout, port) = layout(&authority, &servers, "");
    let mut cluster = Cluster::up(layout);
    let mut client = TlsClient::connect(&authority, port).expect("a connection");
    client.ping().expect("a reply");
    cluster.process(UP).signal(Signal::TERM);
    assert_eq!(client.rest().expect("close_notify"), b"");
    assert!(cluster.process(UP).wait().success());
}
