//! Spans: how single commands went, of a sample of all. Whom each was asked of and for how long, not how that is exported.

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use wire::resp::Command;

use crate::router::flow::pipeline::{ClientOperation, OperationProgress};
use crate::router::flow::ran::{Followed, RequestSpan};
use crate::router::front::session::Session;
use crate::time::Time;
use commands::CommandSpec;

/// Commands whose spans nobody has taken; what is more is dropped and counted. The driver takes them every few ms.
const DONE_MAX: usize = 4096;
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

#[derive(Debug)]
pub(crate) struct Sampler {
    /// 0 for none.
    one_in: u64,
    /// Commands until the next of the sample.
    left: u64,
    done: Vec<CommandSpan>,
    dropped: u64,
    random: SmallRng,
}

impl Sampler {
    pub(crate) fn new(seed: u64, one_in: u64) -> Sampler {
        let random = SmallRng::seed_from_u64(seed);
        let mut sampler = Sampler { one_in: 0, left: u64::MAX, done: Vec::new(), dropped: 0, random };
        sampler.set(one_in);
        sampler
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

    /// Whether `is_due` is true when it is asked next.
    #[inline]
    pub(crate) fn is_next(&self) -> bool {
        self.left == 1
    }

    /// Follows a client's last one. The next gap is random, `one_in` in the mean: a fixed one would meet the rhythm of a client that
    /// does the same things again and again.
    #[cold]
    pub(crate) fn follow(&mut self, last: &str, operation: Option<&mut ClientOperation>) {
        let mut gap = || self.random.random_range(1..=2 * self.one_in - 1);
        self.left = if self.one_in == 0 { u64::MAX } else { gap() };
        if let Some(operation) = operation.filter(|_| self.one_in > 0) {
            let name = name(operation, last);
            operation.ran.follow(Followed { name, requests: Vec::new(), left_out: 0 });
        }
    }

    #[cold]
    pub(crate) fn ended(&mut self, now: Time, operation: &ClientOperation, reply: &[u8], session: &Session) {
        let (ran, received) = (&operation.ran, operation.received);
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
            client: session.known.as_ref().map_or_else(String::new, |known| known.0.clone()),
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
fn name(operation: &ClientOperation, last: &str) -> String {
    let shown = |spec: &CommandSpec| spec.name.replace('|', " ").to_uppercase();
    let frame = match &operation.progress {
        OperationProgress::Waiting(waiting) => waiting.routed.command.frame(),
        _ => &operation.ran.frame,
    };
    match (operation.ran.spec, &operation.progress) {
        // A transaction is named by the commands in it otherwise.
        (Some(_), _) if Command::parse(frame.clone()).is_err() => "EXEC".to_owned(),
        (Some(spec), _) => shown(spec),
        (None, OperationProgress::Done(bytes)) if bytes.starts_with(b"-") => "refused".to_owned(),
        (None, _) => last.replace('|', " ").to_uppercase(),
    }
}

fn error(reply: &[u8]) -> Option<Bytes> {
    let text = reply.strip_prefix(b"-")?;
    let end = text.iter().position(|byte| matches!(byte, b' ' | b'\r')).unwrap_or(text.len());
    Some(Bytes::copy_from_slice(&text[..end]))
}
