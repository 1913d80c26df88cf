//! One command on one key as a client saw it: what was asked, when, and what came of it. Not whether that is right.

use bytes::Bytes;

use crate::model::What;

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryOutcome {
    /// Not answered.
    Pending,
    /// The reply as RESP2 has it.
    Told(Vec<u8>),
    /// It may have happened, and may still happen until `returned`.
    Unknown,
    /// It happened, and nobody was told.
    Happened,
    /// It certainly had no effect, or its reply says nothing.
    Void,
}

/// An operation and its times, of whatever clock.
#[derive(Clone, Debug)]
pub struct HistoryOperation {
    pub what: What,
    pub invoked: u64,
    pub returned: u64,
    pub outcome: HistoryOutcome,
    /// The same client's earlier operation on this key, sent ahead of this one without waiting for its reply.
    pub after: Option<u32>,
    /// The command of a write, as storage gets it.
    pub frame: Option<Bytes>,
    /// When storage carried it out, as time and serial number, once that is settled. A search may begin there.
    pub executed: Option<(u64, u64)>,
}
