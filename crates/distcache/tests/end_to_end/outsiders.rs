//! A Redis Cluster that others write to, too: mode `bounded` and the caches of clients follow it while slots move and
//! replicas take over. Not plain servers: those are in `bounded` and `tracking`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::resp::Value;

use crate::bounded::{STALENESS, Written, read_through, write_behind};
use crate::cluster::{
    Client, Cluster, Layout, PRIMARIES, RedisCluster, alone, installed, shared, text, total, until,
};
use crate::tracking::Caching;

/// Somebody who knows nothing of DistCache.
struct Outsider(Vec<Client>);

impl Outsider {
    fn new(storage: &RedisCluster) -> Outsider {
        Outsider(storage.servers.iter().map(|server| server.connect()).collect())
    }

    /// Asks around until a server carries it out.
    fn call(&mut self, command: &[&str]) -> Value {
        until("a server takes it", || {
            self.0.iter_mut().find_map(|server| {
                let reply = match server.call(command) {
                    Value::Error(error) if error.starts_with(b"ASK ") => return None,
                    reply => reply,
                };
                let elsewhere = [&b"MOVED "[..], b"READONLY", b"CLUSTERDOWN", b"TRYAGAIN"];
                let turned = |error: &[u8]| elsewhere.iter().any(|word| error.starts_with(word));
                (!matches!(&reply, Value::Error(error) if turned(error))).then_some(reply)
            })
        })
    }
}

fn layout(storage: &RedisCluster, tables: &str) -> Layout {
    let layout = Layout::new(vec![storage.url(); PRIMARIES]);
    let second = Layout::embedded(1).routers;
    let always = "[[policy]]\nprefix = \"\"\ncache = \"always\"\n";
    Layout { routers: [&layout.routers[..], &second].concat(), tables: format!("{tables}{always}"), ..layout }
}

/// Each key's slot goes to the next primary, with its keys.
fn move_slots(storage: &RedisCluster, keys: &[String]) {
    for key in keys {
        let slot = storage.slot(key);
        let from = storage.owner(slot);
        let to = (0..PRIMARIES).find(|server| *server != from).expect("another primary");
        storage.begin_move(slot, from, to);
        while storage.move_keys(slot, from, to) {}
        storage.end_move(slot, from, to);
        storage.wait_owner(slot, to);
    }
}

#[test]
fn copies_follow_whoever_writes_to_a_redis_cluster() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let storage = RedisCluster::start();
    let bounded = "mode = \"bounded\"\nbounded_staleness_ms_max = 1000\n";
    let cluster = Cluster::up(layout(&storage, bounded));
    let (written, reads) = (Mutex::new(Written::new()), AtomicU64::new(0));
    let reads_max = 40_000;
    let keys: Vec<String> = (0..8).map(|key| format!("k{key}")).collect();
    let stalest = std::thread::scope(|scope| {
        let (written, reads) = (&written, &reads);
        let readers: Vec<_> = (0..4)
            .map(|index| {
                let client = cluster.connect(index % 2);
                scope.spawn(move || read_through(client, written, reads, reads_max))
            })
            .collect();
        let mut outsider = Outsider::new(&storage);
        let set = move |key: &str, value: &str| assert_eq!(text(&outsider.call(&["SET", key, value])), "OK");
        scope.spawn(move || write_behind(set, written, reads, reads_max));
        until("it reads and writes", || (reads.load(Ordering::Relaxed) > reads_max / 4).then_some(()));
        move_slots(&storage, &keys[..3]);
        until("it goes on", || (reads.load(Ordering::Relaxed) > reads_max / 2).then_some(()));
        storage.fail_over(storage.owner(storage.slot("k7")) + PRIMARIES);
        let ends = readers.into_iter().map(|reader| reader.join().expect("the reader ends"));
        ends.max().expect("readers")
    });
    assert!(stalest <= STALENESS, "{stalest:?}");
    let status = cluster.fresh_status(|status| total(status, "shims", "feed_changes_total") > 0);
    assert!(total(&status, "nodes", "hits_total") > 1000, "{status}");
    assert!(total(&status, "shims", "invalidated_copies_total") > 20, "{status}");
    // Once all is quiet copies show the last writes.
    let mut client = cluster.connect(0);
    let mut outsider = Outsider::new(&storage);
    for key in &keys {
        let truth = outsider.call(&["GET", key]);
        until("the last write is read", || (client.call(&["GET", key]) == truth).then_some(()));
        // Of every slot there are copies again, wherever it is now.
        let hits = total(&cluster.status(), "nodes", "hits_total");
        until("a copy answers", || {
            client.call(&["GET", key]);
            (total(&cluster.status(), "nodes", "hits_total") > hits).then_some(())
        });
    }
}

#[test]
fn clients_that_cache_hear_of_every_server_of_a_redis_cluster() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let storage = RedisCluster::start();
    let cluster = Cluster::up(layout(&storage, ""));
    until("every server reports", || {
        let mut client = cluster.connect(0).resp3();
        (text(&client.call(&["CLIENT", "TRACKING", "ON"])) == "OK").then_some(())
    });
    let mut caching = [Caching::new(cluster.connect(0)), Caching::new(cluster.connect(1))];
    let keys: Vec<String> = (0..12).map(|key| format!("key:{key}")).collect();
    let (mut outsider, mut other) = (Outsider::new(&storage), cluster.connect(1));
    let mut check = |value: &str, write: &mut dyn FnMut(&[&str]) -> Value| {
        caching.iter_mut().for_each(|client| keys.iter().for_each(|key| client.read(key)));
        keys.iter().for_each(|key| assert_eq!(text(&write(&["SET", key, value])), "OK"));
        for client in &mut caching {
            until("the client is told of every key", || {
                drop(client.ask(&["PING"]));
                keys.iter().all(|key| client.holds(key).is_none_or(|held| text(held) == value)).then_some(())
            });
        }
    };
    check("by somebody", &mut |command| outsider.call(command));
    check("through a router", &mut |command| other.call(command));
    move_slots(&storage, &keys[..4]);
    check("after a move", &mut |command| outsider.call(command));
}
