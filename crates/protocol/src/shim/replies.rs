//! What storage answers, and what that means: replies, fills, lost commands, another storage state.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Fill, Reply};
use wire::{Key, LayerSet, Message, NodeId, Peer, Status, View};

use super::operation::{OperationKind, Origin, Phase};
use super::operations::status_of;
use super::{Effect, FillTicket, Purpose, Shim, StorageState, Ticket, transaction};
use crate::storage::{LARGE_REPLY_BYTES, Lane, StorageEvent, StorageTraits};
use crate::time::Time;

/// A script or a function has run since `busy-reply-threshold`: Redis' words and Valkey's.
const SCRIPT_RUNS: [&[u8]; 2] = [b"-BUSY Redis is busy running", b"-BUSY Valkey is busy running"];
const LOST: &str = "-ERR DistCache: the connection to storage broke before the reply";

impl Shim {
    pub(super) fn storage_event(&mut self, now: Time, event: StorageEvent, effects: &mut Vec<Effect>) {
        match event {
            StorageEvent::Up { incarnation, traits } => self.storage_up(now, incarnation, traits, effects),
            StorageEvent::Down { reason } => {
                self.script_busy = None;
                self.storage = StorageState::Down { reason };
            }
            StorageEvent::Replies { ticket, replies } => {
                let busy =
                    replies.first().filter(|reply| SCRIPT_RUNS.iter().any(|words| reply.starts_with(words)));
                if busy.is_some() || self.script_busy.is_some() {
                    self.script_busy = busy.cloned();
                }
                if let Some(ticket) = self.tickets.try_remove(ticket as usize) {
                    if self.proves(&ticket.purpose) {
                        self.proof = self.proof.max(ticket.issued);
                    }
                    match ticket.place {
                        Some(place) => self.storage_limit.answered(now, now.since(ticket.issued), place),
                        None if matches!(ticket.purpose, Purpose::Operation(_)) => {}
                        None => self.storage_limit.sample(now.since(ticket.issued)),
                    }
                    let issued = ticket.issued;
                    if let Purpose::Feed { opens } = ticket.purpose {
                        return self.feed_answered(now, (issued, opens), &replies, effects);
                    }
                    self.answered(now, ticket, replies, effects);
                }
            }
            StorageEvent::Large { ticket } => self.large(now, ticket, effects),
            StorageEvent::Part { ticket, bytes, last } => self.part(now, ticket, (bytes, last), effects),
            StorageEvent::Lost { ticket, sent } => {
                if let Some(ticket) = self.tickets.try_remove(ticket as usize) {
                    self.statistics.storage_lost += 1;
                    if ticket.place.is_some() {
                        self.storage_limit.ended();
                    }
                    self.lost(now, ticket.purpose, sent, effects);
                }
            }
            // People read it.
            StorageEvent::Note { .. } => {}
            StorageEvent::Published(push) => self.published(&push, effects),
            StorageEvent::Unsubscribed => self.unsubscribed(),
            StorageEvent::Moving(slots) => self.slots_move(slots),
            StorageEvent::Changed(push) => self.changed(&push, effects),
            StorageEvent::FeedDown => self.feed_down(now, effects),
            StorageEvent::Fenced => self.end_quarantine(),
        }
    }

    /// Whether an answer shows that this incarnation governs all of storage.
    fn proves(&self, purpose: &Purpose) -> bool {
        match &self.storage {
            StorageState::Up { traits } if traits.many_servers => matches!(purpose, Purpose::Proof),
            _ => true,
        }
    }

    /// What is cached of slots that begin to move is invalidated.
    fn slots_move(&mut self, mut slots: Vec<u16>) {
        slots.sort_unstable();
        let before = std::mem::replace(&mut self.moving, slots);
        let begins = |key: &Key| {
            let slot = self.placement.home(key).slot;
            self.is_moving(key) && slot.is_some_and(|slot| before.binary_search(&slot).is_err())
        };
        let cached = self.keys.iter().filter(|(_, state)| !state.directory.entries.is_empty());
        let keys: Vec<Key> = cached.map(|(key, _)| key).filter(|key| begins(key)).cloned().collect();
        for key in keys {
            let (lane, keys) = (Lane::Shared { resp3: false }, SmallVec::from_elem(key, 1));
            self.enqueue(None, OperationKind::Purge, lane, Bytes::new(), keys);
        }
    }

    /// A new incarnation starts with an empty directory, and waits out the leases of all earlier ones.
    fn storage_up(&mut self, now: Time, incarnation: u64, traits: StorageTraits, effects: &mut Vec<Effect>) {
        self.storage = StorageState::Up { traits };
        if self.incarnation != Some(incarnation) {
            let earlier = self.incarnation.replace(incarnation);
            self.statistics.incarnations += 1;
            for index in 0..self.links.len() {
                self.close_session(NodeId(index as u16));
            }
            for state in self.keys.values_mut() {
                state.directory.entries.clear();
            }
            self.end_quarantine();
            self.touching.clear();
            self.proof = Time(0);
            self.hold_until = now.after(self.config.lease.restart_wait());
            if earlier.is_some() {
                // Nobody may see a value, then that it is gone, and then the value again in a copy.
                self.reads_hold_until = self.hold_until;
            }
            self.hold_purges();
        }
        self.prove(now, effects);
        self.restore_topics(now, effects);
    }

    /// Whatever was lost has happened or never will: fills may show it.
    fn end_quarantine(&mut self) {
        self.quarantined_whole = false;
        for key in std::mem::take(&mut self.quarantined) {
            if let Some(state) = self.keys.get_mut(&key) {
                state.quarantined = false;
                if state.is_idle() {
                    self.keys.remove(&key);
                }
            }
        }
    }

    fn answered(
        &mut self,
        now: Time,
        ticket: Ticket,
        replies: SmallVec<[Bytes; 2]>,
        effects: &mut Vec<Effect>,
    ) {
        let outcome = match &replies[..] {
            [_, _, ..] => match ticket.purpose {
                Purpose::Plain { .. } | Purpose::Operation(_) | Purpose::WatchedRead { .. } => {
                    Some(transaction::outcome(&replies))
                }
                _ => None,
            },
            _ => None,
        };
        let mut replies = replies.into_iter();
        let first = outcome.or_else(|| replies.next()).unwrap_or_default();
        match ticket.purpose {
            Purpose::Read { origins, key, view, resp3 } => {
                for origin in origins {
                    self.reply(origin, Some(&key), Some(view), first.clone(), effects);
                }
                self.reading_ended(now, key, (view, resp3), effects);
            }
            Purpose::Plain { origin, .. } => self.reply(origin, None, None, first, effects),
            Purpose::Watch { origin, first: begins, request } => {
                self.watched(origin, request, begins, &first, effects);
                self.reply(origin, None, None, first, effects);
            }
            Purpose::WatchedRead { origin, number } => {
                self.release_watching(number, true, effects);
                self.reply(origin, None, None, first, effects);
            }
            Purpose::Fill { node, fetch } => {
                let value = replies.next().unwrap_or_default();
                let reply = match value.len() > LARGE_REPLY_BYTES {
                    // From storage that does not say so before.
                    true => (Status::Large, Bytes::new()),
                    false => shaped(Some(fetch.view), value),
                };
                self.fill(node, fetch, &first, reply, effects);
            }
            Purpose::Operation(id) => {
                let success = status_of(&first) != Status::Error;
                self.came_whole(id, first.len());
                self.complete(id, first, success, effects);
            }
            Purpose::Proof | Purpose::Probe | Purpose::Feed { .. } | Purpose::Transfer { .. } => {}
            Purpose::Topic { kind, name, begins } => {
                self.topic_answered(now, (kind, name, begins), Some(first), effects);
            }
            Purpose::Publish { origin, channel, shard } => {
                self.receivers_counted(origin, (&channel, shard), first, effects);
            }
            Purpose::CountSubscribers { origin, kind } => {
                self.subscribers_counted(origin, kind, first, effects);
            }
            Purpose::Touch { key } => {
                let cached = self.keys.get(&key).is_some_and(|state| !state.directory.entries.is_empty());
                if first == b":0\r\n"[..] && cached {
                    let lane = Lane::Shared { resp3: false };
                    let keys = SmallVec::from_elem(key, 1);
                    self.enqueue(None, OperationKind::Purge, lane, Bytes::new(), keys);
                }
            }
        }
    }

    /// The copy becomes servable only if no write of the key has begun since it was registered.
    pub(super) fn fill(
        &mut self,
        node: NodeId,
        fetch: FillTicket,
        pttl: &Bytes,
        (status, value): (Status, Bytes),
        effects: &mut Vec<Effect>,
    ) {
        let FillTicket { session, fill, key, view, version } = fetch;
        let status = if is_passing(&value) { Status::Busy } else { status };
        let ttl = parse_pttl(pttl).map(|ttl| self.aged(ttl));
        let registered = version.is_some_and(|version| {
            let state = self.keys.get(&key);
            state.is_some_and(|state| state.is_quiet() && state.directory.is_registered(node, fill, version))
        });
        let same_session = self.links[usize::from(node.0)].session.id() == Some(session);
        let rule = self.config.settings.policies.of(&key.bytes);
        let allowed = !rule.is_never() && value.len() <= rule.value_bytes_max && !self.is_moving(&key);
        let granted =
            registered && same_session && self.grants() && ttl.is_ok() && allowed && !status.is_refusal();
        if granted {
            self.statistics.fills += 1;
        } else {
            self.statistics.fills_ungranted += 1;
        }
        let message = Fill {
            session,
            fill,
            version: version.unwrap_or(0),
            granted,
            status,
            cached: if status == Status::Large { LayerSet::EMPTY } else { self.hints(&key, view) },
            ttl_ms: rule.ttl_ms(ttl.unwrap_or(None)),
            view,
            key,
            value,
        };
        self.send(Peer::Node(node), Message::Fill(message), effects);
    }

    fn lost(&mut self, now: Time, purpose: Purpose, sent: bool, effects: &mut Vec<Effect>) {
        let text = format!("{LOST}\r\n");
        match purpose {
            Purpose::Read { origins, key, view, resp3 } => {
                for origin in origins {
                    self.reply_error(origin, &text, effects);
                }
                self.reading_ended(now, key, (view, resp3), effects);
            }
            Purpose::Plain { origin, .. } | Purpose::CountSubscribers { origin, .. } => {
                self.reply_error(origin, &text, effects);
            }
            Purpose::Publish { origin, .. } => {
                let outcome =
                    if sent { "whether it was published is unknown" } else { "it was not published" };
                self.reply_error(origin, &format!("{LOST}; {outcome}\r\n"), effects);
            }
            Purpose::Topic { kind, name, begins } => {
                self.topic_answered(now, (kind, name, begins), None, effects);
            }
            Purpose::Watch { origin, request, .. } => {
                self.watch_lost(origin, request);
                self.reply_error(origin, &text, effects);
            }
            Purpose::WatchedRead { origin, number } => {
                self.release_watching(number, false, effects);
                self.reply_error(origin, &text, effects);
            }
            Purpose::Fill { node, fetch } => {
                self.fill(node, fetch, &Bytes::new(), (Status::Error, Bytes::from(text)), effects);
            }
            Purpose::Operation(id) => self.lost_operation(id, sent, effects),
            Purpose::Transfer { origin } => self.transfer_lost(origin, effects),
            Purpose::Feed { .. } => self.feed_lost(now, effects),
            Purpose::Proof | Purpose::Probe | Purpose::Touch { .. } => {}
        }
    }

    /// A write that may or may not have happened: never retried, its keys quarantined until a fence.
    fn lost_operation(&mut self, id: u32, sent: bool, effects: &mut Vec<Effect>) {
        let operation = &self.operations[id as usize];
        let unknown = sent && operation.kind.writes();
        if unknown {
            self.quarantined_whole |= operation.kind == OperationKind::Barrier;
            for key in operation.keys.clone() {
                if let Some(state) = self.keys.get_mut(&key)
                    && !state.quarantined
                {
                    state.quarantined = true;
                    self.quarantined.push(key);
                }
            }
        }
        let text = match unknown {
            true => format!("{LOST}; whether the command took effect is unknown\r\n"),
            false => format!("{LOST}; the command had no effect\r\n"),
        };
        self.complete(id, Bytes::from(text), false, effects);
    }

    pub(super) fn down_reason(&self) -> Option<String> {
        match &self.storage {
            StorageState::Down { reason } => Some(reason.clone()),
            StorageState::Up { .. } => None,
        }
    }

    pub(super) fn reply(
        &mut self,
        origin: Origin,
        key: Option<&Key>,
        view: Option<View>,
        value: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        let (status, value) = shaped(view, value);
        let cached = match (key, view) {
            (Some(key), Some(view)) => self.hints(key, view),
            _ => LayerSet::EMPTY,
        };
        let reply = Reply { request: origin.request, status, cached, value, ..Reply::default() };
        self.send(origin.from, Message::Reply(reply), effects);
    }

    /// `text` is a complete RESP error.
    pub(super) fn reply_error(&mut self, origin: Origin, text: &str, effects: &mut Vec<Effect>) {
        self.reply(origin, None, None, Bytes::copy_from_slice(text.as_bytes()), effects);
    }

    /// One node less to wait for.
    pub(super) fn acknowledge_operation(&mut self, id: u32) {
        let Some(operation) = self.operations.get_mut(id as usize) else { return };
        operation.awaiting = operation.awaiting.saturating_sub(1);
        if operation.awaiting == 0 && operation.phase == Phase::Invalidating {
            self.ready.push_back(id);
        }
    }
}

/// The null reply to GET depends on the RESP version, so it travels as a status.
fn shaped(view: Option<View>, value: Bytes) -> (Status, Bytes) {
    if view == Some(View::GET) && (value == b"$-1\r\n"[..] || value == b"_\r\n"[..]) {
        return (Status::Nil, Bytes::new());
    }
    (status_of(&value), value)
}

/// Whether an error says that storage may answer in a moment: no reason to keep its key out of the cache.
fn is_passing(reply: &[u8]) -> bool {
    [&b"-BUSY "[..], b"-LOADING ", b"-MASTERDOWN ", b"-TRYAGAIN ", b"-CLUSTERDOWN "]
        .iter()
        .any(|code| reply.starts_with(code))
}

/// Remaining milliseconds, `None` for a key that does not expire or does not exist.
fn parse_pttl(reply: &[u8]) -> Result<Option<u64>, ()> {
    let digits = reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n")).ok_or(())?;
    let milliseconds: i64 = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(())?;
    Ok(u64::try_from(milliseconds).ok())
}
