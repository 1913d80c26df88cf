//! What is wanted of a command by its ticket while a server has it: that it ends, or what becomes of its large reply. Not
//! where commands go.
//!
//! A server that answers with something large has carried the command out and sends it nowhere else: refusals are small.

use core::net::SocketAddr;

use bytes::Bytes;
use smallvec::SmallVec;

use super::flight::Flight;
use super::{Effect, Shards};
use crate::storage::{Lane, StorageEvent};
use crate::time::Time;

impl Shards {
    /// Where a command is, and its ticket there.
    fn place(&self, ticket: u64) -> Option<(SocketAddr, u64)> {
        let mut asked = self.asked.iter();
        let (inner, asked) = asked.find(|(_, asked)| asked.flight.ticket() == Some(ticket))?;
        Some((asked.server, inner as u64))
    }

    pub(super) fn abort(&mut self, ticket: u64, effects: &mut Vec<Effect>) {
        if let Some(index) = self.parked.iter().position(|unit| unit.ticket == ticket) {
            self.parked.remove(index);
            return effects.push(Effect::Report(StorageEvent::Lost { ticket, sent: false }));
        }
        if let Some((server, ticket)) = self.place(ticket) {
            effects.push(Effect::Abort { server, ticket });
        }
    }

    /// One that no server has ends here as a server would end it.
    pub(super) fn unblock(&mut self, ticket: u64, error: bool, effects: &mut Vec<Effect>) {
        if let Some((server, ticket)) = self.place(ticket) {
            return effects.push(Effect::Unblock { server, ticket, error });
        }
        let Some(index) = self.parked.iter().position(|unit| unit.ticket == ticket) else { return };
        let Some(unit) = self.parked.remove(index) else { return };
        let resp3 = unit.lane == Lane::Pinned { resp3: true };
        let replies = SmallVec::from_elem(unblocked(error, resp3), unit.commands.len());
        effects.push(Effect::Report(StorageEvent::Replies { ticket, replies }));
    }

    pub(super) fn skip(&mut self, now: Time, ticket: u64, effects: &mut Vec<Effect>) {
        let Some((server, ticket)) = self.place(ticket) else { return };
        effects.push(Effect::Skip { server, ticket });
        let asked = self.asked.remove(ticket as usize);
        self.carried_out(now, asked.flight, effects);
    }

    pub(super) fn take(&mut self, now: Time, outer: u64, bytes: u64, effects: &mut Vec<Effect>) {
        let Some((server, ticket)) = self.place(outer) else { return };
        effects.push(Effect::Take { server, ticket, bytes });
        let flight = &mut self.asked[ticket as usize].flight;
        let flight = std::mem::replace(flight, Flight::Transfer { ticket: outer });
        self.carried_out(now, flight, effects);
    }

    /// The next one of its slot may go.
    fn carried_out(&mut self, now: Time, flight: Flight, effects: &mut Vec<Effect>) {
        if let Flight::Slot(unit) = flight {
            self.landed(&unit);
            self.pump(now, unit.slot, effects);
        }
    }

    /// What makes up a whole with others is kept until all of it is there: nobody is told that a part of it is large.
    pub(super) fn large(&self, inner: u64, effects: &mut Vec<Effect>) {
        if let Some(ticket) = self.asked.get(inner as usize).and_then(|asked| asked.flight.ticket()) {
            effects.push(Effect::Report(StorageEvent::Large { ticket }));
        }
    }

    pub(super) fn part(&mut self, inner: u64, (bytes, last): (Bytes, bool), effects: &mut Vec<Effect>) {
        let Some(Flight::Transfer { ticket }) = self.asked.get(inner as usize).map(|asked| &asked.flight)
        else {
            return;
        };
        effects.push(Effect::Report(StorageEvent::Part { ticket: *ticket, bytes, last }));
        if last {
            self.asked.remove(inner as usize);
        }
    }
}

/// What CLIENT UNBLOCK makes of a blocking command.
pub fn unblocked(error: bool, resp3: bool) -> Bytes {
    Bytes::from_static(match (error, resp3) {
        (true, _) => b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n",
        (false, true) => b"_\r\n",
        (false, false) => b"*-1\r\n",
    })
}
