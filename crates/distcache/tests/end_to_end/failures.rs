//! Processes that die, stop and come back while clients work: nothing stale, nothing stuck. Not wrong configuration.

use std::time::Duration;

use rustix::process::Signal;

use crate::cluster::{Cluster, RedisServer, alone, installed, until};
use crate::coherence::{hit_ratio, layout};
use crate::history::{History, Report};

const LEASE: Duration = Duration::from_millis(1000);
/// A loaded machine adds to the time of a write; more than this is not the machine.
const SLACK: Duration = Duration::from_millis(1500);

struct Trial {
    servers: [RedisServer; 2],
    cluster: Cluster,
    history: History,
}

impl Trial {
    /// Clients at work, and most reads answered from copies.
    fn start() -> Trial {
        let servers = [RedisServer::durable(), RedisServer::durable()];
        let cluster = Cluster::apart(layout(&servers));
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

/// All errors are among those that a client may see while a shim or its storage is away.
fn only(report: &Report, allowed: &[&str]) {
    for error in report.errors.keys() {
        assert!(allowed.iter().any(|part| error.contains(part)), "{error:?} in {report:?}");
    }
}

#[test]
fn killed_nodes_hold_writes_for_a_lease_at_most() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start();
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
    until("copies are hit again", || {
        let status = trial.cluster.status();
        let hits = |status| crate::cluster::total(status, "nodes", "hits_total");
        (hits(&status) > hits(&before) + 100).then_some(())
    });
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

#[test]
fn a_node_that_was_stopped_past_its_lease_serves_nothing_stale() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start();
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
    trial.history.finish();
}

#[test]
fn a_shim_that_is_killed_comes_back_without_a_stale_read() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start();
    for round in 0..2 {
        trial.cluster.kill("shim-0");
        trial.history.wait_for_error("shim-0");
        trial.cluster.start("shim-0");
        trial.history.wait_for_each_key();
        trial.history.wait_for(500, 50);
        only(
            &trial.history.report(),
            &[
                "ERR DistCache: shim shim-0 is not reachable; the command was not executed",
                "ERR DistCache: shim shim-0 was lost before it answered; the command changed nothing",
                "ERR DistCache: shim shim-0 was lost while the command ran; its outcome is unknown",
                "storage",
                "BUSY",
            ],
        );
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
    let mut trial = Trial::start();
    let users = trial.servers[0].shim_users();
    assert_eq!(users.len(), 1, "{users:?}");
    trial.servers[0].kill();
    trial.history.wait_for_error("storage");
    trial.servers[0].run();
    trial.history.wait_for_each_key();
    let after = trial.servers[0].shim_users();
    assert!(after.len() == 1 && after != users, "{users:?} before, {after:?} after");
    only(&trial.history.report(), &["storage", "outcome is unknown"]);
    trial.history.wait_for(500, 50);
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}
