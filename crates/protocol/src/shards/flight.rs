//! Commands on keys at the servers: one slot's in their order, whatever its servers say. Not which server has a slot.
//!
//! As long as nothing is odd about a slot its commands follow each other down one connection. Once one is turned away, or
//! the slot's owner changes under those on their way, they are asked one at a time, in the order in which they came,
//! until none waits.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::transaction::MULTI;

use super::Shards;
use super::fan::PartPlace;
use super::redirect::{Redirect, redirect};
use super::step::ShardsStep;
use crate::shim::TRACKED;
use crate::storage::{Lane, Reach, StorageEvent, Store};
use crate::time::Time;

/// How long a slot that nobody serves for the moment is left alone.
const RETRY: Duration = Duration::from_millis(10);
/// How long ASK holds. The slot may have come back since, and ASKING is obeyed by whom it comes to next, wrongly then.
const ASK_HOLDS: Duration = Duration::from_millis(50);
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// Commands of one slot that go out together.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) ticket: u64,
    pub(super) slot: u16,
    pub(super) lane: Lane,
    pub(super) commands: SmallVec<[Bytes; 2]>,
    /// Its place among all that came.
    pub(super) order: u64,
    pub(super) since: Time,
    pub(super) not_before: Time,
    /// Who has to be asked next, with ASKING.
    pub(super) ask: Option<SocketAddr>,
    /// The last reply by which nobody would have it.
    pub(super) refusal: Option<Bytes>,
}

impl Unit {
    fn is_transaction(&self) -> bool {
        self.commands[0] == MULTI
    }

    /// The replies that say whether it was carried out: of a write and its reading back only the write's.
    fn deciding<'a>(&self, replies: &'a [Bytes]) -> &'a [Bytes] {
        match &self.commands[..] {
            [write, tracked, _] if *write != TRACKED && *tracked == TRACKED => &replies[..1],
            _ => replies,
        }
    }

    /// ASKING holds for one command, or for a transaction.
    fn frames(&self) -> SmallVec<[Bytes; 2]> {
        let asking = Bytes::from_static(ASKING);
        match self.ask {
            None => self.commands.clone(),
            Some(_) if self.is_transaction() => {
                std::iter::once(asking).chain(self.commands.iter().cloned()).collect()
            }
            Some(_) => self.commands.iter().flat_map(|command| [asking.clone(), command.clone()]).collect(),
        }
    }

    /// Without those to ASKING.
    fn replies(&self, all: SmallVec<[Bytes; 2]>) -> SmallVec<[Bytes; 2]> {
        match self.ask {
            None => all,
            Some(_) if self.is_transaction() => all.into_iter().skip(1).collect(),
            Some(_) => all.into_iter().skip(1).step_by(2).collect(),
        }
    }
}

/// A slot whose commands are asked one at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Disturbed {
    pub(super) queue: VecDeque<Unit>,
    in_flight: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Flight {
    Slot(Unit),
    /// Not sent anywhere else.
    Passed {
        ticket: u64,
    },
    /// Its reply is large and handed on in parts.
    Transfer {
        ticket: u64,
    },
    /// One of several that make up a whole.
    Part(PartPlace),
    /// CLUSTER NODES.
    View,
}

impl Flight {
    pub(super) fn ticket(&self) -> Option<u64> {
        match self {
            Flight::Slot(unit) => Some(unit.ticket),
            Flight::Passed { ticket } | Flight::Transfer { ticket } => Some(*ticket),
            Flight::Part(_) | Flight::View => None,
        }
    }
}

/// A store at a server.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) server: SocketAddr,
    pub(super) flight: Flight,
}

impl Shards {
    /// Sends a command, or keeps it until its turn.
    pub(super) fn offer(&mut self, step: &mut ShardsStep<'_>, unit: Unit) {
        let server = self.serving(Reach::Slot(unit.slot));
        if !is_ordered(unit.lane) {
            return match server {
                Some(server) => self.send(step, server, unit),
                None => self.parked.push_back(unit),
            };
        }
        let slot = unit.slot;
        match (self.disturbed.get_mut(&slot), server) {
            (None, Some(server)) => return self.send(step, server, unit),
            (Some(disturbed), _) => disturbed.queue.push_back(unit),
            (None, None) => self.disturb(slot).queue.push_back(unit),
        }
        self.pump(step, slot);
    }

    fn send(&mut self, step: &mut ShardsStep<'_>, server: SocketAddr, unit: Unit) {
        let (reach, commands) = (Reach::Slot(unit.slot), unit.frames());
        let store = Store { ticket: unit.ticket, lane: unit.lane, reach, commands };
        self.launch(step, Asked { server, flight: Flight::Slot(unit) }, store);
    }

    /// From now on its commands are asked one at a time.
    pub(super) fn disturb(&mut self, slot: u16) -> &mut Disturbed {
        let here = |flight: &Flight| matches!(flight, Flight::Slot(unit) if unit.slot == slot && is_ordered(unit.lane));
        let asked = &self.asked;
        self.disturbed.entry(slot).or_insert_with(|| Disturbed {
            queue: VecDeque::new(),
            in_flight: asked.iter().filter(|(_, asked)| here(&asked.flight)).count(),
        })
    }

    /// The slots that have commands on the way, each with the servers they are at.
    pub(super) fn in_flight(&self) -> Vec<(u16, SocketAddr)> {
        let slots = self.asked.iter().filter_map(|(_, asked)| match &asked.flight {
            Flight::Slot(unit) if is_ordered(unit.lane) => Some((unit.slot, asked.server)),
            _ => None,
        });
        slots.collect()
    }

    pub(super) fn unit_answered(
        &mut self,
        step: &mut ShardsStep<'_>,
        server: SocketAddr,
        mut unit: Unit,
        replies: SmallVec<[Bytes; 2]>,
    ) {
        let (slot, ticket) = (unit.slot, unit.ticket);
        self.landed(&unit);
        let replies = unit.replies(replies);
        match redirect(unit.deciding(&replies), unit.is_transaction(), server) {
            None => step.report(StorageEvent::Replies { ticket, replies }),
            Some(redirect) => {
                unit.ask = None;
                unit.not_before = step.now;
                match redirect {
                    Redirect::Moved => {
                        // Its own view tells who has it now.
                        if self.owner(slot) == Some(server) {
                            unit.not_before = step.now.after(RETRY);
                        }
                        self.look_again(step, server);
                    }
                    Redirect::Ask(to) => {
                        unit.ask = Some(to);
                        self.moves(step, slot);
                        self.connect(step, to);
                    }
                    Redirect::TryAgain(reply) => {
                        unit.refusal = Some(reply);
                        unit.not_before = step.now.after(RETRY);
                        self.moves(step, slot);
                    }
                    Redirect::Down(reply) => {
                        unit.refusal = Some(reply);
                        unit.not_before = step.now.after(RETRY);
                        self.look_again(step, server);
                    }
                }
                self.keep(unit);
            }
        }
        self.pump(step, slot);
    }

    pub(super) fn unit_lost(&mut self, step: &mut ShardsStep<'_>, unit: &Unit, sent: bool) {
        self.landed(unit);
        step.report(StorageEvent::Lost { ticket: unit.ticket, sent });
        self.pump(step, unit.slot);
    }

    pub(super) fn landed(&mut self, unit: &Unit) {
        if !is_ordered(unit.lane) {
            return;
        }
        if let Some(disturbed) = self.disturbed.get_mut(&unit.slot) {
            disturbed.in_flight = disturbed.in_flight.saturating_sub(1);
        }
    }

    /// In its place among those that wait.
    fn keep(&mut self, unit: Unit) {
        if !is_ordered(unit.lane) {
            return self.parked.push_back(unit);
        }
        let queue = &mut self.disturb(unit.slot).queue;
        let place = queue.partition_point(|other| other.order < unit.order);
        queue.insert(place, unit);
    }

    /// Sends the first that waits for this slot, once nothing of the slot is on its way.
    pub(super) fn pump(&mut self, step: &mut ShardsStep<'_>, slot: u16) {
        while let Some(disturbed) = self.disturbed.get_mut(&slot).filter(|slot| slot.in_flight == 0) {
            let Some(unit) = disturbed.queue.pop_front() else {
                self.disturbed.remove(&slot);
                return;
            };
            let unit = self.renewed(step.now, unit);
            let target = self.target(step.now, &unit);
            let Some(disturbed) = self.disturbed.get_mut(&slot) else { return };
            match target {
                Ok(server) => {
                    disturbed.in_flight = 1;
                    self.send(step, server, unit);
                }
                Err(false) => return disturbed.queue.push_front(unit),
                Err(true) => self.give_up(step, &unit),
            }
        }
    }

    /// What ASK said is forgotten if it could not be done at once: the owner will say it again.
    fn renewed(&self, now: Time, mut unit: Unit) -> Unit {
        let usable = |server: &SocketAddr| self.is_serving(server) && now.since(unit.not_before) < ASK_HOLDS;
        if unit.ask.is_some_and(|server| !usable(&server)) {
            unit.ask = None;
            unit.not_before = now.after(RETRY);
        }
        unit
    }

    /// Who is asked now; or nobody, and whether that is enough of waiting.
    fn target(&self, now: Time, unit: &Unit) -> Result<SocketAddr, bool> {
        let late = now.since(unit.since) >= self.config.patience;
        let server = unit.ask.or(self.owner(unit.slot)).filter(|server| self.is_serving(server));
        match server {
            Some(server) if now >= unit.not_before && !(late && unit.refusal.is_some()) => Ok(server),
            _ => Err(late),
        }
    }

    fn give_up(&self, step: &mut ShardsStep<'_>, unit: &Unit) {
        let error = unit.refusal.clone().unwrap_or_else(|| {
            let (slot, waited) = (unit.slot, self.config.patience.as_millis());
            Bytes::from(format!(
                "-CLUSTERDOWN DistCache: no server of hash slot {slot} could be reached within {waited} ms; the command \
                 was not executed\r\n"
            ))
        });
        let mut replies = SmallVec::from_elem(error, unit.commands.len());
        if unit.is_transaction() {
            // Only EXEC has failed.
            let before = replies.len() - 1;
            replies[..before].fill(Bytes::from_static(b"+QUEUED\r\n"));
        }
        step.report(StorageEvent::Replies { ticket: unit.ticket, replies });
    }

    /// Tries everything again that waits.
    pub(super) fn pump_all(&mut self, step: &mut ShardsStep<'_>) {
        let slots: Vec<u16> = self.disturbed.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.pump(step, slot));
        for unit in std::mem::take(&mut self.parked) {
            let unit = self.renewed(step.now, unit);
            match self.target(step.now, &unit) {
                Ok(server) => self.send(step, server, unit),
                Err(false) => self.parked.push_back(unit),
                Err(true) => self.give_up(step, &unit),
            }
        }
    }

    /// Nothing waits for a storage that is down.
    pub(super) fn drop_waiting(&mut self, step: &mut ShardsStep<'_>) {
        let queued = self.disturbed.values_mut().flat_map(|slot| slot.queue.drain(..));
        for unit in queued.chain(self.parked.drain(..)) {
            step.report(StorageEvent::Lost { ticket: unit.ticket, sent: false });
        }
    }
}

/// What blocks is in no order with others.
fn is_ordered(lane: Lane) -> bool {
    !matches!(lane, Lane::Pinned { .. })
}
