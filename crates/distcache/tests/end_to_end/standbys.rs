//! Processes that stand by for a shim: who serves, and what clients see when that changes. Not what it costs.

use std::time::Duration;

use rustix::process::Signal;
use wire::resp::{Command, Value};

use crate::cluster::{
    Client, Cluster, Layout, MemcachedClient, MemcachedServer, RedisServer, Relay, Sentinels, UP, alone,
    installed, text, until,
};
use crate::coherence::{hit_ratio, layout};
use crate::history::History;

/// So long that whoever waited for a lease is seen to have waited.
const LONG_LEASE_MS: u64 = 10_000;
const LONG_LEASE: Duration = Duration::from_millis(LONG_LEASE_MS);
/// What is lost with a process that is killed.
const UNDER_WAY: [&str; 2] = ["was lost while the command ran", "was lost before it answered"];

fn standing_by(cluster: &Cluster, id: &str) -> Option<bool> {
    let status = cluster.status();
    let shims = status["shims"].as_array()?;
    shims.iter().find(|shim| shim["id"] == id)?["standing_by"].as_bool()
}

fn serves(cluster: &Cluster, id: &str) -> Option<()> {
    let status = cluster.status();
    let shims = status["shims"].as_array()?;
    let own = shims.iter().find(|shim| shim["id"] == id)?;
    (own["storage_up"] == true).then_some(())
}

fn stands_by(cluster: &Cluster, id: &str) -> Option<()> {
    standing_by(cluster, id).filter(|stands| *stands).map(drop)
}

/// Two servers, each with a shim and one that stands by for it, and clients at work.
struct Trial {
    cluster: Cluster,
    history: History,
    _servers: [RedisServer; 2],
}

impl Trial {
    fn start(lease_ms: u64) -> Trial {
        let servers = [RedisServer::durable(), RedisServer::durable()];
        let cluster = Cluster::apart(Layout { standbys: 1, lease_ms, ..layout(&servers) });
        let history = History::start(&cluster.layout.routers, 6, 4);
        until("copies are hit", || (hit_ratio(&cluster.status()) > 0.3).then_some(()));
        until("one stands by for each", || {
            (0..2).all(|shim| stands_by(&cluster, &format!("shim-{shim}-standby")).is_some()).then_some(())
        });
        Trial { cluster, history, _servers: servers }
    }

    fn end(&mut self, id: &str) {
        self.cluster.process(id).signal(Signal::TERM);
        assert_eq!(self.cluster.process(id).wait().code(), Some(0), "{}", self.cluster.process(id).log());
    }
}

fn send(client: &mut Client, arguments: &[&str]) {
    client.write(Command::from_args(arguments).frame()).expect("it is sent");
}

fn receive(client: &mut Client) -> Value {
    Value::parse(&client.frame().expect("a reply")).expect("RESP")
}

#[test]
fn shims_that_are_stopped_in_order_hand_over_without_an_error_or_a_wait() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start(LONG_LEASE_MS);
    for (ends, begins) in
        [("shim-0", "shim-0-standby"), ("shim-1", "shim-1-standby"), ("shim-0-standby", "shim-0")]
    {
        trial.end(ends);
        trial.history.wait_for(1000, 100);
        until("the other one serves", || serves(&trial.cluster, begins));
        trial.cluster.start(ends);
        until("it stands by", || stands_by(&trial.cluster, ends));
    }
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
    assert!(report.longest_write < LONG_LEASE / 2, "{report:?}");
}

#[test]
fn shims_that_are_killed_are_replaced_and_stand_by_when_they_are_back() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start(1000);
    for (ends, begins) in
        [("shim-0", "shim-0-standby"), ("shim-1", "shim-1-standby"), ("shim-0-standby", "shim-0")]
    {
        trial.cluster.kill(ends);
        trial.history.wait_for(1000, 100);
        until("the other one serves", || serves(&trial.cluster, begins));
        trial.cluster.start(ends);
        until("it stands by", || stands_by(&trial.cluster, ends));
        until("copies are hit", || (hit_ratio(&trial.cluster.status()) > 0.1).then_some(()));
    }
    trial.history.finish().only(&UNDER_WAY);
}

#[test]
fn a_shim_that_hangs_is_replaced_and_serves_nothing_when_it_wakes() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let trial = Trial::start(1000);
    trial.cluster.signal("shim-0", Signal::STOP);
    until("the other one serves", || serves(&trial.cluster, "shim-0-standby"));
    trial.history.wait_for(1000, 100);
    trial.cluster.signal("shim-0", Signal::CONT);
    until("it stands by", || stands_by(&trial.cluster, "shim-0"));
    trial.history.wait_for(1000, 100);
    assert_eq!(serves(&trial.cluster, "shim-0-standby"), Some(()));
    trial.history.finish().only(&UNDER_WAY);
}

/// A cluster of one shim, which all but `direct` find behind the relay.
fn behind_a_relay(layout: Layout, direct: &[&str]) -> (Cluster, Relay) {
    let mut cluster = Cluster::unstarted(layout);
    let own = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let shim = own.split("[[shim]]").nth(1).expect("a shim");
    let listen = shim.lines().find_map(|line| line.strip_prefix("listen = ")).expect("it listens");
    let relay = Relay::start(listen.trim_matches('"').parse().expect("an address"));
    let relayed = own.replace(listen, &format!("\"{}\"", relay.address));
    let paths = ["direct.toml", "relayed.toml"].map(|name| cluster.config.with_file_name(name));
    for (text, path) in [own, relayed].iter().zip(&paths) {
        std::fs::write(path, text).expect("the file is written");
    }
    for id in cluster.layout.ids() {
        let is_direct = id == "shim-0" || direct.contains(&id.as_str());
        cluster.config.clone_from(&paths[usize::from(!is_direct)]);
        cluster.start(&id);
    }
    cluster.wait_linked();
    (cluster, relay)
}

#[test]
fn a_shim_that_routers_do_not_reach_hands_over_and_stands_by() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    // The one that stands by reaches the shim, or nobody does.
    for direct in [&["shim-0-standby"][..], &[]] {
        let servers = [RedisServer::durable()];
        let layout = Layout { standbys: 1, lease_ms: 500, ..layout(&servers) };
        let (cluster, relay) = behind_a_relay(layout, direct);
        let history = History::start(&cluster.layout.routers, 6, 4);
        until("copies are hit", || (hit_ratio(&cluster.status()) > 0.3).then_some(()));
        until("one stands by", || stands_by(&cluster, "shim-0-standby"));
        relay.cut();
        until("the other one serves", || serves(&cluster, "shim-0-standby"));
        until("it stands by", || stands_by(&cluster, "shim-0"));
        history.wait_for(1000, 100);
        relay.mend();
        cluster.wait_linked();
        history.wait_for(1000, 100);
        assert_eq!(serves(&cluster, "shim-0-standby"), Some(()), "it stays");
        let retreats = crate::cluster::total(&cluster.status(), "shims", "retreats_total");
        assert_eq!(retreats, 1, "{}", cluster.status());
        history.finish().only(&UNDER_WAY);
    }
}

#[test]
fn one_that_stands_by_comes_and_goes_and_displaces_nobody() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start(1000);
    for _ in 0..3 {
        trial.cluster.kill("shim-0-standby");
        trial.history.wait_for(300, 30);
        trial.cluster.start("shim-0-standby");
        until("it stands by", || stands_by(&trial.cluster, "shim-0-standby"));
    }
    trial.end("shim-0-standby");
    let incarnations = crate::cluster::total(&trial.cluster.status(), "shims", "incarnations_total");
    assert_eq!(incarnations, 2, "one for each server: {}", trial.cluster.status());
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

#[test]
fn a_shim_without_a_standby_is_started_again_without_an_error_or_a_wait() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::durable(), RedisServer::durable()];
    let mut cluster = Cluster::apart(Layout { lease_ms: LONG_LEASE_MS, ..layout(&servers) });
    let history = History::start(&cluster.layout.routers, 6, 4);
    until("copies are hit", || (hit_ratio(&cluster.status()) > 0.3).then_some(()));
    for _ in 0..2 {
        cluster.process("shim-0").signal(Signal::TERM);
        assert_eq!(cluster.process("shim-0").wait().code(), Some(0));
        cluster.start("shim-0");
        history.wait_for(1000, 100);
    }
    let report = history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
    assert!(report.longest_write < LONG_LEASE / 2, "{report:?}");
}

#[test]
fn standbys_of_one_process_and_of_a_primary_behind_sentinels_take_over() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::start()];
    let up = Cluster::up(Layout { standbys: 2, ..Layout::before(&servers) });
    assert_eq!(text(&up.connect(0).call(&["SET", "k", "v"])), "OK");
    assert_eq!(serves(&up, "shim-0"), Some(()), "the first goes ahead");
    drop(up);

    let storage = Sentinels::start();
    let mut cluster = Cluster::apart(Layout { standbys: 1, ..Layout::new(vec![storage.url()]) });
    let mut client = cluster.connect(0);
    assert_eq!(text(&client.call(&["SET", "k", "v"])), "OK");
    until("it stands by", || stands_by(&cluster, "shim-0-standby"));
    cluster.kill("shim-0");
    until("the other one serves", || (text(&client.call(&["GET", "k"])) == "v").then_some(()));
    until("it writes", || (text(&client.call(&["SET", "k", "w"])) == "OK").then_some(()));
}

#[test]
fn commands_that_block_and_those_who_subscribe_go_on_at_the_next_process() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::start()];
    let mut cluster = Cluster::apart(Layout { standbys: 1, ..Layout::before(&servers) });
    until("it stands by", || stands_by(&cluster, "shim-0-standby"));
    let (mut blocks, mut subscribes, mut client) =
        (cluster.connect(0), cluster.connect(0), cluster.connect(0));
    send(&mut blocks, &["BLPOP", "q", "0"]);
    send(&mut subscribes, &["SUBSCRIBE", "news"]);
    assert!(receive(&mut subscribes).elements().is_some());
    until("it blocks", || text(&client.call(&["CLIENT", "LIST"])).contains("cmd=blpop").then_some(()));
    cluster.process("shim-0").signal(Signal::TERM);
    let told = text(&receive(&mut blocks));
    assert!(told.starts_with("UNBLOCKED"), "{told}");
    send(&mut blocks, &["BLPOP", "q", "0"]);
    until("the message arrives", || {
        let reached = client.call(&["PUBLISH", "news", "hello"]);
        (reached == Value::Integer(1)).then_some(())
    });
    assert_eq!(text(&receive(&mut subscribes).elements().expect("a message")[2]), "hello");
    assert_eq!(client.call(&["LPUSH", "q", "one"]), Value::Integer(1));
    assert_eq!(text(&receive(&mut blocks).elements().expect("key and value")[1]), "one");
}

#[test]
fn a_memcached_is_taken_over_once_the_connections_of_the_other_are_gone() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = alone();
    let server = MemcachedServer::start();
    let layout = Layout { protocol: "memcached", standbys: 1, ..Layout::new(vec![server.url()]) };
    let mut cluster = Cluster::apart(layout);
    let mut client = MemcachedClient::connect(cluster.router(0));
    assert_eq!(client.text("set k 0 0 3\r\none\r\n"), "STORED\r\n");
    cluster.process("shim-0").signal(Signal::TERM);
    assert_eq!(client.text("get k\r\n"), "VALUE k 0 3\r\none\r\nEND\r\n");
    assert_eq!(client.text("set k 0 0 3\r\ntwo\r\n"), "STORED\r\n");
    assert_eq!(cluster.process("shim-0").wait().code(), Some(0));
    cluster.start("shim-0");
    cluster.kill("shim-0-standby");
    until("it is served", || (client.text("get k\r\n") == "VALUE k 0 3\r\ntwo\r\nEND\r\n").then_some(()));
}

#[test]
fn a_process_with_every_member_and_their_standbys_stops_in_order() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::start()];
    let mut up = Cluster::up(Layout { standbys: 1, ..Layout::before(&servers) });
    assert_eq!(text(&up.connect(0).call(&["SET", "k", "v"])), "OK");
    up.process(UP).signal(Signal::TERM);
    assert_eq!(up.process(UP).wait().code(), Some(0), "{}", up.process(UP).log());
}
