//! A router of several threads behind its addresses: one router to its clients. Not what each command means.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use wire::resp::Value;

use crate::cluster::{Client, Cluster, Layout, RedisServer, installed, ok, shared, text, total, until};

const THREADS: usize = 3;

fn layout(servers: &[RedisServer]) -> Layout {
    Layout { threads: THREADS, ..Layout::before(servers) }
}

fn numbers(list: &str) -> BTreeSet<u64> {
    let ids = list.split("id=").skip(1).filter_map(|line| line.split(' ').next()?.parse().ok());
    ids.collect()
}

fn number(value: &Value) -> u64 {
    match value {
        Value::Integer(number) => *number as u64,
        other => panic!("no number: {other:?}"),
    }
}

/// The router's client of this number is on this thread.
fn thread_of(client: &mut Client) -> usize {
    (number(&client.call(&["CLIENT", "ID"])) as usize - 1) % THREADS
}

#[test]
fn clients_see_one_router() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let server = RedisServer::start();
    let cluster = Cluster::apart(layout(std::slice::from_ref(&server)));
    let mut clients: Vec<Client> = (0..24).map(|_| cluster.connect(0)).collect();
    let mut loads = [0; THREADS];
    clients.iter_mut().for_each(|client| loads[thread_of(client)] += 1);
    assert_eq!(loads, [8; THREADS], "each has as many");
    let own: BTreeSet<u64> =
        clients.iter_mut().map(|client| number(&client.call(&["CLIENT", "ID"]))).collect();
    assert_eq!(own.len(), 24);
    let list = text(&clients[0].call(&["CLIENT", "LIST"]));
    assert!(numbers(&list).is_superset(&own), "{list}");
    let status = cluster.fresh_status(|status| total(status, "routers", "clients") >= 24);
    assert_eq!(status["routers"].as_array().map(Vec::len), Some(1), "{status}");

    // What one writes all read, through whatever thread.
    for round in 0..200 {
        let (writer, value) = (round % clients.len(), round.to_string());
        ok(&mut clients[writer], &["SET", "key", &value]);
        for client in &mut clients {
            assert_eq!(text(&client.call(&["GET", "key"])), value, "round {round}");
        }
    }

    // A pause stands for everybody when it is answered.
    ok(&mut clients[0], &["CLIENT", "PAUSE", "60000", "WRITE"]);
    for client in &mut clients[1..5] {
        client.write(b"SET paused 1\r\n").expect("written");
    }
    let mut reader = cluster.connect(0);
    for _ in 0..50 {
        assert_eq!(reader.call(&["GET", "paused"]), Value::Null);
    }
    ok(&mut clients[0], &["CLIENT", "UNPAUSE"]);
    for client in &mut clients[1..5] {
        assert_eq!(&client.frame().expect("it goes on")[..], b"+OK\r\n");
    }

    // One that blocks in another thread is let go, and then all others are ended.
    let blocked = number(&clients[1].call(&["CLIENT", "ID"])).to_string();
    clients[1].write(b"BLPOP list 0\r\n").expect("written");
    until("it blocks", || (number(&clients[2].call(&["CLIENT", "UNBLOCK", &blocked])) == 1).then_some(()));
    assert_eq!(&clients[1].frame().expect("a reply")[..], b"*-1\r\n");
    let killed = number(&clients[0].call(&["CLIENT", "KILL", "TYPE", "normal"]));
    assert!(killed >= 23, "{killed}");
    assert!(clients[1..].iter_mut().all(|client| client.frame().is_err()));
    let left = numbers(&text(&clients[0].call(&["CLIENT", "LIST", "TYPE", "normal"])));
    assert_eq!(left.len(), 1, "{left:?}");
}

/// Pushes find their client, whatever thread hears of them first.
#[test]
fn what_clients_listen_to_reaches_them_through_any_thread() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let server = RedisServer::start();
    let cluster = Cluster::apart(layout(std::slice::from_ref(&server)));
    let mut clients: Vec<Client> = (0..THREADS).map(|_| cluster.connect(0)).collect();

    // Invalidations of one thread's client are told by another's.
    let mut listener = cluster.connect(0);
    let thread = thread_of(&mut listener);
    let mut tracker = until("a client of another thread", || {
        let mut client = cluster.connect(0);
        (thread_of(&mut client) != thread).then_some(client)
    });
    let id = number(&listener.call(&["CLIENT", "ID"])).to_string();
    listener.call(&["SUBSCRIBE", "__redis__:invalidate"]);
    ok(&mut tracker, &["CLIENT", "TRACKING", "ON", "REDIRECT", &id]);
    for round in 0..20 {
        tracker.call(&["GET", "key"]);
        ok(&mut clients[round % THREADS], &["SET", "key", "x"]);
        let told = listener.frame().unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(String::from_utf8_lossy(&told).contains("__redis__:invalidate"), "{told:?}");
    }

    // Messages of channels reach the subscribers of every thread.
    let mut subscribers: Vec<Client> = (0..6).map(|_| cluster.connect(0)).collect();
    subscribers.iter_mut().for_each(|client| drop(client.call(&["SUBSCRIBE", "news"])));
    assert_eq!(number(&clients[0].call(&["PUBLISH", "news", "hello"])), 6);
    for subscriber in &mut subscribers {
        assert!(String::from_utf8_lossy(&subscriber.frame().expect("a message")).contains("hello"));
    }
}

/// The next life has another number of threads, and shims still know of those of the last.
#[test]
fn a_router_comes_back_with_another_number_of_threads() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let near = "[near]\nobjects_max = 8\nheat_min = 16".to_owned();
    let mut cluster = Cluster::apart(Layout { tables: near, ..layout(&servers) });
    let mut direct = servers[0].connect();
    for (life, threads) in [3, 1, 2, 4].into_iter().enumerate() {
        let file = std::fs::read_to_string(&cluster.config).expect("the configuration");
        let line = file.lines().find(|line| line.starts_with("threads = ")).expect("the router's threads");
        std::fs::write(&cluster.config, file.replace(line, &format!("threads = {threads}")))
            .expect("another");
        if life > 0 {
            match life % 2 {
                0 => cluster.kill("router-0"),
                _ => {
                    cluster.signal("router-0", Signal::TERM);
                    assert_eq!(cluster.process("router-0").wait().code(), Some(0));
                }
            }
            cluster.start("router-0");
            cluster.wait_linked();
        }
        let mut clients: Vec<Client> = (0..8).map(|_| cluster.connect(0)).collect();
        let began = Instant::now();
        let mut round = 0;
        while round < 50 || began.elapsed() < Duration::from_secs(1) {
            let value = format!("{life}.{round}");
            ok(&mut clients[round % 8], &["SET", "key", &value]);
            for client in &mut clients {
                for _ in 0..4 {
                    assert_eq!(text(&client.call(&["GET", "key"])), value);
                }
            }
            assert_eq!(text(&direct.call(&["GET", "key"])), value);
            round += 1;
        }
    }
}

/// While clients work on all of its threads it ends in order: each is answered what it has asked.
#[test]
fn a_router_ends_when_all_its_threads_have() {
    let _machine = shared();
    let layout = Layout { threads: THREADS, ..Layout::embedded(1) };
    let mut cluster = Cluster::apart(layout);
    let mut clients: Vec<Client> = (0..12).map(|_| cluster.connect(0)).collect();
    let many: Vec<u8> = (0..500).flat_map(|_| b"INCR n\r\nCLIENT LIST\r\n".to_vec()).collect();
    for client in &mut clients {
        ok(client, &["SET", "n", "0"]);
        client.write(&many).expect("written");
    }
    cluster.signal("router-0", Signal::TERM);
    let began = Instant::now();
    assert_eq!(cluster.process("router-0").wait().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    for client in &mut clients {
        while let Ok(reply) = client.frame() {
            assert!(reply.starts_with(b":") || reply.starts_with(b"$"), "{reply:?}");
        }
    }
}
