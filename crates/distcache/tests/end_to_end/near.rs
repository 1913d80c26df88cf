//! Copies that routers hold themselves, in processes that are killed, stopped and started again. Not when a router may answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{
    Client, Cluster, Layout, RedisServer, installed, loopback, ok, shared, text, total, until,
};

const LEASE: Duration = Duration::from_secs(1);

/// Asks until the routers of these clients hold the key at one time, and all of them have answered reads themselves. On a slow
/// machine one that did has given the key up while another got it.
fn warm<const N: usize>(cluster: &Cluster, clients: [(&mut Client, &str); N], value: &str) {
    let counted = |id: &str, status: &serde_json::Value| {
        let router = status["routers"].as_array()?.iter().find(|router| router["id"] == id)?;
        Some((router["near_hits_total"].as_u64()?, router["near_objects"].as_u64()?))
    };
    let status = cluster.status();
    let mut clients =
        clients.map(|(client, id)| (client, id, counted(id, &status).map_or(0, |(hits, _)| hits)));
    until("the routers hold the key", || {
        for (client, ..) in &mut clients {
            for _ in 0..200 {
                assert_eq!(text(&client.call(&["GET", "key"])), value);
            }
        }
        let status = cluster.status();
        let warm = |(_, id, before): &(_, &str, u64)| {
            counted(id, &status).is_some_and(|(hits, held)| hits > *before && held > 0)
        };
        let sessions = total(&status, "shims", "near_sessions");
        (clients.iter().all(warm) && sessions >= N as u64).then_some(())
    });
}

/// How long the write takes, which the other router's client sees at once.
fn write(writer: &mut Client, reader: &mut Client, value: &str) -> Duration {
    let began = Instant::now();
    ok(writer, &["SET", "key", value]);
    let took = began.elapsed();
    assert_eq!(text(&reader.call(&["GET", "key"])), value);
    took
}

#[test]
fn routers_hold_what_is_hot_and_writes_wait_for_them() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let layout = Layout {
        routers: vec![loopback(), loopback()],
        tables: "[near]\nobjects_max = 8\nheat_min = 16\n[heat]\nhold_off_ms = 100".to_owned(),
        ..Layout::before(&servers)
    };
    let mut cluster = Cluster::apart(layout);
    let (mut first, mut second) = (cluster.connect(0), cluster.connect(1));
    ok(&mut first, &["SET", "key", "0"]);
    warm(&cluster, [(&mut first, "router-0"), (&mut second, "router-1")], "0");
    for round in 1..100 {
        write(&mut first, &mut second, &round.to_string());
        write(&mut second, &mut first, &format!("{round}.5"));
    }
    cluster.fresh_status(|status| total(status, "shims", "near_invalidated_copies_total") > 0);
    warm(&cluster, [(&mut first, "router-0"), (&mut second, "router-1")], "99.5");

    // One that is killed holds a write up for a lease at most, and its next life holds what is hot again, or, as another file
    // says, nothing.
    cluster.kill("router-1");
    let took = write(&mut first, &mut cluster.connect(0), "100");
    assert!(took < LEASE * 4, "{took:?}");
    cluster.start("router-1");
    cluster.wait_linked();
    let mut second = cluster.connect(1);

    // One that stops does, too, and is shunned, unless the shim did not run either; going on, it has nothing that is old.
    let mut value = 100;
    until("who does not answer is shunned", || {
        warm(&cluster, [(&mut second, "router-1")], &value.to_string());
        value += 1;
        cluster.signal("router-1", Signal::STOP);
        let took = write(&mut first, &mut cluster.connect(0), &value.to_string());
        assert!(took < LEASE * 4, "{took:?}");
        cluster.signal("router-1", Signal::CONT);
        assert_eq!(text(&second.call(&["GET", "key"])), value.to_string());
        (total(&cluster.status(), "shims", "near_shunned_total") > 0).then_some(())
    });

    let with = std::fs::read_to_string(&cluster.config).expect("the configuration");
    std::fs::write(&cluster.config, with.replace("objects_max = 8", "objects_max = 0"))
        .expect("another file");
    cluster.kill("router-1");
    cluster.start("router-1");
    cluster.wait_linked();
    let mut second = cluster.connect(1);
    for round in 0..50 {
        write(&mut first, &mut second, &format!("{round}.7"));
        write(&mut second, &mut first, &format!("{round}.8"));
    }
}

/// A router that stops in order gives back what it holds, so that no write waits for its lease.
#[test]
fn a_router_that_ends_holds_nothing() {
    let _machine = shared();
    let layout = Layout {
        routers: vec![loopback(), loopback()],
        tables: "[near]\nobjects_max = 8\nheat_min = 16".to_owned(),
        ..Layout::embedded(1)
    };
    let mut cluster = Cluster::apart(layout);
    let (mut first, mut second) = (cluster.connect(0), cluster.connect(1));
    ok(&mut first, &["SET", "key", "0"]);
    warm(&cluster, [(&mut second, "router-1")], "0");
    cluster.signal("router-1", Signal::TERM);
    cluster.process("router-1").wait();
    write(&mut first, &mut cluster.connect(0), "1");
    let ended = Instant::now();
    until("a lease would be over", || (ended.elapsed() > LEASE * 2).then_some(()));
    let status = cluster.fresh_status(|status| total(status, "shims", "near_sessions") == 0);
    assert_eq!(total(&status, "shims", "leases_lost_total"), 0, "{status}");
}

/// A cluster, and the router in this process that may hold its hottest keys.
fn linked() -> (Cluster, router::Client) {
    let tables = "[near]\nobjects_max = 8\nheat_min = 16".to_owned();
    let cluster = Cluster::apart(Layout { tables, ..Layout::embedded(1) });
    let config = config::Config::load(&cluster.config).expect("the configuration of the cluster");
    let linked = router::Client::connect(&config).expect("the library reaches all storage");
    (cluster, linked)
}

/// A linked client is a holder in the application's process: a write elsewhere waits for it, and its end gives all back.
#[test]
fn a_linked_client_holds_what_is_hot() {
    let _machine = shared();
    let (cluster, linked) = linked();
    let mut writer = cluster.connect(0);
    let holders = |count| move |status: &serde_json::Value| total(status, "shims", "near_sessions") == count;
    for round in 0..3 {
        ok(&mut writer, &["SET", "key", &round.to_string()]);
        until("the application holds the key", || {
            for _ in 0..200 {
                let value = linked.command(&["GET", "key"]).expect("a value");
                assert_eq!(text(&value), round.to_string());
            }
            holders(1)(&cluster.status()).then_some(())
        });
    }
    cluster.fresh_status(|status| total(status, "shims", "near_invalidated_copies_total") > 0);
    drop(linked);
    let ended = Instant::now();
    until("a lease would be over", || (ended.elapsed() > LEASE * 2).then_some(()));
    let status = cluster.fresh_status(holders(0));
    assert_eq!(total(&status, "shims", "leases_lost_total"), 0, "{status}");
}

/// Threads of an application that share a linked client turn its machine by themselves: none may read from a near copy what a
/// write elsewhere, acknowledged before the read, has overwritten.
#[test]
fn threads_of_a_linked_client_never_read_what_was_overwritten() {
    const WRITES: u64 = 60;
    let _machine = shared();
    let (cluster, linked) = linked();
    let mut writer = cluster.connect(0);
    ok(&mut writer, &["SET", "key", "0"]);
    let (written, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while written.load(Ordering::SeqCst) < WRITES {
                    let before = written.load(Ordering::SeqCst);
                    let value = linked.get("key").expect("an answer").expect("a value");
                    let value: u64 = String::from_utf8_lossy(&value).parse().expect("a number");
                    assert!(value >= before, "{value} was read after {before} was acknowledged");
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for round in 1..=WRITES {
            // Enough reads between two writes for a copy to be worth its invalidation.
            let enough = reads.load(Ordering::SeqCst) + 500;
            until("the threads read on", || (reads.load(Ordering::SeqCst) > enough).then_some(()));
            ok(&mut writer, &["SET", "key", &round.to_string()]);
            written.store(round, Ordering::SeqCst);
        }
    });
    let status = cluster.fresh_status(|status| total(status, "shims", "near_invalidated_copies_total") > 0);
    assert_eq!(total(&status, "shims", "leases_lost_total"), 0, "{status}");
}
