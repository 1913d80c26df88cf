//! The node's state of one key: what it may serve, and what a message does to that. Not the replies themselves.

use crate::time::Time;

/// What a node knows of one key within one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copy {
    /// Nothing older than `version` may be served.
    Invalid { version: u64 },
    /// A value came with the INV of `version`; storage has not confirmed it yet.
    Pending { version: u64 },
    /// The replies held are those of `version`.
    Valid { version: u64 },
}

/// What an INV did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invalidated {
    /// A late or repeated message: what is held is at least as new. Acknowledge, drop nothing.
    Stale,
    /// Drop every reply.
    Dropped,
    /// Drop every reply and hold the early value until its COMMIT.
    Held,
}

/// What a granted FILL did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filled {
    /// Older than what is known here, or poisoned: good for those who asked before it was read, not a copy.
    Unusable,
    /// One more view of the version held.
    Added,
    /// The first view of a version newer than the one held: drop the others first.
    Replaced,
}

impl Copy {
    pub fn version(self) -> u64 {
        match self {
            Copy::Invalid { version } | Copy::Pending { version } | Copy::Valid { version } => version,
        }
    }

    pub fn is_valid(self) -> bool {
        matches!(self, Copy::Valid { .. })
    }

    /// An early value is held only in place of a reply: a copy that has never been filled, or has been invalidated,
    /// cannot tell a new INV from one that a former life of the object has acknowledged, and its COMMIT may be late too.
    pub fn invalidate(&mut self, version: u64, early_value: bool) -> Invalidated {
        if version <= self.version() {
            return Invalidated::Stale;
        }
        if early_value && !matches!(self, Copy::Invalid { .. }) {
            *self = Copy::Pending { version };
            Invalidated::Held
        } else {
            *self = Copy::Invalid { version };
            Invalidated::Dropped
        }
    }

    /// True if the pending value became servable: only for exactly its version.
    pub fn commit(&mut self, version: u64) -> bool {
        let matches = *self == Copy::Pending { version };
        if matches {
            *self = Copy::Valid { version };
        }
        matches
    }

    pub fn fill(&mut self, version: u64, filling: &Filling) -> Filled {
        if filling.poisoned || version < filling.version_min || version < self.version() {
            return Filled::Unusable;
        }
        let added = *self == Copy::Valid { version };
        *self = Copy::Valid { version };
        if added { Filled::Added } else { Filled::Replaced }
    }
}

/// A fetch under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filling {
    pub fill: u64,
    /// When the node sent it: a copy's time to live counts from here.
    pub sent: Time,
    /// A fill older than this was read before a write that has reached this node.
    pub version_min: u64,
    pub poisoned: bool,
}

impl Filling {
    pub fn new(fill: u64, sent: Time, copy: Copy) -> Filling {
        Filling { fill, sent, version_min: copy.version(), poisoned: false }
    }

    /// An INV overtook the fill, or fell between the fetch and its answer.
    pub fn poison(&mut self, version: u64) {
        self.poisoned = true;
        self.version_min = self.version_min.max(version);
    }
}
