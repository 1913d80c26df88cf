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
use super::replies::Shaped;
use super::step::ShimStep;
use super::{Effect, Purpose, Shim, Ticket};
use crate::hash::KeyMap;
use crate::key_view::KeyView;
use crate::requests::RequestClass;
use crate::storage::{CommandControl, EARLY_BYTES, LARGE_REPLY_BYTES, Lane};
use crate::time::Time;

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

/// The next bytes of a large reply.
pub(super) struct ReplyChunk {
    pub(super) bytes: Bytes,
    pub(super) last: bool,
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
    pub(super) fn large(&mut self, step: &mut ShimStep<'_>, ticket: u64) {
        let Some(purpose) = self.tickets.get(ticket as usize).map(|ticket| &ticket.purpose) else { return };
        match purpose {
            Purpose::Operation(id) if self.operations[*id as usize].streams() => {
                // Its router asks for the rest of the window at its turn: with many whole ones a link has no room for what
                // others are told.
                step.effects
                    .push(Effect::Control { ticket, control: CommandControl::Take { bytes: EARLY_BYTES } });
            }
            Purpose::Operation(id) => self.skip_operation(step, ticket, *id),
            Purpose::Fill(_) => self.skip_fill(step, ticket),
            Purpose::Read { origins, asked } if origins.iter().all(needs_no_whole) => {
                let asked = asked.clone();
                self.skip_reading(step, ticket, &asked);
            }
            _ => {}
        }
    }

    /// No node keeps it, so it is not sent there. Who asked the node comes here.
    fn skip_fill(&mut self, step: &mut ShimStep<'_>, ticket: u64) {
        let Purpose::Fill(fetch) = self.skip(step, ticket) else { return };
        // Reads of it that are at storage might be overtaken by the next, on its own connection. That will find out again.
        if !self.is_followed(&fetch.key, 0) && !self.readings.contains_key(&fetch.key) {
            self.larges.learn(&fetch.key, fetch.view);
        }
        let large = Shaped { status: Status::Large, value: Bytes::new() };
        self.fill(step, fetch, &Bytes::new(), large);
    }

    fn skip_reading(&mut self, step: &mut ShimStep<'_>, ticket: u64, asked: &KeyView) {
        if self.is_followed(&asked.key, 0) {
            return;
        }
        let Some((command, waiting)) = self.take_reading(asked) else { return };
        let Purpose::Read { origins, .. } = self.skip(step, ticket) else { return };
        self.larges.learn(&asked.key, asked.view);
        self.since = step.now;
        for origin in origins.into_iter().chain(waiting) {
            self.ask_for_large(step, origin, asked.clone(), command.clone());
        }
    }

    /// The same for a read that was queued, because other views of its key are large.
    fn skip_operation(&mut self, step: &mut ShimStep<'_>, ticket: u64, id: u32) {
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
        self.skip(step, ticket);
        self.larges.learn(&key, view);
        self.since = self.operations[id as usize].since.unwrap_or(step.now);
        self.operations[id as usize].origin = None;
        self.complete(step, id, Bytes::new(), true);
        self.ask_for_large(step, origin, KeyView { key, view, resp3 }, command);
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

    fn skip(&mut self, step: &mut ShimStep<'_>, ticket: u64) -> Purpose {
        let found = self.tickets.remove(ticket as usize);
        if found.place.is_some() {
            self.storage_limit.ended();
        }
        self.statistics.large_replies_skipped += 1;
        step.effects.push(Effect::Control { ticket, control: CommandControl::Skip });
        found.purpose
    }

    /// A read on a connection of its own; a node is told to send who asks it here instead. It takes its place in the
    /// queue of its key until its reply begins, because what goes down the other connections would not keep its order.
    pub(super) fn ask_for_large(
        &mut self,
        step: &mut ShimStep<'_>,
        origin: Origin,
        asked: KeyView,
        command: Bytes,
    ) {
        if matches!(origin.from, Peer::Node(_)) {
            return step.refuse(origin, &Refusal::large());
        }
        let waits = self.waiting.limits().waits();
        if !waits && !self.has_transfer(step) {
            self.statistics.sheds += 1;
            // Not busy: who asks for other things is served as ever.
            return step.refuse(origin, &Refusal::error(TRANSFERS));
        }
        let KeyView { key, view, resp3 } = asked;
        let keys = SmallVec::from_elem(key, 1);
        let refusal = self.overload(&keys, commands::CommandKind::Read);
        if let Some(refusal) = refusal.or_else(|| self.storage_overloaded(RequestClass::Client)) {
            return step.refuse(origin, &refusal);
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
    pub(super) fn part(&mut self, step: &mut ShimStep<'_>, ticket: u64, chunk: ReplyChunk) {
        let Some(found) = self.tickets.get(ticket as usize) else { return };
        let last = chunk.last;
        let origin = match found.purpose {
            Purpose::Transfer { origin } => {
                if let Some(Origin { from, request, .. }) = origin {
                    let follows = if last { Follows::Nothing } else { Follows::More };
                    let part = Part { request, follows, value: chunk.bytes };
                    step.send(from, Message::Part(part));
                }
                origin
            }
            Purpose::Operation(id) if self.operations[id as usize].streams() => {
                self.transfer_begins(step, id, chunk)
            }
            _ => return,
        };
        let running = origin.map(|origin| (origin.from, origin.request));
        if last {
            self.tickets.remove(ticket as usize);
            running.map(|running| self.larges.running.remove(&running));
        } else {
            self.tickets[ticket as usize].purpose = Purpose::Transfer { origin };
            running.map(|running| self.larges.running.entry(running).or_insert((ticket, step.now)));
        }
    }

    fn transfer_begins(&mut self, step: &mut ShimStep<'_>, id: u32, chunk: ReplyChunk) -> Option<Origin> {
        self.statistics.large_replies += 1;
        let operation = &mut self.operations[id as usize];
        let origin = operation.origin.take().filter(|_| !operation.cancelled);
        let (key, kind) = (operation.keys[0].clone(), operation.kind);
        self.complete(step, id, Bytes::new(), true);
        if let (Some(Origin { from, request, .. }), OperationKind::Read(Some(view))) = (origin, kind) {
            let ReplyChunk { bytes: value, last } = chunk;
            let (status, cached) = (status_of(&value), self.hints(&key, view));
            let reply = Reply { request, status, cached, more: !last, value, ..Reply::default() };
            step.send(from, Message::Reply(reply));
        }
        origin
    }

    /// The client has taken what it got: as much again may be on its way.
    pub(super) fn credit(&mut self, step: &mut ShimStep<'_>, from: Peer, credit: &Credit) {
        let Some((ticket, asked)) = self.larges.running.get_mut(&(from, credit.request)) else { return };
        *asked = step.now;
        step.effects
            .push(Effect::Control { ticket: *ticket, control: CommandControl::Take { bytes: credit.bytes } });
    }

    /// Nobody waits for the rest any more.
    pub(super) fn end_transfer(&mut self, step: &mut ShimStep<'_>, wanted: (Peer, u64)) {
        let Some((ticket, _)) = self.larges.running.remove(&wanted) else { return };
        self.tickets[ticket as usize].purpose = Purpose::Transfer { origin: None };
        step.effects.push(Effect::Control { ticket, control: CommandControl::Abort });
    }

    pub(super) fn end_transfers_of(&mut self, step: &mut ShimStep<'_>, router: Peer) {
        let running = self.larges.running.keys().filter(|(from, _)| *from == router);
        for wanted in running.copied().collect::<Vec<_>>() {
            self.end_transfer(step, wanted);
        }
    }

    /// Whether a large reply more may be under way.
    fn has_transfer(&mut self, step: &mut ShimStep<'_>) -> bool {
        self.larges.count() < self.config.large_replies_max || self.end_stalled_transfer(step)
    }

    /// The same for this operation; if not, it is tried again once there may.
    pub(super) fn must_await_transfer(&mut self, id: u32) -> bool {
        let full =
            self.operations[id as usize].streams() && self.larges.count() >= self.config.large_replies_max;
        if full && !self.larges.waiting.contains(&id) {
            self.larges.waiting.push_back(id);
        }
        full
    }

    /// What waits for others to end goes on as far as it may.
    pub(super) fn begin_transfers(&mut self, step: &mut ShimStep<'_>) {
        if !self.larges.waiting.is_empty() && self.has_transfer(step) {
            let room = self.config.large_replies_max.saturating_sub(self.larges.count());
            let count = room.min(self.larges.waiting.len());
            self.ready.extend(self.larges.waiting.drain(..count));
        }
    }

    /// Makes room for another large reply. Whether there was one that nobody reads.
    fn end_stalled_transfer(&mut self, step: &mut ShimStep<'_>) -> bool {
        let stalled = |(_, (_, asked)): &(&(Peer, u64), &(u64, Time))| step.now.since(*asked) >= STALLED;
        let Some((&(from, request), _)) = self.larges.running.iter().find(stalled) else { return false };
        self.statistics.large_replies_cut += 1;
        self.end_transfer(step, (from, request));
        let (follows, value) = (Follows::Lost, Bytes::new());
        step.send(from, Message::Part(Part { request, follows, value }));
        true
    }

    pub(super) fn transfer_lost(&mut self, step: &mut ShimStep<'_>, origin: Option<Origin>) {
        let Some(Origin { from, request, .. }) = origin else { return };
        self.larges.running.remove(&(from, request));
        let (follows, value) = (Follows::Lost, Bytes::new());
        step.send(from, Message::Part(Part { request, follows, value }));
    }
}

/// Whether the reader takes parts, or does not take large replies at all.
fn needs_no_whole(origin: &Origin) -> bool {
    origin.streams || matches!(origin.from, Peer::Node(_))
}

const TRANSFERS: &str = "-BUSY DistCache: too many large replies are on their way from this storage server; the command \
                         was not executed, try again later\r\n";
