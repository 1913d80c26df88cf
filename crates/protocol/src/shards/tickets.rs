//! What is wanted of a command by its ticket while a server has it: that it ends, or what becomes of its large reply. Not
//! where commands go.
//!
//! A server that answers with something large has carried the command out and sends it nowhere else: refusals are small.

use core::net::SocketAddr;

use bytes::Bytes;
use smallvec::SmallVec;

use super::flight::Flight;
use super::step::ShardsStep;
use super::{Effect, Shards};
use crate::storage::{CommandControl, Lane, StorageEvent};

impl Shards {
    /// Where a command is, and its ticket there.
    fn place(&self, ticket: u64) -> Option<(SocketAddr, u64)> {
        let mut asked = self.asked.iter();
        let (inner, asked) = asked.find(|(_, asked)| asked.flight.ticket() == Some(ticket))?;
        Some((asked.server, inner as u64))
    }

    pub(super) fn control(&mut self, step: &mut ShardsStep<'_>, ticket: u64, control: CommandControl) {
        let Some((server, inner)) = self.place(ticket) else { return self.end_parked(step, ticket, control) };
        step.effects.push(Effect::Control { server, ticket: inner, control });
        let place = inner as usize;
        let flight = match control {
            CommandControl::Abort | CommandControl::Unblock { .. } => return,
            CommandControl::Skip => self.asked.remove(place).flight,
            CommandControl::Take { .. } => {
                std::mem::replace(&mut self.asked[place].flight, Flight::Transfer { ticket })
            }
        };
        self.carried_out(step, flight);
    }

    /// One that no server has ends here as a server would end it.
    fn end_parked(&mut self, step: &mut ShardsStep<'_>, ticket: u64, control: CommandControl) {
        let ends = matches!(control, CommandControl::Abort | CommandControl::Unblock { .. });
        let parked = self.parked.iter().position(|unit| ends && unit.ticket == ticket);
        let Some(unit) = parked.and_then(|index| self.parked.remove(index)) else { return };
        step.report(match control {
            CommandControl::Unblock { error } => {
                let resp3 = unit.lane == Lane::Pinned { resp3: true };
                let replies = SmallVec::from_elem(unblocked(error, resp3), unit.commands.len());
                StorageEvent::Replies { ticket, replies }
            }
            _ => StorageEvent::Lost { ticket, sent: false },
        });
    }

    /// The next one of its slot may go.
    fn carried_out(&mut self, step: &mut ShardsStep<'_>, flight: Flight) {
        if let Flight::Slot(unit) = flight {
            self.landed(&unit);
            self.pump(step, unit.slot);
        }
    }

    /// What makes up a whole with others is kept until all of it is there: nobody is told that a part of it is large.
    pub(super) fn large(&self, step: &mut ShardsStep<'_>, inner: u64) {
        if let Some(ticket) = self.asked.get(inner as usize).and_then(|asked| asked.flight.ticket()) {
            step.report(StorageEvent::Large { ticket });
        }
    }

    pub(super) fn part(&mut self, step: &mut ShardsStep<'_>, inner: u64, bytes: Bytes, last: bool) {
        let Some(Flight::Transfer { ticket }) = self.asked.get(inner as usize).map(|asked| &asked.flight)
        else {
            return;
        };
        step.report(StorageEvent::Part { ticket: *ticket, bytes, last });
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
