//! What the flow is asked for: one command of a client, how it goes, and how its client is told. Not where it goes.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::Key;
use wire::resp::Command;

use crate::placement::Placement;
use commands::memcached::ReplyShape;
use commands::{Classified, CommandKind};

/// Keys that one command names; most name one.
pub(crate) type CommandKeys = SmallVec<[Key; 1]>;

/// The place of no client: requests of the router's own come from there.
pub(crate) const NOBODY: u32 = u32::MAX;

/// Which part of which operation a request belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestOrigin {
    pub(crate) client: u32,
    pub(crate) part: u32,
    pub(crate) sequence: u64,
    pub(crate) resp3: bool,
    pub(crate) waited_ms: u16,
}

/// One command, and how its client is told of it.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub(crate) routed: Routed,
    pub(crate) manner: Manner,
    /// With its reply goes nothing but its bytes: it may be given without a place in the pipeline.
    pub(crate) bare: bool,
}

/// A command for members, and how it goes there.
#[derive(Debug)]
pub(crate) struct Routed {
    pub(crate) command: Command,
    pub(crate) classified: Classified,
    pub(crate) way: CommandWay,
    pub(crate) kept: KeptKeys,
}

#[derive(Debug)]
pub(crate) enum CommandWay {
    /// As its kind and its keys say.
    Plain,
    /// An EXEC. `watched`: only if what its client watches has not changed. `own`: replies that do not come from storage,
    /// by their place in the whole.
    Transaction { watched: bool, own: Vec<(usize, Bytes)> },
    /// In its turn nothing is watched any more, and this is the reply.
    EndsWatch(Bytes),
}

/// The keys of which a client keeps what the command reads.
#[derive(Debug)]
pub(crate) enum KeptKeys {
    Nothing,
    /// The keys that the command names.
    Named,
    These(Box<[Key]>),
}

/// How a client gets to read a reply: said with the command, given back with the reply.
#[derive(Debug, Default)]
pub(crate) struct Manner {
    pub(crate) resp3: bool,
    /// CLIENT REPLY OFF or SKIP: it takes its turn, but its reply is not sent.
    pub(crate) silent: bool,
    pub(crate) closes: bool,
    /// The form of the reply for a memcached client.
    pub(crate) shape: Option<Box<ReplyShape>>,
}

impl Manner {
    /// Whether the client gets the reply as it is, and nothing with it.
    pub(crate) fn is_bare(&self) -> bool {
        !self.silent && !self.closes && self.shape.is_none()
    }
}

impl KeptKeys {
    pub(crate) fn among<'a>(&'a self, named: &'a [Key]) -> &'a [Key] {
        match self {
            KeptKeys::Nothing => &[],
            KeptKeys::Named => named,
            KeptKeys::These(keys) => keys,
        }
    }
}

/// Half a digest, by which operations are kept in order.
pub(crate) fn low(key: &Key) -> u64 {
    key.digest.0 as u64
}

pub(crate) fn keys_of(placement: &Placement, command: &Command, classified: &Classified) -> CommandKeys {
    let key = |index: usize| placement.key(0, command.arg_bytes(index));
    match classified.keys[..] {
        [index] => SmallVec::from_buf([key(index)]),
        _ => classified.keys.iter().map(|&index| key(index)).collect(),
    }
}

/// Commands whose keys are unknown, and those that hold their client up while they block.
pub(crate) fn runs_alone(classified: &Classified) -> bool {
    classified.keys.is_empty()
        || matches!(
            classified.kind,
            CommandKind::Barrier
                | CommandKind::BlockingWrite
                | CommandKind::BlockingQuery
                | CommandKind::Watch
        )
}
