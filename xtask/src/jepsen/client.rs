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

use super::connection::{JepsenConnection, Speech, outcome};
use super::keys::{Begun, JepsenKeyKind, JepsenKeys, KeyLife};
use super::operation::{JepsenAction, JepsenOperation, JepsenOutcome};

/// Commands of one pipeline.
const PIPELINE_MAX: usize = 10;
/// After an error a client rests, or it would do nothing but fail while something is down.
const REST: Duration = Duration::from_millis(15);
const FIELDS: usize = 3;
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
}

/// One command on its way, and the operations that it is.
struct SentOperation {
    frame: Vec<u8>,
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
        })
    }

    /// Until the run stops.
    pub(super) fn work(mut self) {
        while !self.shared.stop.load(Relaxed) {
            if self.connection.is_none() && !self.connect() {
                std::thread::sleep(REST);
                continue;
            }
            let pipeline = self.plan();
            if !self.carry_out(pipeline) {
                std::thread::sleep(REST);
            }
        }
    }

    fn connect(&mut self) -> bool {
        let address = self.routers[self.connections % self.routers.len()];
        self.connections += 1;
        let Ok(mut connection) = JepsenConnection::new(address, self.shared.speech) else { return false };
        // Half of the clients speak RESP3: another view of every hash.
        if self.number % 2 == 1 && self.shared.speech == Speech::Redis {
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
            let is_redis = self.shared.speech == Speech::Redis;
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
                self.begin_one(&life, what, &mut last)
            };
            pipeline.extend(sent);
        }
        pipeline
    }

    fn begin_one(
        &self,
        life: &Arc<KeyLife>,
        what: JepsenAction,
        last: &mut HashMap<String, usize>,
    ) -> Option<SentOperation> {
        let frame = self.shared.speech.frame(&what, &life.key)?;
        let begun = self.begin(life, &what, last)?;
        Some(SentOperation { frame, operations: vec![(begun, what)] })
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
        (!operations.is_empty()).then_some(SentOperation { frame, operations })
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
                let field = format!("f{}", self.random.random_range(0..FIELDS));
                JepsenAction::Hset(field, self.value())
            }
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
            (JepsenKeyKind::Register | JepsenKeyKind::Hash, _) => JepsenAction::Set(self.value(), None),
        }
    }

    fn read(&mut self, kind: JepsenKeyKind) -> JepsenAction {
        let dice = self.random.random_range(0..100);
        match (kind, dice) {
            (JepsenKeyKind::Register, 0..20) => JepsenAction::Strlen,
            (JepsenKeyKind::Register | JepsenKeyKind::Counter, _) => JepsenAction::Get,
            (JepsenKeyKind::Hash, 0..50) => JepsenAction::Hgetall,
            (JepsenKeyKind::Hash, 50..65) => JepsenAction::Hlen,
            (JepsenKeyKind::Hash, _) => {
                JepsenAction::Hget(format!("f{}", self.random.random_range(0..FIELDS)))
            }
        }
    }

    /// Sends a pipeline and takes its replies. False if something went wrong.
    fn carry_out(&mut self, pipeline: Vec<SentOperation>) -> bool {
        let frames: Vec<u8> = pipeline.iter().flat_map(|sent| sent.frame.iter().copied()).collect();
        let mut connection = self.connection.take();
        let mut well = match &mut connection {
            Some(connection) => connection.send(&frames).is_ok(),
            None => false,
        };
        let mut without_error = true;
        for sent in pipeline {
            let reply = match &mut connection {
                Some(connection) if well => connection.receive(),
                _ => Err(std::io::ErrorKind::NotConnected.into()),
            };
            match reply {
                Ok(reply) => without_error &= self.told(sent, &reply),
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
        well && without_error
    }

    /// False for an error.
    fn told(&self, sent: SentOperation, reply: &Value) -> bool {
        let (now, counts) = (self.now(), &self.shared.counts);
        for (begun, what) in sent.operations {
            let outcome = outcome(&what, reply);
            match &outcome {
                JepsenOutcome::Told(_) if what.reads() => counts.reads.fetch_add(1, Relaxed),
                JepsenOutcome::Told(_) => counts.writes.fetch_add(1, Relaxed),
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
