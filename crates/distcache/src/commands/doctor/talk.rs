//! Short conversations with many servers at once: connect, say something, hear the answer, hang up. Not what is said.

use std::time::Duration;

use bytes::Bytes;
use config::Address;
use protocol::placement::agreement::Agreement;
use runtime::peers::frame::{Channel, PeerHello};
use runtime::peers::handshake::{Handshake, LinkKey};
use runtime::reactor::{ConnectionId, Driver, Event, Io, Reactor};
use runtime::tls::Dialer;
use wire::foreign::speaks;
use wire::resp::{Command, ReplyScanner, Value};
use wire::{LEVELS, Peer, RouterId};

/// Ids of client libraries, which the doctor is one of: it must not take a router's place.
const LIBRARY_FIRST: u16 = 1 << 15;

/// What to say to whom.
pub(super) struct ProbeQuestion {
    pub(super) address: Address,
    pub(super) tls: Option<Dialer>,
    pub(super) speech: ProbeProtocol,
}

pub(super) enum ProbeProtocol {
    /// Commands in RESP; a reply for each.
    Redis(Vec<Command>),
    /// A request in memcached's text, and what its answer ends with.
    Memcached(String, &'static str),
    /// The proof of the cluster's secret, to this member, and of what this configuration says of where data are.
    Link { key: LinkKey, peer: Peer, agreement: Agreement },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ProbeAnswer {
    Values(Vec<Value>),
    Text(String),
    /// Both ends have proven the secret.
    Proven,
}

/// The answers, in the order of the questions; an error says why there is none. It takes at most `patience`.
pub(super) fn ask(
    questions: Vec<ProbeQuestion>,
    patience: Duration,
) -> std::io::Result<Vec<Result<ProbeAnswer, String>>> {
    let mut io = Io::new()?;
    let deadline = io.now().after(patience);
    let talks = questions.into_iter().map(|question| Talk::start(&mut io, question)).collect();
    let mut talks = Talks(talks);
    let mut reactor = Reactor::new(io);
    while talks.0.iter().any(|talk| talk.outcome.is_none()) && reactor.io().now() < deadline {
        reactor.turn(&mut talks, None)?;
    }
    let silence = |talk: Talk| {
        let what = if talk.connected { "connected, but no answer" } else { "no connection" };
        let seconds = patience.as_secs_f64();
        talk.outcome.unwrap_or_else(|| Err(format!("{what} within {seconds} s")))
    };
    Ok(talks.0.into_iter().map(silence).collect())
}

struct Talks(Vec<Talk>);

struct Talk {
    id: ConnectionId,
    encrypted: bool,
    connected: bool,
    heard: bool,
    said: Vec<u8>,
    speech: Listening,
    outcome: Option<Result<ProbeAnswer, String>>,
}

/// What is still to come.
enum Listening {
    Redis { scanner: ReplyScanner, values: Vec<Value>, count: usize },
    Memcached(&'static str),
    Link(Box<Handshake>),
}

impl Talk {
    fn start(io: &mut Io, question: ProbeQuestion) -> Talk {
        let id = io.dial_tls(&question.address, question.tls.as_ref());
        let mut said = Vec::new();
        let speech = match question.speech {
            ProbeProtocol::Redis(commands) => {
                commands.iter().for_each(|command| said.extend_from_slice(command.frame()));
                Listening::Redis { scanner: ReplyScanner::new(), values: Vec::new(), count: commands.len() }
            }
            ProbeProtocol::Memcached(request, end) => {
                said.extend_from_slice(request.as_bytes());
                Listening::Memcached(end)
            }
            ProbeProtocol::Link { key, peer, agreement } => {
                let own = PeerHello {
                    place: 0,
                    peer: Peer::Router(RouterId(rand::random_range(LIBRARY_FIRST..=u16::MAX))),
                    channel: Channel::Control,
                    instance: rand::random(),
                    attempt: rand::random(),
                    nonce: rand::random(),
                    agreement,
                    levels: LEVELS,
                };
                Listening::Link(Box::new(Handshake::dial(&key, own, peer, &mut said)))
            }
        };
        let encrypted = question.tls.is_some();
        Talk { id, encrypted, connected: false, heard: false, said, speech, outcome: None }
    }

    fn end(&mut self, io: &mut Io, outcome: Result<ProbeAnswer, String>) {
        self.outcome = Some(outcome);
        io.close(self.id);
    }

    fn data(&mut self, io: &mut Io, mut bytes: Bytes) {
        let first = (!self.heard).then(|| speaks(&bytes)).flatten();
        let mut said = Vec::new();
        let outcome = match &mut self.speech {
            Listening::Redis { scanner, values, count } => redis(scanner, values, *count, &mut bytes)
                .map_err(|error| {
                    first.map_or(error, |foreign| format!("RESP expected, this speaks {foreign}"))
                }),
            Listening::Memcached(end) => {
                let text = String::from_utf8_lossy(&bytes);
                let whole = ["ERROR\r\n", *end].iter().any(|end| text.ends_with(end));
                match first.filter(|foreign| *foreign != wire::foreign::Foreign::Memcached) {
                    Some(foreign) => {
                        Err(format!("memcached's text protocol expected, this speaks {foreign}"))
                    }
                    None => Ok(whole.then(|| ProbeAnswer::Text(text.into_owned()))),
                }
            }
            Listening::Link(handshake) => match handshake.step(&mut bytes, &mut said) {
                Ok(proven) => Ok(proven.map(|_| ProbeAnswer::Proven)),
                Err(refusal) => Err(refusal.to_string()),
            },
        };
        io.out(self.id).extend_from_slice(&said);
        match outcome {
            Ok(None) => {
                // What was understood of RESP is kept; the others need it all again.
                self.heard |= matches!(&self.speech, Listening::Redis { values, .. } if !values.is_empty());
                io.unread(self.id, bytes);
            }
            Ok(Some(answer)) => self.end(io, Ok(answer)),
            Err(error) => self.end(io, Err(error)),
        }
    }

    fn closed(&mut self, error: Option<String>) {
        let reason = error.unwrap_or_else(|| "the server closed the connection".to_owned());
        let mute = self.connected && !self.heard && !self.encrypted;
        let hint = if mute { " before it answered; is TLS spoken there?" } else { "" };
        self.outcome = Some(Err(format!("{reason}{hint}")));
    }
}

fn redis(
    scanner: &mut ReplyScanner,
    values: &mut Vec<Value>,
    count: usize,
    bytes: &mut Bytes,
) -> Result<Option<ProbeAnswer>, String> {
    while let Some(len) = scanner.scan(bytes).map_err(|error| error.to_string())? {
        let reply = bytes.split_to(len);
        values.push(Value::parse(&reply).map_err(|error| error.to_string())?);
        if values.len() == count {
            return Ok(Some(ProbeAnswer::Values(std::mem::take(values))));
        }
    }
    Ok(None)
}

impl Driver for Talks {
    fn event(&mut self, io: &mut Io, event: Event) {
        let id = match &event {
            Event::Connected(id)
            | Event::Data { connection: id, .. }
            | Event::Closed { connection: id, .. } => *id,
            _ => return,
        };
        let Some(talk) = self.0.iter_mut().find(|talk| talk.id == id && talk.outcome.is_none()) else {
            return;
        };
        match event {
            Event::Connected(_) => {
                talk.connected = true;
                let said = std::mem::take(&mut talk.said);
                io.out(id).extend_from_slice(&said);
            }
            Event::Data { bytes, .. } => talk.data(io, bytes),
            Event::Closed { error, .. } => talk.closed(error.map(|error| error.to_string())),
            _ => {}
        }
    }
}
