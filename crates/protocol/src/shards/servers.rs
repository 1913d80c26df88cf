//! What single servers report, and what that makes of storage as a whole: up, down, fenced. Not who has which slot.

use core::net::SocketAddr;

use bytes::Bytes;
use rand::RngExt as _;
use smallvec::SmallVec;

use super::fan::Outcome;
use super::flight::Flight;
use super::redirect::redirect;
use super::{Effect, Shards};
use crate::storage::{StorageEvent, StorageTraits};
use crate::time::Time;
use wire::resp::Value;

impl Shards {
    pub(super) fn server_event(
        &mut self,
        now: Time,
        address: SocketAddr,
        event: StorageEvent,
        effects: &mut Vec<Effect>,
    ) {
        let Some(server) = self.servers.get_mut(&address) else { return };
        match event {
            StorageEvent::Up { incarnation, traits } => {
                server.up = Some((incarnation, traits));
                self.evaluate(effects);
                self.pump_all(now, effects);
            }
            StorageEvent::Down { reason } => {
                (server.up, server.reason) = (None, reason);
                self.hurry = true;
                self.evaluate(effects);
            }
            StorageEvent::Replies { ticket, replies } => {
                let Some(asked) = self.asked.try_remove(ticket as usize) else { return };
                self.answered(now, address, asked.flight, replies, effects);
            }
            StorageEvent::Lost { ticket, sent } => {
                let Some(asked) = self.asked.try_remove(ticket as usize) else { return };
                // What was being answered was carried out.
                server.owes_fence |= sent && !matches!(asked.flight, Flight::Transfer { .. });
                self.lost(now, address, asked.flight, sent, effects);
            }
            StorageEvent::Published(ref push) => {
                if self.is_for_us(address, push) {
                    effects.push(Effect::Report(event));
                }
            }
            StorageEvent::Note { .. } => effects.push(Effect::Report(event)),
            StorageEvent::Unsubscribed => {
                server.listens = false;
                effects.push(Effect::Report(event));
            }
            StorageEvent::Fenced => {
                server.owes_fence = false;
                if !self.servers.values().any(|server| server.owes_fence) {
                    effects.push(Effect::Report(event));
                }
            }
            StorageEvent::Changed(push) => self.changed(address, push, effects),
            StorageEvent::FeedDown => self.feed_down(address, effects),
            // A single server says nothing of slots.
            StorageEvent::Moving(_) => {}
            StorageEvent::Large { ticket } => self.large(ticket, effects),
            StorageEvent::Part { ticket, bytes, last } => self.part(ticket, (bytes, last), effects),
        }
    }

    fn answered(
        &mut self,
        now: Time,
        address: SocketAddr,
        flight: Flight,
        replies: SmallVec<[Bytes; 2]>,
        effects: &mut Vec<Effect>,
    ) {
        match flight {
            Flight::Slot(unit) => self.unit_answered(now, address, unit, replies, effects),
            Flight::Passed { ticket } => match redirect(&replies, replies.len() > 1, address) {
                None => effects.push(Effect::Report(StorageEvent::Replies { ticket, replies })),
                Some(_) => {
                    effects.push(Effect::Report(StorageEvent::Lost { ticket, sent: false }));
                    self.look_again(now, address, effects);
                }
            },
            // Its last part has ended it.
            Flight::Transfer { .. } => {}
            Flight::Part { fan, index } => {
                let reply = replies.into_iter().next().unwrap_or_default();
                self.part_ended((fan, index), Outcome::Reply(reply), effects);
            }
            Flight::View => {
                if let Some(server) = self.servers.get_mut(&address) {
                    server.viewing = false;
                }
                match replies.first().map(Value::parse) {
                    Some(Ok(Value::Error(error))) => {
                        let error = String::from_utf8_lossy(&error).into_owned();
                        let remedy = "give the storage user +cluster|nodes";
                        self.warn(format!("{address}: CLUSTER NODES: {error}: {remedy}"), effects);
                    }
                    Some(Ok(value)) => {
                        let text = value.bytes().cloned().unwrap_or_default();
                        self.seen(now, address, &text, effects);
                    }
                    _ => {}
                }
            }
        }
    }

    fn lost(
        &mut self,
        now: Time,
        address: SocketAddr,
        flight: Flight,
        sent: bool,
        effects: &mut Vec<Effect>,
    ) {
        match flight {
            Flight::Slot(unit) => self.unit_lost(now, &unit, sent, effects),
            Flight::Passed { ticket } | Flight::Transfer { ticket } => {
                effects.push(Effect::Report(StorageEvent::Lost { ticket, sent }));
            }
            Flight::Part { fan, index } => {
                self.part_ended((fan, index), Outcome::Lost { sent }, effects);
            }
            Flight::View => {
                if let Some(server) = self.servers.get_mut(&address) {
                    server.viewing = false;
                }
            }
        }
    }

    /// What the servers in use are together. All of them have to be up; those that join later are waited for by the
    /// commands of their slots alone.
    pub(super) fn evaluate(&mut self, effects: &mut Vec<Effect>) {
        self.members.retain(|server, _| self.in_use.contains_key(server));
        for (server, number) in &self.members {
            let up = self.servers.get(server).and_then(|server| server.up);
            self.void |= up.is_some_and(|(found, _)| found != *number);
        }
        let missing = self.members.keys().find(|server| !self.is_serving(server)).copied();
        if self.up && (self.void || missing.is_some()) {
            let reason = match missing.and_then(|server| self.servers.get(&server)) {
                Some(server) => server.reason.clone(),
                None => "a primary was replaced".to_owned(),
            };
            self.down(reason, effects);
        }
        if self.up {
            return self.join(effects);
        }
        let waits_for = self.in_use.keys().find(|server| !self.is_serving(server)).copied();
        match waits_for {
            _ if self.in_use.is_empty() => {}
            Some(server) => {
                let reason = self.servers.get(&server).map(|server| server.reason.clone());
                if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
                    self.down(reason, effects);
                }
            }
            None => self.rise(effects),
        }
    }

    pub(super) fn down(&mut self, reason: String, effects: &mut Vec<Effect>) {
        if self.up || reason != self.reason {
            self.reason.clone_from(&reason);
            effects.push(Effect::Report(StorageEvent::Down { reason }));
        }
        if std::mem::replace(&mut self.up, false) {
            self.drop_waiting(effects);
        }
    }

    /// Under the old number only if every server and what it holds is as it was.
    fn rise(&mut self, effects: &mut Vec<Effect>) {
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
        effects.push(Effect::Report(StorageEvent::Up { incarnation: number, traits }));
        self.check_feed(effects);
        let slots = self.moving.keys().copied().collect();
        effects.push(Effect::Report(StorageEvent::Moving(slots)));
    }

    /// Servers that have slots of this shim since: their data is what it was at another server.
    fn join(&mut self, effects: &mut Vec<Effect>) {
        let before = self.members.len();
        let traits = self.take_members();
        if self.members.len() > before {
            if let Some(incarnation) = self.number {
                effects.push(Effect::Report(StorageEvent::Up { incarnation, traits }));
            }
            // Whatever is to be heard from every server.
            effects.push(Effect::Report(StorageEvent::Unsubscribed));
        }
        self.check_feed(effects);
        if self.anchor.is_none_or(|anchor| !self.in_use.contains_key(&anchor)) {
            self.anchor = self.lowest();
            effects.push(Effect::Report(StorageEvent::Unsubscribed));
        }
    }

    fn take_members(&mut self) -> StorageTraits {
        let mut traits = StorageTraits { hash_field_expiry: false, many_servers: true };
        for server in self.in_use.keys() {
            if let Some((number, own)) = self.servers.get(server).and_then(|server| server.up) {
                self.members.insert(*server, number);
                traits.hash_field_expiry |= own.hash_field_expiry;
            }
        }
        traits
    }

    /// The server with the lowest own slot, of those that serve.
    fn lowest(&self) -> Option<SocketAddr> {
        let serving = self.in_use.iter().filter(|(server, _)| self.is_serving(server));
        serving.min_by_key(|(_, slot)| **slot).map(|(server, _)| *server)
    }
}
