//! What single servers report, and what that makes of storage as a whole: up, down, fenced. Not who has which slot.

use core::net::SocketAddr;

use bytes::Bytes;
use rand::RngExt as _;
use smallvec::SmallVec;

use super::Shards;
use super::fan::Outcome;
use super::flight::{Asked, Flight};
use super::redirect::redirect;
use super::step::ShardsStep;
use crate::coherence::lease::EarlierIncarnations;
use crate::storage::{StorageEvent, StorageTraits};
use crate::time::Time;
use wire::resp::Value;

impl Shards {
    pub(super) fn server_event(
        &mut self,
        step: &mut ShardsStep<'_>,
        address: SocketAddr,
        event: StorageEvent,
    ) {
        let Some(server) = self.servers.get_mut(&address) else { return };
        match event {
            StorageEvent::Up { incarnation, traits, earlier } => {
                server.up = Some((incarnation, traits));
                server.leases_end = server.leases_end.max(step.now.after(earlier.recorded));
                server.unrecorded = server.unrecorded.max(earlier.unrecorded);
                server.has_other_data |= !earlier.same_data;
                self.evaluate(step);
                self.pump_all(step);
            }
            StorageEvent::Down { reason, gone } => {
                (server.up, server.reason, server.gone) = (None, reason, gone);
                self.hurry = true;
                self.evaluate(step);
            }
            StorageEvent::Replies { ticket, replies } => {
                let Some(asked) = self.asked.try_remove(ticket as usize) else { return };
                self.answered(step, asked, replies);
            }
            StorageEvent::Lost { ticket, sent } => {
                let Some(asked) = self.asked.try_remove(ticket as usize) else { return };
                // What was being answered was carried out.
                server.owes_fence |= sent && !matches!(asked.flight, Flight::Transfer { .. });
                self.lost(step, asked, sent);
            }
            StorageEvent::Published(ref push) => {
                if self.is_for_us(address, push) {
                    step.report(event);
                }
            }
            StorageEvent::Note { .. } => step.report(event),
            // Servers are left for good, and not handed over; keys move as the servers have it.
            StorageEvent::Left
            | StorageEvent::Marked
            | StorageEvent::Migrated
            | StorageEvent::MigrationEnded => {}
            StorageEvent::Unsubscribed => {
                server.listens = false;
                step.report(event);
            }
            StorageEvent::Fenced => {
                server.owes_fence = false;
                if !self.servers.values().any(|server| server.owes_fence) {
                    step.report(event);
                }
            }
            StorageEvent::Changed(push) => self.changed(step, address, push),
            StorageEvent::FeedDown => self.reporting.lose(step, &address),
            StorageEvent::ReadChanged(push) => self.read_changed(step, address, push),
            StorageEvent::ReadFeedDown => self.reporting_reads.lose(step, &address),
            // A single server says nothing of slots, and Redis names the keys that others change.
            StorageEvent::Moving(_) | StorageEvent::ForeignWrites { .. } => {}
            StorageEvent::Large { ticket } => self.large(step, ticket),
            StorageEvent::Part { ticket, bytes, last } => self.part(step, ticket, bytes, last),
        }
    }

    fn answered(&mut self, step: &mut ShardsStep<'_>, asked: Asked, replies: SmallVec<[Bytes; 2]>) {
        let address = asked.server;
        match asked.flight {
            Flight::Slot(unit) => self.unit_answered(step, address, unit, replies),
            Flight::Passed { ticket } => match redirect(&replies, replies.len() > 1, address) {
                None => step.report(StorageEvent::Replies { ticket, replies }),
                Some(_) => {
                    step.report(StorageEvent::Lost { ticket, sent: false });
                    self.look_again(step, address);
                }
            },
            // Its last part has ended it.
            Flight::Transfer { .. } => {}
            Flight::Part(place) => {
                let reply = replies.into_iter().next().unwrap_or_default();
                self.part_ended(step, place, Outcome::Reply(reply));
            }
            Flight::View => {
                if let Some(server) = self.servers.get_mut(&address) {
                    server.viewing = false;
                }
                match replies.first().map(Value::parse) {
                    Some(Ok(Value::Error(error))) => {
                        let error = String::from_utf8_lossy(&error).into_owned();
                        let remedy = "give the storage user +cluster|nodes";
                        self.warn(step, format!("{address}: CLUSTER NODES: {error}: {remedy}"));
                    }
                    Some(Ok(value)) => {
                        let text = value.bytes().cloned().unwrap_or_default();
                        self.seen(step, address, &text);
                    }
                    _ => {}
                }
            }
        }
    }

    fn lost(&mut self, step: &mut ShardsStep<'_>, asked: Asked, sent: bool) {
        match asked.flight {
            Flight::Slot(unit) => self.unit_lost(step, &unit, sent),
            Flight::Passed { ticket } | Flight::Transfer { ticket } => {
                step.report(StorageEvent::Lost { ticket, sent });
            }
            Flight::Part(place) => self.part_ended(step, place, Outcome::Lost { sent }),
            Flight::View => {
                if let Some(server) = self.servers.get_mut(&asked.server) {
                    server.viewing = false;
                }
            }
        }
    }

    /// What the servers in use are together. All of them have to be up; those that join later are waited for by the
    /// commands of their slots alone.
    pub(super) fn evaluate(&mut self, step: &mut ShardsStep<'_>) {
        self.members.retain(|server, _| self.in_use.contains_key(server));
        for (server, number) in &self.members {
            let up = self.servers.get(server).and_then(|server| server.up);
            self.void |= up.is_some_and(|(found, _)| found != *number);
        }
        let missing = self.members.keys().find(|server| !self.is_serving(server)).copied();
        if self.up && (self.void || missing.is_some()) {
            let (reason, gone) = match missing.and_then(|server| self.servers.get(&server)) {
                Some(server) => (server.reason.clone(), server.gone),
                None => ("a primary was replaced".to_owned(), false),
            };
            self.down(step, reason, gone);
        }
        if self.up {
            return self.join(step);
        }
        let waits_for = self.in_use.keys().find(|server| !self.is_serving(server)).copied();
        match waits_for {
            _ if self.in_use.is_empty() => {}
            Some(server) => {
                let server = self.servers.get(&server).filter(|server| !server.reason.is_empty());
                if let Some((reason, gone)) = server.map(|server| (server.reason.clone(), server.gone)) {
                    self.down(step, reason, gone);
                }
            }
            None => self.rise(step),
        }
    }

    pub(super) fn down(&mut self, step: &mut ShardsStep<'_>, reason: String, gone: bool) {
        if self.up || reason != self.reason {
            self.reason.clone_from(&reason);
            step.report(StorageEvent::Down { reason, gone });
        }
        if std::mem::replace(&mut self.up, false) {
            self.drop_waiting(step);
        }
    }

    /// Under the old number only if every server and what it holds is as it was.
    fn rise(&mut self, step: &mut ShardsStep<'_>) {
        let number = self.number.filter(|_| !self.void);
        if number.is_none() {
            // Servers that are not in use any more apply nothing late: their slots are others'.
            self.servers.values_mut().for_each(|server| server.owes_fence = false);
        }
        let number = number.unwrap_or_else(|| self.random.random());
        (self.number, self.void, self.up) = (Some(number), false, true);
        self.reason.clear();
        self.members.clear();
        let traits = self.take_members();
        if self.anchor.is_none_or(|anchor| !self.in_use.contains_key(&anchor)) {
            self.anchor = self.lowest();
        }
        let earlier = self.take_earlier(step.now);
        step.report(StorageEvent::Up { incarnation: number, traits, earlier });
        self.check_feeds(step);
        let slots = self.moving.keys().copied().collect();
        step.report(StorageEvent::Moving(slots));
    }

    /// Servers that have slots of this shim since: their data is what it was at another server.
    fn join(&mut self, step: &mut ShardsStep<'_>) {
        let before = self.members.len();
        let traits = self.take_members();
        if self.members.len() > before {
            if let Some(incarnation) = self.number {
                // What earlier incarnations granted of its slots was proven by servers that were in use before.
                step.report(StorageEvent::Up { incarnation, traits, earlier: EarlierIncarnations::NONE });
            }
            // Whatever is to be heard from every server.
            step.report(StorageEvent::Unsubscribed);
        }
        self.check_feeds(step);
        if self.anchor.is_none_or(|anchor| !self.in_use.contains_key(&anchor)) {
            self.anchor = self.lowest();
            step.report(StorageEvent::Unsubscribed);
        }
    }

    fn take_members(&mut self) -> StorageTraits {
        let mut traits = StorageTraits { many_servers: true, tracks_reads: true, ..StorageTraits::default() };
        for server in self.in_use.keys() {
            if let Some((number, own)) = self.servers.get(server).and_then(|server| server.up) {
                self.members.insert(*server, number);
                traits.hash_field_expiry |= own.hash_field_expiry;
                traits.tracks_reads &= own.tracks_reads;
                traits.short_leases |= own.short_leases;
                traits.unfenced |= own.unfenced;
            }
        }
        traits
    }

    /// Earlier incarnations at all servers, because keys may have moved between them since.
    fn take_earlier(&mut self, now: Time) -> EarlierIncarnations {
        let mut earlier = EarlierIncarnations::NONE;
        for server in self.servers.values_mut().filter(|server| server.up.is_some()) {
            earlier.recorded = earlier.recorded.max(server.leases_end.since(now));
            earlier.unrecorded = earlier.unrecorded.max(std::mem::take(&mut server.unrecorded));
            earlier.same_data &= !std::mem::take(&mut server.has_other_data);
        }
        earlier
    }

    /// The server with the lowest own slot, of those that serve.
    fn lowest(&self) -> Option<SocketAddr> {
        let serving = self.in_use.iter().filter(|(server, _)| self.is_serving(server));
        serving.min_by_key(|(_, slot)| **slot).map(|(server, _)| *server)
    }
}
