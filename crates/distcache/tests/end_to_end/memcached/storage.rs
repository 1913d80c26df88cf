//! memcached as storage: its own semantics through the cache, its restarts, and the fence. Not what clients may say.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use super::{check_alone, set, single};
use crate::cluster::{Cluster, Layout, MemcachedClient, MemcachedServer, UP, installed, shared, until};

/// As long as a node may serve a copy that nobody invalidates.
const LEASE: Duration = Duration::from_secs(1);

fn check(client: &mut MemcachedClient, request: &str, expected: &str) {
    assert_eq!(client.text(request), expected, "{request:?}");
}

/// Reads a key until a node has answered it.
pub(super) fn warm(client: &mut MemcachedClient, key: &str) {
    let hits = |client: &mut MemcachedClient| {
        let stats = client.text("stats\r\n");
        let line = stats.lines().find_map(|line| line.strip_prefix("STAT distcache_cached_hits "));
        line.expect("the counter").parse::<u64>().expect("a number")
    };
    let before = hits(client);
    until("the key is cached", || {
        client.text(&format!("gets {key}\r\n"));
        (hits(client) > before).then_some(())
    });
}

#[test]
fn a_cached_item_keeps_its_flags_and_its_unique() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let (server, _cluster, mut client) = single();
    check(&mut client, "set k 30 0 5\r\nhello\r\n", "STORED\r\n");
    warm(&mut client, "k");
    let stored = server.connect().text("gets k\r\n");
    check(&mut client, "gets k\r\n", &stored);
    let unique = stored.lines().next().and_then(|line| line.rsplit(' ').next()).expect("a unique");
    check(&mut client, &format!("cas k 31 0 3 {unique}\r\nnew\r\n"), "STORED\r\n");
    check(&mut client, &format!("cas k 31 0 3 {unique}\r\nold\r\n"), "EXISTS\r\n");
    check(&mut client, "get k\r\n", "VALUE k 31 3\r\nnew\r\nEND\r\n");
    // Nobody reads more than storage has: an item that is gone is gone from the cache by its time, too.
    check(&mut client, "touch k -1\r\nget k\r\n", "TOUCHED\r\nEND\r\n");
}

#[test]
fn of_all_who_read_a_stale_item_one_is_told_to_make_it_anew() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let (_server, _cluster, mut client) = single();
    for round in 0..20 {
        check(&mut client, "set k 0 0 1\r\nx\r\n", "STORED\r\n");
        warm(&mut client, "k");
        check(&mut client, "md k I T300\r\n", "HD\r\n");
        assert_eq!(client.text("mg k v\r\n"), "VA 1 X W\r\nx\r\n", "round {round}");
        check(&mut client, "mg k v\r\nmg k\r\n", "VA 1 Z X\r\nx\r\nHD Z X\r\n");
        check(&mut client, "ms k 1\r\ny\r\nmg k v\r\n", "HD\r\nVA 1\r\ny\r\n");
        check(&mut client, "mg new N30 v\r\nmg new v\r\nmd new\r\n", "VA 0 W\r\n\r\nVA 0 Z\r\n\r\nHD\r\n");
    }
}

#[test]
fn a_server_that_starts_again_has_lost_its_items_and_so_has_the_cache() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let (mut server, _cluster, mut client) = single();
    for round in 0..3 {
        check(&mut client, "set k 0 0 5\r\nhello\r\n", "STORED\r\n");
        warm(&mut client, "k");
        server.kill();
        server.run();
        let seen = until("the new server is asked", || {
            let answer = client.text("get k\r\n");
            (answer == "END\r\n").then_some(answer)
        });
        assert_eq!(seen, "END\r\n", "round {round}");
        // What is gone does not come back, from whatever node.
        let end = Instant::now() + LEASE;
        while Instant::now() < end {
            check(&mut client, "get k\r\n", "END\r\n");
        }
        set(&mut client, "k", "x");
    }
}

#[test]
fn a_shim_waits_until_whoever_else_is_connected_has_left() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let server = MemcachedServer::start();
    let mut stranger = server.connect();
    check(&mut stranger, "set k 0 0 1\r\nx\r\n", "STORED\r\n");
    let layout = Layout { protocol: "memcached", ..Layout::new(vec![server.url()]) };
    let mut cluster = Cluster::unstarted(layout);
    cluster.start(UP);
    let mut client = MemcachedClient::connect(cluster.router(0));
    until("it says what it waits for", || {
        cluster
            .process(UP)
            .log()
            .contains("waiting until these connections to memcached are closed")
            .then_some(())
    });
    let refused = client.text("get k\r\n");
    assert!(refused.starts_with("SERVER_ERROR "), "{refused}");
    drop(stranger);
    until("it serves", || (client.text("get k\r\n") == "VALUE k 0 1\r\nx\r\nEND\r\n").then_some(()));
}

/// Counters that several clients count up and read through caches that hold them: a read that began after some value was
/// known shows at least that, and none more than was asked for.
#[test]
fn what_is_read_while_others_write_can_have_happened() {
    const CLIENTS: usize = 6;
    const KEYS: usize = 3;
    const ROUNDS: usize = 400;
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let servers = [MemcachedServer::start(), MemcachedServer::start()];
    let cluster = Cluster::up(Layout {
        protocol: "memcached",
        spines: 2,
        tables: "[heat]\nthreshold = 1\nhold_off_ms = 10".to_owned(),
        ..Layout::new(servers.iter().map(MemcachedServer::url).collect())
    });
    let address = cluster.router(0);
    let mut first = MemcachedClient::connect(address);
    for key in 0..KEYS {
        check(&mut first, &format!("set c{key} 0 0 1\r\n0\r\n"), "STORED\r\n");
    }
    let (floor, sent) =
        (Arc::new([const { AtomicU64::new(0) }; KEYS]), Arc::new([const { AtomicU64::new(0) }; KEYS]));
    let (start, failed) = (Arc::new(Barrier::new(CLIENTS)), Arc::new(AtomicBool::new(false)));
    let threads: Vec<_> = (0..CLIENTS)
        .map(|index| {
            let (floor, sent, start, failed) = (floor.clone(), sent.clone(), start.clone(), failed.clone());
            std::thread::spawn(move || {
                let mut client = MemcachedClient::connect(address);
                start.wait();
                for round in 0..ROUNDS {
                    let key = (index + round) % KEYS;
                    let before = floor[key].load(SeqCst);
                    // One write among many reads, so that the keys stay in the cache in between.
                    let writes = (index + round) % 16 == 0;
                    let (request, value) = match writes {
                        true => {
                            sent[key].fetch_add(1, SeqCst);
                            let request = format!("incr c{key} 1\r\n");
                            let answer = client.text(&request);
                            (request, answer.trim_end().parse::<u64>().ok())
                        }
                        false => {
                            let request = format!("gets c{key}\r\n");
                            let answer = client.text(&request);
                            let value = answer.lines().nth(1).and_then(|line| line.trim_end().parse().ok());
                            (request, value)
                        }
                    };
                    let most = sent[key].load(SeqCst);
                    let Some(value) = value else { panic!("{request}: no number") };
                    if value < before || value > most {
                        failed.store(true, SeqCst);
                        panic!("{request}: {value}, and it had to be {before} to {most}");
                    }
                    floor[key].fetch_max(value, SeqCst);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a history that can have happened"));
    assert!(!failed.load(SeqCst));
    for key in 0..KEYS {
        let written = sent[key].load(SeqCst).to_string();
        let stored = first.text(&format!("get c{key}\r\n"));
        assert!(stored.contains(&format!("\r\n{written}\r\n")), "c{key}: {stored}, written {written}");
    }
    check_alone(&cluster);
    let stats = first.text("stats\r\n");
    assert!(!stats.contains("distcache_cached_hits 0\r\n"), "nothing was ever cached: {stats}");
}
