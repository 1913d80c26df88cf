//! A connection on which the server says things on its own, made when it is asked for first. Not what it says.

use super::line::{Line, Listens};
use crate::storage::StorageEvent;
use crate::storage::backoff::Backoff;
use crate::storage::network::{ConnectionId, Network};

pub(super) struct Listener {
    listens: Listens,
    pub(super) line: Option<(ConnectionId, Line)>,
    backoff: Backoff,
    not_before_us: u64,
}

impl Listener {
    pub(super) fn new(listens: Listens, backoff: Backoff) -> Listener {
        Listener { listens, line: None, backoff, not_before_us: 0 }
    }

    pub(super) fn is(&self, id: ConnectionId) -> bool {
        self.line.as_ref().is_some_and(|(connection, _)| *connection == id)
    }

    pub(super) fn may_dial(&self, now_us: u64) -> bool {
        self.line.is_none() && now_us >= self.not_before_us
    }

    /// It is not made again at once.
    pub(super) fn rest(&mut self, now_us: u64) {
        self.not_before_us = now_us + self.backoff.next_us();
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
            });
        }
    }
}
