//! What became of every command, as its process was told and as the server had it; and whether both go together.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::resp::{Command, reply};

use super::Tally;

/// What a process was told of a command.
#[derive(Debug)]
pub(super) enum Ended<'a> {
    Replied(&'a Bytes),
    Lost { sent: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Replied,
    Unsent,
    Lost,
    Fenced,
}

#[derive(Debug)]
struct Ticket {
    process: usize,
    incarnation: u64,
    state: State,
    executed: bool,
}

/// An incarnation that has been up: after how many others it came, and when.
#[derive(Debug)]
struct Incarnation {
    rank: u64,
    since: u64,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    /// By number.
    tickets: BTreeMap<u64, Ticket>,
    incarnations: BTreeMap<u64, Incarnation>,
    last: u64,
    /// By process: pinned commands that may be under way, and those of which it was told that they are lost.
    pinned: BTreeMap<usize, BTreeSet<u64>>,
    lost: BTreeMap<usize, Vec<u64>>,
    pub(super) tally: Tally,
}

impl Book {
    pub(super) fn issue(&mut self, process: usize, incarnation: u64, pinned: bool) -> u64 {
        self.last += 1;
        if pinned {
            self.pinned.entry(process).or_default().insert(self.last);
        }
        let ticket = Ticket { process, incarnation, state: State::Pending, executed: false };
        self.tickets.insert(self.last, ticket);
        self.last
    }

    /// A command that may be under way on a connection of its own.
    pub(super) fn pinned_of(&self, process: usize) -> Option<u64> {
        self.pinned.get(&process)?.first().copied()
    }

    pub(super) fn up(&mut self, incarnation: u64, now: u64) -> Result<(), String> {
        let newest = self.tally.incarnations;
        match self.incarnations.get(&incarnation) {
            None => {
                self.tally.incarnations += 1;
                let rank = self.tally.incarnations;
                self.incarnations.insert(incarnation, Incarnation { rank, since: now });
                Ok(())
            }
            Some(known) if known.rank < newest => {
                Err(format!("incarnation {} is up again after {newest}", known.rank))
            }
            Some(_) => Ok(()),
        }
    }

    /// When an incarnation was up first.
    pub(super) fn since(&self, incarnation: u64) -> u64 {
        self.incarnations.get(&incarnation).map_or(0, |known| known.since)
    }

    pub(super) fn end(&mut self, number: u64, ended: &Ended<'_>) -> Result<(), String> {
        // Nobody's: the machine asks some things for itself.
        let Some(ticket) = self.tickets.get_mut(&number) else { return Ok(()) };
        if ticket.state != State::Pending {
            return Err(format!("command {number} was {:?} and has ended again: {ended:?}", ticket.state));
        }
        if let Some(pinned) = self.pinned.get_mut(&ticket.process) {
            pinned.remove(&number);
        }
        ticket.state = match ended {
            Ended::Replied(reply) if reply.starts_with(b"-") => State::Replied,
            Ended::Replied(reply) if **reply != replied(number) => {
                return Err(format!("command {number} was answered {reply:?}"));
            }
            Ended::Replied(_) if !ticket.executed => {
                return Err(format!("command {number} was answered and not carried out"));
            }
            Ended::Replied(_) => State::Replied,
            Ended::Lost { sent: true } => {
                self.lost.entry(ticket.process).or_default().push(number);
                State::Lost
            }
            Ended::Lost { sent: false } if ticket.executed => {
                return Err(format!("command {number} was carried out and is said to be unsent"));
            }
            Ended::Lost { sent: false } => State::Unsent,
        };
        Ok(())
    }

    /// Whatever a process was told to be lost is settled.
    pub(super) fn fenced(&mut self, process: usize) {
        self.tally.fences += 1;
        for number in self.lost.remove(&process).unwrap_or_default() {
            if let Some(ticket) = self.tickets.get_mut(&number) {
                ticket.state = State::Fenced;
            }
        }
    }

    /// The server has carried a command out.
    /// The server carries a command out; an incarnation that began before `stale_before` has been long enough to be given up.
    pub(super) fn executed(&mut self, command: &Command, stale_before: u64) -> Result<(), String> {
        let number = String::from_utf8_lossy(command.arg(1)).parse().unwrap_or_default();
        let Some(ticket) = self.tickets.get_mut(&number) else { return Ok(()) };
        if std::mem::replace(&mut ticket.executed, true) {
            return Err(format!("command {number} was carried out twice"));
        }
        self.tally.executed += 1;
        match ticket.state {
            State::Unsent => {
                return Err(format!("command {number} was said to be unsent and is carried out"));
            }
            State::Fenced => return Err(format!("command {number} is carried out after the fence")),
            State::Lost => self.tally.late += 1,
            State::Pending | State::Replied => {}
        }
        let incarnation = self.incarnations.get(&ticket.incarnation);
        let (rank, since) = incarnation.map_or((0, 0), |incarnation| (incarnation.rank, incarnation.since));
        if since < stale_before {
            return Err(format!(
                "command {number} of incarnation {rank}, which was there before another state of the server, is carried out"
            ));
        }
        if rank < self.tally.incarnations {
            return Err(format!(
                "command {number} of incarnation {rank} is carried out although {} is up",
                self.tally.incarnations
            ));
        }
        Ok(())
    }
}

/// The reply to the command with this number.
fn replied(number: u64) -> Bytes {
    let mut out = Vec::new();
    reply::integer(number as i64, &mut out);
    out.into()
}
