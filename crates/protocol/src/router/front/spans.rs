//! Spans: how single commands went, of a sample of all. Whom each was asked of and for how long, not how that is exported.

use bytes::Bytes;
use rand::{Rng, RngExt};
use wire::Peer;
use wire::resp::Command;

use crate::router::flow::pipeline::{Operation, Progress};
use crate::router::flow::ran::{Heard, Ran};
use crate::router::front::client::Client;
use crate::time::Time;
use commands::CommandSpec;

/// Commands whose spans nobody has taken; what is more is dropped and counted. The driver takes them every few ms.
const DONE_MAX: usize = 4096;
/// Requests of one command that have a span each: an MGET of thousands of keys would drown the rest.
const REQUESTS_MAX: usize = 64;

/// One command of a client, from its arrival to its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSpan {
    pub name: String,
    pub received: Time,
    /// When it was sent on, after it had waited for earlier ones of its client.
    pub launched: Time,
    pub ended: Time,
    /// The client's address.
    pub client: String,
    /// Whether copies have answered all of it; `None` for what they never answer.
    pub hit: Option<bool>,
    pub retries: u16,
    /// The first word of an error reply.
    pub error: Option<Bytes>,
    pub requests: Vec<RequestSpan>,
    /// Requests that have no span.
    pub requests_left_out: u32,
}

/// One request of it, to a node or a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSpan {
    pub peer: Peer,
    pub sent: Time,
    pub ended: Time,
    /// `None` for what copies never answer, and if there was no answer.
    pub hit: Option<bool>,
    /// Whoever was asked was busy or vanished, and somebody else was asked.
    pub retried: bool,
}

/// What is kept of an operation that is in the sample.
#[derive(Debug)]
pub(crate) struct Followed {
    name: String,
    requests: Vec<RequestSpan>,
    left_out: u32,
}

impl Followed {
    pub(crate) fn heard(&mut self, sent: Time, ended: Time, heard: Heard, retried: bool) {
        if self.requests.len() == REQUESTS_MAX {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let hit = (heard.read && !retried).then_some(heard.hit);
        self.requests.push(RequestSpan { peer: heard.peer, sent, ended, hit, retried });
    }
}

#[derive(Debug)]
pub(crate) struct Sampler {
    /// 0 for none.
    one_in: u64,
    /// Commands until the next of the sample.
    left: u64,
    done: Vec<CommandSpan>,
    dropped: u64,
}

impl Sampler {
    pub(crate) fn new() -> Sampler {
        Sampler { one_in: 0, left: u64::MAX, done: Vec::new(), dropped: 0 }
    }

    pub(crate) fn set(&mut self, one_in: u64) {
        if self.one_in != one_in {
            (self.one_in, self.left) = (one_in, if one_in == 0 { u64::MAX } else { one_in });
        }
    }

    /// Whether the next command is in the sample.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Follows the client's last one. The next gap is random, `one_in` in the mean: a fixed one would meet the rhythm of a client that
    /// does the same things again and again.
    #[cold]
    pub(crate) fn follow(&mut self, random: &mut impl Rng, client: &mut Client) {
        self.left = if self.one_in == 0 { u64::MAX } else { random.random_range(1..=2 * self.one_in - 1) };
        let last = client.last;
        if let Some(operation) = client.pipeline.last_mut().filter(|_| self.one_in > 0) {
            let name = name(operation, last);
            operation.ran.follow(Followed { name, requests: Vec::new(), left_out: 0 });
        }
    }

    #[cold]
    pub(crate) fn ended(&mut self, now: Time, received: Time, ran: &Ran, reply: &[u8], client: &Client) {
        let Some(followed) = ran.followed() else { return };
        if self.done.len() == DONE_MAX {
            self.dropped += 1;
            return;
        }
        let tally = ran.tally();
        self.done.push(CommandSpan {
            name: followed.name.clone(),
            received,
            // What the router answers itself is launched when it comes.
            launched: ran.launched.max(received),
            ended: now,
            client: client.known.as_ref().map_or_else(String::new, |known| known.0.clone()),
            hit: (tally.reads > 0).then_some(tally.hits == tally.reads),
            retries: ran.retries(),
            error: error(reply),
            requests: followed.requests.clone(),
            requests_left_out: followed.left_out,
        });
    }

    pub(crate) fn take(&mut self) -> Vec<CommandSpan> {
        std::mem::take(&mut self.done)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// As its client would write it.
fn name(operation: &Operation, last: &str) -> String {
    let shown = |spec: &CommandSpec| spec.name.replace('|', " ").to_uppercase();
    let frame = match &operation.progress {
        Progress::Waiting(waiting) => waiting.command.frame(),
        _ => &operation.ran.frame,
    };
    match (operation.ran.spec, &operation.progress) {
        // A transaction is named by the commands in it otherwise.
        (Some(_), _) if Command::parse(frame.clone()).is_err() => "EXEC".to_owned(),
        (Some(spec), _) => shown(spec),
        (None, Progress::Done(bytes)) if bytes.starts_with(b"-") => "refused".to_owned(),
        (None, _) => last.replace('|', " ").to_uppercase(),
    }
}

fn error(reply: &[u8]) -> Option<Bytes> {
    let text = reply.strip_prefix(b"-")?;
    let end = text.iter().position(|byte| matches!(byte, b' ' | b'\r')).unwrap_or(text.len());
    Some(Bytes::copy_from_slice(&text[..end]))
}
