//! One connection to Redis as this incarnation's user: a greeting, then commands, first in first out. No sockets.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use wire::resp::{Command, PartScanner, ProtocolError, ReplyScanner, Value};

use super::NOBODYS_TICKET;
use super::takeover::Incarnation;
use crate::shards::unblocked;
use crate::storage::{LARGE_REPLY_BYTES, Lane, PING, Reach, StorageEvent, Store};
use crate::time::Time;

/// How long a server that says BUSY or LOADING is left alone before it is asked again.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// HELLO is not answered yet.
    Greeting,
    /// A PING says whether the server serves commands.
    Probing,
    /// It does not now; ask again then.
    Resting {
        until: Time,
    },
    Open,
}

/// What a server says without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listens {
    /// What is published. Other pushes are answers: subscriptions are confirmed so.
    Topics,
    /// What has changed.
    Changes,
    /// What has changed of that which was read on the shared connections behind CLIENT CACHING YES.
    ReadChanges,
}

/// A store whose replies are not complete.
struct Awaited {
    ticket: u64,
    missing: usize,
    sent: Time,
    /// Where its bytes start in all that was ever written.
    start: u64,
    /// It walks all keys of the server, which does nothing else meanwhile.
    walks: bool,
    replies: SmallVec<[Bytes; 2]>,
}

/// What becomes of the reply that comes now.
enum Flow {
    /// It is kept until it is whole. `told`: that it is large.
    Whole { told: bool },
    /// Nobody wants it.
    Skipped(PartScanner),
    /// It is handed on in parts, as long as so many bytes more may be; what is read at once goes at once. `held`: there is
    /// more than may be handed on, though the window may have some bytes left. The length of a string is not cut in two.
    Parts { scanner: PartScanner, window: i64, held: bool },
}

/// Why a line is of no use any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The incarnation's user is gone.
    UserGone,
    Refused(String),
    Broken(String),
}

pub(super) struct Line {
    resp3: bool,
    /// It is the incarnation's own user, which goes when another one comes.
    has_user: bool,
    /// What pushes are for, if for anything.
    listens: Option<Listens>,
    phase: Phase,
    /// Known once commands may be sent.
    client: Option<u64>,
    scanner: ReplyScanner,
    flow: Flow,
    awaited: VecDeque<Awaited>,
    waiting: VecDeque<Store>,
    written: u64,
    /// When it was made, or last heard of.
    heard: Time,
    /// A reply was of the kind that only a replica gives.
    suspicion: bool,
    /// Nothing more is sent on it, and what it has is to end as by its time-out or, if true, by an error.
    retired: Option<bool>,
    /// It is the one on which scripts run.
    runs_scripts: bool,
    /// It watches keys under this number, for one client.
    watch: Option<u64>,
    /// The connection on which changes of what it reads are reported, by its client id.
    reports_to: Option<u64>,
}

impl Line {
    pub(super) fn new(now: Time, resp3: bool, incarnation: &Incarnation, out: &mut Vec<u8>) -> Line {
        let version = if resp3 { "3" } else { "2" };
        let login = incarnation.password.iter().flat_map(|password| ["AUTH", &incarnation.user, password]);
        let hello: Vec<&str> =
            ["HELLO", version].into_iter().chain(login).chain(["SETNAME", "distcache-shim"]).collect();
        let hello = Command::from_args(&hello);
        out.extend_from_slice(hello.frame());
        Line {
            resp3,
            has_user: incarnation.has_user,
            listens: None,
            phase: Phase::Greeting,
            client: None,
            scanner: ReplyScanner::new(),
            flow: Flow::Whole { told: false },
            awaited: VecDeque::new(),
            waiting: VecDeque::new(),
            written: hello.frame().len() as u64,
            heard: now,
            suspicion: false,
            retired: None,
            runs_scripts: false,
            watch: None,
            reports_to: None,
        }
    }

    /// A line for what the server says on its own.
    pub(super) fn listening(
        now: Time,
        listens: Listens,
        incarnation: &Incarnation,
        out: &mut Vec<u8>,
    ) -> Line {
        Line { listens: Some(listens), ..Line::new(now, true, incarnation, out) }
    }

    pub(super) fn watch(&self) -> Option<u64> {
        self.watch
    }

    /// The number under which the server has this connection, once commands may be sent.
    pub(super) fn client(&self) -> Option<u64> {
        self.client.filter(|_| self.is_open())
    }

    pub(super) fn reports_to(&self, client: u64) -> bool {
        self.reports_to == Some(client)
    }

    /// From here on, changes of what is read behind CLIENT CACHING YES are reported to this client.
    pub(super) fn report_to(&mut self, now: Time, client: u64, out: &mut Vec<u8>) {
        self.reports_to = Some(client);
        if self.is_open() {
            self.track_reads(now, out);
        }
    }

    fn track_reads(&mut self, now: Time, out: &mut Vec<u8>) {
        let Some(client) = self.reports_to else { return };
        let client = client.to_string();
        let command =
            Command::from_args(&["CLIENT", "TRACKING", "ON", "REDIRECT", &client, "OPTIN", "NOLOOP"]);
        let commands = SmallVec::from_elem(command.frame().clone(), 1);
        let (lane, reach) = (Lane::Shared { resp3: self.resp3 }, Reach::Whole);
        self.store(now, Store { ticket: NOBODYS_TICKET, lane, reach, commands }, out);
    }

    pub(super) fn set_watch(&mut self, number: Option<u64>) {
        self.watch = number;
    }

    /// Whether the server seems to have become a replica since this was asked last.
    pub(super) fn take_suspicion(&mut self) -> bool {
        std::mem::take(&mut self.suspicion)
    }

    pub(super) fn is_resp3(&self) -> bool {
        self.resp3
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_open()
            && self.awaited.is_empty()
            && self.watch.is_none()
            && !self.runs_scripts
            && self.retired.is_none()
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.is_some()
    }

    pub(super) fn retire(&mut self, error: bool) {
        self.retired = Some(error);
    }

    /// What the server has to be told to end what it has of a retired line. What it has not got yet ends here.
    pub(super) fn end_retired(&mut self, events: &mut Vec<StorageEvent>) -> Option<Command> {
        let error = self.retired?;
        for store in self.waiting.drain(..) {
            let replies = store.commands.iter().map(|_| unblocked(error, self.resp3)).collect();
            events.push(StorageEvent::Replies { ticket: store.ticket, replies });
        }
        let client = self.client.filter(|_| !self.awaited.is_empty())?.to_string();
        Some(Command::from_args(&["CLIENT", "UNBLOCK", &client, if error { "ERROR" } else { "TIMEOUT" }]))
    }

    pub(super) fn runs_scripts(&self) -> bool {
        self.runs_scripts
    }

    pub(super) fn set_runs_scripts(&mut self) {
        self.runs_scripts = true;
    }

    pub(super) fn pending_count(&self) -> usize {
        self.awaited.len() + self.waiting.len()
    }

    pub(super) fn holds(&self, ticket: u64) -> bool {
        self.awaited.iter().any(|awaited| awaited.ticket == ticket)
            || self.waiting.iter().any(|store| store.ticket == ticket)
    }

    /// Writes the commands, or keeps them until the line is open.
    pub(super) fn store(&mut self, now: Time, store: Store, out: &mut Vec<u8>) {
        if !self.is_open() {
            self.waiting.push_back(store);
            return;
        }
        self.awaited.push_back(Awaited {
            ticket: store.ticket,
            missing: store.commands.len(),
            sent: now,
            start: self.written,
            walks: store.commands.iter().any(|command| walks_all_keys(command)),
            replies: SmallVec::new(),
        });
        for command in &store.commands {
            out.extend_from_slice(command);
            self.written += command.len() as u64;
        }
    }

    /// Takes whole replies off `bytes`; what is left comes again with more behind it.
    pub(super) fn data(
        &mut self,
        now: Time,
        bytes: &mut Bytes,
        out: &mut Vec<u8>,
        events: &mut Vec<StorageEvent>,
    ) -> Result<(), Fault> {
        self.heard = now;
        loop {
            if !matches!(self.flow, Flow::Whole { .. }) && !self.flow_on(bytes, events)? {
                return Ok(());
            }
            let scanned = self.scanner.scan(bytes).map_err(broken)?;
            let come = scanned.unwrap_or(bytes.len());
            let told = self.tell_if_large(&bytes[..come], events);
            let Some(len) = scanned.filter(|_| !told) else { return Ok(()) };
            self.flow = Flow::Whole { told: false };
            let reply = bytes.split_to(len);
            if self.phase != Phase::Open {
                self.greeted(now, &reply, out)?;
            } else if reply[0] != b'>' {
                self.answered(reply, events)?;
            } else {
                match self.listens {
                    Some(Listens::Topics) if is_published(&reply) => {
                        events.push(StorageEvent::Published(reply));
                    }
                    Some(Listens::Topics) => self.answered(reply, events)?,
                    Some(Listens::Changes) => events.push(StorageEvent::Changed(reply)),
                    Some(Listens::ReadChanges) => events.push(StorageEvent::ReadChanged(reply)),
                    None => {}
                }
            }
        }
    }

    /// Says once that a reply is large, if it is somebody's last one. Even if all of it has come: whether it is large must
    /// not depend on how fast it came. It waits then for what is decided about it.
    fn tell_if_large(&mut self, come: &[u8], events: &mut Vec<StorageEvent>) -> bool {
        let Flow::Whole { told } = &mut self.flow else { return false };
        if come.len() <= LARGE_REPLY_BYTES || *told || self.phase != Phase::Open || come[0] == b'>' {
            return false;
        }
        let first = self.awaited.front().filter(|first| first.missing == 1);
        if let Some(first) = first {
            *told = true;
            events.push(StorageEvent::Large { ticket: first.ticket });
        }
        *told
    }

    /// Whether what has come may hold a reply that waits for what is decided about it.
    pub(super) fn has_told(&self) -> bool {
        matches!(self.flow, Flow::Whole { told: true })
    }

    /// Skips or hands on what has come of a large reply. Whether it is over and the next one may be looked at.
    fn flow_on(&mut self, bytes: &mut Bytes, events: &mut Vec<StorageEvent>) -> Result<bool, Fault> {
        let ended = match &mut self.flow {
            Flow::Whole { .. } => return Ok(true),
            Flow::Skipped(scanner) => {
                let taken = scanner.take(bytes).map_err(broken)?;
                bytes.advance(taken);
                scanner.is_ended()
            }
            Flow::Parts { window, .. } if *window <= 0 => return Ok(false),
            Flow::Parts { scanner, window, held } => {
                let most = usize::try_from(*window).map_or(usize::MAX, |most| most.min(bytes.len()));
                let taken = scanner.take(&bytes[..most]).map_err(broken)?;
                *window -= taken as i64;
                *held = most < bytes.len();
                let (part, last) = (bytes.split_to(taken), scanner.is_ended());
                if let Some(first) = self.awaited.front().filter(|_| taken > 0) {
                    events.push(StorageEvent::Part { ticket: first.ticket, bytes: part, last });
                }
                last
            }
        };
        if ended {
            self.awaited.pop_front();
            self.scanner = ReplyScanner::new();
            self.flow = Flow::Whole { told: false };
        }
        Ok(ended)
    }

    /// What comes of this reply, which was told to be large, is thrown away. Whether it is this line's.
    pub(super) fn skip(&mut self, ticket: u64) -> bool {
        let own = self.is_told_of(ticket);
        if own {
            self.flow = Flow::Skipped(PartScanner::default());
        }
        own
    }

    /// So much more of this reply, which was told to be large, may be handed on. Whether it is this line's.
    pub(super) fn take(&mut self, ticket: u64, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let own = self.is_told_of(ticket);
        if own {
            self.flow = Flow::Parts { scanner: PartScanner::default(), window: bytes, held: false };
            return true;
        }
        let first = self.awaited.front().filter(|first| first.ticket == ticket);
        match &mut self.flow {
            Flow::Parts { window, held, .. } if first.is_some() => {
                *window = window.saturating_add(bytes);
                *held &= *window <= 0;
                true
            }
            _ => false,
        }
    }

    fn is_told_of(&self, ticket: u64) -> bool {
        let first = self.awaited.front().filter(|first| first.ticket == ticket);
        matches!(self.flow, Flow::Whole { told: true }) && first.is_some()
    }

    /// Whether it has handed on all that may be for now: nothing more is to be read before `take`.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.flow, Flow::Parts { window, held, .. } if window <= 0 || held)
    }

    fn answered(&mut self, reply: Bytes, events: &mut Vec<StorageEvent>) -> Result<(), Fault> {
        let Some(first) = self.awaited.front_mut() else {
            return Err(Fault::Broken("a reply came that nothing had asked for".to_owned()));
        };
        self.suspicion |= reply.starts_with(b"-READONLY ") || reply.starts_with(b"-MASTERDOWN ");
        first.replies.push(reply);
        first.missing -= 1;
        if first.missing == 0 {
            let replies = std::mem::take(&mut first.replies);
            events.push(StorageEvent::Replies { ticket: first.ticket, replies });
            self.awaited.pop_front();
        }
        Ok(())
    }

    fn greeted(&mut self, now: Time, reply: &Bytes, out: &mut Vec<u8>) -> Result<(), Fault> {
        let value = Value::parse(reply).map_err(|error| Fault::Broken(error.to_string()))?;
        if let Value::Error(text) = &value {
            return self.not_greeted(now, &String::from_utf8_lossy(text));
        }
        if self.phase == Phase::Greeting {
            let client = client_id(&value);
            self.client =
                Some(client.ok_or_else(|| Fault::Broken("HELLO was answered without an id".into()))?);
            self.phase = Phase::Probing;
            self.probe(out);
            return Ok(());
        }
        self.phase = Phase::Open;
        self.track_reads(now, out);
        for store in std::mem::take(&mut self.waiting) {
            self.store(now, store, out);
        }
        Ok(())
    }

    fn not_greeted(&mut self, now: Time, error: &str) -> Result<(), Fault> {
        let code = error.split(' ').next().unwrap_or_default();
        match code {
            "WRONGPASS" | "NOAUTH" if self.has_user => Err(Fault::UserGone),
            "BUSY" | "LOADING" | "MASTERDOWN" if self.phase == Phase::Probing => {
                self.phase = Phase::Resting { until: now.after(PROBE_INTERVAL) };
                Ok(())
            }
            "NOPERM" if self.phase == Phase::Probing => {
                Err(Fault::Refused(format!("PING: {error}: give the storage user +ping")))
            }
            "NOPERM" | "WRONGPASS" | "NOAUTH" => {
                Err(Fault::Refused(format!("HELLO: {error}: give the storage user +hello")))
            }
            _ => Err(Fault::Broken(error.to_owned())),
        }
    }

    fn probe(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&PING);
        self.written += PING.len() as u64;
    }

    /// Asks a server again that did not serve commands when it was asked last.
    pub(super) fn probe_again(&mut self, out: &mut Vec<u8>) {
        self.phase = Phase::Probing;
        self.probe(out);
    }

    /// Whether `probe_again` is due.
    pub(super) fn is_rested(&self, now: Time) -> bool {
        matches!(self.phase, Phase::Resting { until } if now >= until)
    }

    /// Whether the server may be silent because it walks all its keys for this line.
    pub(super) fn walks(&self) -> bool {
        self.awaited.iter().any(|awaited| awaited.walks)
    }

    /// Whether something has been awaited for longer than `timeout` without a sign of life.
    pub(super) fn overdue(&self, now: Time, timeout: Duration) -> bool {
        let waits_since = match self.phase {
            Phase::Resting { .. } => return false,
            Phase::Greeting | Phase::Probing => self.heard,
            Phase::Open => match self.awaited.front() {
                Some(first) => first.sent.max(self.heard),
                None => return false,
            },
        };
        now.since(waits_since) > timeout
    }

    /// The connection is gone, with `unwritten` bytes that the kernel never got. The client id is given if the
    /// server may hold commands that it has not executed: then it has to be fenced.
    pub(super) fn lose(self, unwritten: usize, events: &mut Vec<StorageEvent>) -> Option<u64> {
        let reached = self.written - (unwritten as u64).min(self.written);
        let mut unknown = false;
        // What is being answered has been carried out.
        let answering = !matches!(self.flow, Flow::Whole { .. });
        for (index, awaited) in self.awaited.into_iter().enumerate() {
            let sent = awaited.start < reached;
            unknown |= sent && !(answering && index == 0);
            if index == 0 && matches!(self.flow, Flow::Skipped(_)) {
                continue;
            }
            events.push(StorageEvent::Lost { ticket: awaited.ticket, sent });
        }
        let unsent = |store: Store| StorageEvent::Lost { ticket: store.ticket, sent: false };
        events.extend(self.waiting.into_iter().map(unsent));
        self.client.filter(|_| unknown)
    }
}

fn broken(error: ProtocolError) -> Fault {
    Fault::Broken(error.to_string())
}

/// Whether a command takes as long as the server has keys.
fn walks_all_keys(frame: &[u8]) -> bool {
    // Few arguments and a short name: nothing has to be searched for in the frames of all others.
    let [b'*', _, b'\r', b'\n', b'$', _, b'\r', b'\n', name @ ..] = frame else { return false };
    let names: [&[u8]; 3] = [b"KEYS\r", b"FLUSHALL\r", b"FLUSHDB\r"];
    names.iter().any(|walks| name.get(..walks.len()).is_some_and(|name| name.eq_ignore_ascii_case(walks)))
}

/// Whether a push is a message, not the confirmation of a subscription.
fn is_published(push: &[u8]) -> bool {
    let Some(at) = push.iter().position(|&byte| byte == b'\n') else { return false };
    let word = &push[at + 1..];
    [&b"$7\r\nmessage\r\n"[..], b"$8\r\npmessage\r\n", b"$8\r\nsmessage\r\n"]
        .iter()
        .any(|kind| word.starts_with(kind))
}

/// The `id` in HELLO's reply, a map that RESP2 writes as a flat array.
fn client_id(hello: &Value) -> Option<u64> {
    let is_id = |value: &Value| value.bytes().is_some_and(|name| name.as_ref() == b"id");
    let id = match hello {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| is_id(name)).map(|(_, id)| id),
        Value::Array(flat) => flat.chunks_exact(2).find(|pair| is_id(&pair[0])).map(|pair| &pair[1]),
        _ => None,
    };
    match id {
        Some(Value::Integer(id)) => u64::try_from(*id).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
