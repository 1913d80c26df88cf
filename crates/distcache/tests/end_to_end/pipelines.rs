//! Clients that write all their commands before they read a reply, as many libraries do, and what that costs a router.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use wire::resp::Value;

use crate::cluster::{Cluster, Layout, MemcachedClient, RedisServer, installed, peak_kib, python, shared};

const COMMANDS: usize = 60_000;
/// With these, neither commands nor replies fit into the sockets' buffers.
const KEY_BYTES: usize = 200;
const VALUE_BYTES: usize = 1_000;
/// Memory of a router that keeps the commands (14 MB) and lets about as many replies wait, in a buffer that doubles.
/// With all of the replies (60 MB) it would have more than the commands and 96 MiB.
const PEAK_KIB_MAX: u64 = 88 << 10;
const REPLY_MAX: Duration = Duration::from_secs(60);
const PIPELINE: usize = 30_000;

/// Commands and what they are answered with, byte by byte. Each key's value changes while commands for it wait.
pub(crate) fn flood() -> (Vec<u8>, Vec<u8>) {
    let (mut commands, mut replies) = (Vec::new(), Vec::new());
    let mut values = vec![String::new(); 16];
    for index in 0..COMMANDS {
        let place = index % 16;
        let key = format!("{place:0KEY_BYTES$}");
        let start = format!("*{}\r\n$3\r\n", if index % 160 < 16 { 3 } else { 2 });
        commands.extend_from_slice(start.as_bytes());
        if index % 160 < 16 {
            values[place] = format!("{index:0VALUE_BYTES$}");
            let value = &values[place];
            let rest = format!("SET\r\n${KEY_BYTES}\r\n{key}\r\n${VALUE_BYTES}\r\n{value}\r\n");
            commands.extend_from_slice(rest.as_bytes());
            replies.extend_from_slice(b"+OK\r\n");
        } else {
            commands.extend_from_slice(format!("GET\r\n${KEY_BYTES}\r\n{key}\r\n").as_bytes());
            replies.extend_from_slice(format!("${VALUE_BYTES}\r\n{}\r\n", values[place]).as_bytes());
        }
    }
    (commands, replies)
}

/// Writes everything, then reads everything.
fn exchange(mut stream: impl Read + Write, commands: &[u8], replies: &[u8], end: impl FnOnce()) {
    stream.write_all(commands).expect("the router reads on");
    end();
    let mut found = vec![0; replies.len()];
    stream.read_exact(&mut found).expect("every reply");
    if let Some(at) = (0..found.len()).find(|&at| found[at] != replies[at]) {
        panic!("the replies differ at {at}");
    }
}

#[test]
fn everything_may_be_written_before_anything_is_read() {
    let _machine = shared();
    let mut cluster = Cluster::apart(Layout::embedded(2));
    let (commands, replies) = flood();
    let (mut half, mut idle) = (cluster.connect(0), cluster.connect(0));
    half.write(b"*2\r\n$4\r\nECHO\r\n$5\r\nhe").expect("written");
    let tcp = TcpStream::connect(cluster.router(0)).expect("a connection");
    tcp.set_read_timeout(Some(REPLY_MAX)).expect("a timeout");
    exchange(&tcp, &commands, &replies, || {});
    let unix = UnixStream::connect(cluster.unix_socket()).expect("a connection");
    unix.set_read_timeout(Some(REPLY_MAX)).expect("a timeout");
    // One that says at once that no more comes gets every reply, too, and then the end.
    exchange(&unix, &commands, &replies, || unix.shutdown(Shutdown::Write).expect("ended"));
    assert_eq!((&unix).read(&mut [0]).expect("an orderly end"), 0);
    let peak_kib = peak_kib(&mut cluster, "router-0");
    assert!(peak_kib < PEAK_KIB_MAX, "the router had {peak_kib} KiB");
    half.write(b"llo\r\n").expect("written");
    assert_eq!(half.frame().expect("a reply"), "$5\r\nhello\r\n");
    assert_eq!(idle.call(&["PING"]), Value::Simple("PONG".into()));
}

#[test]
fn memcached_clients_may_do_so_too() {
    let _machine = shared();
    let cluster = Cluster::up(Layout { protocol: "memcached", ..Layout::embedded(1) });
    let value = "v".repeat(VALUE_BYTES);
    let mut client = MemcachedClient::connect(cluster.router(0));
    assert_eq!(client.text(&format!("set k 0 0 {VALUE_BYTES}\r\n{value}\r\n")), "STORED\r\n");
    let (mut commands, mut replies) = (String::new(), String::new());
    for index in 0..COMMANDS / 2 {
        let key = format!("{index:0KEY_BYTES$}");
        commands.push_str(&format!("get {key} k\r\n"));
        replies.push_str(&format!("VALUE k 0 {VALUE_BYTES}\r\n{value}\r\nEND\r\n"));
    }
    let stream = TcpStream::connect(cluster.router(0)).expect("a connection");
    stream.set_read_timeout(Some(REPLY_MAX)).expect("a timeout");
    exchange(&stream, commands.as_bytes(), replies.as_bytes(), || {});
}

/// All clients together hold too much: the one that holds the most is told, and the others go on.
#[test]
fn the_largest_of_too_much_is_told_and_closed() {
    let _machine = shared();
    let tables = "[limits]\nclient_buffers_bytes_max = \"8MiB\"\n".to_owned();
    let cluster = Cluster::up(Layout { tables, ..Layout::embedded(1) });
    let (commands, replies) = flood();
    let mut other = cluster.connect(0);
    let mut stream = TcpStream::connect(cluster.router(0)).expect("a connection");
    stream.set_read_timeout(Some(REPLY_MAX)).expect("a timeout");
    for _ in 0..2 {
        stream.write_all(&commands).expect("what is sent in vain is taken");
    }
    let mut found = Vec::new();
    stream.read_to_end(&mut found).expect("an orderly end");
    let told = found.windows(4).rposition(|window| window == b"-ERR").expect("a reason");
    let line = String::from_utf8_lossy(&found[told..]);
    assert!(line.starts_with("-ERR DistCache: closed: all clients of the router held "), "{line}");
    assert!(replies.repeat(2).starts_with(&found[..told]), "a reply before it is wrong");
    assert_eq!(other.call(&["PING"]), Value::Simple("PONG".into()));
    cluster.fresh_status(|status| status["routers"][0]["sheds_total"]["client_memory"] == 1);
}

#[test]
fn redis_py_pipelines_of_any_size() {
    let Some(python) = python().filter(|_| installed(&["redis-server"])) else { return };
    let _machine = shared();
    let servers = [RedisServer::start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/redis_py_pipelines.py");
    let mut command = Command::new(python);
    command.arg("-B").arg(script).arg(cluster.router(0).port().to_string());
    command.arg(cluster.unix_socket()).arg(PIPELINE.to_string());
    let output = command.output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
