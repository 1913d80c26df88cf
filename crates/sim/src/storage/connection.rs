//! One connection of a shim to its storage: commands in order, replies in order. Not when either moves.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol::storage::{Lane, Store};
use smallvec::SmallVec;

/// A store and the replies that it has got so far.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) ticket: u64,
    pub(crate) commands: SmallVec<[Bytes; 2]>,
    pub(crate) replies: SmallVec<[Bytes; 2]>,
    /// When the shim sent it.
    pub(crate) since: u64,
}

/// What storage has written to a connection.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    Replies(Work),
    /// A report of all that had changed until it was made.
    Push {
        made: u64,
        bytes: Bytes,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) number: u32,
    pub(crate) lane: Lane,
    /// In storage's input buffer.
    pub(crate) commands: VecDeque<Work>,
    /// In storage's output buffer.
    pub(crate) outputs: VecDeque<Output>,
    /// Nothing that comes later overtakes.
    pub(crate) executes_at: u64,
    pub(crate) answers_at: u64,
    /// Since when its first command blocks, as a serial number.
    pub(crate) blocked: Option<u64>,
    /// Storage reports changes to it.
    pub(crate) tracks: bool,
    /// The turn of the server in which it was read last, by its beginning, and when.
    pub(crate) read_in: Option<(u64, u64)>,
    /// When what has been changed since it tracks, and has not been reported to the shim, was changed.
    pub(crate) unheard: VecDeque<u64>,
}

impl Connection {
    pub(crate) fn new(number: u32, lane: Lane) -> Connection {
        Connection {
            number,
            lane,
            commands: VecDeque::new(),
            outputs: VecDeque::new(),
            executes_at: 0,
            answers_at: 0,
            blocked: None,
            tracks: false,
            read_in: None,
            unheard: VecDeque::new(),
        }
    }

    pub(crate) fn accept(&mut self, now: u64, store: Store) {
        let Store { ticket, commands, .. } = store;
        self.commands.push_back(Work { ticket, commands, replies: SmallVec::new(), since: now });
    }

    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.lane, Lane::Pinned { .. } | Lane::Watching { .. })
    }

    pub(crate) fn resp3(&self) -> bool {
        matches!(
            self.lane,
            Lane::Pinned { resp3: true } | Lane::Shared { resp3: true } | Lane::Scripts { resp3: true }
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.outputs.is_empty()
    }

    fn answered(&self) -> impl Iterator<Item = &Work> {
        self.outputs.iter().filter_map(|output| match output {
            Output::Replies(work) => Some(work),
            Output::Push { .. } => None,
        })
    }

    pub(crate) fn holds(&self, ticket: u64) -> bool {
        self.commands.iter().chain(self.answered()).any(|work| work.ticket == ticket)
    }

    /// When the shim sent the command to execute next.
    pub(crate) fn sent_at(&self) -> u64 {
        self.commands.front().map_or(0, |work| work.since)
    }

    /// The command to execute next.
    pub(crate) fn head(&self) -> Option<Bytes> {
        let work = self.commands.front()?;
        Some(work.commands[work.replies.len()].clone())
    }

    /// Takes the reply to the head; true if its store is complete and can be answered.
    pub(crate) fn executed(&mut self, reply: Bytes) -> bool {
        self.blocked = None;
        let Some(work) = self.commands.front_mut() else { return false };
        work.replies.push(reply);
        let complete = work.replies.len() == work.commands.len();
        if complete {
            self.outputs.extend(self.commands.pop_front().map(Output::Replies));
        }
        complete
    }

    /// Ends it at the shim. What storage had read remains; returns the tickets with whether they were sent.
    pub(crate) fn lose(&mut self, written: usize) -> Vec<(u64, bool)> {
        let answered = self.answered().map(|work| (work.ticket, true));
        let commands = self.commands.iter().enumerate();
        let unanswered = commands.map(|(place, work)| (work.ticket, place < written));
        let lost = answered.chain(unanswered).collect();
        self.commands.truncate(written);
        self.outputs.clear();
        lost
    }

    /// Commands that storage has certainly begun.
    pub(crate) fn begun(&self) -> usize {
        let started = self.commands.front().is_some_and(|work| !work.replies.is_empty());
        usize::from(started || self.blocked.is_some()).min(self.commands.len())
    }

    /// Since when the oldest command has been waiting for its reply.
    pub(crate) fn waiting_since(&self) -> Option<u64> {
        self.answered().next().or(self.commands.front()).map(|work| work.since)
    }
}
