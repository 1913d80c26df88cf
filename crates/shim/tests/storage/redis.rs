//! Redis storage against real redis-server processes: fences, lost connections, restarts, permissions.

use std::time::{Duration, Instant};

use bytes::Bytes;
use config::Address;
use protocol::coherence::lease::{EarlierIncarnations, LeaseLimits};
use protocol::migration::MigrationProgress;
use protocol::storage::network::{Endpoint, StorageInput};
use protocol::storage::redis::{FenceDemand, FenceName, FenceShare, LeaseRecord, Redis, RedisSettings};
use protocol::storage::{CommandControl, Lane, MarkedPart, Reach, StorageEvent, Store};
use protocol::time::Time;
use runtime::reactor::{Driver, Event, Io, Reactor};
use shim::storage::Storage as Backed;
use wire::resp::Command;

use crate::relay::Relay;
use crate::server::Server;

pub(crate) const RESP2: Lane = Lane::Shared { resp3: false };
/// How long successors wait for leases.
const WAIT: Duration = Duration::from_millis(1020);
pub(crate) const RESP3: Lane = Lane::Shared { resp3: true };
pub(crate) const PINNED: Lane = Lane::Pinned { resp3: false };
/// Far more than anything here takes: a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

struct Recorder {
    backed: Backed,
    events: Vec<StorageEvent>,
}

impl Driver for Recorder {
    fn event(&mut self, io: &mut Io, event: Event) {
        self.backed.event(io, event, &mut self.events);
    }
}

/// One shim's storage with a reactor of its own.
pub(crate) struct Storage {
    reactor: Reactor,
    recorder: Recorder,
    tickets: u64,
}

impl Storage {
    pub(crate) fn new(server: &Server, seed: u64) -> Storage {
        Storage::with(settings(&Address::Unix(server.socket()), seed))
    }

    pub(crate) fn with(settings: RedisSettings) -> Storage {
        let address = settings.address.parse().expect("an address");
        Storage::over(|_| Backed::new(Box::new(Redis::new(settings)), Some(address), None))
    }

    pub(crate) fn over(make: impl FnOnce(&Io) -> Backed) -> Storage {
        let io = Io::new().expect("a reactor");
        let recorder = Recorder { backed: make(&io), events: Vec::new() };
        Storage { reactor: Reactor::new(io), recorder, tickets: 0 }
    }

    /// Turns until an event is as wanted; it is taken, and so is what was said of the storage's state before.
    pub(crate) fn until<T>(&mut self, what: &str, wanted: impl Fn(&StorageEvent) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.recorder.events.iter().position(|event| wanted(event).is_some()) {
                let mut later = self.recorder.events.split_off(at);
                let of_ticket = |event: &StorageEvent| {
                    matches!(event, StorageEvent::Replies { .. } | StorageEvent::Lost { .. })
                };
                self.recorder.events.retain(of_ticket);
                let event = later.remove(0);
                self.recorder.events.append(&mut later);
                return wanted(&event).expect("it was wanted");
            }
            assert!(Instant::now() < deadline, "{what} never came: {:?}", self.recorder.events);
            self.turn();
        }
    }

    pub(crate) fn turn(&mut self) {
        self.reactor.turn(&mut self.recorder, None).expect("a turn");
    }

    /// A tick when so much time has passed, and then it is.
    fn tick_in(&mut self, passes: Duration) -> Time {
        let then = self.reactor.io().now().after(passes);
        self.tick_at(then);
        then
    }

    fn tick_at(&mut self, now: Time) {
        let Recorder { backed, events } = &mut self.recorder;
        backed.step(self.reactor.io(), now, StorageInput::Tick, events);
    }

    pub(crate) fn until_up(&mut self) -> u64 {
        self.until("up", |event| match event {
            StorageEvent::Up { incarnation, .. } => Some(*incarnation),
            _ => None,
        })
    }

    /// What it says of the leases of earlier incarnations once it is up.
    pub(crate) fn until_up_after(&mut self) -> EarlierIncarnations {
        self.until("up", |event| match event {
            StorageEvent::Up { earlier, .. } => Some(*earlier),
            _ => None,
        })
    }

    pub(crate) fn until_down(&mut self) -> String {
        self.until("down", |event| match event {
            StorageEvent::Down { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    }

    fn until_fenced(&mut self) {
        self.until("the fence", |event| (*event == StorageEvent::Fenced).then_some(()));
    }

    /// What has not been asked for by the test.
    pub(crate) fn events(&self) -> &[StorageEvent] {
        &self.recorder.events
    }

    pub(crate) fn is_up(&self) -> bool {
        self.recorder.backed.is_up()
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.recorder.backed.is_replaced()
    }

    /// How often it came up.
    pub(crate) fn incarnations(&self) -> u64 {
        self.recorder.backed.reconnects() + 1
    }

    pub(crate) fn stop(&mut self) {
        self.step(StorageInput::Leave);
    }

    pub(crate) fn step(&mut self, input: StorageInput) {
        let (io, Recorder { backed, events }) = (self.reactor.io(), &mut self.recorder);
        backed.step(io, io.now(), input, events);
    }

    pub(crate) fn migration(&self) -> Option<MigrationProgress> {
        self.recorder.backed.migration()
    }

    /// The first reply to a command, or nothing if it was lost.
    pub(crate) fn ended(&mut self, ticket: u64) -> Option<Bytes> {
        self.until("an end", |event| match event {
            StorageEvent::Replies { ticket: found, replies } if *found == ticket => {
                Some(replies.first().cloned())
            }
            StorageEvent::Lost { ticket: found, .. } if *found == ticket => Some(None),
            _ => None,
        })
    }

    pub(crate) fn until_told(&mut self, part: &str) -> String {
        self.until(part, |event| match event {
            StorageEvent::Note { text, .. } if text.contains(part) => Some(text.clone()),
            _ => None,
        })
    }

    pub(crate) fn until_refused(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(refusal) = self.recorder.backed.refusal() {
                return refusal.to_owned();
            }
            assert!(Instant::now() < deadline, "never refused: {:?}", self.recorder.events);
            self.turn();
        }
    }

    pub(crate) fn store(&mut self, lane: Lane, commands: &[&[&str]]) -> u64 {
        self.store_frames(lane, commands.iter().map(|args| Command::from_args(args).frame().clone()))
    }

    pub(crate) fn store_frames(&mut self, lane: Lane, frames: impl Iterator<Item = Bytes>) -> u64 {
        self.tickets += 1;
        let commands = frames.collect();
        let store = Store { ticket: self.tickets, lane, reach: Reach::Whole, commands };
        let io = self.reactor.io();
        let now = io.now();
        self.recorder.backed.step(io, now, StorageInput::Store(store), &mut self.recorder.events);
        self.tickets
    }

    fn replies(&mut self, ticket: u64) -> Vec<Bytes> {
        self.until("the replies", |event| match event {
            StorageEvent::Replies { ticket: found, replies } if *found == ticket => Some(replies.to_vec()),
            StorageEvent::Lost { ticket: found, .. } if *found == ticket => panic!("{event:?}"),
            _ => None,
        })
    }

    pub(crate) fn ask(&mut self, lane: Lane, args: &[&str]) -> Bytes {
        let ticket = self.store(lane, &[args]);
        self.replies(ticket).remove(0)
    }

    /// Whether the lost command may have been sent.
    pub(crate) fn until_lost(&mut self, ticket: u64) -> bool {
        self.until("the loss", |event| match event {
            StorageEvent::Lost { ticket: found, sent } if *found == ticket => Some(*sent),
            StorageEvent::Replies { ticket: found, .. } if *found == ticket => panic!("{event:?}"),
            _ => None,
        })
    }
}

pub(crate) fn settings(address: &Address, seed: u64) -> RedisSettings {
    let part = MarkedPart {
        id: "test".to_owned(),
        cluster: "test".to_owned(),
        shims: vec!["shim-0".to_owned()],
        shim: "shim-0".to_owned(),
        next: Vec::new(),
    };
    RedisSettings {
        endpoint: Endpoint::Configured,
        address: address.to_string(),
        tls: false,
        user: None,
        password: None,
        fence: FenceName { cluster: "test".to_owned(), shim: "shim-0".to_owned(), share: FenceShare::Whole },
        fence_demand: FenceDemand::Always,
        mark: Some(part),
        adopts: false,
        lease_record: LeaseRecord { wait: WAIT, limits: LeaseLimits::default(), is_first: true },
        standby: None,
        cluster_mode: false,
        timeout: Duration::from_secs(5),
        pinned_max: 4,
        seed,
    }
}

/// The user of an incarnation.
pub(crate) fn user_of(server: &Server, incarnation: u64) -> Option<String> {
    let prefix = format!("distcache:test:shim-0:{incarnation:016x}:1020:");
    let kind_of = |name: &str| name[prefix.len()..].contains(':');
    users(server).into_iter().find(|name| name.starts_with(&prefix) && !kind_of(name))
}

/// Nobody can log in any more; what is left only says how long leases may run.
pub(crate) fn all_have_left(server: &Server) -> bool {
    users(server).iter().all(|user| user == "default" || user.ends_with(":ended"))
}

/// The only user of a shim that can log in is that of this incarnation, which has waited for no other leases.
pub(crate) fn governs_alone(server: &Server, incarnation: u64) -> bool {
    user_of(server, incarnation).is_some_and(|own| users(server) == ["default".to_owned(), own])
}

pub(crate) fn users(server: &Server) -> Vec<String> {
    let reply = wire::resp::Value::parse(&server.client().ask(&["ACL", "USERS"])).expect("well formed");
    let names = reply.elements().expect("a list").iter();
    names.map(|name| String::from_utf8_lossy(name.bytes().expect("a name")).into_owned()).collect()
}

#[test]
fn commands_are_answered_in_order_and_in_the_version_of_their_lane() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = Storage::new(&server, 1);
    storage.until_up();
    let first = storage.store(RESP2, &[&["SET", "a", "1"], &["HSET", "h", "f", "v"]]);
    let second = storage.store(RESP2, &[&["PTTL", "a"], &["GET", "a"]]);
    assert_eq!(storage.replies(first), ["+OK\r\n", ":1\r\n"]);
    assert_eq!(storage.replies(second), [":-1\r\n", "$1\r\n1\r\n"]);
    assert_eq!(storage.ask(RESP3, &["HGETALL", "h"]), "%1\r\n$1\r\nf\r\n$1\r\nv\r\n");
    assert_eq!(storage.ask(RESP2, &["HGETALL", "h"]), "*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
    let big = "x".repeat(3_000_000);
    assert_eq!(storage.ask(RESP2, &["SET", "big", &big]), "+OK\r\n");
    assert_eq!(storage.ask(RESP2, &["STRLEN", "big"]), ":3000000\r\n");
    assert_eq!(storage.ask(RESP2, &["GET", "big"]).len(), 3_000_000 + 12);
}

#[test]
fn it_works_over_tcp() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("its address").port()
    };
    let Some(_server) = Server::start(&["--port", &port.to_string()]) else { return };
    let address = format!("127.0.0.1:{port}").parse().expect("an address");
    let mut storage = Storage::with(settings(&address, 1));
    storage.until_up();
    assert_eq!(storage.ask(RESP2, &["INCR", "n"]), ":1\r\n");
}

#[test]
fn the_connections_of_an_earlier_incarnation_are_dead_after_a_takeover() {
    let Some(server) = Server::start(&[]) else { return };
    let mut old = Storage::new(&server, 1);
    let first = old.until_up();
    old.ask(RESP2, &["SET", "k", "old"]);
    let mut new = Storage::new(&server, 2);
    let second = new.until_up();
    assert_ne!(first, second);
    assert!(governs_alone(&server, second), "{:?}", users(&server));

    new.ask(RESP2, &["SET", "k", "new"]);
    let ticket = old.store(RESP2, &[&["SET", "k", "late"]]);
    old.until_lost(ticket);
    assert_eq!(server.client().ask(&["GET", "k"]), "$3\r\nnew\r\n");
}

#[test]
fn a_write_in_a_frozen_servers_buffer_does_not_happen_after_the_fence() {
    let Some(server) = Server::start(&[]) else { return };
    let timeout = Duration::from_millis(300);
    let mut storage =
        Storage::with(RedisSettings { timeout, ..settings(&Address::Unix(server.socket()), 1) });
    let incarnation = storage.until_up();
    let mut client = server.client();
    client.ask(&["SET", "k", "before"]);

    server.freeze();
    let ticket = storage.store(RESP2, &[&["SET", "k", "late"]]);
    assert!(storage.until_lost(ticket), "its bytes are in the server's buffer");
    assert!(storage.until_down().contains("no answer within 300 ms"));
    server.thaw();
    storage.until_fenced();
    client.ask(&["SET", "k", "after"]);
    assert_eq!(storage.until_up(), incarnation, "the storage state is the same");
    assert_eq!(storage.ask(RESP2, &["GET", "k"]), "$5\r\nafter\r\n");
}

/// A machine that sleeps takes its Redis with it: neither has done anything when the clock has gone on by an hour.
#[test]
fn nobody_is_blamed_for_a_silence_that_this_process_slept_through() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = Storage::new(&server, 1);
    storage.until_up();
    server.freeze();
    let ticket = storage.store(RESP2, &[&["SET", "k", "v"]]);
    let woken = storage.tick_in(Duration::from_secs(3600));
    assert!(storage.is_up(), "{:?}", storage.events());
    let seconds = (1..=5).map(|count| woken.after(Duration::from_secs(count)));
    seconds.for_each(|second| storage.tick_at(second));
    assert!(storage.is_up(), "{:?}", storage.events());
    storage.tick_at(woken.after(Duration::from_millis(5_001)));
    storage.until_lost(ticket);
    server.thaw();
}

#[test]
fn a_server_that_walks_its_keys_is_not_taken_for_lost() {
    let Some(server) = Server::start(&[]) else { return };
    let timeout = Duration::from_millis(100);
    let mut storage =
        Storage::with(RedisSettings { timeout, ..settings(&Address::Unix(server.socket()), 1) });
    storage.until_up();
    server.freeze();
    let walk = storage.store(RESP2, &[&["keys", "*"]]);
    let write = storage.store(RESP2, &[&["SET", "k", "v"]]);
    let frozen = Instant::now();
    while frozen.elapsed() < 5 * timeout {
        storage.turn();
    }
    assert!(storage.is_up());
    server.thaw();
    assert_eq!(storage.ended(walk), Some(Bytes::from_static(b"*0\r\n")));
    assert_eq!(storage.ended(write), Some(Bytes::from_static(b"+OK\r\n")));
}

#[test]
fn a_write_that_reaches_the_server_after_the_fence_does_not_happen() {
    let Some(server) = Server::start(&[]) else { return };
    let relay = Relay::start(&server.socket());
    let timeout = Duration::from_millis(200);
    let mut storage =
        Storage::with(RedisSettings { timeout, ..settings(&Address::Unix(relay.socket.clone()), 1) });
    let incarnation = storage.until_up();
    relay.hold();
    let ticket = storage.store(RESP2, &[&["SET", "k", "late"]]);
    assert!(storage.until_lost(ticket));
    storage.until_fenced();
    let mut client = server.client();
    client.ask(&["SET", "k", "after"]);
    relay.release();
    assert_eq!(client.ask(&["GET", "k"]), "$5\r\nafter\r\n");
    assert_eq!(storage.until_up(), incarnation);
}

#[test]
fn a_write_of_a_replaced_shim_that_reaches_the_server_late_does_not_happen() {
    let Some(server) = Server::start(&[]) else { return };
    let relay = Relay::start(&server.socket());
    let mut old = Storage::with(settings(&Address::Unix(relay.socket.clone()), 1));
    old.until_up();
    relay.hold();
    old.store(RESP2, &[&["SET", "k", "late"]]);
    old.turn();
    let mut new = Storage::new(&server, 2);
    new.until_up();
    assert_eq!(new.ask(RESP2, &["SET", "k", "after"]), "+OK\r\n");
    drop(old);
    relay.release();
    assert_eq!(new.ask(RESP2, &["GET", "k"]), "$5\r\nafter\r\n");
}

#[test]
fn a_connection_lost_amid_a_batch_is_fenced_and_made_again() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = Storage::new(&server, 1);
    let incarnation = storage.until_up();
    // BLPOP keeps the batch from ending; the machine would not send it on this lane.
    let batch = storage.store(RESP2, &[&["SET", "a", "1"], &["BLPOP", "q", "0"]]);
    let behind = storage.store(RESP2, &[&["SET", "b", "1"]]);
    let mut client = server.client();
    while client.ask(&["GET", "a"]) != "$1\r\n1\r\n" {
        storage.turn();
    }
    let user = user_of(&server, incarnation).expect("it governs");
    assert_eq!(client.ask(&["CLIENT", "KILL", "USER", &user]), ":1\r\n");
    assert!(storage.until_lost(batch));
    assert!(storage.until_lost(behind));
    storage.until_down();
    let refused = storage.store(RESP2, &[&["SET", "c", "1"]]);
    assert!(!storage.until_lost(refused), "it was never sent");
    storage.until_fenced();
    assert_eq!(storage.until_up(), incarnation);
    assert_eq!(storage.ask(RESP2, &["MGET", "a", "b", "c"]), "*3\r\n$1\r\n1\r\n$-1\r\n$-1\r\n");
    assert_eq!(storage.recorder.backed.reconnects(), 1);
}

#[test]
fn a_restarted_server_means_a_new_incarnation() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut storage = Storage::new(&server, 1);
    let first = storage.until_up();
    storage.ask(RESP2, &["SET", "k", "v"]);
    storage.ask(RESP3, &["GET", "k"]);
    server.stop();
    storage.until_down();
    server.restart(&[]);
    assert_ne!(storage.until_up(), first);
    assert_eq!(storage.ask(RESP3, &["GET", "k"]), "_\r\n");
}

#[test]
fn a_server_that_turns_replica_is_not_used_and_comes_back_as_another() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = Storage::new(&server, 1);
    let first = storage.until_up();
    let mut client = server.client();
    client.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(storage.until_down().contains("replica"));
    client.ask(&["REPLICAOF", "NO", "ONE"]);
    assert_ne!(storage.until_up(), first);
    assert_eq!(storage.ask(RESP2, &["PING"]), "+PONG\r\n");
}

#[test]
fn an_unreachable_server_is_named_and_used_once_it_is_there() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.stop();
    let mut storage = Storage::new(&server, 1);
    let reason = storage.until_down();
    assert!(reason.contains("redis.sock") && reason.contains("No such file"), "{reason}");
    assert_eq!(storage.recorder.backed.refusal(), None);
    server.restart(&[]);
    storage.until_up();
}

#[test]
fn a_busy_server_is_waited_for() {
    let Some(server) = Server::start(&["--lua-time-limit", "1"]) else { return };
    let mut script = server.client();
    script.send(&["EVAL", "while true do end", "0"]);
    let mut client = server.client();
    while !client.ask(&["PING"]).starts_with(b"-BUSY") {}
    let mut storage = Storage::new(&server, 1);
    assert!(storage.until_down().contains("BUSY"));
    assert_eq!(client.ask(&["SCRIPT", "KILL"]), "+OK\r\n");
    storage.until_up();
}

#[test]
fn wrong_and_missing_passwords_are_refused_with_advice() {
    let Some(server) = Server::start(&["--requirepass", "right"]) else { return };
    let with = |password: Option<&str>| {
        let password = password.map(str::to_owned);
        Storage::with(RedisSettings { password, ..settings(&Address::Unix(server.socket()), 1) })
    };
    let refusal = with(Some("wrong")).until_refused();
    assert!(refusal.contains("WRONGPASS") && refusal.contains("Check user and password"), "{refusal}");
    let refusal = with(None).until_refused();
    assert!(refusal.contains("NOAUTH") && refusal.contains("USER:PASSWORD@"), "{refusal}");
    with(Some("right")).until_up();
}

#[test]
fn a_missing_permission_is_named() {
    let Some(server) = Server::start(&[]) else { return };
    let mut client = server.client();
    let mut check = |rules: &str, parts: &[&str]| {
        let mut args = vec!["ACL", "SETUSER", "limited", "reset", "on", ">pw", "~*", "&*", "+@all"];
        args.extend(rules.split(' '));
        assert_eq!(client.ask(&args), "+OK\r\n");
        let settings = settings(&Address::Unix(server.socket()), 1);
        let (user, password) = (Some("limited".to_owned()), Some("pw".to_owned()));
        let refusal = Storage::with(RedisSettings { user, password, ..settings }).until_refused();
        assert!(parts.iter().all(|part| refusal.contains(part)), "{rules}: {refusal}");
    };
    check("-acl", &["ACL WHOAMI", "NOPERM", "+acl +info +client"]);
    check("-acl|setuser", &["ACL SETUSER", "NOPERM", "+acl"]);
    check("-acl|deluser", &["ACL DELUSER", "NOPERM", "+acl"]);
    check("-info", &["INFO server", "NOPERM", "+info"]);
    check("-client|kill", &["CLIENT KILL", "NOPERM", "+client"]);
    check("-ping", &["PING", "NOPERM", "+ping"]);
}

#[test]
fn commands_run_with_the_rules_of_the_configured_user() {
    let Some(server) = Server::start(&[]) else { return };
    let rules = ["ACL", "SETUSER", "app", "on", ">pw", "~app:*", "+@all", "-flushall", "(~log:* +append)"];
    assert_eq!(server.client().ask(&rules), "+OK\r\n");
    let (user, password) = (Some("app".to_owned()), Some("pw".to_owned()));
    let mut storage =
        Storage::with(RedisSettings { user, password, ..settings(&Address::Unix(server.socket()), 1) });
    storage.until_up();
    assert_eq!(storage.ask(RESP2, &["SET", "app:1", "v"]), "+OK\r\n");
    assert_eq!(storage.ask(RESP2, &["APPEND", "log:1", "v"]), ":1\r\n");
    for refused in [&["SET", "other", "v"][..], &["GET", "log:1"], &["FLUSHALL"]] {
        assert!(storage.ask(RESP2, refused).starts_with(b"-NOPERM"), "{refused:?}");
    }
}

#[test]
fn a_blocking_command_has_its_own_connection_and_can_be_given_up() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = Storage::new(&server, 1);
    storage.until_up();
    let blocked = storage.store(PINNED, &[&["BLPOP", "q", "0"]]);
    assert_eq!(storage.ask(RESP2, &["PING"]), "+PONG\r\n");
    assert_eq!(storage.ask(RESP2, &["LPUSH", "q", "x"]), ":1\r\n");
    assert_eq!(storage.replies(blocked), ["*2\r\n$1\r\nq\r\n$1\r\nx\r\n"]);

    let blocked = storage.store(PINNED, &[&["BLPOP", "q", "0"]]);
    let mut client = server.client();
    let is_blocked = |info: Bytes| String::from_utf8_lossy(&info).contains("blocked_clients:1");
    while !is_blocked(client.ask(&["INFO", "clients"])) {
        storage.turn();
    }
    let io = storage.reactor.io();
    let now = io.now();
    let abort = StorageInput::Control { ticket: blocked, control: CommandControl::Abort };
    storage.recorder.backed.step(io, now, abort, &mut storage.recorder.events);
    assert!(storage.until_lost(blocked), "it may have been served while it was given up");
    storage.until_fenced();
    assert_eq!(storage.ask(RESP2, &["LPUSH", "q", "y"]), ":1\r\n");
    assert_eq!(storage.ask(RESP2, &["LLEN", "q"]), ":1\r\n", "nobody takes it any more");
}

#[test]
fn pinned_connections_are_bounded() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = Storage::new(&server, 1);
    storage.until_up();
    let tickets: Vec<u64> = (0..20).map(|_| storage.store(PINNED, &[&["BLPOP", "q", "0"]])).collect();
    assert!(!storage.until_lost(tickets[19]), "it was never sent");
    assert_eq!(storage.ask(RESP2, &["PING"]), "+PONG\r\n");
}

#[test]
fn stopping_takes_the_user_away() {
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = Storage::new(&server, 1);
    storage.until_up();
    assert_eq!(users(&server).len(), 2);
    storage.stop();
    let deadline = Instant::now() + PATIENCE;
    while !all_have_left(&server) {
        assert!(Instant::now() < deadline);
        storage.turn();
    }
}
