//! Clients at work: each on a thread of its own, sending pipelines and noting what it saw. Not what goes wrong
//! meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use trace::{Workload, WorkloadRequests};
use wire::resp::{Command, Value};

use super::connection::{JepsenConnection, Speech, outcome, settled};
use super::keys::{Begun, JepsenKeyKind, JepsenKeys, KeyLife};
use super::operation::{JepsenAction, JepsenOperation, JepsenOutcome, Wording};

/// Commands of one pipeline.
const PIPELINE_MAX: usize = 10;
/// After an error a client rests, or it would do nothing but fail while something is down.
const REST: Duration = Duration::from_millis(15);
const FIELDS: usize = 3;
/// Registers that a client keeps in mind.
const SEEN_MAX: usize = 1000;
/// How often a client does one compare-and-set instead of a pipeline.
const SWAPS: f64 = 0.1;
/// Different error texts that are counted apart.
const ERRORS_MAX: usize = 40;

/// What all clients share.
pub(super) struct ClientsShared {
    pub(super) keys: JepsenKeys,
    pub(super) speech: Speech,
    pub(super) start: Instant,
    pub(super) stop: AtomicBool,
    pub(super) counts: ClientCounts,
}

#[derive(Default)]
pub(super) struct ClientCounts {
    /// Answered reads and writes.
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) unknown: AtomicU64,
    /// Refused, or reads without an answer.
    pub(super) void: AtomicU64,
    pub(super) longest_write_us: AtomicU64,
    /// Writes that took effect as transactions, behind WATCH and as scripts, among those answered.
    pub(super) transactions: AtomicU64,
    pub(super) swaps: AtomicU64,
    pub(super) scripts: AtomicU64,
    pub(super) errors: Mutex<BTreeMap<String, u64>>,
}

impl ClientCounts {
    pub(super) fn answered(&self) -> u64 {
        self.reads.load(Relaxed) + self.writes.load(Relaxed)
    }

    fn error(&self, text: String) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < ERRORS_MAX || errors.contains_key(&text) {
            *errors.entry(text).or_default() += 1;
        }
    }
}

pub(super) struct JepsenClient {
    shared: Arc<ClientsShared>,
    number: usize,
    /// Tried in turn when one does not answer.
    routers: Vec<SocketAddr>,
    connection: Option<JepsenConnection>,
    connections: usize,
    requests: WorkloadRequests,
    random: SmallRng,
    values: u64,
    /// What was last read from a register or written to it.
    seen: HashMap<String, String>,
}

/// One command on its way, and the operations that it is.
struct SentOperation {
    frame: Vec<u8>,
    /// Commands in it.
    commands: usize,
    wording: Wording,
    operations: Vec<(Begun, JepsenAction)>,
}

impl JepsenClient {
    pub(super) fn new(
        shared: &Arc<ClientsShared>,
        number: usize,
        routers: Vec<SocketAddr>,
        workload: &Workload,
    ) -> anyhow::Result<JepsenClient> {
        Ok(JepsenClient {
            shared: Arc::clone(shared),
            number,
            routers,
            connection: None,
            connections: 0,
            requests: workload.requests(number as u64)?,
            random: SmallRng::seed_from_u64(workload.seed ^ (number as u64) << 32),
            values: 0,
            seen: HashMap::new(),
        })
    }

    /// Until the run stops.
    pub(super) fn work(mut self) {
        while !self.shared.stop.load(Relaxed) {
            if self.connection.is_none() && !self.connect() {
                std::thread::sleep(REST);
                continue;
            }
            let swaps = self.shared.speech == Speech::Redis && self.random.random_bool(SWAPS);
            let well = if swaps { self.swap() } else { self.work_pipeline() };
            if !well {
                std::thread::sleep(REST);
            }
        }
    }

    fn work_pipeline(&mut self) -> bool {
        let pipeline = self.plan();
        self.carry_out(pipeline).is_some()
    }

    /// Reads a register that it watches, and writes it unless it has changed. False if something went wrong.
    fn swap(&mut self) -> bool {
        let place = self.requests.next_request().key as usize;
        let Some(life) = self.shared.keys.registers_beside(place).into_iter().next() else { return true };
        if !self.watch(&life.key) {
            self.connection = None;
            return false;
        }
        let mut last = HashMap::new();
        let Some(read) = self.begin_one(&life, JepsenAction::Get, Wording::Plain, &mut last) else {
            self.connection = None;
            return true;
        };
        let expected = match self.carry_out(vec![read]).as_deref() {
            Some([Value::Bulk(text)]) => Some(String::from_utf8_lossy(text).into_owned()),
            Some([Value::Null]) => None,
            _ => {
                // What it watches would be in the way of its next transaction.
                self.connection = None;
                return false;
            }
        };
        let value = self.value();
        let swap = JepsenAction::Swap(expected, value);
        let Some(swap) = self.begin_one(&life, swap, Wording::Transaction, &mut last) else {
            self.connection = None;
            return true;
        };
        self.carry_out(vec![swap]).is_some()
    }

    /// Whether it is certain that the key is watched.
    fn watch(&mut self, key: &str) -> bool {
        let watch = Command::from_args(&["WATCH", key]);
        self.connection.as_mut().is_some_and(|connection| {
            connection.send(watch.frame()).is_ok() && matches!(connection.receive(), Ok(Value::Simple(_)))
        })
    }

    fn connect(&mut self) -> bool {
        let address = self.routers[self.connections % self.routers.len()];
        self.connections += 1;
        let Ok(mut connection) = JepsenConnection::new(address, self.shared.speech) else { return false };
        // Half of the clients speak RESP3: another view of every hash.
        if self.number % 2 == 1 && self.shared.speech != Speech::Memcached {
            let hello = Command::from_args(&["HELLO", "3"]);
            if connection.send(hello.frame()).is_err() || connection.receive().is_err() {
                return false;
            }
        }
        self.connection = Some(connection);
        true
    }

    /// The next pipeline, noted as begun.
    fn plan(&mut self) -> Vec<SentOperation> {
        let mut last: HashMap<String, usize> = HashMap::new();
        let count = self.random.random_range(1..=PIPELINE_MAX);
        let mut pipeline = Vec::with_capacity(count);
        for _ in 0..count {
            let request = self.requests.next_request();
            let life = self.shared.keys.life(request.key as usize);
            let is_redis = self.shared.speech != Speech::Memcached;
            let several = is_redis && request.write && life.kind == JepsenKeyKind::Register;
            let sent = if several && self.random.random_bool(0.12) {
                self.begin_mset(request.key as usize, &mut last)
            } else {
                let what = match (is_redis, request.write) {
                    (true, true) => self.write(life.kind),
                    (true, false) => self.read(life.kind),
                    (false, true) => self.write_to_memcached(life.kind),
                    (false, false) => JepsenAction::Get,
                };
                let (what, wording) = self.worded(&life.key, what);
                self.begin_one(&life, what, wording, &mut last)
            };
            pipeline.extend(sent);
        }
        pipeline
    }

    fn begin_one(
        &self,
        life: &Arc<KeyLife>,
        what: JepsenAction,
        wording: Wording,
        last: &mut HashMap<String, usize>,
    ) -> Option<SentOperation> {
        let (frame, commands) = self.shared.speech.frames(&what, &life.key, wording)?;
        let begun = self.begin(life, &what, last)?;
        Some(SentOperation { frame, commands, wording, operations: vec![(begun, what)] })
    }

    /// A few writes are transactions or scripts.
    fn worded(&mut self, key: &str, what: JepsenAction) -> (JepsenAction, Wording) {
        let dice = self.random.random_range(0..100);
        match (self.shared.speech, what, dice) {
            (Speech::Memcached, what, _) => (what, Wording::Plain),
            (_, what, _) if what.reads() => (what, Wording::Plain),
            (_, JepsenAction::Incr, 0..10) => (JepsenAction::IncrTwice, Wording::Transaction),
            (_, what, 0..20) => (what, Wording::Transaction),
            (Speech::Redis, JepsenAction::Set(value, None), 20..40) if self.seen.contains_key(key) => {
                (JepsenAction::Swap(self.seen.get(key).cloned(), value), Wording::Script)
            }
            (Speech::Redis, what, 25..35) => (what, Wording::Script),
            (_, what, _) => (what, Wording::Plain),
        }
    }

    fn begin(
        &self,
        life: &Arc<KeyLife>,
        what: &JepsenAction,
        last: &mut HashMap<String, usize>,
    ) -> Option<Begun> {
        let after = last.get(&life.key).copied();
        let operation = JepsenOperation::begun(what.clone(), self.now(), after, self.number);
        let begun = self.shared.keys.begin(life, operation)?;
        last.insert(life.key.clone(), begun.index);
        Some(begun)
    }

    fn begin_mset(&mut self, place: usize, last: &mut HashMap<String, usize>) -> Option<SentOperation> {
        let (mut arguments, mut operations) = (vec!["MSET".to_owned()], Vec::new());
        for life in self.shared.keys.registers_beside(place) {
            let value = self.value();
            let what = JepsenAction::Set(value.clone(), None);
            if let Some(begun) = self.begin(&life, &what, last) {
                arguments.extend([life.key.clone(), value]);
                operations.push((begun, what));
            }
        }
        let frame = Command::from_args(&arguments).frame().to_vec();
        let wording = Wording::Plain;
        (!operations.is_empty()).then_some(SentOperation { frame, commands: 1, wording, operations })
    }

    /// Never the same twice.
    fn value(&mut self) -> String {
        self.values += 1;
        format!("{}.{}", self.number, self.values)
    }

    fn write(&mut self, kind: JepsenKeyKind) -> JepsenAction {
        let dice = self.random.random_range(0..100);
        let ttl = self.random.random_range(100..2000);
        match (kind, dice) {
            (_, 0..6) => JepsenAction::Del,
            (JepsenKeyKind::Counter | JepsenKeyKind::Register, 6..14) => JepsenAction::Pexpire(ttl),
            (JepsenKeyKind::Counter, _) => JepsenAction::Incr,
            (JepsenKeyKind::Register, 14..30) => JepsenAction::Set(self.value(), Some(ttl)),
            (JepsenKeyKind::Register, 30..45) => JepsenAction::Append(self.value()),
            (JepsenKeyKind::Register, _) => JepsenAction::Set(self.value(), None),
            (JepsenKeyKind::Hash, _) => {
                let field = self.field();
                JepsenAction::Hset(field, self.value())
            }
            (JepsenKeyKind::List, 6..50) => JepsenAction::Lpop,
            (JepsenKeyKind::List, _) => JepsenAction::Lpush(self.value()),
            (JepsenKeyKind::Set, 6..50) => JepsenAction::Srem(self.field()),
            (JepsenKeyKind::Set, _) => JepsenAction::Sadd(self.field()),
        }
    }

    /// Nothing expires: memcached's clock ticks once a second, in steps that no model here has.
    fn write_to_memcached(&mut self, kind: JepsenKeyKind) -> JepsenAction {
        let dice = self.random.random_range(0..100);
        match (kind, dice) {
            (_, 0..8) => JepsenAction::Del,
            (JepsenKeyKind::Counter, _) => JepsenAction::Incr,
            (_, 8..20) => JepsenAction::Add(self.value()),
            (_, 20..40) => JepsenAction::Extend(self.value()),
            (_, _) => JepsenAction::Set(self.value(), None),
        }
    }

    fn read(&mut self, kind: JepsenKeyKind) -> JepsenAction {
        let dice = self.random.random_range(0..100);
        match (kind, dice) {
            (JepsenKeyKind::Register, 0..20) => JepsenAction::Strlen,
            (JepsenKeyKind::Register | JepsenKeyKind::Counter, _) => JepsenAction::Get,
            (JepsenKeyKind::Hash, 0..50) => JepsenAction::Hgetall,
            (JepsenKeyKind::Hash, 50..65) => JepsenAction::Hlen,
            (JepsenKeyKind::Hash, _) => JepsenAction::Hget(self.field()),
            (JepsenKeyKind::List, 0..20) => JepsenAction::Llen,
            (JepsenKeyKind::List, _) => JepsenAction::Lrange,
            (JepsenKeyKind::Set, 0..50) => JepsenAction::Smembers,
            (JepsenKeyKind::Set, 50..65) => JepsenAction::Scard,
            (JepsenKeyKind::Set, _) => JepsenAction::Sismember(self.field()),
        }
    }

    fn field(&mut self) -> String {
        format!("f{}", self.random.random_range(0..FIELDS))
    }

    /// Sends a pipeline and takes its replies, those that mean something. None if something went wrong.
    fn carry_out(&mut self, pipeline: Vec<SentOperation>) -> Option<Vec<Value>> {
        let frames: Vec<u8> = pipeline.iter().flat_map(|sent| sent.frame.iter().copied()).collect();
        let mut connection = self.connection.take();
        let mut well = match &mut connection {
            Some(connection) => connection.send(&frames).is_ok(),
            None => false,
        };
        let (mut without_error, mut told) = (true, Vec::new());
        for sent in pipeline {
            let replies: std::io::Result<Vec<Value>> = match &mut connection {
                Some(connection) if well => (0..sent.commands).map(|_| connection.receive()).collect(),
                _ => Err(std::io::ErrorKind::NotConnected.into()),
            };
            match replies {
                Ok(replies) => match settled(&sent.operations[0].1, sent.wording, replies) {
                    Some(reply) => {
                        without_error &= self.told(sent, &reply);
                        told.push(reply);
                    }
                    None => self.undone(sent),
                },
                Err(error) => {
                    if std::mem::replace(&mut well, false) {
                        self.shared.counts.error(format!("client: {:?}", error.kind()));
                    }
                    self.lost(sent);
                }
            }
        }
        if well {
            self.connection = connection;
        }
        (well && without_error).then_some(told)
    }

    /// It was told to have had no effect.
    fn undone(&self, sent: SentOperation) {
        for (begun, _) in sent.operations {
            self.shared.counts.void.fetch_add(1, Relaxed);
            self.shared.keys.end(&begun, self.now(), JepsenOutcome::Void);
        }
    }

    /// False for an error.
    fn told(&mut self, sent: SentOperation, reply: &Value) -> bool {
        self.look(&sent, reply);
        let (now, counts) = (self.now(), &self.shared.counts);
        for (begun, what) in sent.operations {
            let outcome = outcome(&what, reply);
            match &outcome {
                JepsenOutcome::Told(_) if what.reads() => counts.reads.fetch_add(1, Relaxed),
                JepsenOutcome::Told(_) => {
                    match (sent.wording, &what) {
                        (Wording::Plain, _) => 0,
                        (Wording::Transaction, JepsenAction::Swap(..)) => counts.swaps.fetch_add(1, Relaxed),
                        (Wording::Transaction, _) => counts.transactions.fetch_add(1, Relaxed),
                        (Wording::Script, _) => counts.scripts.fetch_add(1, Relaxed),
                    };
                    counts.writes.fetch_add(1, Relaxed)
                }
                JepsenOutcome::Unknown => counts.unknown.fetch_add(1, Relaxed),
                JepsenOutcome::Void | JepsenOutcome::Pending => counts.void.fetch_add(1, Relaxed),
            };
            if let Some(call) = self.shared.keys.end(&begun, now, outcome)
                && !what.reads()
            {
                counts.longest_write_us.fetch_max(now - call, Relaxed);
            }
        }
        let Value::Error(text) = reply else { return true };
        // Without what differs from one reply to the next.
        let text: String =
            String::from_utf8_lossy(text).chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        counts.error(text);
        false
    }

    /// Keeps in mind what a register holds.
    fn look(&mut self, sent: &SentOperation, reply: &Value) {
        let [(begun, what)] = &sent.operations[..] else { return };
        let value = match (what, reply) {
            (JepsenAction::Get, Value::Bulk(text)) => String::from_utf8_lossy(text).into_owned(),
            (JepsenAction::Set(value, _), Value::Simple(_)) => value.clone(),
            _ => return,
        };
        // Most keys of before are over.
        if self.seen.len() > SEEN_MAX {
            self.seen.clear();
        }
        self.seen.insert(begun.life.key.clone(), value);
    }

    fn lost(&self, sent: SentOperation) {
        for (begun, what) in sent.operations {
            let (outcome, count) = match what.reads() {
                true => (JepsenOutcome::Void, &self.shared.counts.void),
                false => (JepsenOutcome::Unknown, &self.shared.counts.unknown),
            };
            count.fetch_add(1, Relaxed);
            self.shared.keys.end(&begun, self.now(), outcome);
        }
    }

    fn now(&self) -> u64 {
        self.shared.start.elapsed().as_micros() as u64
    }
}
