//! Processes that die, stop and come back while clients work: nothing stale, nothing stuck. Not wrong configuration.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value as Json;
use wire::resp::Value;

use crate::cluster::{Client, Cluster, Layout, RedisServer, alone, installed, text, until};
use crate::coherence::{hit_ratio, layout};
use crate::history::History;

const LEASE: Duration = Duration::from_millis(1000);
/// A loaded machine adds to the time of a write; more than this is not the machine. `protocol/tests/stall.rs` has the exact
/// bounds, in virtual time.
const SLACK: Duration = Duration::from_secs(5);

struct Trial {
    servers: [RedisServer; 2],
    cluster: Cluster,
    history: History,
}

impl Trial {
    /// Clients at work, and most reads answered from copies.
    fn start(routing: &'static str) -> Trial {
        Trial::with(|layout| Layout { routing, ..layout })
    }

    fn with(change: impl Fn(Layout) -> Layout) -> Trial {
        let servers = [RedisServer::durable(), RedisServer::durable()];
        let cluster = Cluster::apart(change(layout(&servers)));
        let history = History::start(&cluster.layout.routers, 6, 4);
        until("copies are hit", || (hit_ratio(&cluster.status()) > 0.3).then_some(()));
        Trial { servers, cluster, history }
    }

    fn no_errors_and_writes_within_a_lease(&self, what: &str) {
        let report = self.history.report();
        assert!(report.errors.is_empty(), "{what}: {report:?}");
        assert!(report.longest_write <= LEASE + SLACK, "{what}: {report:?}");
    }
}

/// A write that waited for a node until its lease ended is counted by its shim.
pub(crate) fn leases_lost(cluster: &Cluster) -> u64 {
    crate::cluster::total(&cluster.status(), "shims", "leases_lost_total")
}

fn hits_since(cluster: &Cluster, before: &Json) -> u64 {
    let hits = |status| crate::cluster::total(status, "nodes", "hits_total");
    hits(&cluster.status()).saturating_sub(hits(before))
}

/// Tells the readers to end, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn killed_nodes_hold_writes_for_a_lease_at_most() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start("learned");
    trial.no_errors_and_writes_within_a_lease("before");
    for node in ["leaf-0", "spine-0"] {
        trial.cluster.kill(node);
        trial.history.wait_for_each_key();
        trial.history.wait_for(500, 50);
        trial.no_errors_and_writes_within_a_lease(node);
        trial.cluster.start(node);
        trial.history.wait_for(500, 50);
        trial.no_errors_and_writes_within_a_lease(node);
    }
    let before = trial.cluster.status();
    until("copies are hit again", || (hits_since(&trial.cluster, &before) > 100).then_some(()));
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

#[test]
fn nodes_that_stop_in_order_give_their_leases_back() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    // A write that waited for a lease of this length would show.
    let mut trial = Trial::with(|layout| Layout { lease_ms: 4000, ..layout });
    // New shims hold the first writes for one.
    trial.history.wait_for_each_key();
    trial.history.report();
    let lost = leases_lost(&trial.cluster);
    for node in ["leaf-0", "spine-0"] {
        trial.cluster.process(node).signal(Signal::TERM);
        assert_eq!(trial.cluster.process(node).wait().code(), Some(0));
        trial.history.wait_for_each_key();
        trial.cluster.start(node);
        trial.history.wait_for(500, 50);
        let report = trial.history.report();
        assert!(report.errors.is_empty(), "{node}: {report:?}");
        assert!(leases_lost(&trial.cluster) <= lost, "a write waited for {node}: {report:?}");
    }
    trial.history.finish();
}

#[test]
fn a_node_that_was_stopped_past_its_lease_serves_nothing_stale() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    // Replies would teach routers not to ask the stopped node; here they ask whatever node has less load.
    let mut trial = Trial::start("on-path");
    trial.no_errors_and_writes_within_a_lease("before");
    for node in ["spine-0", "leaf-0"] {
        trial.cluster.process(node).signal(Signal::STOP);
        // Every copy at the stopped node is out of date by now.
        trial.history.wait_for_each_key();
        trial.history.wait_for_each_key();
        let late = trial.history.reads_in_flight(&trial.cluster.layout.routers, 12);
        trial.cluster.process(node).signal(Signal::CONT);
        late.check(&trial.history);
        trial.history.wait_for(500, 50);
        trial.no_errors_and_writes_within_a_lease(node);
    }
    until("routers have left the stopped nodes alone", || {
        let opened = crate::cluster::total(&trial.cluster.status(), "routers", "breakers_opened_total");
        (opened > 0).then_some(())
    });
    trial.history.finish();
}

#[test]
fn a_shim_that_is_killed_comes_back_without_a_stale_read() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start("learned");
    for round in 0..2 {
        trial.cluster.kill("shim-0");
        trial.history.wait_for_error("shim-0");
        trial.cluster.start("shim-0");
        // Each router dials it again on its own.
        trial.cluster.wait_linked();
        trial.history.wait_for_each_key();
        trial.history.wait_for(500, 50);
        trial.history.report().only(&[
            "ERR DistCache: shim shim-0 is not reachable; the command was not executed",
            "ERR DistCache: shim shim-0 was lost before it answered; the command changed nothing",
            "ERR DistCache: shim shim-0 was lost while the command ran; its outcome is unknown",
            "storage",
            "BUSY",
        ]);
        trial.history.wait_for(500, 50);
        let report = trial.history.report();
        assert!(report.errors.is_empty(), "round {round}: {report:?}");
    }
    trial.history.finish();
}

#[test]
fn a_redis_that_is_killed_comes_back_as_a_new_incarnation() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start("learned");
    let users = trial.servers[0].living_users();
    assert_eq!(users.len(), 1, "{users:?}");
    trial.servers[0].kill();
    trial.history.wait_for_error("storage");
    trial.servers[0].run();
    trial.history.wait_for_each_key();
    let after = trial.servers[0].living_users();
    assert!(after.len() == 1 && after != users, "{users:?} before, {after:?} after");
    trial.history.report().only(&["storage", "outcome is unknown"]);
    trial.history.wait_for(500, 50);
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

/// Readers of one key, at every node and all the time: whoever asks after somebody has been told that it is gone is told so, too.
#[test]
fn a_redis_that_comes_back_empty_is_seen_as_one_history() {
    const READERS: usize = 6;
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut servers = [RedisServer::start()];
    let cluster = Cluster::apart(layout(&servers));
    let (routers, mut client) = (&cluster.layout.routers, cluster.connect(0));
    for round in 0..3 {
        let value = format!("value {round}");
        until("a write is taken", || (text(&client.call(&["SET", "k", &value])) == "OK").then_some(()));
        let (gone, done, hits) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let read = |reader: usize| {
            let mut client = Client::tcp(routers[reader % routers.len()]);
            while !done.load(SeqCst) {
                let was_gone = gone.load(SeqCst);
                match client.call(&["GET", "k"]) {
                    Value::Null => gone.store(true, SeqCst),
                    // While storage is away.
                    Value::Error(_) => {}
                    found => {
                        assert_eq!(text(&found), value, "round {round}");
                        assert!(
                            !was_gone,
                            "round {round}: {value:?} after somebody was told that it is gone"
                        );
                        hits.fetch_add(1, SeqCst);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            let ends = Ends(&done);
            (0..READERS).for_each(|reader| {
                scope.spawn(move || read(reader));
            });
            let before = cluster.status();
            until("copies are hit", || (hits_since(&cluster, &before) > 1000).then_some(()));
            servers[0].kill();
            servers[0].run();
            until("it is gone", || gone.load(SeqCst).then_some(()));
            // As long as copies of before could last.
            std::thread::park_timeout(2 * LEASE);
            drop(ends);
        });
        assert!(hits.into_inner() > 1000, "round {round}");
    }
}

#[test]
fn cut_storage_connections_and_a_deleted_user_are_replaced() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let trial = Trial::start("learned");
    for cut in 0..4 {
        let mut redis = trial.servers[0].connect();
        let users = trial.servers[0].living_users();
        if cut % 2 == 0 {
            redis.call(&["CLIENT", "KILL", "TYPE", "normal"]);
        } else {
            redis.call(&["ACL", "DELUSER", &users[0]]);
        }
        until("a new user or connection is there", || {
            let info = text(&trial.servers[0].connect().call(&["CLIENT", "LIST"]));
            info.contains("user=distcache:").then_some(())
        });
        trial.history.wait_for_each_key();
        trial.history.wait_for(500, 50);
        trial.history.report().only(&["storage", "outcome is unknown"]);
        assert_eq!(trial.servers[0].living_users().len(), 1, "{users:?} before");
        trial.history.wait_for(500, 50);
        let report = trial.history.report();
        assert!(report.errors.is_empty(), "cut {cut}: {report:?}");
    }
    trial.history.finish();
}

#[test]
fn storage_or_a_shim_that_stops_for_a_while_costs_time_only() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start("learned");
    for shim_stops in [false, true] {
        let stopped = if shim_stops { trial.cluster.process("shim-0") } else { trial.servers[0].process() };
        stopped.signal(Signal::STOP);
        until("its leases have run out", || {
            let status = trial.cluster.status();
            let nodes = status["nodes"].as_array()?;
            let leases = nodes.iter().flat_map(|node| node["leases"].as_array().into_iter().flatten());
            let mut of_shim = leases.filter(|lease| lease["shim"] == "shim-0");
            of_shim.all(|lease| lease["held"] == false).then_some(())
        });
        let stopped = if shim_stops { trial.cluster.process("shim-0") } else { trial.servers[0].process() };
        stopped.signal(Signal::CONT);
        trial.history.wait_for_each_key();
        trial.history.wait_for(500, 50);
        let report = trial.history.report();
        assert!(report.errors.is_empty(), "{report:?}");
    }
    trial.history.finish();
}

#[test]
fn the_partition_of_a_lost_node_is_taken_over_and_given_back() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::durable(), RedisServer::durable()];
    let controller_keys = "member_lease_ms = 3000\ngrace_ms = 200\nreturn_step_ms = 200".to_owned();
    let mut cluster = Cluster::apart(Layout { spines: 2, controller_keys, ..layout(&servers) });
    let history = History::start(&cluster.layout.routers, 6, 2);
    let hits = |cluster: &Cluster, node: &str| {
        let status = cluster.status();
        let nodes = status["nodes"].as_array().expect("nodes").clone();
        nodes.iter().find(|found| found["id"] == node).and_then(|found| found["hits_total"].as_u64())
    };
    until("both spine nodes are hit", || {
        let both = ["spine-0", "spine-1"].map(|node| hits(&cluster, node));
        both.iter().all(|hits| *hits > Some(100)).then_some(())
    });
    for epoch in [2, 7] {
        cluster.kill("spine-0");
        until("the map is without it", || (cluster.status()["epoch"] == epoch).then_some(()));
        assert_eq!(hits(&cluster, "spine-0"), None, "{}", cluster.status());
        let before = hits(&cluster, "spine-1").expect("spine-1 is there");
        until("the other is hit", || (hits(&cluster, "spine-1")? > before + 200).then_some(()));
        cluster.start("spine-0");
        // In four steps.
        until("the map has it again", || (cluster.status()["epoch"] == epoch + 4).then_some(()));
        until("it is hit again", || (hits(&cluster, "spine-0")? > 100).then_some(()));
    }
    let report = history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
    assert!(report.longest_write <= LEASE + SLACK, "{report:?}");
}

#[test]
fn nothing_depends_on_the_controller_or_on_one_router() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start("learned");
    trial.cluster.kill("controller");
    trial.history.wait_for(1000, 100);
    trial.cluster.start("controller");
    until("the members are there again", || {
        let status = trial.cluster.status();
        let count = |list: &str| status[list].as_array().map_or(0, Vec::len);
        ((count("nodes"), count("shims"), count("routers")) == (2, 2, 2)).then_some(())
    });
    trial.no_errors_and_writes_within_a_lease("without a controller");
    let mut cluster = trial.cluster;
    drop(trial.history);
    cluster.kill("router-1");
    assert_eq!(text(&cluster.connect(0).call(&["SET", "a", "1"])), "OK");
    cluster.start("router-1");
    cluster.wait_linked();
    assert_eq!(text(&cluster.connect(1).call(&["GET", "a"])), "1");
}

#[test]
fn a_paused_shim_that_was_replaced_serves_nothing_until_its_successor_is_gone() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::start()];
    let mut old = Cluster::apart(Layout::before(&servers));
    let mut client = old.connect(0);
    assert_eq!(text(&client.call(&["SET", "k", "old"])), "OK");
    until("it is cached", || {
        assert_eq!(text(&client.call(&["GET", "k"])), "old");
        (crate::cluster::total(&old.status(), "nodes", "hits_total") > 10).then_some(())
    });
    old.process("shim-0").signal(Signal::STOP);
    // The same shim of the same cluster at other addresses, before the same server.
    let mut new = Cluster::apart(Layout::before(&servers));
    assert_eq!(text(&new.connect(0).call(&["SET", "k", "new"])), "OK");
    old.process("shim-0").signal(Signal::CONT);
    let is_error = |reply: &Value| matches!(reply, Value::Error(_));
    until("the older stands by", || {
        let (read, write) = (client.call(&["GET", "k"]), client.call(&["SET", "k", "late"]));
        assert!(is_error(&read) && is_error(&write), "{read:?} {write:?}");
        text(&read).contains("another process of this shim").then_some(())
    });
    until("its log says so", || old.process("shim-0").log().contains("standing by").then_some(()));
    until("its status says so", || (old.status()["shims"][0]["standing_by"] == true).then_some(()));
    assert_eq!(text(&new.connect(0).call(&["GET", "k"])), "new");

    new.process("shim-0").signal(Signal::TERM);
    assert_eq!(new.process("shim-0").wait().code(), Some(0));
    until("the older takes over", || (text(&client.call(&["GET", "k"])) == "new").then_some(()));
}
