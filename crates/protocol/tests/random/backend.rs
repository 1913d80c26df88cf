//! A shim's connections to storage: in order on each, lost with what was not read, fenced. Not the data.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol::storage::{Lane, StorageEvent, Store};
use rand::RngExt;
use rand::rngs::SmallRng;
use smallvec::SmallVec;

/// A store and the replies that it has got so far.
#[derive(Clone, Debug)]
struct Work {
    ticket: u64,
    commands: SmallVec<[Bytes; 2]>,
    replies: SmallVec<[Bytes; 2]>,
}

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    lane: Lane,
    /// In storage's input buffer.
    commands: VecDeque<Work>,
    /// In storage's output buffer.
    replies: VecDeque<Work>,
    /// Since when its first command blocks, as a serial number.
    pub(crate) blocked: Option<u64>,
}

impl Connection {
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.lane, Lane::Pinned { .. })
    }

    /// The command to execute next.
    pub(crate) fn head(&self) -> Option<Bytes> {
        let work = self.commands.front()?;
        Some(work.commands[work.replies.len()].clone())
    }

    pub(crate) fn executed(&mut self, reply: Bytes) {
        self.blocked = None;
        let Some(work) = self.commands.front_mut() else { return };
        work.replies.push(reply);
        if work.replies.len() == work.commands.len() {
            self.replies.extend(self.commands.pop_front());
        }
    }
}

/// One incarnation's storage as its shim sees it.
#[derive(Debug, Default)]
pub(crate) struct Backend {
    pub(crate) incarnation: u64,
    pub(crate) up: bool,
    /// Another incarnation has taken over, and this one has not been told: its commands go nowhere.
    pub(crate) cut: bool,
    pub(crate) connections: Vec<Connection>,
    /// On their way to the shim, in order.
    pub(crate) events: VecDeque<StorageEvent>,
    /// Swallowed since the cut.
    swallowed: Vec<u64>,
}

impl Backend {
    pub(crate) fn store(&mut self, store: Store) {
        if !self.up {
            self.events.push_back(StorageEvent::Lost { ticket: store.ticket, sent: false });
            return;
        }
        if self.cut {
            self.swallowed.push(store.ticket);
            return;
        }
        let Store { ticket, lane, commands } = store;
        let work = Work { ticket, commands, replies: SmallVec::new() };
        let shared = matches!(lane, Lane::Shared { .. });
        match self.connections.iter_mut().find(|connection| shared && connection.lane == lane) {
            Some(connection) => connection.commands.push_back(work),
            None => self.connections.push(Connection {
                lane,
                commands: VecDeque::from([work]),
                replies: VecDeque::new(),
                blocked: None,
            }),
        }
    }

    /// Connections whose next command can be executed, and those with replies to read.
    pub(crate) fn choices(&self) -> (Vec<usize>, Vec<usize>) {
        let indexes = |wanted: &dyn Fn(&Connection) -> bool| {
            let found = self.connections.iter().enumerate().filter(|(_, connection)| wanted(connection));
            found.map(|(index, _)| index).collect()
        };
        let executable =
            indexes(&|connection| connection.blocked.is_none() && !connection.commands.is_empty());
        (executable, indexes(&|connection| !connection.replies.is_empty()))
    }

    /// The oldest reply of a connection reaches the shim.
    pub(crate) fn read(&mut self, index: usize) -> Option<StorageEvent> {
        let connection = &mut self.connections[index];
        let Work { ticket, replies, .. } = connection.replies.pop_front()?;
        if connection.is_pinned() && connection.commands.is_empty() && connection.replies.is_empty() {
            self.connections.swap_remove(index);
        }
        Some(StorageEvent::Replies { ticket, replies })
    }

    /// A connection is lost. What storage had of it may still be executed: it is given back for that.
    pub(crate) fn lose(&mut self, index: usize, random: &mut SmallRng) -> Connection {
        let mut connection = self.connections.swap_remove(index);
        // Some of the last commands may not even have been written.
        let started = connection.commands.front().is_some_and(|work| !work.replies.is_empty());
        let least = usize::from(started || connection.blocked.is_some());
        let written = random.random_range(least.min(connection.commands.len())..=connection.commands.len());
        let answered = connection.replies.iter().map(|work| (work.ticket, true));
        let commands = connection.commands.iter().enumerate();
        let unanswered = commands.map(|(place, work)| (work.ticket, place < written));
        let lost: Vec<(u64, bool)> = answered.chain(unanswered).collect();
        self.events.extend(lost.into_iter().map(|(ticket, sent)| StorageEvent::Lost { ticket, sent }));
        connection.commands.truncate(written);
        connection.replies.clear();
        connection
    }

    /// Every connection is lost.
    pub(crate) fn lose_all(&mut self, random: &mut SmallRng) -> Vec<Connection> {
        let mut lost = Vec::new();
        while !self.connections.is_empty() {
            lost.push(self.lose(self.connections.len() - 1, random));
        }
        lost
    }

    pub(crate) fn down(&mut self, reason: &str) {
        if self.up {
            self.up = false;
            self.events.push_back(StorageEvent::Down { reason: reason.into() });
        }
    }

    /// The driver notices that another incarnation has taken over.
    pub(crate) fn notice(&mut self) {
        let swallowed = std::mem::take(&mut self.swallowed);
        self.events.extend(swallowed.into_iter().map(|ticket| StorageEvent::Lost { ticket, sent: true }));
        self.down("another shim has taken it over");
    }

    /// Gives a pinned command up: its connection goes, if it is still there.
    pub(crate) fn abort(&mut self, ticket: u64) -> Option<Connection> {
        let holds = |connection: &Connection| {
            let works = connection.commands.iter().chain(&connection.replies);
            works.into_iter().any(|work| work.ticket == ticket)
        };
        let index = self.connections.iter().position(holds)?;
        let mut connection = self.connections.swap_remove(index);
        connection.replies.clear();
        self.events.push_back(StorageEvent::Lost { ticket, sent: true });
        Some(connection)
    }
}
