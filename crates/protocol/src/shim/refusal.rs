//! What a shim turns away, by which rule, and what the client is told. In this order: storage that is away, keys of
//! other shims, full queues, storage at its limit.

use bytes::Bytes;
use wire::{Key, Status};

use super::operation::{KeyState, Operation, OperationKind};
use super::{Shim, StorageState};
use crate::placement::Custody;
use crate::requests::RequestClass;
use commands::{CommandKind, CommandSpec, Flag};

/// A reply that costs storage nothing.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: Status,
    /// A complete RESP error.
    pub(super) value: Bytes,
}

impl Refusal {
    pub(super) fn error(text: &'static str) -> Refusal {
        Refusal { status: Status::Error, value: Bytes::from_static(text.as_bytes()) }
    }

    /// For a node: who asked it will ask here.
    pub(super) fn large() -> Refusal {
        Refusal { status: Status::Large, value: Bytes::new() }
    }

    pub(super) fn busy(text: &'static str) -> Refusal {
        Refusal { status: Status::Busy, value: Bytes::from_static(text.as_bytes()) }
    }
}

const FOREIGN: &str = "-ERR DistCache: this shim does not own the key; the cluster map may have changed\r\n";
const BEHIND: &str = "-BUSY DistCache: keys of this storage server have been divided anew, and this shim has not heard from a controller how \
                      far that is; the command was not executed, try again in a moment\r\n";
const RESHARDING: &str = "-ERR DistCache: the command concerns all keys, and some are on their way to other storage servers; \
                          try again once `distcache storage status` says that none is\r\n";
const QUEUE: &str = "-BUSY DistCache: too many commands wait for this storage server; the command was not executed, \
                     try again later\r\n";
const KEY_QUEUE: &str =
    "-BUSY DistCache: too many commands wait for this key; the command was not executed, try again later\r\n";
const BLOCKING: &str = "-BUSY DistCache: too many blocking commands wait at this storage server; the command was not \
                        executed, try again later\r\n";
const WATCHING: &str = "-BUSY DistCache: too many clients watch keys or block at this storage server; the command was not \
                        executed, try again later\r\n";
const STORAGE: &str = "-BUSY DistCache: the storage server is asked for more than it can do; the command was not \
                       executed, try again later\r\n";

impl Shim {
    /// Why this shim cannot serve a key, or whatever has none.
    pub(super) fn refusal(&mut self, key: &Key) -> Option<Refusal> {
        if let StorageState::Down { reason, .. } = &self.storage {
            self.statistics.refused += 1;
            let value = format!("-ERR DistCache: storage cannot be reached: {reason}\r\n").into();
            return Some(Refusal { status: Status::Error, value });
        }
        if self.is_behind() {
            self.statistics.refused += 1;
            return Some(Refusal::busy(BEHIND));
        }
        if !key.bytes.is_empty() && self.placement.custody(self.config.id, key) != Custody::Own {
            self.statistics.refused += 1;
            return Some(Refusal::error(FOREIGN));
        }
        if self.waiting.limits().waits() { None } else { self.queue_full() }
    }

    /// Why nothing more can be queued.
    pub(super) fn queue_full(&mut self) -> Option<Refusal> {
        let full = self.pending() >= self.config.settings.operations_max;
        self.statistics.sheds += u64::from(full);
        full.then(|| Refusal::busy(QUEUE))
    }

    /// What storage says to everything else while a script runs for too long, unless the command is one that it takes.
    pub(super) fn busy_with_script(&self, spec: &CommandSpec) -> Option<Bytes> {
        self.script_busy.clone().filter(|_| !spec.has(Flag::AllowBusy))
    }

    /// Whether a command that may change any key is refused, as keys that change their server would be missed.
    pub(super) fn resharding_refusal(&self, kind: CommandKind) -> Option<Refusal> {
        let refuses = kind == CommandKind::Barrier && self.placement.is_changing();
        refuses.then(|| Refusal::error(RESHARDING))
    }

    /// Why storage cannot take one more command now.
    pub(super) fn storage_overloaded(&mut self, class: RequestClass) -> Option<Refusal> {
        // Where commands wait for their turn they had room when they were begun.
        if self.waiting.limits().waits() || self.storage_limit.admits(class) {
            return None;
        }
        self.statistics.sheds_storage += 1;
        Some(Refusal::busy(STORAGE))
    }

    /// Why this command cannot wait with the others.
    pub(super) fn overload(&mut self, keys: &[Key], kind: CommandKind) -> Option<Refusal> {
        let queued = |key| self.keys.get(key).map_or(0, |state: &KeyState| state.queue.len());
        let watches = kind == CommandKind::Watch;
        let blocking = matches!(kind, CommandKind::BlockingWrite | CommandKind::BlockingQuery);
        let waits = self.waiting.limits().waits();
        let text = if !waits && keys.iter().any(|key| queued(key) >= self.config.settings.key_queue_max) {
            KEY_QUEUE
        } else if blocking && self.blocking() >= self.config.blocking_max {
            BLOCKING
        } else if watches && self.blocking() + self.watching >= self.config.blocking_max {
            WATCHING
        } else {
            // What blocks has a connection of its own and counts for nothing on the one that all share.
            return if blocking { None } else { self.storage_overloaded(RequestClass::Client) };
        };
        self.statistics.sheds += 1;
        Some(Refusal::busy(text))
    }

    fn blocking(&self) -> usize {
        let waits = |operation: &Operation| {
            matches!(operation.kind, OperationKind::Blocking | OperationKind::BlockingQuery)
        };
        self.operations.iter().filter(|(_, operation)| waits(operation)).count()
    }
}
