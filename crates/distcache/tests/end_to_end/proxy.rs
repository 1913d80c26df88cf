//! `distcache proxy` before real servers: what it serves, finds again and refuses. Not what its members do.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::cluster::{
    Client, Directory, MemcachedClient, MemcachedServer, PRIMARIES, Process, RedisCluster, RedisServer,
    Sentinels, distcache, free_port, installed, shared, text, until,
};
use crate::status::http;

/// Enough that none of them lying elsewhere is no accident.
const KEYS: usize = 200;

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// A proxy before these servers whose state is in the directory.
struct Proxy {
    listen: SocketAddr,
    process: Process,
    log: PathBuf,
}

fn command(storage: &[String], state: &Path, listen: SocketAddr) -> Command {
    let mut command = distcache();
    command.arg("proxy").arg("--storage").arg(storage.join(",")).arg("--state").arg(state);
    command.args(["--nodes", "2", "--listen", &listen.to_string()]);
    command.args(["--controller", &loopback().to_string()]);
    command
}

impl Proxy {
    fn launch(storage: &[String], state: &Directory) -> Proxy {
        let listen = loopback();
        let log = state.join(&format!("{}.log", listen.port()));
        let process = Process::start("proxy", command(storage, state.path(), listen), &log);
        Proxy { listen, process, log }
    }

    fn start(storage: &[String], state: &Directory) -> Proxy {
        let proxy = Proxy::launch(storage, state);
        proxy.process.wait_for_line("ready");
        proxy
    }

    /// Starts one that does not serve, and returns what it says of that.
    fn refused(storage: &[String], state: &Directory) -> String {
        let mut proxy = Proxy::launch(storage, state);
        let status = proxy.process.wait();
        let log = std::fs::read_to_string(&proxy.log).expect("a log");
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(!log.contains("panicked"), "{log}");
        log
    }

    fn connect(&self) -> Client {
        Client::tcp(self.listen)
    }

    fn terminate(mut self) {
        self.process.signal(Signal::TERM);
        assert_eq!(self.process.wait().code(), Some(0), "{}", self.process.log());
    }
}

fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(RedisServer::url).collect()
}

fn fill(client: &mut Client) {
    for number in 0..KEYS {
        let reply = client.call(&["SET", &format!("key-{number}"), &format!("value-{number}")]);
        assert_eq!(text(&reply), "OK");
    }
}

fn check(client: &mut Client) {
    for number in 0..KEYS {
        let reply = client.call(&["GET", &format!("key-{number}")]);
        assert_eq!(text(&reply), format!("value-{number}"));
    }
}

#[test]
fn keys_are_found_again_with_the_same_state_and_refused_with_another() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let servers = [RedisServer::start(), RedisServer::start()];
    let mut storage = urls(&servers);
    let state = Directory::new();
    let proxy = Proxy::start(&storage, &state);
    assert_eq!(text(&proxy.connect().call(&["GET", "nothing"])), "Null", "the first GET after ready");
    fill(&mut proxy.connect());
    let said = proxy.process.log();
    for word in
        ["storage  redis+unix://", "clients  127.0.0.1:", "1 leaf and 1 spine", "its secret places every key"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    let second = Proxy::refused(&storage, &state);
    assert!(second.contains("another `distcache proxy` serves these servers: process "), "{second}");
    proxy.terminate();

    // In which order they are named makes no difference.
    storage.reverse();
    let proxy = Proxy::start(&storage, &state);
    check(&mut proxy.connect());
    // Killed, it leaves its users behind and no connection.
    drop(proxy);
    let proxy = Proxy::start(&storage, &state);
    check(&mut proxy.connect());
    proxy.terminate();

    let lost = Directory::new();
    let refused = Proxy::refused(&storage, &lost);
    assert!(refused.contains("the server holds keys of cluster \"proxy-"), "{refused}");
    assert!(
        refused.contains("nothing was served before with the secret in")
            && refused.contains("Bring the configuration back"),
        "{refused}"
    );
    // Where the servers tell nothing, a sample of their keys does.
    for server in &servers {
        server.connect().call(&["FUNCTION", "FLUSH"]);
    }
    let refused = Proxy::refused(&storage, &lost);
    assert!(
        refused.contains("sampled keys of 2 servers lie elsewhere")
            && refused.contains("If DistCache wrote them"),
        "{refused}"
    );
    // A secret that was made and never served is still new to them.
    let refused = Proxy::refused(&storage, &lost);
    assert!(refused.contains("nothing was served before with the secret in"), "{refused}");
    let proxy = Proxy::start(&storage, &state);
    check(&mut proxy.connect());
}

#[test]
fn keys_that_lie_elsewhere_are_refused_unless_the_server_is_alone() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let servers = [RedisServer::start(), RedisServer::start()];
    let storage = urls(&servers);
    let mut direct = servers[0].connect();
    fill(&mut direct);
    let state = Directory::new();
    let refused = Proxy::refused(&storage, &state);
    assert!(
        refused.contains(" of 200 sampled keys of 2 servers lie elsewhere")
            || refused.contains("sampled keys"),
        "{refused}"
    );
    assert!(
        refused.contains("\"key-") && refused.contains("before one server alone (always right)"),
        "{refused}"
    );

    let proxy = Proxy::start(&storage[..1], &state);
    check(&mut proxy.connect());
}

#[test]
fn a_server_has_one_distcache() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let servers = [RedisServer::start(), RedisServer::start()];
    let storage = urls(&servers);
    let (state, other) = (Directory::new(), Directory::new());
    let first = Proxy::start(&storage, &state);
    let refused = Proxy::refused(&storage, &other);
    assert!(refused.contains("another DistCache serves "), "{refused}");
    assert!(refused.contains("its shim \"shim-") && !refused.contains("the secret in"), "{refused}");
    // One of two servers is enough to get in each other's way.
    let refused = Proxy::refused(&storage[1..], &other);
    assert!(refused.contains("another DistCache serves "), "{refused}");
    // So it is for a cluster with a file.
    let file = other.join("own.toml");
    std::fs::write(&file, format!("[[shim]]\nstorage = \"{}\"\n", storage[0])).expect("written");
    let output = distcache().arg("up").arg("--config").arg(&file).output().expect("it ends");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("another DistCache serves"), "{error}");
    fill(&mut first.connect());
    check(&mut first.connect());
    first.terminate();
    let refused = Proxy::refused(&storage[1..], &other);
    assert!(
        refused.contains("the server was filled with [[shim]] entries shim-0, shim-1")
            || refused.contains("with another secret"),
        "{refused}"
    );
    // One that holds nothing may come to hold anything.
    servers[1].connect().call(&["FLUSHALL"]);
    Proxy::start(&storage[1..], &other);
}

#[test]
fn a_first_start_needs_every_server_and_a_later_one_does_not() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let mut servers = [RedisServer::start(), RedisServer::durable()];
    let storage = urls(&servers);
    let state = Directory::new();
    servers[1].kill();
    let refused = Proxy::refused(&storage, &state);
    assert!(refused.contains("at the first start every one of several servers has to answer"), "{refused}");
    // One that is started together with its servers waits for them; killed meanwhile, it has not served.
    let waits = |proxy: &Proxy| {
        until("it says for whom it waits", || proxy.process.log().contains("waiting  for").then_some(()));
    };
    waits(&Proxy::launch(&storage, &state));
    let printed =
        command(&storage, state.path(), loopback()).arg("--print-config").status().expect("it ends");
    assert!(printed.success());
    let proxy = Proxy::launch(&storage, &state);
    waits(&proxy);
    servers[1].run();
    proxy.process.wait_for_line("ready");
    proxy.terminate();
    servers[1].kill();
    let proxy = Proxy::start(&storage, &state);
    assert!(proxy.process.log().contains("could not be looked at"), "{}", proxy.process.log());
    servers[1].run();
    until("both are served", || {
        text(&proxy.connect().call(&["DBSIZE"])).starts_with("Integer").then_some(())
    });
}

#[test]
fn flags_that_make_no_sense_are_usage_errors() {
    let state = Directory::new();
    let fails = |flags: &[&str], expected: &str| {
        let output =
            distcache().arg("proxy").arg("--state").arg(state.path()).args(flags).output().expect("it ends");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {error}");
        assert!(error.contains(expected) && !error.contains("hunter2"), "{flags:?}: {error}");
    };
    let one = ["--storage", "redis://:hunter2@127.0.0.1:1"];
    let with = |flags: &[&'static str]| [&one[..], flags].concat();
    fails(&[], "--storage <URL,URL>");
    fails(&with(&["--nodes", "65"]), "write 1 to 64");
    fails(&with(&["--threads", "0"]), "write 1 to 32");
    fails(&with(&["--near", "65537"]), "write 0 to 65536");
    fails(&with(&["--listen", "0.0.0.0:1"]), "--listen 0.0.0.0:1: reachable from other machines");
    fails(&with(&["--admin", "10.0.0.1:1"]), "--admin 10.0.0.1:1: reachable from other machines");
    fails(&with(&["--listen", "6380"]), "is not an address: write IP:PORT");
    fails(&with(&["--ca-file", "ca.crt"]), "no server of --storage has TLS");
    fails(
        &with(&["--listen", "127.0.0.1:7000", "--controller", "127.0.0.1:7000"]),
        "give each its own address",
    );
    fails(&["--storage", "rediss://127.0.0.1"], "--ca-file is missing");
    fails(
        &["--storage", "redis://127.0.0.1,redis://127.0.0.1:6379/0"],
        "redis://127.0.0.1:6379 is there twice",
    );
    fails(
        &["--storage", "memcached://127.0.0.1", "--protocol", "redis"],
        "--protocol redis: memcached:// storage",
    );
}

/// Clients that send everything before they read get near copies, however busy the machine is, and nothing old from them.
#[test]
fn threads_and_near_copies_are_a_flag_each() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let server = RedisServer::start();
    let (state, listen, admin) = (Directory::new(), loopback(), loopback());
    let flagged = || {
        let mut proxy = command(&[server.url()], state.path(), listen);
        proxy.args(["--threads", "3", "--near", "16", "--admin", &admin.to_string()]);
        proxy
    };
    let printed = flagged().arg("--print-config").output().expect("it ends");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(
        printed.contains("\nthreads = 3\n") && printed.contains("\n[near]\nobjects_max = 16\n"),
        "{printed}"
    );
    let process = Process::start("proxy", flagged(), &state.join("proxy.log"));
    process.wait_for_line("ready");
    let mut clients: Vec<Client> = (0..6).map(|_| Client::tcp(listen)).collect();
    until("a write is taken", || (text(&clients[0].call(&["SET", "hot", "v"])) == "OK").then_some(()));
    let read = |clients: &mut [Client], value: &str| {
        let expected = format!("${}\r\n{value}\r\n", value.len());
        for client in clients {
            client.write(&b"GET hot\r\n".repeat(200)).expect("written");
            (0..200).for_each(|_| assert_eq!(client.frame().expect("a reply"), expected));
        }
    };
    until("near copies answer", || {
        read(&mut clients, "v");
        let metrics = http(admin, "/metrics");
        let mut counts = metrics.lines().filter(|line| line.starts_with("distcache_router_near_hits_total"));
        counts.any(|line| !line.ends_with(" 0")).then_some(())
    });
    for round in 0..20 {
        let value = round.to_string();
        assert_eq!(text(&clients[round % 6].call(&["SET", "hot", &value])), "OK");
        read(&mut clients, &value);
    }
    assert_eq!(text(&clients[0].call(&["CLIENT", "LIST"])).lines().count(), 6);
}

#[test]
fn two_that_start_at_once_do_not_both_serve() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let server = RedisServer::start();
    let storage = [server.url()];
    let states: Vec<Directory> = (0..3).map(|_| Directory::new()).collect();
    let mut proxies: Vec<Proxy> = states.iter().map(|state| Proxy::launch(&storage, state)).collect();
    // Those that see each other all give up; the last of them may see nobody.
    let serving = until("at most one is left, and serves", || {
        let ended: Vec<bool> = proxies.iter_mut().map(|proxy| proxy.process.try_wait().is_some()).collect();
        let left: Vec<usize> = (0..ended.len()).filter(|index| !ended[*index]).collect();
        match left[..] {
            [] => Some(None),
            [last] => {
                let reply = Client::try_tcp(proxies[last].listen).ok()?.ask(&["SET", "k", "v"]).ok()?;
                (reply.as_ref() == b"+OK\r\n").then_some(Some(last))
            }
            _ => None,
        }
    });
    for (index, proxy) in proxies.iter().enumerate().filter(|(index, _)| Some(*index) != serving) {
        let log = std::fs::read_to_string(&proxy.log).expect("a log");
        assert!(log.contains("another DistCache serves"), "{index}: {log}");
    }
}

#[test]
fn the_printed_configuration_does_the_same() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let servers = [RedisServer::start(), RedisServer::start()];
    let storage = urls(&servers);
    let state = Directory::new();
    let proxy = Proxy::start(&storage, &state);
    fill(&mut proxy.connect());
    let listen = proxy.listen;
    let output = command(&storage, state.path(), listen).arg("--print-config").output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    proxy.terminate();
    let file = state.join("printed.toml");
    std::fs::write(&file, &output.stdout).expect("written");
    let mut up = distcache();
    up.arg("up").arg("--config").arg(&file);
    let up = Process::start("up", up, &state.join("up.log"));
    up.wait_for_line("ready");
    let mut client = Client::tcp(listen);
    until("its members are linked", || text(&client.call(&["DBSIZE"])).starts_with("Integer").then_some(()));
    check(&mut client);
}

#[test]
fn memcached_is_served_by_its_own_protocol() {
    let _machine = shared();
    if !installed(&["memcached"]) {
        return;
    }
    let servers = [MemcachedServer::start(), MemcachedServer::start()];
    let storage: Vec<String> = servers.iter().map(MemcachedServer::url).collect();
    let state = Directory::new();
    let proxy = Proxy::start(&storage, &state);
    let mut client = MemcachedClient::connect(proxy.listen);
    until("a write is taken", || (client.text("set k 0 0 1\r\nv\r\n") == "STORED\r\n").then_some(()));
    assert_eq!(client.text("get k\r\n"), "VALUE k 0 1\r\nv\r\nEND\r\n");
    assert!(proxy.process.log().contains("memcached does not tell its keys"), "{}", proxy.process.log());
}

#[test]
fn a_redis_cluster_and_a_primary_behind_sentinels_hold_what_they_held() {
    let _machine = shared();
    if !installed(&["redis-server", "redis-cli"]) {
        return;
    }
    let cluster = RedisCluster::start();
    let state = Directory::new();
    let proxy = Proxy::start(&[cluster.url()], &state);
    until("it serves", || (text(&proxy.connect().call(&["SET", "k", "v"])) == "OK").then_some(()));
    let other = Directory::new();
    let refused = Proxy::refused(&[cluster.url()], &other);
    assert!(refused.contains("another DistCache serves"), "{PRIMARIES} primaries: {refused}");
    proxy.terminate();
    let proxy = Proxy::start(&[cluster.url()], &other);
    until("another secret finds it", || (text(&proxy.connect().call(&["GET", "k"])) == "v").then_some(()));
    drop(proxy);

    let sentinels = Sentinels::start();
    let proxy = Proxy::start(&[sentinels.url()], &state);
    until("it serves", || (text(&proxy.connect().call(&["SET", "k", "v"])) == "OK").then_some(()));
    let refused = Proxy::refused(&[sentinels.url()], &other);
    assert!(refused.contains("another DistCache serves"), "{refused}");
}
