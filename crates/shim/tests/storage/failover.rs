//! Redis storage whose server, or whose place before the server, becomes another's: failover, promotion, two shims.
//! Not lost connections of one shim and one server.

use std::time::Instant;

use bytes::Bytes;
use config::Address;
use protocol::storage::StorageEvent;
use protocol::storage::redis::RedisSettings;

use crate::redis::{
    PATIENCE, PINNED, RESP2, Storage, all_have_left, governs_alone, settings, user_of, users,
};
use crate::relay::Relay;
use crate::server::{Client, Server};

fn free_port() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("its address").port().to_string()
}

fn until(client: &mut Client, args: &[&str], part: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !String::from_utf8_lossy(&client.ask(args)).contains(part) {
        assert!(Instant::now() < deadline, "{args:?} never says {part}");
    }
}

/// How often a command was asked of the server.
fn calls(client: &mut Client, command: &str) -> u64 {
    let info = client.ask(&["INFO", "commandstats"]);
    let info = String::from_utf8_lossy(&info).into_owned();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")).map(str::to_owned));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// A primary and its replica, in step, and both their ports.
fn pair() -> Option<[(Server, String); 2]> {
    let ports = [free_port(), free_port()];
    // Without a delay before the first synchronisation.
    let options = |port| ["--port", port, "--repl-diskless-sync-delay", "0"];
    let primary = Server::start(&options(&ports[0]))?;
    let replica = Server::start(&options(&ports[1]))?;
    let mut client = replica.client();
    client.ask(&["REPLICAOF", "127.0.0.1", &ports[0]]);
    until(&mut client, &["INFO", "replication"], "master_link_status:up");
    let [first, second] = ports;
    Some([(primary, first), (replica, second)])
}

#[test]
fn a_failover_to_a_replica_is_a_new_incarnation_with_users_of_its_own() {
    let Some([(primary, _), (replica, port)]) = pair() else { return };
    let relay = Relay::start(&primary.socket());
    let mut storage = Storage::with(settings(&Address::Unix(relay.socket.clone()), 1));
    let first = storage.until_up();
    assert_eq!(storage.ask(RESP2, &["SET", "k", "v"]), "+OK\r\n");
    until(&mut replica.client(), &["GET", "k"], "v");
    assert_eq!(users(&replica), ["default"], "users are not replicated");

    replica.client().ask(&["REPLICAOF", "NO", "ONE"]);
    primary.client().ask(&["REPLICAOF", "127.0.0.1", &port]);
    relay.move_to(&replica.socket());
    storage.until_down();
    let second = storage.until_up();
    assert_ne!(first, second);
    assert_eq!(storage.ask(RESP2, &["GET", "k"]), "$1\r\nv\r\n");
    assert!(users(&replica).iter().any(|user| user.contains(&format!(":{second:016x}:"))));
}

#[test]
fn a_replica_in_the_place_of_its_primary_is_not_served() {
    let Some([(primary, _), (replica, _)]) = pair() else { return };
    let relay = Relay::start(&primary.socket());
    let mut storage = Storage::with(settings(&Address::Unix(relay.socket.clone()), 1));
    let first = storage.until_up();
    relay.move_to(&replica.socket());
    storage.until_down();
    let deadline = Instant::now() + PATIENCE;
    while !storage
        .events()
        .iter()
        .any(|event| matches!(event, StorageEvent::Down { reason, .. } if reason.contains("replica")))
    {
        assert!(!storage.is_up() && Instant::now() < deadline, "{:?}", storage.events());
        storage.turn();
    }
    // Promoted, it is another storage state, although the data is the same.
    replica.client().ask(&["REPLICAOF", "NO", "ONE"]);
    assert_ne!(storage.until_up(), first);
}

#[test]
fn a_demoted_primary_is_noticed_by_what_it_says_and_its_connections_are_given_up() {
    let Some([(primary, _), (_replica, port)]) = pair() else { return };
    let mut storage = Storage::new(&primary, 1);
    let first = storage.until_up();
    let blocked = storage.store(PINNED, &[&["BLPOP", "q", "0"]]);
    assert_eq!(storage.ask(RESP2, &["SET", "k", "v"]), "+OK\r\n");
    let mut client = primary.client();
    client.ask(&["REPLICAOF", "127.0.0.1", &port]);
    let write = storage.store(RESP2, &[&["SET", "k", "w"]]);
    let refused = storage.ended(write);
    assert!(refused.is_none_or(|reply| reply.starts_with(b"-READONLY ")), "it is never executed");
    assert!(storage.until_down().contains("replica"));
    let late = storage.store(RESP2, &[&["GET", "k"]]);
    assert!(!storage.until_lost(late), "nothing is asked of a replica");
    storage.ended(blocked);
    client.ask(&["REPLICAOF", "NO", "ONE"]);
    assert_ne!(storage.until_up(), first);
}

#[test]
fn a_user_that_is_gone_means_a_new_incarnation_at_once() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = Storage::new(&server, 1);
    let first = storage.until_up();
    assert_eq!(
        server.client().ask(&["ACL", "DELUSER", &user_of(&server, first).expect("it governs")]),
        ":1\r\n"
    );
    storage.until_down();
    assert_ne!(storage.until_up(), first);
    assert!(!storage.is_replaced());
}

#[test]
fn a_server_that_gets_busy_or_loads_keeps_its_incarnation() {
    let Some(server) = Server::start(&["--lua-time-limit", "1", "--enable-debug-command", "yes"]) else {
        return;
    };
    let mut storage = Storage::new(&server, 1);
    storage.until_up();
    let mut script = server.client();
    script.send(&["EVAL", "while true do end", "0"]);
    let deadline = Instant::now() + PATIENCE;
    while !storage.ask(RESP2, &["SET", "k", "v"]).starts_with(b"-BUSY ") {
        assert!(Instant::now() < deadline, "the script never counted as slow");
    }
    assert!(storage.is_up(), "it answers; clients are told what it says");
    assert_eq!(server.client().ask(&["SCRIPT", "KILL"]), "+OK\r\n");
    while storage.ask(RESP2, &["SET", "k", "v"]) != "+OK\r\n" {
        assert!(Instant::now() < deadline, "it never recovered");
    }
    server.client().ask(&["DEBUG", "RELOAD"]);
    assert_eq!(storage.ask(RESP2, &["GET", "k"]), "$1\r\nv\r\n");
    assert!(storage.is_up() && storage.incarnations() == 1);
}

#[test]
fn a_server_that_loads_its_data_is_waited_for_and_is_another() {
    let Some(mut server) = Server::start(&["--appendonly", "yes"]) else { return };
    let mut client = server.client();
    let mut storage = Storage::new(&server, 1);
    let first = storage.until_up();
    for batch in 0..100 {
        let pairs: Vec<String> = (0..100).flat_map(|n| [format!("k{batch}:{n}"), "v".into()]).collect();
        let args: Vec<&str> = ["MSET"].into_iter().chain(pairs.iter().map(String::as_str)).collect();
        assert_eq!(client.ask(&args), "+OK\r\n");
    }
    // The rewritten file has every key on its own, and each takes a while to load.
    client.ask(&["BGREWRITEAOF"]);
    until(&mut client, &["INFO", "persistence"], "aof_rewrite_in_progress:0");
    server.stop();
    storage.until_down();
    let slowly = ["--key-load-delay", "300", "--loading-process-events-interval-bytes", "1024"];
    server.restart_unready(&[&["--appendonly", "yes"], &slowly[..]].concat());
    let (mut client, mut loading) = (server.client(), 0);
    while client.ask(&["PING"]).starts_with(b"-LOADING ") {
        loading += 1;
        storage.turn();
        assert!(!storage.is_up(), "{:?}", storage.events());
    }
    assert!(loading > 0, "the test must reach what it tests");
    assert_ne!(storage.until_up(), first);
    assert_eq!(storage.ask(RESP2, &["GET", "k99:99"]), "$1\r\nv\r\n");
}

#[test]
fn of_two_shims_of_one_server_the_newer_serves_and_the_older_stands_by() {
    let Some(server) = Server::start(&[]) else { return };
    let mut client = server.client();
    let (mut older, mut newer) = (Storage::new(&server, 1), Storage::new(&server, 2));
    older.until_up();
    let second = newer.until_up();
    let deadline = Instant::now() + PATIENCE;
    let looked = calls(&mut client, "client|list");
    // It looks again and again, and touches nothing.
    while !older.is_replaced() || calls(&mut client, "client|list") < looked + 2 {
        assert!(Instant::now() < deadline, "{:?}", older.events());
        older.turn();
    }
    let told = older.events().iter().any(|event| {
        matches!(event, StorageEvent::Down { reason, .. } if reason.contains("another process of this shim"))
    });
    assert!(told, "{:?}", older.events());
    let write = older.store(RESP2, &[&["SET", "k", "old"]]);
    assert!(!older.until_lost(write));
    assert_eq!(newer.ask(RESP2, &["SET", "k", "new"]), "+OK\r\n");
    assert!(governs_alone(&server, second), "{:?}", users(&server));
    assert_eq!(newer.incarnations(), 1, "it was never disturbed");

    // The newer one dies without a word: its user stays, its connections do not.
    drop(newer);
    let third = older.until_up();
    assert!(governs_alone(&server, third), "{:?}", users(&server));
    assert_eq!(older.ask(RESP2, &["GET", "k"]), "$3\r\nnew\r\n");
}

#[test]
fn a_successor_that_leaves_in_order_makes_room_at_once() {
    let Some(server) = Server::start(&[]) else { return };
    let (mut older, mut newer) = (Storage::new(&server, 1), Storage::new(&server, 2));
    older.until_up();
    newer.until_up();
    let deadline = Instant::now() + PATIENCE;
    while !older.is_replaced() {
        assert!(Instant::now() < deadline);
        older.turn();
    }
    newer.stop();
    while !all_have_left(&server) {
        assert!(Instant::now() < deadline);
        newer.turn();
    }
    older.until_up();
}

#[test]
fn shims_that_start_together_end_with_one() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storages: Vec<Storage> = (1..=3).map(|seed| Storage::new(&server, seed)).collect();
    let deadline = Instant::now() + PATIENCE;
    let is_over = |storages: &[Storage]| {
        let (up, by) = (
            storages.iter().filter(|storage| storage.is_up()),
            storages.iter().filter(|one| one.is_replaced()),
        );
        (up.count(), by.count()) == (1, 2)
    };
    while !is_over(&storages) {
        assert!(Instant::now() < deadline);
        storages.iter_mut().for_each(Storage::turn);
    }
    let up = storages.iter_mut().find(|storage| storage.is_up()).expect("one is up");
    assert_eq!(up.ask(RESP2, &["PING"]), Bytes::from_static(b"+PONG\r\n"));
}

#[test]
fn a_paused_shim_that_was_replaced_neither_writes_nor_serves_when_it_goes_on() {
    let Some(server) = Server::start(&[]) else { return };
    let mut paused = Storage::new(&server, 1);
    paused.until_up();
    assert_eq!(paused.ask(RESP2, &["SET", "k", "old"]), "+OK\r\n");
    // Nothing of it turns while the other takes over and writes.
    let mut successor = Storage::with(RedisSettings { ..settings(&Address::Unix(server.socket()), 2) });
    successor.until_up();
    assert_eq!(successor.ask(RESP2, &["SET", "k", "new"]), "+OK\r\n");
    let (write, read) =
        (paused.store(RESP2, &[&["SET", "k", "late"]]), paused.store(RESP2, &[&["GET", "k"]]));
    paused.until_lost(write);
    paused.until_lost(read);
    let deadline = Instant::now() + PATIENCE;
    while !paused.is_replaced() {
        assert!(Instant::now() < deadline);
        paused.turn();
    }
    assert_eq!(successor.ask(RESP2, &["GET", "k"]), "$3\r\nnew\r\n");
    assert_eq!(successor.incarnations(), 1);
}
