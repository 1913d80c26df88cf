//! What became of every command, as its process was told and as the server had it; and whether both go together.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use protocol::storage::Lane;
use protocol::storage::network::ConnectionId;

/// What a process was told of a command.
#[derive(Debug)]
pub(super) enum Ended<'a> {
    Replied { reply: &'a Bytes, is_right: bool },
    Lost { sent: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Replied,
    Unsent,
    Lost,
    /// Lost, and its process has been told since that it is settled before this server.
    Fenced {
        server: usize,
    },
}

/// A command, and who asks for it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) process: usize,
    pub(super) incarnation: u64,
    pub(super) lane: Lane,
    pub(super) since: u64,
}

/// Where a command is carried out, and over which connection it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) server: usize,
    pub(super) connection: ConnectionId,
    /// What the server takes stays; another one's is lost.
    pub(super) stays: bool,
}

#[derive(Debug)]
struct Ticket {
    asked: Asked,
    state: State,
    executed: bool,
}

/// An incarnation that has been up: before which server, by what that server said when, and since when.
#[derive(Debug)]
struct Incarnation {
    server: usize,
    said: u64,
    since: u64,
}

/// When a process says that it is up, and when its server said what it has gone by. A process that rested in between may have
/// been replaced meanwhile, and finds out with the next thing that it hears.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    pub(super) now: u64,
    pub(super) said: u64,
}

/// What a run met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub executed: u64,
    /// Carried out although the process had been told that the command was lost.
    pub late: u64,
    pub incarnations: u64,
    pub fences: u64,
    /// Incarnations that were told of leases of earlier ones that might run on.
    pub inherited: u64,
    /// Incarnations that found the mark and no users, while leases of earlier ones might run on.
    pub marked: u64,
    /// How often one handed over whose leases would have run on.
    pub handed_over: u64,
    /// Changes by others that were noticed.
    pub foreign: u64,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    /// By number.
    tickets: BTreeMap<u64, Ticket>,
    incarnations: BTreeMap<u64, Incarnation>,
    /// By server: when it said last what has made an incarnation come up for the first time.
    newest: BTreeMap<usize, u64>,
    last: u64,
    /// By process: pinned commands that may be under way, and those of which it was told that they are lost.
    pinned: BTreeMap<usize, BTreeSet<u64>>,
    lost: BTreeMap<usize, Vec<u64>>,
    /// By process and number: the connection that watches.
    watching: BTreeMap<(usize, u64), ConnectionId>,
    pub(super) tally: Tally,
}

impl Book {
    pub(super) fn issue(&mut self, asked: Asked) -> u64 {
        self.last += 1;
        if matches!(asked.lane, Lane::Pinned { .. }) {
            self.pinned.entry(asked.process).or_default().insert(self.last);
        }
        self.tickets.insert(self.last, Ticket { asked, state: State::Pending, executed: false });
        self.last
    }

    /// A command that may be under way on a connection of its own.
    pub(super) fn pinned_of(&self, process: usize) -> Option<u64> {
        self.pinned.get(&process)?.first().copied()
    }

    pub(super) fn up(&mut self, incarnation: u64, server: usize, at: Moments) -> Result<(), String> {
        let newest = self.newest.entry(server).or_default();
        match self.incarnations.get(&incarnation) {
            None => {
                self.tally.incarnations += 1;
                *newest = at.said.max(*newest);
                let known = Incarnation { server, said: at.said, since: at.now };
                self.incarnations.insert(incarnation, known);
                Ok(())
            }
            Some(known) if known.server != server => Err(format!(
                "incarnation {incarnation} of server {} is up before server {server}",
                known.server
            )),
            Some(known) if known.said < *newest && *newest < at.said => Err(format!(
                "incarnation {incarnation} of {} us is up again after that of {newest} us",
                known.said
            )),
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
        if let Some(pinned) = self.pinned.get_mut(&ticket.asked.process) {
            pinned.remove(&number);
        }
        ticket.state = match ended {
            Ended::Replied { reply, .. } if reply.starts_with(b"-") => State::Replied,
            Ended::Replied { reply, is_right: false } => {
                return Err(format!("command {number} was answered {reply:?}"));
            }
            Ended::Replied { .. } if !ticket.executed => {
                return Err(format!("command {number} was answered and not carried out"));
            }
            Ended::Replied { .. } => State::Replied,
            Ended::Lost { sent: true } => {
                self.lost.entry(ticket.asked.process).or_default().push(number);
                State::Lost
            }
            Ended::Lost { sent: false } if ticket.executed => {
                return Err(format!("command {number} was carried out and is said to be unsent"));
            }
            Ended::Lost { sent: false } => State::Unsent,
        };
        Ok(())
    }

    /// Whether a process has heard of all that it asked for before `time`.
    pub(super) fn check_answered(&self, process: usize, time: u64) -> Result<(), String> {
        let old = |ticket: &Ticket| ticket.asked.process == process && ticket.asked.since < time;
        let mut own = self.tickets.iter().filter(|(_, ticket)| old(ticket));
        match own.find(|(_, ticket)| ticket.state == State::Pending) {
            Some((number, _)) => Err(format!("command {number} has no end")),
            None => Ok(()),
        }
    }

    /// Whatever a process was told to be lost is settled before the server that it uses now.
    pub(super) fn fenced(&mut self, process: usize, server: usize) {
        self.tally.fences += 1;
        for number in self.lost.remove(&process).unwrap_or_default() {
            if let Some(ticket) = self.tickets.get_mut(&number) {
                ticket.state = State::Fenced { server };
            }
        }
    }

    /// A server carries a command out; an incarnation that began before `stale_before` has been long enough to be given up.
    pub(super) fn executed(&mut self, number: u64, place: Place, stale_before: u64) -> Result<(), String> {
        let Some(ticket) = self.tickets.get_mut(&number) else { return Ok(()) };
        if std::mem::replace(&mut ticket.executed, true) {
            return Err(format!("command {number} was carried out twice"));
        }
        self.tally.executed += 1;
        match ticket.state {
            State::Unsent => {
                return Err(format!("command {number} was said to be unsent and is carried out"));
            }
            State::Fenced { server } if place.stays && server == place.server => {
                return Err(format!("command {number} is carried out after the fence"));
            }
            // Another server's fence says nothing of this one: it is used only under a new incarnation, which is judged below.
            State::Lost | State::Fenced { .. } => self.tally.late += 1,
            State::Pending | State::Replied => {}
        }
        if let Lane::Watching { number: watch, .. } = ticket.asked.lane
            && *self.watching.entry((ticket.asked.process, watch)).or_insert(place.connection)
                != place.connection
        {
            return Err(format!("command {number} is carried out on a connection that has not watched"));
        }
        let Some(incarnation) = self.incarnations.get(&ticket.asked.incarnation) else { return Ok(()) };
        let (said, newest) = (incarnation.said, self.newest[&incarnation.server]);
        if incarnation.server != place.server {
            return Err(format!("command {number} for server {} is at {}", incarnation.server, place.server));
        }
        if incarnation.since < stale_before {
            return Err(format!(
                "command {number} of the incarnation of {said} us, which was there before another state of the server, is carried out"
            ));
        }
        if said < newest {
            return Err(format!(
                "command {number} of the incarnation of {said} us is carried out although that of {newest} us is up"
            ));
        }
        Ok(())
    }
}
