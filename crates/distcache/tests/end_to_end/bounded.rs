//! Mode `bounded` before real redis-servers that others write to, too. What strict mode promises is in `coherence`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use wire::resp::Value;

use crate::cluster::{
    Client, Cluster, Layout, Program, RedisServer, alone, installed, shared, text, total, until,
};
use crate::coherence::{hit_ratio, layout};

pub(crate) const STALENESS: Duration = Duration::from_millis(1000);

fn bounded(servers: &[RedisServer]) -> Layout {
    let tables = "mode = \"bounded\"\nbounded_staleness_ms_max = 1000\n".to_owned();
    Layout { tables, ..layout(servers) }
}

/// When the write of each value had been answered, by key.
pub(crate) type Written = BTreeMap<usize, Vec<Instant>>;

pub(crate) fn locked(written: &Mutex<Written>) -> MutexGuard<'_, Written> {
    written.lock().expect("nobody has panicked")
}

/// One write past DistCache for so many reads through it.
pub(crate) fn write_behind(
    mut set: impl FnMut(&str, &str),
    written: &Mutex<Written>,
    reads: &AtomicU64,
    reads_max: u64,
) {
    let mut writes = 0;
    while reads.load(Ordering::Relaxed) < reads_max {
        if writes * 100 > reads.load(Ordering::Relaxed) {
            std::thread::yield_now();
            continue;
        }
        let key = (writes % 8) as usize;
        let value = locked(written).get(&key).map_or(0, Vec::len);
        set(&format!("k{key}"), &value.to_string());
        locked(written).entry(key).or_default().push(Instant::now());
        writes += 1;
    }
}

/// Reads for ever; gives the oldest value seen, counted from when it was overwritten.
pub(crate) fn read_through(
    mut client: Client,
    written: &Mutex<Written>,
    reads: &AtomicU64,
    reads_max: u64,
) -> Duration {
    let mut stalest = Duration::ZERO;
    for key in (0..8).cycle() {
        if reads.fetch_add(1, Ordering::Relaxed) >= reads_max {
            break;
        }
        let asked = Instant::now();
        let found = match client.call(&["GET", &format!("k{key}")]) {
            Value::Null => 0,
            // The server is away for the moment.
            Value::Error(_) => continue,
            value => text(&value).parse::<usize>().expect("a number") + 1,
        };
        // The first write that this value does not show.
        if let Some(next) = locked(written).get(&key).and_then(|writes| writes.get(found)) {
            stalest = stalest.max(asked.saturating_duration_since(*next));
        }
    }
    stalest
}

#[test]
fn copies_follow_whoever_writes() {
    check_followed(Program::Redis);
}

pub(crate) fn check_followed(program: Program) {
    if !program.is_installed() {
        return;
    }
    let _machine = alone();
    let servers = [program.start()];
    let cluster = Cluster::apart(bounded(&servers));
    // What changes before the shim hears of changes is told nobody.
    let mut outsider = servers[0].connect();
    until("the shim hears of changes", || {
        outsider.call(&["SET", "heard", "x"]);
        (total(&cluster.status(), "shims", "feed_changes_total") > 0).then_some(())
    });
    let (writes, status) = check_stalest(&cluster, &servers[0]);
    let heard = || cluster.fresh_status(|status| total(status, "shims", "feed_changes_total") >= writes);
    assert!(total(&heard(), "shims", "feed_changes_total") >= writes, "{status}");
    assert!(total(&status, "shims", "invalidated_copies_total") > 20, "{status}");
    assert!(total(&status, "shims", "feed_delay_us") > 0, "{status}");
}

/// Reads through DistCache show what is written past it, soon enough; how much that was, and the status then.
pub(crate) fn check_stalest(cluster: &Cluster, server: &RedisServer) -> (u64, Json) {
    let (written, reads) = (Mutex::new(Written::new()), AtomicU64::new(0));
    let reads_max = 20_000;
    let stalest = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|index| {
                let client = cluster.connect(index % 2);
                scope.spawn(|| read_through(client, &written, &reads, reads_max))
            })
            .collect();
        let mut writer = server.connect();
        let set = move |key: &str, value: &str| assert_eq!(text(&writer.call(&["SET", key, value])), "OK");
        scope.spawn(|| write_behind(set, &written, &reads, reads_max));
        let ends = readers.into_iter().map(|reader| reader.join().expect("the reader ends"));
        ends.max().expect("readers")
    });
    assert!(stalest <= STALENESS, "{stalest:?}");
    let writes = locked(&written).values().map(|writes| writes.len() as u64).sum::<u64>();
    assert!(writes > 0);
    let status = cluster.fresh_status(|status| {
        let nodes = total(status, "routers", "reads_to_nodes_total");
        nodes + total(status, "routers", "reads_to_shims_total") >= reads_max
    });
    assert!(hit_ratio(&status) > 0.3, "hit ratio {:.2}: {status}", hit_ratio(&status));
    (writes, status)
}

/// Reads through the cluster until copies are hit.
pub(crate) fn warm(cluster: &Cluster, client: &mut Client, key: &str) {
    let hits = total(&cluster.status(), "nodes", "hits_total");
    until("copies are hit", || {
        (0..100).for_each(|_| drop(client.call(&["GET", key])));
        (total(&cluster.status(), "nodes", "hits_total") > hits).then_some(())
    });
}

#[test]
fn expiry_eviction_and_flushes_reach_the_copies() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::with(&["--maxmemory-policy", "allkeys-random"])];
    let cluster = Cluster::up(bounded(&servers));
    let (mut direct, mut client) = (servers[0].connect(), cluster.connect(0));
    let ends: [&[&str]; 5] = [
        &["PEXPIRE", "k", "1"],
        &["FLUSHALL"],
        &["DEL", "k"],
        &["EVAL", "redis.call('DEL', 'k')", "0"],
        // Less than the server needs itself: everything is evicted.
        &["CONFIG", "SET", "maxmemory", "1"],
    ];
    for end in ends {
        direct.call(&["SET", "k", "v"]);
        until("the value is read", || (text(&client.call(&["GET", "k"])) == "v").then_some(()));
        warm(&cluster, &mut client, "k");
        direct.call(end);
        until("the copies are gone", || (client.call(&["GET", "k"]) == Value::Null).then_some(()));
    }
}

/// The id of the connection on which the server reports changes.
pub(crate) fn feed_of(server: &RedisServer) -> Option<String> {
    let list = text(&server.connect().call(&["CLIENT", "LIST"]));
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| field.strip_prefix(name).map(str::to_owned))
    };
    let reports =
        |line: &&str| field(line, "flags=").is_some_and(|flags| flags.contains('t') && flags.contains('B'));
    list.lines().find(reports).and_then(|line| field(line, "id="))
}

#[test]
fn a_lost_feed_drops_every_copy() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let cluster = Cluster::apart(bounded(&servers));
    let (mut direct, mut client) = (servers[0].connect(), cluster.connect(0));
    for round in 0..3 {
        direct.call(&["SET", "k", "before"]);
        warm(&cluster, &mut client, "k");
        let feed = until("storage reports changes", || feed_of(&servers[0]));
        assert_eq!(direct.call(&["CLIENT", "KILL", "ID", &feed]), Value::Integer(1));
        direct.call(&["SET", "k", "after"]);
        let written = Instant::now();
        until("the new value is read", || {
            let asked = Instant::now();
            let value = text(&client.call(&["GET", "k"]));
            assert!(value == "after" || asked <= written + STALENESS, "{value}");
            (value == "after").then_some(())
        });
        let status = cluster.fresh_status(|status| total(status, "shims", "feed_losses_total") > round);
        assert!(total(&status, "shims", "revokes_total") > round, "{status}");
    }
    warm(&cluster, &mut client, "k");
}

/// What one has written oneself is there at once, whoever else writes.
#[test]
fn own_writes_are_read() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::apart(bounded(&servers));
    let ended = AtomicBool::new(false);
    let mut directs = servers.each_ref().map(RedisServer::connect);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                directs.iter_mut().for_each(|direct| drop(direct.call(&["INCR", "other"])));
            }
        });
        let (mut writer, mut reader) = (cluster.connect(0), cluster.connect(1));
        for round in 0..300 {
            let value = round.to_string();
            writer.call(&["SET", "own", &value]);
            for _ in 0..10 {
                assert_eq!(text(&writer.call(&["GET", "own"])), value);
                assert_eq!(text(&reader.call(&["GET", "own"])), value);
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let status = cluster.fresh_status(|status| total(status, "nodes", "hits_total") > 100);
    assert_eq!(total(&status, "shims", "commits_total"), 0, "{status}");
}
