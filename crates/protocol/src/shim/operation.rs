//! One command on its way through the shim: what it waits for before storage may see it.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::EarlyValue;
use wire::{Key, Peer, View};

use super::read_feed::ReadMark;
use crate::coherence::directory::Directory;
use crate::storage::Lane;
use crate::time::Time;

/// Who asked for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) from: Peer,
    pub(super) request: u64,
    /// It takes a large reply in parts.
    pub(super) streams: bool,
}

impl Origin {
    /// The origin of a request whose reply is taken whole.
    pub(super) fn new(from: Peer, request: u64) -> Origin {
        Origin { from, request, streams: false }
    }

    pub(super) fn is(self, from: Peer, request: u64) -> bool {
        self.from == from && self.request == request
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    /// Queued only to keep program order behind writes; a cacheable read's view shapes its reply.
    Read(Option<View>),
    Write,
    /// Takes no place in a queue once its keys are invalidated.
    Blocking,
    BlockingQuery,
    Barrier,
    /// Invalidates and does nothing else: the key has left storage on its own.
    Purge,
    /// A purge that waits for nothing: somebody else has changed the key.
    Change,
    /// A barrier without a command, which waits for nothing: any key may have changed.
    Flush,
}

impl OperationKind {
    /// Whether it counts among those at storage, which keep to one connection.
    pub(super) fn occupies_lane(self) -> bool {
        matches!(self, OperationKind::Read(_) | OperationKind::Write)
    }

    /// Whether it asks nothing of storage and has no effect but on copies.
    pub(super) fn is_silent(self) -> bool {
        matches!(self, OperationKind::Purge | OperationKind::Change | OperationKind::Flush)
    }

    /// Whether it changes what storage holds, as far as anyone can tell.
    pub(super) fn writes(self) -> bool {
        matches!(self, OperationKind::Write | OperationKind::Blocking | OperationKind::Barrier)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Queued,
    Invalidating,
    Sent { ticket: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) origin: Option<Origin>,
    pub(super) kind: OperationKind,
    pub(super) lane: Lane,
    /// One frame; of a transaction those from MULTI to EXEC.
    pub(super) commands: SmallVec<[Bytes; 2]>,
    pub(super) keys: SmallVec<[Key; 1]>,
    /// A key that a barrier names, for storage of several servers: a barrier enters no queue.
    pub(super) anchor: Option<Key>,
    /// A write writes so many of `keys`, the first ones, and only reads the others.
    pub(super) written: usize,
    /// The version of each key's write, once it has been taken.
    pub(super) versions: SmallVec<[u64; 1]>,
    pub(super) early: Option<EarlyValue>,
    /// INVs or REVOKEs not yet acknowledged.
    pub(super) awaiting: u32,
    pub(super) phase: Phase,
    /// When its request came, less what that had waited before; `None`: nobody has asked for it.
    pub(super) since: Option<Time>,
    pub(super) cancelled: bool,
    /// By CLIENT UNBLOCK before storage saw it, and whether with an error.
    pub(super) unblocked: Option<bool>,
    /// The purge that it is a part of.
    pub(super) purge: Option<u32>,
    /// Its key is read behind it, in the same breath.
    pub(super) reads_back: bool,
}

/// What the shim knows of a key that is cached or being written.
#[derive(Clone, Debug)]
pub(super) struct KeyState {
    pub(super) directory: Directory,
    /// Operations that storage has not seen, in order; only the first may invalidate.
    pub(super) queue: SmallVec<[u32; 2]>,
    /// Operations at storage, all on one lane.
    pub(super) sent: u32,
    pub(super) sent_lane: Lane,
    /// Writes among those sent. While there are any, nothing is granted.
    pub(super) writes_sent: u32,
    /// Blocking commands between their INV and their reply.
    pub(super) blocked: u32,
    /// The outcome of a write is unknown.
    pub(super) quarantined: bool,
    /// What tells reports of the read feed apart.
    pub(super) mark: ReadMark,
}

impl Operation {
    /// Whether it is a read whose reply may be handed on in parts.
    pub(super) fn streams(&self) -> bool {
        matches!((self.kind, self.lane), (OperationKind::Read(_), Lane::Pinned { .. }))
    }

    /// Whether it writes its key of this index.
    pub(super) fn writes_key(&self, index: usize) -> bool {
        self.kind.writes() && index < self.written
    }
}

/// An operation that nobody has asked for and that asks nothing of storage.
pub(super) fn blank(kind: OperationKind, keys: SmallVec<[Key; 1]>) -> Operation {
    Operation {
        origin: None,
        kind,
        lane: Lane::Shared { resp3: false },
        commands: SmallVec::new(),
        written: keys.len(),
        keys,
        versions: SmallVec::new(),
        early: None,
        awaiting: 0,
        phase: Phase::Queued,
        since: None,
        cancelled: false,
        unblocked: None,
        anchor: None,
        purge: None,
        reads_back: false,
    }
}

impl KeyState {
    pub(super) fn new(version: u64) -> KeyState {
        KeyState {
            directory: Directory::new(version),
            queue: SmallVec::new(),
            sent: 0,
            sent_lane: Lane::Shared { resp3: false },
            writes_sent: 0,
            blocked: 0,
            quarantined: false,
            mark: ReadMark::default(),
        }
    }

    /// Whether a command on this lane could overtake one of the key's that came before it.
    pub(super) fn may_be_overtaken(&self, lane: Lane) -> bool {
        !self.queue.is_empty() || self.sent > 0 && self.sent_lane != lane
    }

    /// Whether a copy may be granted: nobody writes, and storage's state is known.
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.writes_sent == 0 && self.blocked == 0 && !self.quarantined
    }

    /// Whether a command is under way, or a copy can be served.
    pub(super) fn is_busy(&self) -> bool {
        !self.is_quiet() || self.sent > 0 || self.directory.has_copies()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_quiet() && self.sent == 0 && self.directory.entries.is_empty()
    }
}
