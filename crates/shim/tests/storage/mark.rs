//! What Redis servers keep of whose keys they hold: it survives what the keys survive, and nothing about keys shows it.

use std::time::Duration;

use config::Address;
use protocol::coherence::lease::{EarlierIncarnations, Unrecorded};
use protocol::storage::redis::{LeaseRecord, RedisSettings};
use protocol::storage::{MarkedPart, StorageEvent};

use crate::redis::{RESP2, Storage, settings};
use crate::server::Server;

const AOF: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The second of two shims, unless something else is asked for.
fn second(server: &Server, change: impl Fn(&mut RedisSettings, &mut MarkedPart)) -> Storage {
    let mut settings = settings(&Address::Unix(server.socket()), 7);
    settings.lease_record = LeaseRecord { is_first: false, ..settings.lease_record };
    let mut part = MarkedPart {
        id: "1f".to_owned(),
        cluster: "prod".to_owned(),
        shims: vec!["shim-0".to_owned(), "shim-1".to_owned()],
        shim: "shim-1".to_owned(),
        next: Vec::new(),
    };
    change(&mut settings, &mut part);
    settings.mark = Some(part);
    Storage::with(settings)
}

fn same(server: &Server) -> Storage {
    second(server, |_, _| {})
}

#[test]
fn no_command_about_keys_shows_it_and_none_takes_it_away() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = same(&server);
    storage.until_up();
    let mut client = server.client();
    let list = ["FUNCTION", "LIST", "LIBRARYNAME", "distcache", "WITHCODE"];
    let kept = client.ask(&list);
    assert!(kept.windows(15).any(|part| part == b"shim-0 shim-1\n-"), "{kept:?}");
    let nothing = [
        (&["DBSIZE"][..], ":0\r\n"),
        (&["KEYS", "*"], "*0\r\n"),
        (&["SCAN", "0"], "*2\r\n$1\r\n0\r\n*0\r\n"),
        (&["RANDOMKEY"], "$-1\r\n"),
        (&["INFO", "keyspace"], "$12\r\n# Keyspace\r\n\r\n"),
    ];
    for (command, expected) in nothing {
        assert_eq!(client.ask(command), expected, "{command:?}");
    }
    assert_eq!(storage.ask(RESP2, &["FLUSHALL"]), "+OK\r\n");
    assert_eq!(client.ask(&list), kept);
}

#[test]
fn who_would_look_for_the_keys_elsewhere_is_refused_and_takes_nothing() {
    let Some(mut server) = Server::start(&AOF) else { return };
    let mut storage = same(&server);
    storage.until_up();
    // What holds nothing may come to hold anything.
    storage.stop();
    let mut other = second(&server, |_, part| part.shim = "shim-0".to_owned());
    other.until_up();
    other.stop();
    let mut storage = same(&server);
    storage.until_up();
    assert_eq!(storage.ask(RESP2, &["SET", "k", "v"]), "+OK\r\n");
    let check = |server: &Server, words: &str, change: &dyn Fn(&mut MarkedPart)| {
        let mut other = second(server, |_, part| change(part));
        let refusal = other.until_refused();
        assert!(refusal.contains(words) && refusal.contains("--adopt"), "{refusal}");
    };
    let all = |server: &Server| {
        check(server, "of cluster \"prod\" with another secret", &|part| part.id = "2f".to_owned());
        check(server, "holds the keys of shim-1, and is `storage` of shim-0 now", &|part| {
            part.shim = "shim-0".to_owned();
        });
        let words = "with [[shim]] entries shim-0, shim-1, and they are shim-0, shim-1, shim-2 now";
        check(server, words, &|part| part.shims.push("shim-2".to_owned()));
    };
    all(&server);
    assert_eq!(storage.ask(RESP2, &["PING"]), "+PONG\r\n", "it was not even disturbed");
    assert!(storage.is_up());
    // It is kept like the data.
    server.restart(&AOF);
    all(&server);
    storage.until_up();
    assert_eq!(storage.ask(RESP2, &["GET", "k"]), "$1\r\nv\r\n");
    storage.stop();
    let mut other = second(&server, |settings, part| (part.id, settings.adopts) = ("2f".to_owned(), true));
    other.until_up();
    other.stop();
    check(&server, "with another secret", &|_| {});
    second(&server, |_, part| part.id = "2f".to_owned()).until_up();
}

#[test]
fn leases_are_known_where_the_server_was_restarted_and_no_process_knows_them() {
    let Some(mut server) = Server::start(&AOF) else { return };
    let mut first = second(&server, |settings, _| settings.lease_record.wait = Duration::from_millis(5051));
    let nothing_known = EarlierIncarnations::unrecorded(Unrecorded::Unknown);
    assert_eq!(first.until_up_after(), nothing_known);
    drop(first);
    server.restart(&AOF);
    // The first did not know itself.
    let told = same(&server).until_up_after();
    assert_eq!(told.recorded, Duration::from_millis(60_600));
    assert!(matches!(told.unrecorded, Unrecorded::Within(age) if age < Duration::from_secs(100)), "{told:?}");
    assert!(!told.same_data);
    // A server that keeps nothing has no keys either.
    server.restart(&[]);
    let mut anew = second(&server, |settings, part| {
        (settings.lease_record.is_first, part.id) = (true, "3f".to_owned());
    });
    assert_eq!(anew.until_up_after(), EarlierIncarnations::NONE);
    drop(anew);
    server.restart(&[]);
    assert_eq!(same(&server).until_up_after(), nothing_known);
}

#[test]
fn where_it_cannot_be_kept_people_are_told() {
    let Some(server) = Server::start(&[]) else { return };
    let rules = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-function"];
    assert_eq!(server.client().ask(&rules), "+OK\r\n");
    let mut storage = second(&server, |settings, _| {
        (settings.user, settings.password) = (Some("app".to_owned()), Some("pw".to_owned()));
    });
    let told = storage.until_told("keeps no mark");
    assert!(told.contains("NOPERM") && told.contains("+function"), "{told}");
    storage.until_up();
    assert_eq!(storage.ask(RESP2, &["PING"]), "+PONG\r\n");
}

#[test]
fn one_server_has_one_distcache() {
    let Some(server) = Server::start(&[]) else { return };
    let mut one = same(&server);
    one.until_up();
    let other = |adopts: bool| {
        second(&server, |settings, _| {
            (settings.fence.cluster, settings.adopts) = ("another".to_owned(), adopts);
        })
    };
    let refusal = other(false).until_refused();
    assert!(
        refusal.contains("another DistCache") && refusal.contains("as user distcache:test:shim-0:"),
        "{refusal}"
    );
    assert_eq!(one.ask(RESP2, &["PING"]), "+PONG\r\n", "it was not even disturbed");
    // Who is gone, in order or not, gives way; and whoever a person says.
    drop(one);
    let mut next = other(false);
    next.until_up();
    let mut last = same(&server);
    assert!(last.until_refused().contains("another DistCache"));
    let mut last = second(&server, |settings, _| settings.adopts = true);
    last.until_up();
    let ticket = next.store(RESP2, &[&["SET", "k", "late"]]);
    next.until_lost(ticket);
    assert!(next.until_refused().contains("another DistCache"), "it does not take turns");
    // Two that adopt it do not take turns either.
    let mut adopter = other(true);
    adopter.until_up();
    assert!(last.until_refused().contains("another DistCache"));
    let last = adopter;
    let notes = |event: &StorageEvent| matches!(event, StorageEvent::Lost { .. });
    assert!(last.is_up() && !last.events().iter().any(notes));
}
