//! Lives of one shim with different configurations: what one has left at storage, the next one waits for. Not what leases are.

use std::time::{Duration, Instant};

use wire::resp::Value;

use crate::cluster::{Cluster, Layout, RedisServer, installed, ok, shared, text, until};

/// How long successors of a shim with leases of 3 s wait: with 1 % and the guard.
const WAIT: Duration = Duration::from_millis(3040);

/// Starts the shim again with other leases.
fn restart(cluster: &mut Cluster, lease_ms: u64) -> Instant {
    cluster.kill("shim-0");
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let other = toml.replace("lease_ms = 3000", &format!("lease_ms = {lease_ms}"));
    std::fs::write(&cluster.config, other).expect("written");
    let started = Instant::now();
    cluster.start("shim-0");
    started
}

#[test]
fn a_shim_with_shorter_leases_waits_for_the_longer_ones_before_it() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let server = RedisServer::start();
    let layout = Layout { lease_ms: 3000, ..Layout::before(std::slice::from_ref(&server)) };
    let mut cluster = Cluster::apart(layout);
    let mut client = cluster.connect(0);
    let first = Instant::now();
    ok(&mut client, &["SET", "k", "1"]);
    assert!(first.elapsed() < WAIT, "nobody was there before");
    assert!(server.shim_users()[0].contains(":3040:"), "{:?}", server.shim_users());

    let started = restart(&mut cluster, 100);
    until("a read is answered", || (text(&client.call(&["GET", "k"])) == "1").then_some(()));
    let read = started.elapsed();
    until("a write is done", || matches!(client.call(&["SET", "k", "2"]), Value::Simple(_)).then_some(()));
    let written = started.elapsed();
    assert!(written >= WAIT && read < written, "read after {read:?}, written after {written:?}");
    // From now on nobody has to wait for more than its own.
    until("the wait is over", || {
        server
            .shim_users()
            .iter()
            .any(|user| user.contains(":111:") && user.ends_with(":shrunk"))
            .then_some(())
    });
    let started = restart(&mut cluster, 100);
    until("a write is done", || matches!(client.call(&["SET", "k", "3"]), Value::Simple(_)).then_some(()));
    let names = server.shim_users();
    assert!(names.len() == 1 && names[0].contains(":111:"), "{names:?} after {:?}", started.elapsed());
}

#[test]
fn where_nothing_is_on_record_nothing_is_read_or_written_that_a_copy_may_contradict() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let mut server = RedisServer::start();
    let tables = "[limits]\nqueue_ms_max = 1500\n".to_owned();
    let layout = Layout { tables, ..Layout::before(std::slice::from_ref(&server)) };
    let mut cluster = Cluster::apart(layout);
    let mut client = cluster.connect(0);
    ok(&mut client, &["SET", "k", "1"]);
    cluster.kill("shim-0");
    server.kill();
    server.run();
    cluster.start("shim-0");
    for command in [&["GET", "k"][..], &["SET", "k", "2"]] {
        let refused = |reply: &Value| matches!(reply, Value::Error(text) if text.starts_with(b"BUSY"));
        until("it waits until it is refused", || refused(&client.call(command)).then_some(()));
    }
    let log = cluster.process("shim-0").log();
    let told = "no shim has left a record of its leases here: reads and writes wait 60600 ms";
    assert!(log.contains(told), "{log}");
}
