//! What storage answers, and what that means: replies, fills, lost commands, another storage state.

use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Fill, Reply};
use wire::{Key, LayerSet, Message, Status, View};

use super::large::ReplyChunk;
use super::operation::{OperationKind, Phase, blank};
use super::operations::status_of;
use super::reach::RouterReach;
use super::read_feed::ReadMark;
use super::step::ShimStep;
use super::{FillTicket, Purpose, Shim, Ticket, transaction};
use crate::coherence::lease::EarlierIncarnations;
use crate::storage::{LARGE_REPLY_BYTES, StorageEvent, StorageTraits};
use crate::time::Time;

/// A script or a function has run since `busy-reply-threshold`: Redis' words and Valkey's.
const SCRIPT_RUNS: [&[u8]; 2] = [b"-BUSY Redis is busy running", b"-BUSY Valkey is busy running"];
const LOST: &str = "-ERR DistCache: the connection to storage broke before the reply";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StorageState {
    Down {
        reason: String,
        /// Nothing answers, or only that it is not ready.
        gone: bool,
    },
    Up {
        traits: StorageTraits,
    },
}

impl Shim {
    pub(super) fn storage_event(&mut self, step: &mut ShimStep<'_>, event: StorageEvent) {
        self.storage_heard |= matches!(event, StorageEvent::Up { .. } | StorageEvent::Down { .. });
        match event {
            StorageEvent::Up { incarnation, traits, earlier } => {
                self.storage_up(step, incarnation, traits, earlier);
            }
            StorageEvent::Down { reason, gone } => self.storage_down(step, reason, gone),
            StorageEvent::Replies { ticket, replies } => {
                let busy =
                    replies.first().filter(|reply| SCRIPT_RUNS.iter().any(|words| reply.starts_with(words)));
                if busy.is_some() || self.script_busy.is_some() {
                    self.script_busy = busy.cloned();
                }
                if let Some(ticket) = self.tickets.try_remove(ticket as usize) {
                    self.storage_lives(step, ticket.issued, replies.first().map_or(&[][..], |reply| reply));
                    if self.proves(&ticket.purpose) {
                        self.proof = self.proof.max(ticket.issued);
                    }
                    match ticket.place {
                        Some(place) => {
                            self.storage_limit.answered(step.now, step.now.since(ticket.issued), place)
                        }
                        None if matches!(ticket.purpose, Purpose::Operation(_)) => {}
                        None => self.storage_limit.sample(step.now.since(ticket.issued)),
                    }
                    match ticket.purpose {
                        Purpose::Feed { opens } if self.feed.awaits(ticket.issued, opens) => {
                            self.feed_answered(step, opens, &replies);
                        }
                        _ => self.answered(step, ticket, replies),
                    }
                }
            }
            StorageEvent::Large { ticket } => self.large(step, ticket),
            StorageEvent::Part { ticket, bytes, last } => self.part(step, ticket, ReplyChunk { bytes, last }),
            StorageEvent::Lost { ticket, sent } => {
                if let Some(ticket) = self.tickets.try_remove(ticket as usize) {
                    self.statistics.storage_errors += 1;
                    if ticket.place.is_some() {
                        self.storage_limit.ended();
                    }
                    self.lost(step, ticket.purpose, sent);
                }
            }
            // People read it.
            StorageEvent::Note { .. } => {}
            StorageEvent::Left => self.left(step),
            // Whoever has asked for it has heard of it.
            StorageEvent::Marked => {}
            StorageEvent::Migrated => self.migrated(step),
            StorageEvent::MigrationEnded => self.migration_ended(),
            StorageEvent::Published(push) => self.published(step, &push),
            StorageEvent::Unsubscribed => self.unsubscribed(),
            StorageEvent::Moving(slots) => self.slots_move(slots),
            StorageEvent::Changed(push) => self.changed(step, &push),
            StorageEvent::FeedDown => self.feed_down(step),
            StorageEvent::ReadChanged(push) => self.read_changed(step, &push),
            StorageEvent::ReadFeedDown => self.read_feed_down(step),
            StorageEvent::ForeignWrites { count, connections } => {
                self.foreign_writes(step.now, count, connections)
            }
            StorageEvent::Fenced => self.end_quarantine(),
        }
    }

    fn storage_down(&mut self, step: &mut ShimStep<'_>, reason: String, gone: bool) {
        self.script_busy = None;
        let was_up = matches!(self.storage, StorageState::Up { .. });
        self.storage = StorageState::Down { reason, gone };
        if was_up {
            self.tell_tenure(step);
        }
        self.returns(step);
        match gone {
            true => self.tick_stale(step),
            false => self.drop_what_may_be_stale(step),
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
            self.admit_operation(blank(OperationKind::Purge, SmallVec::from_elem(key, 1)));
        }
    }

    /// A new incarnation starts with an empty directory, and waits out the leases of all earlier ones.
    fn storage_up(
        &mut self,
        step: &mut ShimStep<'_>,
        incarnation: u64,
        traits: StorageTraits,
        earlier: EarlierIncarnations,
    ) {
        self.storage = StorageState::Up { traits };
        if self.incarnation != Some(incarnation) {
            let own = self.incarnation.replace(incarnation);
            self.statistics.incarnations += 1;
            self.forget_what_may_be_stale();
            for holder in self.holders.peers() {
                self.close_session(holder);
            }
            for state in self.keys.values_mut() {
                state.directory.entries.clear();
                state.mark = ReadMark::default();
            }
            self.statistics.copies = 0;
            self.end_quarantine();
            self.touching.clear();
            self.short_leases = traits.short_leases;
            self.governed = self.governed.max(self.proof);
            let wait = step.now.after(self.earlier_wait(step.now, earlier));
            self.hold_until = match own {
                Some(_) => wait.max(step.now.after(self.config.lease.restart_wait())).max(self.hold_until),
                None => wait,
            };
            (self.proof, self.governs_since) = (Time(0), step.now);
            self.reach = RouterReach::default();
            if own.is_some() || !earlier.same_data {
                // Nobody may see a value, then that it is gone, and then the value again in a copy.
                self.reads_hold_until = self.hold_until;
            }
            self.hold_purges();
        }
        // What the feed has missed nobody knows.
        self.drop_what_may_be_stale(step);
        self.tell_tenure(step);
        self.prove(step);
        self.restore_topics(step);
    }

    /// How long leases of other incarnations may run from now on.
    fn earlier_wait(&self, now: Time, earlier: EarlierIncarnations) -> Duration {
        let seen = Some(self.governed).filter(|seen| *seen > Time(0));
        self.config.lease_limits.wait(earlier, seen.map(|seen| now.since(seen)))
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

    fn answered(&mut self, step: &mut ShimStep<'_>, ticket: Ticket, replies: SmallVec<[Bytes; 2]>) {
        let outcome = match &replies[..] {
            [_, _, ..] => match ticket.purpose {
                Purpose::Operation(id) if self.operations[id as usize].reads_back => {
                    self.read_back(id, &replies);
                    None
                }
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
            Purpose::Read { origins, asked } => {
                let reply = self.view_reply(&asked.key, asked.view, first);
                for origin in origins {
                    step.answer(origin, reply.clone());
                }
                self.reading_ended(step, asked);
            }
            Purpose::Plain { origin, .. } => step.reply(origin, first),
            Purpose::Watch { origin, first: begins, request } => {
                if status_of(&first) == Status::Error {
                    self.watch_lost(origin, request);
                    if begins {
                        // There is nothing to keep.
                        self.unwatch(step, origin.from, request);
                    }
                }
                step.reply(origin, first);
            }
            Purpose::WatchedRead { origin, number } => {
                self.release_watching(step, number, true);
                step.reply(origin, first);
            }
            Purpose::Fill(fetch) => self.fill_answered(step, fetch, ticket.issued, first, replies),
            Purpose::Operation(id) => {
                let success = status_of(&first) != Status::Error;
                self.came_whole(id, first.len());
                self.complete(step, id, first, success);
            }
            Purpose::Proof | Purpose::Probe | Purpose::Feed { .. } | Purpose::Transfer { .. } => {}
            Purpose::ReadFeed { ping } => self.read_feed_answered(ping, &first),
            Purpose::Examination => self.examined(step, &first, replies.collect()),
            Purpose::Topic(change) => self.topic_answered(step, change, Some(first)),
            Purpose::Publish { origin, channel, shard } => {
                let reply = self.receivers_counted(&channel, shard, first);
                step.reply(origin, reply);
            }
            Purpose::CountSubscribers { origin, kind } => {
                self.subscribers_counted(step, origin, kind, first);
            }
            Purpose::Touch { key } => {
                let cached = self.keys.get(&key).is_some_and(|state| !state.directory.entries.is_empty());
                if first == b":0\r\n"[..] && cached {
                    self.admit_operation(blank(OperationKind::Purge, SmallVec::from_elem(key, 1)));
                }
            }
        }
    }

    /// Storage has answered the read of a fill, or its announcement and the read.
    fn fill_answered(
        &mut self,
        step: &mut ShimStep<'_>,
        mut fetch: FillTicket,
        asked: Time,
        first: Bytes,
        mut replies: impl Iterator<Item = Bytes>,
    ) {
        let pttl = match fetch.tracked {
            Some(_) => replies.next().unwrap_or_default(),
            None => first.clone(),
        };
        if fetch.tracked.is_some() {
            self.read_announced(&mut fetch, &first, asked, parse_pttl(&pttl).ok().flatten());
        }
        let value = replies.next().unwrap_or_default();
        let found = match value.len() > LARGE_REPLY_BYTES {
            // From storage that does not say so before.
            true => Shaped { status: Status::Large, value: Bytes::new() },
            false => Shaped::of(fetch.view, value),
        };
        self.fill(step, fetch, &pttl, found);
    }

    /// The copy becomes servable only if no write of the key has begun since it was registered.
    pub(super) fn fill(&mut self, step: &mut ShimStep<'_>, fetch: FillTicket, pttl: &Bytes, found: Shaped) {
        let FillTicket { holder, session, fill, key, view, version, tracked } = fetch;
        if let Some(read) = tracked {
            self.read_ended(&key, read);
        }
        let Shaped { status, value } = found;
        let status = if is_passing(&value) { Status::Refused } else { status };
        let ttl = parse_pttl(pttl).map(|ttl| self.aged(ttl));
        let registered = version.is_some_and(|version| {
            let state = self.keys.get(&key);
            state
                .is_some_and(|state| state.is_quiet() && state.directory.is_registered(holder, fill, version))
        });
        let open = self.holders.get(holder).and_then(|link| link.session.id());
        let rule = self.config.settings.policies.of(&key.bytes);
        let allowed = !rule.is_never() && value.len() <= rule.value_bytes_max && !self.is_moving(&key);
        let granted = registered
            && open == Some(session)
            && self.grants()
            && ttl.is_ok()
            && allowed
            && !status.is_refusal();
        if granted {
            self.statistics.fills += 1;
        } else {
            self.statistics.fills_ungranted += 1;
        }
        let (key_ttl, ttl_ms) = (parse_pttl(pttl).unwrap_or(None), rule.ttl_ms(ttl.unwrap_or(None)));
        let message = Fill {
            session,
            fill,
            version: version.unwrap_or(0),
            granted,
            status,
            cached: if status == Status::Large { LayerSet::EMPTY } else { self.hints(&key, view) },
            degree: self.elastic.degree_at(&key, holder),
            stale_ms: self.stale_ms(rule, key_ttl, ttl_ms),
            ttl_ms,
            view,
            key,
            value,
        };
        step.send(holder, Message::Fill(message));
    }

    fn lost(&mut self, step: &mut ShimStep<'_>, purpose: Purpose, sent: bool) {
        let text = format!("{LOST}\r\n");
        match purpose {
            Purpose::Read { origins, asked } => {
                for origin in origins {
                    step.reply_error(origin, &text);
                }
                self.reading_ended(step, asked);
            }
            Purpose::Plain { origin, .. } | Purpose::CountSubscribers { origin, .. } => {
                step.reply_error(origin, &text);
            }
            Purpose::Publish { origin, .. } => {
                let outcome =
                    if sent { "whether it was published is unknown" } else { "it was not published" };
                step.reply_error(origin, &format!("{LOST}; {outcome}\r\n"));
            }
            Purpose::Topic(change) => self.topic_answered(step, change, None),
            Purpose::Watch { origin, request, .. } => {
                self.watch_lost(origin, request);
                step.reply_error(origin, &text);
            }
            Purpose::WatchedRead { origin, number } => {
                self.release_watching(step, number, false);
                step.reply_error(origin, &text);
            }
            Purpose::Fill(fetch) => {
                let lost = Shaped { status: Status::Refused, value: Bytes::from(text) };
                self.fill(step, fetch, &Bytes::new(), lost);
            }
            Purpose::Operation(id) => self.lost_operation(step, id, sent),
            Purpose::Transfer { origin } => self.transfer_lost(step, origin),
            Purpose::Feed { .. } => self.feed_lost(step),
            Purpose::ReadFeed { .. } => self.read_feed_down(step),
            Purpose::Examination => self.examination_lost(),
            Purpose::Proof | Purpose::Probe | Purpose::Touch { .. } => {}
        }
    }

    /// A write that may or may not have happened: never retried, its keys quarantined until a fence.
    fn lost_operation(&mut self, step: &mut ShimStep<'_>, id: u32, sent: bool) {
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
        self.complete(step, id, Bytes::from(text), false);
    }

    pub(super) fn down_reason(&self) -> Option<String> {
        match &self.storage {
            StorageState::Down { reason, .. } => Some(reason.clone()),
            StorageState::Up { .. } => None,
        }
    }

    /// The reply to a read of this view.
    pub(super) fn view_reply(&self, key: &Key, view: View, value: Bytes) -> Reply {
        let Shaped { status, value } = Shaped::of(view, value);
        Reply { status, cached: self.hints(key, view), value, ..Reply::default() }
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

/// A reply to a read as it travels.
pub(super) struct Shaped {
    pub(super) status: Status,
    pub(super) value: Bytes,
}

impl Shaped {
    /// The null reply to GET depends on the RESP version, so it travels as a status.
    fn of(view: View, value: Bytes) -> Shaped {
        if view == View::GET && (value == b"$-1\r\n"[..] || value == b"_\r\n"[..]) {
            return Shaped { status: Status::Nil, value: Bytes::new() };
        }
        Shaped { status: status_of(&value), value }
    }
}

/// Whether an error says that storage may answer in a moment: no reason to keep its key out of the cache.
pub(super) fn is_passing(reply: &[u8]) -> bool {
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
