//! Commands other than plain reads: queued per key, sent once nothing servable is left, finished in order.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Commit, EarlyValue, Execute, Invalidate};
use wire::resp::{Command, transaction};
use wire::{Key, Message, Peer, Status};

use super::holders::Outstanding;
use super::operation::{KeyState, Operation, OperationKind, Origin, Phase, blank};
use super::purge::Requester;
use super::read_feed::TRACKED;
use super::reads::{GET, own};
use super::step::ShimStep;
use super::{Effect, Input, Purpose, Shim, unblock};
use crate::hash::KeyMap;
use crate::storage::{CommandControl, Lane, Reach};
use crate::time::Time;
use commands::{Classified, CommandKind};

/// A command that a router wants carried out, and what it means.
#[derive(Clone, Copy)]
pub(super) struct CommandAsked<'a> {
    pub(super) origin: Origin,
    pub(super) execute: &'a Execute,
    pub(super) command: &'a Command,
    pub(super) classified: &'a Classified,
}

impl Shim {
    pub(super) fn execute(&mut self, step: &mut ShimStep<'_>, from: Peer, execute: Execute) {
        if execute.command.starts_with(transaction::MULTI) {
            return self.transaction(step, from, execute);
        }
        let origin = Origin::new(from, execute.request);
        let command = Command::parse(execute.command.clone());
        if let Some(error) = command.as_ref().ok().and_then(unblock::asked) {
            return self.unblock(step, origin, error);
        }
        let parsed = command.map_err(|error| error.to_string());
        let classified = parsed.and_then(|command| match commands::classify(&command) {
            Ok(classified) => Ok((command, classified)),
            Err(refusal) => Err(refusal.to_string()),
        });
        let (command, classified) = match classified {
            Ok(classified) => classified,
            Err(text) => return step.reply_error(origin, &format!("-{text}\r\n")),
        };
        if let Some(busy) = self.busy_with_script(classified.spec) {
            return step.reply(origin, busy);
        }
        let keys = self.keys_of(&execute, &command, &classified);
        let purges = classified.kind == CommandKind::Purge;
        if !purges && self.turned_away(step, origin, &keys, classified.kind) {
            return;
        }
        for key in &keys {
            self.send_waiting(step, key);
        }
        let asked = CommandAsked { origin, execute: &execute, command: &command, classified: &classified };
        self.dispatch(step, &asked, keys);
    }

    /// Whether the command cannot be taken now; its client is told why.
    pub(super) fn turned_away(
        &mut self,
        step: &mut ShimStep<'_>,
        origin: Origin,
        keys: &[Key],
        kind: CommandKind,
    ) -> bool {
        let refusal = match keys.is_empty() {
            _ if self.fails_behind_its_invalidation(keys, kind) => {
                self.statistics.refused += 1;
                self.queue_full()
            }
            true => self.refusal(&Key::default()),
            false => keys.iter().find_map(|key| self.refusal(key)),
        };
        let refusal = refusal.or_else(|| self.resharding_refusal(kind)).or_else(|| self.overload(keys, kind));
        if let Some(refusal) = &refusal {
            step.refuse(origin, refusal);
        }
        refusal.is_some()
    }

    fn keys_of(&self, execute: &Execute, command: &Command, classified: &Classified) -> SmallVec<[Key; 1]> {
        if let [index] = classified.keys[..]
            && command.arg(index) == &execute.key.bytes[..]
        {
            return SmallVec::from_elem(execute.key.clone(), 1);
        }
        let mut seen: KeyMap<()> = KeyMap::default();
        let keys = classified.keys.iter();
        let keys = keys.map(|&index| self.placement.key(execute.key.database, command.arg_bytes(index)));
        keys.filter(|key| seen.insert(key.clone(), ()).is_none()).collect()
    }

    fn dispatch(&mut self, step: &mut ShimStep<'_>, asked: &CommandAsked<'_>, keys: SmallVec<[Key; 1]>) {
        let CommandAsked { origin, execute, command, classified } = *asked;
        let resp3 = execute.resp3;
        let shared =
            if classified.spec.runs_script() { Lane::Scripts { resp3 } } else { Lane::Shared { resp3 } };
        let pinned = Lane::Pinned { resp3: execute.resp3 };
        let frame = execute.command.clone();
        match classified.kind {
            kind if is_the_routers(kind, command) => {
                self.statistics.unexpected += 1;
                let text = "-ERR DistCache: the router answers this command itself\r\n";
                step.reply_error(origin, text);
            }
            CommandKind::Purge => {
                if let Some(scope) = commands::purge_scope(command) {
                    self.purge(step, Requester::Client(origin), &scope);
                }
            }
            CommandKind::Publish => self.publish(step, asked),
            CommandKind::Keyless if asks_for_subscriptions(classified) => self.publish(step, asked),
            CommandKind::Keyless | CommandKind::Connection | CommandKind::Subscription => {
                let purpose = Purpose::Plain { origin, keys: SmallVec::new() };
                self.store(step, purpose, shared, Reach::Whole, SmallVec::from_elem(frame, 1));
            }
            CommandKind::Read | CommandKind::Query => {
                self.statistics.storage_reads += 1;
                let waits = keys.iter().any(|key| self.must_queue(key, shared, execute.ordered));
                if waits {
                    self.admit_operation(operation(origin, OperationKind::Read(None), shared, frame, keys));
                } else {
                    let (reach, purpose) = (self.reach_of(&keys), Purpose::Plain { origin, keys });
                    self.store(step, purpose, shared, reach, SmallVec::from_elem(frame, 1));
                }
            }
            CommandKind::Write => {
                self.note_marks(command, keys.first());
                let early = self.early_value(command, &keys);
                let operation =
                    Operation { early, ..operation(origin, OperationKind::Write, shared, frame, keys) };
                self.admit_operation(operation);
            }
            CommandKind::Watch => self.watch(step, origin, execute),
            CommandKind::BlockingWrite => {
                self.admit_operation(operation(origin, OperationKind::Blocking, pinned, frame, keys))
            }
            CommandKind::BlockingQuery => {
                self.admit_operation(operation(origin, OperationKind::BlockingQuery, pinned, frame, keys))
            }
            CommandKind::Barrier => {
                self.admit_barrier(operation(origin, OperationKind::Barrier, shared, frame, SmallVec::new()));
            }
        }
    }

    pub(super) fn admit_barrier(&mut self, mut operation: Operation) {
        operation.since = operation.origin.map(|_| self.since);
        let id = self.operations.insert(operation) as u32;
        self.barriers.push_back(id);
        self.ready.push_back(id);
    }

    /// The value may ride on INV only where the write sets exactly one key, whatever was there.
    fn early_value(&self, command: &Command, keys: &[Key]) -> Option<EarlyValue> {
        let servable = |key| self.keys.get(key).is_some_and(|state| !state.directory.entries.is_empty());
        // What others write at the same moment cannot be told from the echo of this: see `feed`.
        if keys.len() != 1 || self.config.bounded.is_some() || !servable(&keys[0]) {
            return None;
        }
        let (value, ttl_ms) = commands::early_value(command)?;
        let rule = self.config.settings.policies.of(&keys[0].bytes);
        if value.len() > self.config.early_value_bytes_max.min(rule.value_bytes_max) || rule.is_never() {
            return None;
        }
        let ttl_ms = rule.ttl_ms(ttl_ms);
        let mut reply = Vec::with_capacity(value.len() + 16);
        wire::resp::reply::bulk(&value, &mut reply);
        Some(EarlyValue { ttl_ms, value: Bytes::from(reply) })
    }

    /// Whether an ordered read on this lane has to queue.
    pub(super) fn must_wait(&self, key: &Key, lane: Lane) -> bool {
        self.keys.get(key).is_some_and(|state| state.may_be_overtaken(lane))
    }

    /// Whether a read may not go to storage past the queue of its key.
    pub(super) fn must_queue(&self, key: &Key, lane: Lane, ordered: bool) -> bool {
        self.larges.knows_any(key) || ordered && self.must_wait(key, lane)
    }

    /// Enters the queues of all its keys in one step.
    pub(super) fn admit_operation(&mut self, mut operation: Operation) {
        operation.since = operation.origin.map(|_| self.since);
        let id = self.operations.insert(operation) as u32;
        let sequence = self.sequence;
        let Shim { keys, operations, .. } = self;
        for key in &operations[id as usize].keys {
            let state = match keys.get_mut(key) {
                Some(state) => state,
                None => keys.entry(own(key)).or_insert_with(|| KeyState::new(sequence)),
            };
            state.queue.push(id);
        }
        self.ready.push_back(id);
    }

    /// Moves every operation on that can move. Nothing recurses: each step only adds to `ready`.
    pub(super) fn run_ready(&mut self, step: &mut ShimStep<'_>) {
        while let Some(id) = self.ready.pop_front() {
            let Some(operation) = self.operations.get(id as usize) else { continue };
            let (phase, awaiting) = (operation.phase, operation.awaiting);
            if phase == Phase::Queued && self.may_start(step.now, id) {
                self.start(step, id);
            } else if phase == Phase::Invalidating && awaiting == 0 && !self.must_hold(step.now, id) {
                self.submit(step, id);
            }
        }
    }

    fn may_start(&mut self, now: Time, id: u32) -> bool {
        if self.must_hold(now, id) {
            return false;
        }
        let operation = &self.operations[id as usize];
        if matches!(operation.kind, OperationKind::Barrier | OperationKind::Flush) {
            return self.barriers.front() == Some(&id);
        }
        if operation.kind == OperationKind::Change {
            return true;
        }
        operation.keys.iter().all(|key| {
            self.keys.get(key).is_some_and(|state| {
                let lane_free = state.sent == 0 || state.sent_lane == operation.lane;
                state.queue.first() == Some(&id) && (lane_free || operation.kind == OperationKind::Purge)
            })
        }) && !self.must_await_transfer(id)
    }

    /// Leases of earlier incarnations may still run: writes wait until they cannot, and so does everything else if storage
    /// may have lost what their copies show.
    fn must_hold(&mut self, now: Time, id: u32) -> bool {
        let kind = self.operations[id as usize].kind;
        let hold = kind.writes() && self.holds_writes(now) || !kind.is_silent() && self.holds_reads(now);
        if hold {
            self.held.push(id);
        }
        hold
    }

    /// Takes versions and invalidates every copy that a node might serve.
    fn start(&mut self, step: &mut ShimStep<'_>, id: u32) {
        self.operations[id as usize].phase = Phase::Invalidating;
        match self.operations[id as usize].kind {
            OperationKind::Read(_) | OperationKind::BlockingQuery => {}
            OperationKind::Barrier | OperationKind::Flush => self.revoke_all(step, id),
            OperationKind::Write | OperationKind::Blocking | OperationKind::Purge | OperationKind::Change => {
                for index in 0..self.operations[id as usize].written {
                    self.invalidate(step, id, index);
                }
            }
        }
        if self.operations[id as usize].awaiting == 0 {
            self.submit(step, id);
        }
    }

    fn invalidate(&mut self, step: &mut ShimStep<'_>, id: u32, index: usize) {
        self.sequence += 1;
        let version = self.sequence;
        let operation = &mut self.operations[id as usize];
        operation.versions.push(version);
        let (key, early) = (operation.keys[index].clone(), operation.early.clone());
        let heard = self.feed.heard();
        let blocking = operation.kind == OperationKind::Blocking;
        self.observe_write(&key);
        let Some(state) = self.keys.get_mut(&key) else { return };
        state.directory.version = version;
        state.blocked += u32::from(blocking);
        let servable = state.directory.entries.iter().filter(|entry| entry.servable);
        let holders: SmallVec<[_; 4]> = servable.map(|entry| entry.holder).collect();
        for holder in holders {
            let link = &mut self.holders[holder];
            // A session without a running lease is closed by the next tick; its holder serves nothing.
            let Some(session) = link.session.id().filter(|id| link.session.is_live(step.now, *id)) else {
                continue;
            };
            let message = Invalidate { session, key: key.clone(), version, value: early.clone() };
            let outstanding = Outstanding {
                operation: id,
                message: message.clone(),
                sent: step.now,
                repeated: step.now,
                heard,
            };
            link.outstanding.insert(version, outstanding);
            self.operations[id as usize].awaiting += 1;
            self.statistics.invalidated_copies += 1;
            self.statistics.near_invalidated_copies += u64::from(matches!(holder, Peer::Router(_)));
            self.send_invalidate(step, holder, message);
        }
    }

    pub(super) fn send_invalidate(&mut self, step: &mut ShimStep<'_>, holder: Peer, message: Invalidate) {
        self.statistics.invalidations += 1;
        self.statistics.coherence_messages += 1;
        step.send(holder, Message::Invalidate(message));
    }

    /// Nothing servable is left: storage may see the command.
    fn submit(&mut self, step: &mut ShimStep<'_>, id: u32) {
        let operation = &self.operations[id as usize];
        let (kind, lane) = (operation.kind, operation.lane);
        for index in 0..operation.keys.len() {
            self.leave_queue(id, index);
        }
        let operation = &self.operations[id as usize];
        if operation.kind.is_silent() || operation.purge.is_some() || operation.cancelled {
            return self.complete(step, id, Bytes::new(), true);
        }
        if let Some(reply) = unblock::reply(operation) {
            return self.complete(step, id, reply, false);
        }
        if let Some(refusal) = self.down_reason() {
            let text = format!("-ERR DistCache: storage cannot be reached: {refusal}\r\n");
            return self.complete(step, id, Bytes::from(text), false);
        }
        self.statistics.storage_writes += u64::from(kind.writes());
        let mut commands = self.operations[id as usize].commands.clone();
        if let Some(key) = self.write_tracked(step.now, id) {
            commands.extend([TRACKED, self.frame(GET, &key.bytes)]);
        }
        let reach = match &self.operations[id as usize] {
            Operation { keys, anchor, .. } if keys.is_empty() => self.reach_of(anchor.as_slice()),
            Operation { keys, .. } => self.reach_of(keys),
        };
        let ticket = self.store(step, Purpose::Operation(id), lane, reach, commands);
        let operation = &mut self.operations[id as usize];
        operation.phase = Phase::Sent { ticket };
        self.larges.asked += usize::from(operation.streams());
        if self.tracking.is_wanted() {
            self.expect_report(step, id);
        }
    }

    /// The next operation on its key of this index may follow at once: one connection keeps their order.
    fn leave_queue(&mut self, id: u32, index: usize) {
        let operation = &self.operations[id as usize];
        let Some(state) = self.keys.get_mut(&operation.keys[index]) else { return };
        state.queue.retain(|queued| *queued != id);
        if operation.kind.occupies_lane() {
            state.sent += 1;
            state.sent_lane = operation.lane;
            state.writes_sent += u32::from(operation.writes_key(index));
        }
        self.ready.extend(state.queue.first());
    }

    /// The end of an operation: answers, lets go of its keys, commits the early value if nothing interfered.
    pub(super) fn complete(&mut self, step: &mut ShimStep<'_>, id: u32, reply: Bytes, success: bool) {
        let operation = self.operations.remove(id as usize);
        let asked = operation.streams() && matches!(operation.phase, Phase::Sent { .. });
        self.larges.asked -= usize::from(asked);
        if let Lane::Watching { number, .. } = operation.lane {
            self.release_watching(step, number, matches!(operation.phase, Phase::Sent { .. }));
        }
        if matches!(operation.kind, OperationKind::Barrier | OperationKind::Flush) {
            self.barriers.retain(|queued| *queued != id);
            self.ready.extend(self.barriers.front());
            self.all_dropped();
        }
        self.report_due(&operation, success);
        self.write_ended(&operation);
        for index in 0..operation.keys.len() {
            self.release(step, &operation, index, success);
        }
        if let Some(purge) = operation.purge {
            return self.purge_goes_on(step, purge);
        }
        if let Some(origin) = operation.origin.filter(|_| !operation.cancelled) {
            match (operation.kind, &operation.keys[..]) {
                (OperationKind::Read(Some(view)), [key]) => {
                    let reply = self.view_reply(key, view, reply);
                    step.answer(origin, reply);
                }
                _ => step.reply(origin, reply),
            }
        }
    }

    fn release(&mut self, step: &mut ShimStep<'_>, operation: &Operation, index: usize, success: bool) {
        let key = &operation.keys[index];
        let grants = self.grants();
        let Some(state) = self.keys.get_mut(key) else { return };
        if operation.kind.occupies_lane() {
            state.sent -= 1;
            state.writes_sent -= u32::from(operation.writes_key(index));
        } else if operation.kind == OperationKind::Blocking {
            state.blocked = state.blocked.saturating_sub(1);
        }
        let alone = state.is_quiet() && grants;
        let committed = match operation.versions.get(index) {
            Some(&version) if success && alone && operation.early.is_some() => {
                state.directory.commit(version)
            }
            _ => SmallVec::new(),
        };
        self.ready.extend(state.queue.first());
        if state.is_idle() {
            self.keys.remove(key);
        }
        if !committed.is_empty() {
            self.copies_tracked(key);
        }
        for holder in committed {
            let link = &self.holders[holder];
            let (Some(session), Some(&version)) = (link.session.id(), operation.versions.get(index)) else {
                continue;
            };
            self.statistics.commits += 1;
            step.send(holder, Message::Commit(Commit { session, key: key.clone(), version }));
        }
    }

    pub(super) fn cancel(&mut self, step: &mut ShimStep<'_>, from: Peer, request: u64) {
        self.unwatch(step, from, request);
        self.end_transfer(step, (from, request));
        let wanted = |operation: &Operation| operation.origin.is_some_and(|origin| origin.is(from, request));
        let found = self.operations.iter_mut().find(|(_, operation)| wanted(operation));
        if let Some((_, operation)) = found {
            abandon(step, operation);
        }
    }

    /// Nobody is left to hear what this router asked for: blocked commands are given up, others run out.
    pub(super) fn unlinked_router(&mut self, step: &mut ShimStep<'_>, input: &Input) {
        let Input::Unlinked(router) = input else { return };
        self.unwatch_all(step, *router);
        self.end_transfers_of(step, *router);
        for (_, operation) in &mut self.operations {
            if operation.origin.is_some_and(|origin| origin.from == *router) {
                abandon(step, operation);
            }
        }
    }
}

/// It would change the connection that all share. COMMAND and INFO only sound like one of those.
fn is_the_routers(kind: CommandKind, command: &Command) -> bool {
    let asks = |name: &str| command.name().eq_ignore_ascii_case(name.as_bytes());
    match kind {
        CommandKind::Connection => {
            let help = asks("CLIENT") && command.get(1).is_some_and(|sub| sub.eq_ignore_ascii_case(b"HELP"));
            let users = ["LIST", "SETUSER", "DELUSER", "LOAD", "SAVE"];
            let users = users
                .iter()
                .any(|sub| command.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(sub.as_bytes())));
            // PING is asked while a script may run.
            let storages = asks("COMMAND") || asks("INFO") || asks("PING");
            !(help || storages || asks("ACL") && users)
        }
        kind => kind == CommandKind::Subscription,
    }
}

fn asks_for_subscriptions(classified: &Classified) -> bool {
    classified.spec.name.starts_with("pubsub|") && classified.spec.name != "pubsub|help"
}

/// Gives up a blocking command; any other that has begun runs to its end.
fn abandon(step: &mut ShimStep<'_>, operation: &mut Operation) {
    if !matches!(operation.kind, OperationKind::Blocking | OperationKind::BlockingQuery)
        && !operation.streams()
    {
        return;
    }
    operation.cancelled = true;
    if let Phase::Sent { ticket } = operation.phase {
        step.effects.push(Effect::Control { ticket, control: CommandControl::Abort });
    }
}

pub(super) fn operation(
    origin: Origin,
    kind: OperationKind,
    lane: Lane,
    command: Bytes,
    keys: SmallVec<[Key; 1]>,
) -> Operation {
    Operation { origin: Some(origin), lane, commands: SmallVec::from_elem(command, 1), ..blank(kind, keys) }
}

/// Whether a complete RESP reply is an error.
pub(super) fn status_of(reply: &[u8]) -> Status {
    match reply.first() {
        Some(b'-' | b'!') => Status::Error,
        _ => Status::Ok,
    }
}
