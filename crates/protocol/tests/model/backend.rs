//! Storage with one value and what is on its way to it: connections in order, and writes that come late. Not Redis.

use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::{EarlierIncarnations, Unrecorded};
use protocol::storage::{Lane, Store};
use smallvec::SmallVec;
use wire::resp::{Command, reply};
use wire::{Status, View};

use super::config::{Config, Write};

/// What a command at storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// PING and TOUCH.
    Proof,
    Read(View),
    Fill(View),
    Write(Write),
}

/// A command that the shim has sent and not heard of again.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) ticket: u64,
    pub(crate) what: What,
    /// The value that storage held when it ran the command; `None`: it has not.
    pub(crate) done: Option<u8>,
}

/// The value of the key; 0 means that there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Storage {
    pub(crate) value: u8,
    /// What it held before it came back with nothing.
    pub(crate) lost: Option<u8>,
    /// Writes of broken connections and dead shims that may still run, until a fence.
    pub(crate) late: Vec<Write>,
    /// What shims have left there: how long their successors wait, and whether all was of the data that is there now.
    pub(crate) recorded: Option<(Duration, bool)>,
}

impl Storage {
    pub(crate) fn run(&mut self, write: Write) {
        self.value = match write {
            Write::Set(value) | Write::Set3(value) => value,
            Write::Increment | Write::Block => self.value + 1,
            Write::Flush => 0,
        };
    }

    /// A shim governs that its successors wait for. `is_first`: none has before. What it is told of those before it, which
    /// is kept for its own successors.
    pub(crate) fn take_over(&mut self, config: &Config, life: u8, is_first: bool) -> EarlierIncarnations {
        let earlier = match self.recorded {
            Some((recorded, same_data)) => {
                EarlierIncarnations { same_data, ..EarlierIncarnations::recorded(recorded) }
            }
            None if is_first => EarlierIncarnations::NONE,
            None => EarlierIncarnations::unrecorded(Unrecorded::Unknown),
        };
        let before = config.lease_limits().wait(earlier, None);
        self.recorded = Some((before.max(config.lease_of(life).restart_wait()), earlier.same_data));
        earlier
    }

    /// The shim that governs goes, and has nothing that a successor would wait for. `inherited`: what is left of the wait for
    /// those before it.
    pub(crate) fn leave(&mut self, inherited: Duration) {
        let same_data = self.recorded.is_none_or(|(_, same_data)| same_data);
        self.recorded = Some((inherited, same_data));
    }

    /// The server ends, and what was on its way to it; the next one has nothing.
    pub(crate) fn restart(&mut self) {
        self.late.clear();
        self.recorded = None;
        self.lost = Some(std::mem::take(&mut self.value));
    }
}

impl Write {
    pub(crate) fn command(self, key: &[u8]) -> Command {
        match self {
            Write::Set(value) | Write::Set3(value) => {
                Command::from_args(&[b"SET", key, value.to_string().as_bytes()])
            }
            Write::Increment => Command::from_args(&[b"INCR", key]),
            Write::Flush => Command::from_args(&[b"FLUSHALL"]),
            Write::Block => Command::from_args(&[b"BLPOP", key, b"0"]),
        }
    }

    pub(crate) fn resp3(self) -> bool {
        matches!(self, Write::Set3(_))
    }
}

/// The second view of the key.
pub(crate) fn second(key: &[u8]) -> Command {
    Command::from_args(&[b"GETRANGE", key, b"0", b"-1"])
}

pub(crate) fn lane(store: &Store) -> usize {
    match store.lane {
        Lane::Shared { resp3: false } => 0,
        Lane::Shared { resp3: true } => 1,
        Lane::Pinned { .. }
        | Lane::Scripts { .. }
        | Lane::Subscriber
        | Lane::Feed
        | Lane::ReadFeed
        | Lane::Watching { .. } => 2,
    }
}

/// Reads the shim's commands back. `second` names the second view.
pub(crate) fn what(store: &Store, second: View) -> What {
    let commands: Vec<Command> =
        store.commands.iter().map(|frame| Command::parse(frame.clone()).expect("a frame")).collect();
    let last = commands.last().expect("a command");
    let view = |name: &[u8]| if name == b"GET" { View::GET } else { second };
    match last.name() {
        b"PING" | b"TOUCH" => What::Proof,
        b"SET" => {
            let value = std::str::from_utf8(last.arg(2)).ok().and_then(|text| text.parse().ok());
            let value = value.expect("a value of the model");
            What::Write(if lane(store) == 1 { Write::Set3(value) } else { Write::Set(value) })
        }
        b"INCR" => What::Write(Write::Increment),
        b"FLUSHALL" => What::Write(Write::Flush),
        b"BLPOP" => What::Write(Write::Block),
        name if commands.len() == 2 => What::Fill(view(name)),
        name => What::Read(view(name)),
    }
}

/// What storage says, given the value when the command ran.
pub(crate) fn replies(what: What, value: u8) -> SmallVec<[Bytes; 2]> {
    let text = Bytes::from_static;
    match what {
        What::Proof => SmallVec::from_elem(text(b"+PONG\r\n"), 1),
        What::Write(_) => SmallVec::from_elem(text(b"+OK\r\n"), 1),
        What::Read(view) => SmallVec::from_elem(raw(view, value), 1),
        What::Fill(view) => {
            SmallVec::from_buf([text(if value == 0 { b":-2\r\n" } else { b":-1\r\n" }), raw(view, value)])
        }
    }
}

fn raw(view: View, value: u8) -> Bytes {
    let mut out = Vec::new();
    match (value, view) {
        (0, View::GET) => reply::null(false, &mut out),
        (0, _) => reply::bulk(b"", &mut out),
        (value, _) => reply::bulk(value.to_string().as_bytes(), &mut out),
    }
    Bytes::from(out)
}

/// What a reader gets.
pub(crate) fn shown(view: View, value: u8) -> (Status, Bytes) {
    match (value, view) {
        (0, View::GET) => (Status::Nil, Bytes::new()),
        _ => (Status::Ok, raw(view, value)),
    }
}
