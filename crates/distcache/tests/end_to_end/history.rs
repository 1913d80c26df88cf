//! Many clients on a few hot keys, and whether what they read can have happened. Not what goes wrong meanwhile.
//!
//! Every value only grows, so two bounds catch a stale or invented read: a read that began after some value was
//! acknowledged or read shows at least that, and none shows more than was sent. Texts also agree byte by byte.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng};
use wire::resp::Value;

use crate::cluster::{Client, text, until};

/// Writers rest so long between two writes; write-hot keys would leave the cache.
const REST: Duration = Duration::from_millis(5);
/// APPEND adds this many bytes at a time, and starts on a new key at the second size.
const PIECE: usize = 4;
const TEXT_BYTES_MAX: u64 = 8000;

/// What a client that may change its router is told in place of a reply, once for each router that it has lost.
pub(crate) const ROUTER_LOST: &str = "its router was lost";

/// A client at one of the routers.
struct Seat {
    client: Client,
    routers: Vec<SocketAddr>,
    at: usize,
    /// It goes on at the next router when its own is lost, and fails the test otherwise.
    roams: bool,
}

impl Seat {
    fn call(&mut self, arguments: &[&str]) -> Value {
        if !self.roams {
            return self.client.call(arguments);
        }
        match self.client.ask(arguments) {
            Ok(frame) => Value::parse(&frame).expect("RESP"),
            Err(_) => {
                self.client = until("a router takes it", || {
                    self.at = (self.at + 1) % self.routers.len();
                    Client::try_tcp(self.routers[self.at]).ok()
                });
                Value::Error(ROUTER_LOST.into())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// INCR, read by GET.
    Counter,
    /// SET to growing values, one writer at a time.
    Register,
    /// APPEND, read by GET, STRLEN and GETRANGE.
    Text,
    /// HINCRBY of one field, read by HGET, HMGET and HGETALL.
    Hash,
}

/// Two of each, so that several servers have some.
const KINDS: [Kind; 8] = [
    Kind::Counter,
    Kind::Register,
    Kind::Text,
    Kind::Hash,
    Kind::Counter,
    Kind::Register,
    Kind::Text,
    Kind::Hash,
];

/// One key in one life; a new life has a new name.
struct Object {
    key: String,
    kind: Kind,
    /// No read can show more.
    sent: AtomicU64,
    /// No later read may show less.
    floor: AtomicU64,
    /// Held while a register is written: writes do not overlap.
    writing: Mutex<()>,
    /// The longest text read.
    longest: Mutex<Vec<u8>>,
}

#[derive(Default)]
struct Tally {
    reads: u64,
    writes: u64,
    longest_write: Duration,
    errors: BTreeMap<String, u64>,
    violations: Vec<String>,
}

struct Shared {
    objects: Vec<Mutex<Arc<Object>>>,
    lives: AtomicU64,
    tally: Mutex<Tally>,
    stop: AtomicBool,
}

/// Clients at work until `finish`.
pub(crate) struct History {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What happened since the last such report.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) reads: u64,
    pub(crate) longest_write: Duration,
    /// Texts of error replies, and how often.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Report {
    /// All errors are among these.
    pub(crate) fn only(&self, allowed: &[&str]) {
        for error in self.errors.keys() {
            assert!(allowed.iter().any(|part| error.contains(part)), "{error:?} in {self:?}");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn object(&self, index: usize) -> Arc<Object> {
        Arc::clone(&lock(&self.objects[index]))
    }

    /// Goes on with a new key, unless somebody else did already.
    fn retire(&self, index: usize, old: &Arc<Object>) {
        let mut object = lock(&self.objects[index]);
        if Arc::ptr_eq(&object, old) {
            *object = self.born(index);
        }
    }

    fn born(&self, index: usize) -> Arc<Object> {
        let (kind, life) = (KINDS[index], self.lives.fetch_add(1, SeqCst));
        Arc::new(Object {
            key: format!("{kind:?}:{index}:{life}"),
            kind,
            sent: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            writing: Mutex::new(()),
            longest: Mutex::new(Vec::new()),
        })
    }

    fn error(&self, message: String) {
        *lock(&self.tally).errors.entry(message).or_default() += 1;
    }

    fn violation(&self, what: String) {
        lock(&self.tally).violations.push(what);
    }

    /// One read of an object in one of its ways.
    fn read(&self, client: &mut Seat, index: usize, way: u32) {
        let object = self.object(index);
        let arguments = object.read(way);
        let floor = object.floor.load(SeqCst);
        let reply = client.call(&arguments);
        self.check(&object, &arguments, floor, &reply);
    }

    fn check(&self, object: &Object, arguments: &[&str], floor: u64, reply: &Value) {
        if let Value::Error(_) = reply {
            return self.error(text(reply));
        }
        let sent = object.sent.load(SeqCst);
        match object.shown(reply) {
            Err(what) => self.violation(format!("{arguments:?}: {what}")),
            Ok(shown) if shown < floor || shown > sent => {
                self.violation(format!("{arguments:?}: read {shown}, which is not in {floor}..={sent}"));
            }
            Ok(shown) => {
                object.floor.fetch_max(shown, SeqCst);
                lock(&self.tally).reads += 1;
            }
        }
    }

    fn write(&self, client: &mut Seat, index: usize) {
        let object = self.object(index);
        let _alone = (object.kind == Kind::Register).then(|| lock(&object.writing));
        let started = Instant::now();
        let grown = match object.kind {
            Kind::Text => PIECE as u64,
            Kind::Counter | Kind::Register | Kind::Hash => 1,
        };
        let number = object.sent.fetch_add(grown, SeqCst) + grown;
        let value = number.to_string();
        let arguments: &[&str] = match object.kind {
            Kind::Counter => &["INCR", &object.key],
            Kind::Register => &["SET", &object.key, &value],
            Kind::Text => &["APPEND", &object.key, &format!("{:04}", number / PIECE as u64 % 10_000)],
            Kind::Hash => &["HINCRBY", &object.key, "n", "1"],
        };
        let acknowledged = match client.call(arguments) {
            Value::Integer(result) if object.kind != Kind::Register => result as u64,
            Value::Simple(_) => number,
            reply => {
                self.error(text(&reply));
                if object.kind == Kind::Register {
                    // It may still happen, after a later write even: nothing can be said about this key any more.
                    self.retire(index, &object);
                }
                return;
            }
        };
        object.floor.fetch_max(acknowledged, SeqCst);
        let mut tally = lock(&self.tally);
        tally.writes += 1;
        tally.longest_write = tally.longest_write.max(started.elapsed());
        drop(tally);
        if object.kind == Kind::Text && acknowledged > TEXT_BYTES_MAX {
            self.retire(index, &object);
        }
    }
}

impl Object {
    fn read(&self, way: u32) -> Vec<&str> {
        let key = self.key.as_str();
        match (self.kind, way % 4) {
            (Kind::Counter | Kind::Register, _) | (Kind::Text, 0 | 1) => vec!["GET", key],
            (Kind::Text, 2) => vec!["STRLEN", key],
            (Kind::Text, _) => vec!["GETRANGE", key, "0", "-1"],
            (Kind::Hash, 0) => vec!["HGETALL", key],
            (Kind::Hash, 1) => vec!["HMGET", key, "n", "none"],
            (Kind::Hash, _) => vec!["HGET", key, "n"],
        }
    }

    /// How far the value has grown, as a reply shows it.
    fn shown(&self, reply: &Value) -> Result<u64, String> {
        let odd = || format!("an odd reply: {reply:?}");
        match reply {
            Value::Null => Ok(0),
            Value::Integer(length) => Ok(*length as u64),
            Value::Bulk(bytes) if self.kind == Kind::Text => {
                let mut longest = lock(&self.longest);
                let common = longest.len().min(bytes.len());
                if longest[..common] != bytes[..common] {
                    return Err(format!("{bytes:?} is no continuation of what was read before"));
                }
                if bytes.len() > longest.len() {
                    *longest = bytes.to_vec();
                }
                Ok(bytes.len() as u64)
            }
            Value::Bulk(bytes) => {
                std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or_else(odd)
            }
            // HGETALL names the field before its value, HMGET puts a nil behind it.
            Value::Array(values) => match values.as_slice() {
                [] => Ok(0),
                [Value::Bulk(name), value] if name == "n" => self.shown(value),
                [value, Value::Null] => self.shown(value),
                _ => Err(odd()),
            },
            _ => Err(odd()),
        }
    }
}

impl History {
    /// Starts readers and writers, dealt to the routers in turn.
    pub(crate) fn start(routers: &[SocketAddr], readers: usize, writers: usize) -> History {
        History::begin(routers, readers, writers, false)
    }

    /// As `start`, with clients that know all routers and go on at the next one when theirs is lost.
    pub(crate) fn roaming(routers: &[SocketAddr], readers: usize, writers: usize) -> History {
        History::begin(routers, readers, writers, true)
    }

    fn begin(routers: &[SocketAddr], readers: usize, writers: usize, roams: bool) -> History {
        let mut shared = Shared {
            objects: Vec::new(),
            lives: AtomicU64::new(0),
            tally: Mutex::default(),
            stop: AtomicBool::new(false),
        };
        shared.objects = (0..KINDS.len()).map(|index| Mutex::new(shared.born(index))).collect();
        let shared = Arc::new(shared);
        let threads = (0..readers + writers).map(|number| {
            let shared = Arc::clone(&shared);
            let at = number % routers.len();
            let mut client = Seat { client: Client::tcp(routers[at]), routers: routers.to_vec(), at, roams };
            let mut random = SmallRng::seed_from_u64(number as u64);
            std::thread::spawn(move || {
                while !shared.stop.load(SeqCst) {
                    let index = random.random_range(0..KINDS.len());
                    if number < readers {
                        shared.read(&mut client, index, random.random());
                    } else {
                        shared.write(&mut client, index);
                        std::thread::park_timeout(REST);
                    }
                }
            })
        });
        let threads = threads.collect();
        History { shared, threads }
    }

    /// Until so many more reads and writes were answered well.
    pub(crate) fn wait_for(&self, reads: u64, writes: u64) {
        let (read, written) = self.counts();
        until(&format!("{reads} more reads and {writes} more writes"), || {
            let dead = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!dead, "a client has lost its connection");
            let (read_now, written_now) = self.counts();
            (read_now >= read + reads && written_now >= written + writes).then_some(())
        });
    }

    /// The same, and nothing has failed since the last report; `what` is to be said if something has.
    pub(crate) fn wait_without_errors(&self, reads: u64, writes: u64, what: &str) {
        self.wait_for(reads, writes);
        let report = self.report();
        assert!(report.errors.is_empty(), "{what}: {report:?}");
    }

    /// Until every key was written once more by one of these clients.
    pub(crate) fn wait_for_each_key(&self) {
        let before: Vec<Arc<Object>> = (0..KINDS.len()).map(|index| self.shared.object(index)).collect();
        let floors: Vec<u64> = before.iter().map(|object| object.floor.load(SeqCst)).collect();
        until("every key was written again", || {
            let mut all = before.iter().zip(&floors).enumerate();
            all.all(|(index, (object, floor))| {
                let now = self.shared.object(index);
                let least = if Arc::ptr_eq(&now, object) { *floor } else { 0 };
                now.floor.load(SeqCst) > least
            })
            .then_some(())
        });
    }

    /// Until an error reply contains `part`.
    pub(crate) fn wait_for_error(&self, part: &str) {
        until(&format!("an error about {part:?}"), || {
            lock(&self.shared.tally).errors.keys().any(|error| error.contains(part)).then_some(())
        });
    }

    /// The names of the keys that are in use now.
    pub(crate) fn keys(&self) -> Vec<String> {
        (0..KINDS.len()).map(|index| self.shared.object(index).key.clone()).collect()
    }

    fn counts(&self) -> (u64, u64) {
        let tally = lock(&self.shared.tally);
        (tally.reads, tally.writes)
    }

    /// Sends reads of every key now, and returns them unanswered. What they may show is fixed by this moment.
    pub(crate) fn reads_in_flight(&self, routers: &[SocketAddr], clients: usize) -> InFlight {
        let clients = (0..clients).map(|number| {
            let mut client = Client::tcp(routers[number % routers.len()]);
            let asked = (0..KINDS.len()).map(|index| {
                let object = self.shared.object(index);
                let floor = object.floor.load(SeqCst);
                let command = wire::resp::Command::from_args(&object.read(0));
                client.write(command.frame()).expect("the router reads");
                (object, floor)
            });
            let asked = asked.collect();
            (client, asked)
        });
        InFlight(clients.collect())
    }

    /// What happened since the last report.
    pub(crate) fn report(&self) -> Report {
        let tally = std::mem::take(&mut *lock(&self.shared.tally));
        assert!(tally.violations.is_empty(), "{:#?}", tally.violations);
        Report { reads: tally.reads, longest_write: tally.longest_write, errors: tally.errors }
    }

    /// Stops the clients. Fails the test if any read was impossible.
    pub(crate) fn finish(mut self) -> Report {
        self.stop()
    }

    /// As `finish`, for a test that keeps it.
    pub(crate) fn stop(&mut self) -> Report {
        self.shared.stop.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok(), "a client has lost its connection");
        }
        self.report()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
    }
}

/// An object that was asked for and what its value had grown to by then.
type Asked = (Arc<Object>, u64);

/// Each client with what it has asked for.
pub(crate) struct InFlight(Vec<(Client, Vec<Asked>)>);

impl InFlight {
    pub(crate) fn check(self, history: &History) {
        for (mut client, asked) in self.0 {
            for (object, floor) in asked {
                let frame = client.frame().expect("an answer");
                let reply = Value::parse(&frame).expect("RESP");
                history.shared.check(&object, &["in flight", &object.key], floor, &reply);
            }
        }
    }
}
