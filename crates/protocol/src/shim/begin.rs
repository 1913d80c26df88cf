//! Requests before the shim begins them: how they wait for room at storage, for how long, and who is told how many may be
//! under way. Not what is done with them then.

use std::time::Duration;

use bytes::Bytes;
use wire::message::Window;
use wire::resp::{Command, transaction};
use wire::{Message, Peer};

use super::operation::{Operation, Phase};
use super::step::ShimStep;
use super::{Shim, StorageState};
use crate::requests::{self, Arrival, Due, RequestClass, RequestLimits};
use crate::storage::Lane;
use crate::time::Time;
use commands::Flag;

/// How often those who have waited for too long are looked for, at least.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);
/// Routers may have half as many requests under way as storage may have: what is at storage, and what comes next.
const WINDOW_PER_LIMIT: (u32, u32) = (3, 2);
/// The same of a shim with a rate, as time at that rate: some ticks.
const WINDOW_AT_RATE_MS: u64 = 30;

const OVERLOADED: &[u8] =
    b"-BUSY DistCache: the shim is over its request rate; the command was not executed, try again later\r\n";
const HELD: &[u8] =
    b"-BUSY DistCache: storage came back, maybe without data that are cached, and is not asked before those copies are gone; \
      the command was not executed, try again in a second\r\n";
const LEAVING: &[u8] =
    b"-BUSY DistCache: this shim is being stopped; the command was not executed, try again in a moment\r\n";
const FULL: &[u8] =
    b"-BUSY DistCache: too many commands wait for this storage server; the command was not executed, try again later\r\n";

impl Shim {
    /// A message of a peer: a request is begun if there is room for it, everything else is taken as it comes.
    pub(super) fn arrives(&mut self, step: &mut ShimStep<'_>, from: Peer, message: Message) {
        let class = match &message {
            Message::Read(_) | Message::Execute(_) => RequestClass::Client,
            Message::Fetch(_) => RequestClass::Fill,
            Message::Cancel(cancel) => {
                self.waiting
                    .retain(|(origin, waiting)| *origin != from || number(waiting) != Some(cancel.request));
                self.forget_early(from, Some(cancel.request));
                return self.message(step, from, message);
            }
            _ => return self.message(step, from, message),
        };
        if self.is_leaving() {
            return self.turn_away(step, from, &message, Bytes::from_static(LEAVING));
        }
        let Some(message) = self.await_key(step.now, from, message) else { return };
        self.windows.asked(step.now, from);
        let waited = requests::waited_before(&message);
        let room = self.has_room(step.now, &message, class);
        if !self.waiting.is_empty() && self.ends_what_blocks(&message) {
            return self.begin(step, from, message, waited);
        }
        match self.waiting.arrive(step.now, (from, message), class, waited, room) {
            Arrival::Serve((from, message)) => self.begin(step, from, message, waited),
            Arrival::Queued => self.statistics.waited += 1,
            Arrival::Refuse((from, message)) => {
                let told = if self.waiting.limits().waits() { FULL } else { self.reason_to_refuse(step.now) };
                self.turn_away(step, from, &message, Bytes::from_static(told));
            }
        }
    }

    /// Takes no more than `limits` from now on.
    pub fn limit(&mut self, limits: RequestLimits) {
        self.waiting.set_limits(limits);
        self.storage_limit.set_waits(limits.waits());
    }

    /// Counts work that is no request against the rate: what comes later pays for it.
    pub fn charge(&mut self, now: Time, requests: u32) {
        self.waiting.charge(now, requests);
    }

    /// Whether a request can be begun: what cannot be served at all is told so at once, and where overload is refused each
    /// request finds out for itself.
    fn has_room(&self, now: Time, message: &Message, class: RequestClass) -> bool {
        if matches!(self.storage, StorageState::Down { .. }) {
            // A process that has just started knows nothing yet.
            return self.storage_heard || !self.waiting.limits().waits();
        }
        if self.holds_reads(now) || self.is_behind() {
            return false;
        }
        if !self.waiting.limits().waits() {
            return true;
        }
        let key_full = match message {
            Message::Execute(execute) => {
                let state = self.keys.get(&execute.key);
                state.is_some_and(|state| state.queue.len() >= self.config.settings.key_queue_max)
            }
            _ => false,
        };
        !key_full && self.pending() < self.config.settings.operations_max && self.storage_limit.admits(class)
    }

    /// Whether it is a command such as SCRIPT KILL, which storage takes while it does nothing else. It has no keys, so it
    /// overtakes nothing that its client has sent.
    fn ends_what_blocks(&self, message: &Message) -> bool {
        let Message::Execute(execute) = message else { return false };
        if !execute.key.bytes.is_empty() || execute.command.starts_with(transaction::MULTI) {
            return false;
        }
        let command = Command::parse(execute.command.clone()).ok();
        let classified = command.and_then(|command| commands::classify(&command).ok());
        classified
            .is_some_and(|classified| classified.keys.is_empty() && classified.spec.has(Flag::AllowBusy))
    }

    fn begin(&mut self, step: &mut ShimStep<'_>, from: Peer, message: Message, waited: Duration) {
        self.statistics.requests += 1;
        self.meter.record(step.now);
        self.since = Time(step.now.0.saturating_sub(waited.as_micros() as u64));
        self.message(step, from, message);
    }

    /// Begins what waits as far as there is room.
    pub(super) fn begin_waiting(&mut self, step: &mut ShimStep<'_>) {
        while let Some((_, message)) = self.waiting.first() {
            let class = match message {
                Message::Fetch(_) => RequestClass::Fill,
                _ => RequestClass::Client,
            };
            let room = self.has_room(step.now, message, class);
            match self.waiting.next(step.now, room) {
                None => return,
                Some(Due::Serve((since, (from, message)))) => {
                    self.begin(step, from, message, step.now.since(since));
                    self.run_ready(step);
                }
                Some(Due::Refuse((_, (from, message)))) => self.expired(step, from, &message),
            }
        }
    }

    /// Once in a while: those who have waited for too long are told so, and routers how many they may have under way.
    pub(super) fn tick_waiting(&mut self, step: &mut ShimStep<'_>) {
        let total = self.windows_total();
        self.windows.tell(step.now, total, false, |router, requests| {
            let message = Message::Window(Window { requests });
            step.send(Peer::Router(router), message);
        });
        let patience = self.waiting.limits().patience();
        let interval = patience.map_or(EXPIRY_INTERVAL, |patience| EXPIRY_INTERVAL.min(patience / 4));
        if step.now.since(self.expiry) < interval {
            return;
        }
        self.expiry = step.now;
        for (from, message) in self.waiting.expired(step.now) {
            self.expired(step, from, &message);
        }
        let Some(patience) = patience else { return };
        let late = |operation: &Operation| {
            operation.phase == Phase::Queued
                && operation.since.is_some_and(|since| step.now.since(since) >= patience)
        };
        let late: Vec<u32> = (self.operations.iter())
            .filter(|(_, operation)| late(operation))
            .map(|(id, _)| id as u32)
            .collect();
        for id in late {
            self.give_up(step, id);
        }
    }

    /// What all routers together may have under way here: as much as keeps storage busy, besides what waits for nodes.
    fn windows_total(&self) -> Option<u32> {
        let limits = self.waiting.limits();
        limits.patience()?;
        let (more, of) = WINDOW_PER_LIMIT;
        let at_storage = u64::from(self.storage_limit.limit()) * u64::from(more) / u64::from(of);
        let at_rate = match limits.rate_max {
            0 => u64::MAX,
            rate_max => rate_max * WINDOW_AT_RATE_MS / 1000,
        };
        let elsewhere = self.pending().saturating_sub(self.storage_limit.in_flight() as usize) as u64;
        let total = at_storage.min(at_rate).saturating_add(elsewhere);
        Some(u32::try_from(total).unwrap_or(u32::MAX).min(limits.window_max))
    }

    /// An operation of which neither a node nor storage has heard has waited for too long.
    fn give_up(&mut self, step: &mut ShimStep<'_>, id: u32) {
        let operation = self.operations.remove(id as usize);
        for key in &operation.keys {
            let Some(state) = self.keys.get_mut(key) else { continue };
            state.queue.retain(|queued| *queued != id);
            self.ready.extend(state.queue.first());
            if state.is_idle() {
                self.keys.remove(key);
            }
        }
        self.barriers.retain(|queued| *queued != id);
        self.ready.extend(self.barriers.front());
        if let Lane::Watching { number, .. } = operation.lane {
            self.release_watching(step, number, false);
        }
        self.statistics.expired += 1;
        if let Some(origin) = operation.origin.filter(|_| !operation.cancelled) {
            let refusal =
                super::refusal::Refusal { status: wire::Status::Busy, value: self.too_late(step.now) };
            step.refuse(origin, &refusal);
        }
    }

    pub(super) fn expired(&mut self, step: &mut ShimStep<'_>, from: Peer, message: &Message) {
        let told = match self.waiting.limits().waits() {
            true => self.too_late(step.now),
            false => Bytes::from_static(self.reason_to_refuse(step.now)),
        };
        // The rule that is counted is the one that the client is told.
        if told == OVERLOADED {
            self.statistics.overflowed += 1;
        } else {
            self.statistics.expired += 1;
        }
        if let Some(answer) = requests::refusal(message, told) {
            step.send(from, answer);
        }
    }

    fn turn_away(&mut self, step: &mut ShimStep<'_>, from: Peer, message: &Message, told: Bytes) {
        self.statistics.overflowed += 1;
        if let Some(answer) = requests::refusal(message, told) {
            step.send(from, answer);
        }
    }

    /// Why a shim that does not let requests wait refuses one: without a rate, only a hold makes them wait at all.
    fn reason_to_refuse(&self, now: Time) -> &'static [u8] {
        match self.holds_reads(now) || self.waiting.limits().rate_max == 0 {
            true => HELD,
            false => OVERLOADED,
        }
    }

    fn too_late(&self, now: Time) -> Bytes {
        let patience_ms = self.waiting.limits().patience().unwrap_or_default().as_millis();
        let hold = self.hold(now);
        if !hold.is_zero() {
            return format!(
                "-BUSY DistCache: the command waited for longer than queue_ms_max ({patience_ms} ms) and was not executed; leases of \
                 an earlier process may run at this storage server for {} s more, try again then\r\n",
                hold.as_millis().div_ceil(1000)
            )
            .into();
        }
        format!(
            "-BUSY DistCache: the command waited for its storage server for longer than queue_ms_max ({patience_ms} ms); \
             it was not executed, try again later\r\n"
        )
        .into()
    }
}

/// Number of the request that waits, as its router knows it.
pub(super) fn number(message: &Message) -> Option<u64> {
    match message {
        Message::Read(read) => Some(read.request),
        Message::Execute(execute) => Some(execute.request),
        _ => None,
    }
}
