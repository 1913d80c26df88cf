//! Large replies: read on a connection of their own, handed on in parts as fast as their client takes them. Not small ones.
//!
//! Nobody knows that a reply is large before it comes. The connection that all share never waits for one client, so
//! the first large reply to a read is skipped there and the read sent again on a connection of its own; the next
//! ones go there at once. A read is sent again only if nothing of its key was sent after it, and while a view of a key is
//! known to be large, all reads of the key go through its queue: no two connections can change their order.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Credit, Follows, Part, Reply};
use wire::{Key, Message, Peer, Status, View};

use super::operation::{KeyState, OperationKind, Origin};
use super::operations::{operation, status_of};
use super::reads::own;
use super::refusal::Refusal;
use super::{Effect, Purpose, Shim, Ticket};
use crate::hash::KeyMap;
use crate::requests::RequestClass;
use crate::storage::{EARLY_BYTES, LARGE_REPLY_BYTES, Lane, Wish};
use crate::time::Time;

/// Large replies under way at a time, each with a storage connection and up to `WINDOW_BYTES` on its way.
pub const TRANSFERS_MAX: usize = 128;
/// Views known to be large; a forgotten one is skipped once more.
const KNOWN_MAX: usize = 4096;
/// Whose client has taken nothing for this long gives way to another when there are too many.
const STALLED: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub(super) struct Larges {
    /// By key, the views whose last reply was large.
    known: KeyMap<SmallVec<[View; 1]>>,
    /// In which order those became known.
    order: VecDeque<(Key, View)>,
    /// By who gets them: the tickets of replies that have begun, and when more of them was asked for last.
    running: BTreeMap<(Peer, u64), (u64, Time)>,
    /// Operations on connections of their own that storage has, and whose replies have not begun.
    pub(super) asked: usize,
    /// Operations that wait until one of so many ends.
    waiting: VecDeque<u32>,
}

impl Larges {
    pub(super) fn knows(&self, key: &Key, view: View) -> bool {
        !self.known.is_empty() && self.known.get(key).is_some_and(|views| views.contains(&view))
    }

    /// Whether any view of the key is large. Then all its commands go through its queue, because reads of it may take
    /// another connection than those before them.
    pub(super) fn knows_any(&self, key: &Key) -> bool {
        !self.known.is_empty() && self.known.contains_key(key)
    }

    fn learn(&mut self, key: &Key, view: View) {
        if self.knows(key, view) {
            return;
        }
        let key = own(key);
        self.known.entry(key.clone()).or_default().push(view);
        self.order.push_back((key, view));
        if self.order.len() > KNOWN_MAX
            && let Some((key, view)) = self.order.pop_front()
        {
            self.remove(&key, view);
        }
    }

    fn forget(&mut self, key: &Key, view: View) {
        if self.knows(key, view) {
            self.remove(key, view);
            self.order.retain(|(other, its)| (other, *its) != (key, view));
        }
    }

    fn remove(&mut self, key: &Key, view: View) {
        let Some(views) = self.known.get_mut(key) else { return };
        views.retain(|other| *other != view);
        if views.is_empty() {
            self.known.remove(key);
        }
    }

    fn count(&self) -> usize {
        self.asked + self.running.len()
    }
}

impl Shim {
    /// Storage begins to answer with something large. A read on the shared connection is sent again on one of its own,
    /// unless something of its key has followed it: that it would overtake.
    pub(super) fn large(&mut self, now: Time, ticket: u64, effects: &mut Vec<Effect>) {
        let Some(purpose) = self.tickets.get(ticket as usize).map(|ticket| &ticket.purpose) else { return };
        match purpose {
            Purpose::Operation(id) if self.operations[*id as usize].streams() => {
                // Its router asks for the rest of the window at its turn: with many whole ones a link has no room for what
                // others are told.
                effects.push(Effect::Wish { ticket, wish: Wish::Take { bytes: EARLY_BYTES } });
            }
            Purpose::Operation(id) => self.skip_operation(now, ticket, *id, effects),
            Purpose::Fill { .. } => self.skip_fill(ticket, effects),
            Purpose::Read { origins, key, view, resp3 } if origins.iter().all(needs_no_whole) => {
                let (key, view, resp3) = (key.clone(), *view, *resp3);
                self.skip_reading(now, ticket, (key, view, resp3), effects);
            }
            _ => {}
        }
    }

    /// No node keeps it, so it is not sent there. Who asked the node comes here.
    fn skip_fill(&mut self, ticket: u64, effects: &mut Vec<Effect>) {
        let Purpose::Fill { node, fetch } = self.skip(ticket, effects) else { return };
        // Reads of it that are at storage might be overtaken by the next, on its own connection. That will find out again.
        if !self.is_followed(&fetch.key, 0) && !self.readings.contains_key(&fetch.key) {
            self.larges.learn(&fetch.key, fetch.view);
        }
        self.fill(node, fetch, &Bytes::new(), (Status::Large, Bytes::new()), effects);
    }

    fn skip_reading(
        &mut self,
        now: Time,
        ticket: u64,
        (key, view, resp3): (Key, View, bool),
        effects: &mut Vec<Effect>,
    ) {
        if self.is_followed(&key, 0) {
            return;
        }
        let Some((command, waiting)) = self.take_reading(&key, (view, resp3)) else { return };
        let Purpose::Read { origins, .. } = self.skip(ticket, effects) else { return };
        self.larges.learn(&key, view);
        self.since = now;
        for origin in origins.into_iter().chain(waiting) {
            self.ask_for_large(now, origin, (key.clone(), view, resp3), command.clone(), effects);
        }
    }

    /// The same for a read that was queued, because other views of its key are large.
    fn skip_operation(&mut self, now: Time, ticket: u64, id: u32, effects: &mut Vec<Effect>) {
        let operation = &self.operations[id as usize];
        let (OperationKind::Read(Some(view)), Some(origin), Lane::Shared { resp3 }) =
            (operation.kind, operation.origin.filter(needs_no_whole), operation.lane)
        else {
            return;
        };
        let (key, command) = (operation.keys[0].clone(), operation.commands[0].clone());
        if self.is_followed(&key, 1) || self.readings.contains_key(&key) {
            return;
        }
        self.skip(ticket, effects);
        self.larges.learn(&key, view);
        self.since = self.operations[id as usize].since.unwrap_or(now);
        self.operations[id as usize].origin = None;
        self.complete(id, Bytes::new(), true, effects);
        self.ask_for_large(now, origin, (key, view, resp3), command, effects);
    }

    /// Whether more than `own` commands of a key are at storage or wait for it, or one that may be of any key. What passed
    /// the queue by is searched for: that is rare enough.
    fn is_followed(&self, key: &Key, own: u32) -> bool {
        let more = |state: &KeyState| state.sent > own || state.blocked > 0 || !state.queue.is_empty();
        let passed =
            |ticket: &Ticket| matches!(&ticket.purpose, Purpose::Plain { keys, .. } if keys.contains(key));
        !self.barriers.is_empty()
            || self.keys.get(key).is_some_and(more)
            || self.tickets.iter().any(|(_, ticket)| passed(ticket))
    }

    fn skip(&mut self, ticket: u64, effects: &mut Vec<Effect>) -> Purpose {
        let found = self.tickets.remove(ticket as usize);
        if found.place.is_some() {
            self.storage_limit.ended();
        }
        self.statistics.larges_skipped += 1;
        effects.push(Effect::Wish { ticket, wish: Wish::Skip });
        found.purpose
    }

    /// A read on a connection of its own; a node is told to send who asks it here instead. It takes its place in the
    /// queue of its key until its reply begins, because what goes down the other connections would not keep its order.
    pub(super) fn ask_for_large(
        &mut self,
        now: Time,
        origin: Origin,
        (key, view, resp3): (Key, View, bool),
        command: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        if matches!(origin.from, Peer::Node(_)) {
            return self.refuse(origin, &Refusal::large(), effects);
        }
        let waits = self.waiting.limits().waits();
        if !waits && !self.has_transfer(now, effects) {
            self.statistics.sheds += 1;
            // Not busy: who asks for other things is served as ever.
            return self.refuse(origin, &Refusal::error(TRANSFERS), effects);
        }
        let keys = SmallVec::from_elem(key, 1);
        let refusal = self.overload(&keys, commands::CommandKind::Read);
        if let Some(refusal) = refusal.or_else(|| self.storage_overloaded(RequestClass::Client)) {
            return self.refuse(origin, &refusal, effects);
        }
        self.statistics.storage_reads += 1;
        let lane = Lane::Pinned { resp3 };
        self.admit_operation(operation(origin, OperationKind::Read(Some(view)), lane, command, keys));
    }

    /// A reply came whole. If it was expected to be large, that may be over.
    pub(super) fn came_whole(&mut self, id: u32, bytes: usize) {
        let operation = &self.operations[id as usize];
        let small = bytes <= LARGE_REPLY_BYTES;
        if let (true, OperationKind::Read(Some(view)), [key]) = (small, operation.kind, &operation.keys[..]) {
            self.larges.forget(key, view);
        }
    }

    /// The next bytes of a large reply. With the first ones storage has carried the read out, so its key is free.
    pub(super) fn part(
        &mut self,
        now: Time,
        ticket: u64,
        (value, last): (Bytes, bool),
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.tickets.get(ticket as usize) else { return };
        let origin = match found.purpose {
            Purpose::Transfer { origin } => {
                if let Some(Origin { from, request, .. }) = origin {
                    let follows = if last { Follows::Nothing } else { Follows::More };
                    self.send(from, Message::Part(Part { request, follows, value }), effects);
                }
                origin
            }
            Purpose::Operation(id) if self.operations[id as usize].streams() => {
                self.transfer_begins(id, (value, last), effects)
            }
            _ => return,
        };
        let running = origin.map(|origin| (origin.from, origin.request));
        if last {
            self.tickets.remove(ticket as usize);
            running.map(|running| self.larges.running.remove(&running));
        } else {
            self.tickets[ticket as usize].purpose = Purpose::Transfer { origin };
            running.map(|running| self.larges.running.entry(running).or_insert((ticket, now)));
        }
    }

    fn transfer_begins(
        &mut self,
        id: u32,
        (value, last): (Bytes, bool),
        effects: &mut Vec<Effect>,
    ) -> Option<Origin> {
        self.statistics.transfers += 1;
        let operation = &mut self.operations[id as usize];
        let origin = operation.origin.take().filter(|_| !operation.cancelled);
        let (key, kind) = (operation.keys[0].clone(), operation.kind);
        self.complete(id, Bytes::new(), true, effects);
        if let (Some(Origin { from, request, .. }), OperationKind::Read(Some(view))) = (origin, kind) {
            let (status, cached) = (status_of(&value), self.hints(&key, view));
            let reply = Reply { request, status, cached, more: !last, value, ..Reply::default() };
            self.send(from, Message::Reply(reply), effects);
        }
        origin
    }

    /// The client has taken what it got: as much again may be on its way.
    pub(super) fn credit(&mut self, now: Time, from: Peer, credit: &Credit, effects: &mut Vec<Effect>) {
        let Some((ticket, asked)) = self.larges.running.get_mut(&(from, credit.request)) else { return };
        *asked = now;
        effects.push(Effect::Wish { ticket: *ticket, wish: Wish::Take { bytes: credit.bytes } });
    }

    /// Nobody waits for the rest any more.
    pub(super) fn end_transfer(&mut self, wanted: (Peer, u64), effects: &mut Vec<Effect>) {
        let Some((ticket, _)) = self.larges.running.remove(&wanted) else { return };
        self.tickets[ticket as usize].purpose = Purpose::Transfer { origin: None };
        effects.push(Effect::Wish { ticket, wish: Wish::Abort });
    }

    pub(super) fn end_transfers_of(&mut self, router: Peer, effects: &mut Vec<Effect>) {
        let running = self.larges.running.keys().filter(|(from, _)| *from == router);
        for wanted in running.copied().collect::<Vec<_>>() {
            self.end_transfer(wanted, effects);
        }
    }

    /// Whether a large reply more may be under way.
    fn has_transfer(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        self.larges.count() < TRANSFERS_MAX || self.end_stalled_transfer(now, effects)
    }

    /// The same for this operation; if not, it is tried again once there may.
    pub(super) fn must_await_transfer(&mut self, id: u32) -> bool {
        let full = self.operations[id as usize].streams() && self.larges.count() >= TRANSFERS_MAX;
        if full && !self.larges.waiting.contains(&id) {
            self.larges.waiting.push_back(id);
        }
        full
    }

    /// What waits for others to end goes on as far as it may.
    pub(super) fn begin_transfers(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if !self.larges.waiting.is_empty() && self.has_transfer(now, effects) {
            let room = TRANSFERS_MAX.saturating_sub(self.larges.count());
            let count = room.min(self.larges.waiting.len());
            self.ready.extend(self.larges.waiting.drain(..count));
        }
    }

    /// Makes room for another large reply. Whether there was one that nobody reads.
    fn end_stalled_transfer(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        let stalled = |(_, (_, asked)): &(&(Peer, u64), &(u64, Time))| now.since(*asked) >= STALLED;
        let Some((&(from, request), _)) = self.larges.running.iter().find(stalled) else { return false };
        self.statistics.transfers_cut += 1;
        self.end_transfer((from, request), effects);
        let (follows, value) = (Follows::Lost, Bytes::new());
        self.send(from, Message::Part(Part { request, follows, value }), effects);
        true
    }

    pub(super) fn transfer_lost(&mut self, origin: Option<Origin>, effects: &mut Vec<Effect>) {
        let Some(Origin { from, request, .. }) = origin else { return };
        self.larges.running.remove(&(from, request));
        let (follows, value) = (Follows::Lost, Bytes::new());
        self.send(from, Message::Part(Part { request, follows, value }), effects);
    }
}

/// Whether the reader takes parts, or does not take large replies at all.
fn needs_no_whole(origin: &Origin) -> bool {
    origin.streams || matches!(origin.from, Peer::Node(_))
}

const TRANSFERS: &str = "-BUSY DistCache: too many large replies are on their way from this storage server; the command \
                         was not executed, try again later\r\n";
