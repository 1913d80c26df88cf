//! A connection on which the server says things on its own, made when it is asked for first. Not what it says.

use super::line::{Line, Listens};
use crate::storage::StorageEvent;
use crate::storage::backoff::Backoff;
use crate::storage::network::{ConnectionId, Network};
use crate::time::Time;

pub(super) struct Listener {
    listens: Listens,
    pub(super) line: Option<(ConnectionId, Line)>,
    backoff: Backoff,
    not_before: Time,
}

impl Listener {
    pub(super) fn new(listens: Listens, backoff: Backoff) -> Listener {
        Listener { listens, line: None, backoff, not_before: Time(0) }
    }

    pub(super) fn is(&self, id: ConnectionId) -> bool {
        self.line.as_ref().is_some_and(|(connection, _)| *connection == id)
    }

    /// The number under which the server has it, once it is open.
    pub(super) fn client(&self) -> Option<u64> {
        self.line.as_ref().and_then(|(_, line)| line.client())
    }

    pub(super) fn may_dial(&self, now: Time) -> bool {
        self.line.is_none() && now >= self.not_before
    }

    /// It is not made again at once.
    pub(super) fn rest(&mut self, now: Time) {
        self.not_before = now.after(self.backoff.next());
    }

    pub(super) fn reset_backoff(&mut self) {
        self.backoff.reset();
    }

    /// It carries nothing that changes data, so there is nothing to fence.
    pub(super) fn lose(&mut self, network: &mut dyn Network, events: &mut Vec<StorageEvent>) {
        if let Some((connection, line)) = self.line.take() {
            let unwritten = network.unwritten_bytes(connection);
            network.close(connection);
            line.lose(unwritten, events);
            events.push(match self.listens {
                Listens::Topics => StorageEvent::Unsubscribed,
                Listens::Changes => StorageEvent::FeedDown,
                Listens::ReadChanges => StorageEvent::ReadFeedDown,
            });
        }
    }
}
