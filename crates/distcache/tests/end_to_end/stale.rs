//! Copies that answer while their storage is gone, before real redis-servers that are killed. What is followed while they
//! live is in `bounded`.

use std::time::{Duration, Instant};

use wire::resp::Value;

use crate::bounded::warm;
use crate::cluster::{Client, Cluster, Layout, RedisServer, alone, installed, text, total, until};
use crate::coherence::layout;

const STALE: Duration = Duration::from_millis(5000);

fn stale(servers: &[RedisServer]) -> Layout {
    let bounded = "mode = \"bounded\"\nbounded_staleness_ms_max = 1000\n";
    let policy = |prefix, more| format!("[[policy]]\nprefix = \"{prefix}\"\ncache = \"always\"\n{more}");
    let policies = [policy("page:", "stale_if_error_ms = 5000\n"), policy("other:", "")].concat();
    Layout { tables: format!("{bounded}{policies}"), ..layout(servers) }
}

fn is_error(value: &Value) -> bool {
    matches!(value, Value::Error(error) if error.starts_with(b"ERR DistCache: storage cannot be reached"))
}

/// Copies of these keys, which are hit through the first router.
fn warm_all(cluster: &Cluster, client: &mut Client, server: &RedisServer, value: &str) {
    let mut direct = server.connect();
    for key in ["page:1", "page:2", "other:1"] {
        direct.call(&["SET", key, value]);
        until("the value is read", || (text(&client.call(&["GET", key])) == value).then_some(()));
        warm(cluster, client, key);
    }
}

/// Until the shim knows that its storage is gone.
fn kill(server: &mut RedisServer, client: &mut Client) -> Instant {
    server.kill();
    let died = Instant::now();
    until("a read of another prefix fails", || is_error(&client.call(&["GET", "other:1"])).then_some(()));
    died
}

#[test]
fn stale_copies_answer_for_a_while_when_storage_is_gone() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut servers = [RedisServer::start()];
    let cluster = Cluster::apart(stale(&servers));
    let (mut client, mut other) = (cluster.connect(0), cluster.connect(1));
    warm_all(&cluster, &mut client, &servers[0], "old");

    let died = kill(&mut servers[0], &mut client);
    assert!(died.elapsed() < Duration::from_secs(1), "no copy of it may be old: {:?}", died.elapsed());
    // A router that has never read it is told where to ask.
    assert_eq!(text(&other.call(&["GET", "page:1"])), "old");
    let failed = client.call(&["SET", "page:2", "new"]);
    assert!(is_error(&failed), "{failed:?}");
    for client in [&mut client, &mut other] {
        let value = client.call(&["GET", "page:2"]);
        assert!(is_error(&value), "it was to be written: {value:?}");
    }
    // Until the lease is over a hit is a hit like any other.
    let status = until("hits are counted that may be stale", || {
        assert_eq!(text(&client.call(&["GET", "page:1"])), "old");
        let status = cluster.status();
        let (hits, now) = (total(&status, "nodes", "stale_hits_total"), total(&status, "shims", "stale_ms"));
        (hits > 0 && now > 0).then_some(status)
    });
    assert_eq!(total(&status, "shims", "stale_periods_total"), 1, "{status}");

    let (mut reads, mut last) = (0u64, died);
    let over = until("the time is over", || {
        let asked = Instant::now();
        for client in [&mut client, &mut other] {
            let value = client.call(&["GET", "page:1"]);
            if is_error(&value) {
                return Some(asked);
            }
            assert_eq!(text(&value), "old");
            (reads, last) = (reads + 1, asked);
        }
        None
    });
    // The node takes 1 % off, and the shim had heard of changes for the last time up to an eighth of a lease before.
    assert!(reads > 10, "{reads}");
    assert!(last <= died + STALE && over >= died + STALE * 9 / 10, "{:?}, {:?}", last - died, over - died);
    let status = cluster.fresh_status(|status| total(status, "shims", "stale_ms") == 0);
    assert!(total(&status, "nodes", "stale_hits_total") > 100, "{status}");
    assert_eq!(total(&status, "shims", "stale_periods_total"), 1, "{status}");
}

#[test]
fn stale_copies_are_gone_when_storage_is_back() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut servers = [RedisServer::start()];
    let cluster = Cluster::apart(stale(&servers));
    let mut clients = [cluster.connect(0), cluster.connect(1)];
    for round in 0..2 {
        let (old, new) = (format!("old {round}"), format!("new {round}"));
        warm_all(&cluster, &mut clients[0], &servers[0], &old);
        kill(&mut servers[0], &mut clients[0]);
        assert_eq!(text(&clients[0].call(&["GET", "page:1"])), old);
        servers[0].run();
        servers[0].connect().call(&["SET", "page:1", &new]);
        let mut fresh = false;
        until("what is new is read", || {
            let values = clients.each_mut().map(|client| client.call(&["GET", "page:1"]));
            for value in &values {
                match value {
                    Value::Error(_) => {}
                    // Before it was set.
                    Value::Null => fresh = true,
                    value if text(value) == new => fresh = true,
                    value => assert!(text(value) == old && !fresh, "{value:?} after what is new"),
                }
            }
            values
                .iter()
                .all(|value| !matches!(value, Value::Error(_)) && *value != Value::Null && text(value) == new)
                .then_some(())
        });
        let periods = |status: &_| total(status, "shims", "stale_periods_total");
        let status =
            cluster.fresh_status(|status| periods(status) > round && total(status, "shims", "stale_ms") == 0);
        assert_eq!(periods(&status), round + 1, "{status}");
    }
}
