//! Commands of the shim: which are about keys that move, and what becomes of these. Not how keys are moved.

use std::collections::BTreeSet;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::ShimId;
use wire::resp::Command;
use wire::resp::transaction::{EXEC, MULTI};

use super::moving_key::MoveStage;
use super::servers::MigrationPlace;
use super::transfer::frame;
use super::{Effect, HeldCommands, Migration, MigrationPhase, MigrationStep, MoveQuestion, Sent};
use crate::shards::unblocked;
use crate::shim::TRACKED;
use crate::storage::{CommandControl, Lane, PING, Reach, StorageEvent, Store};

const APART: &str = "-CROSSSLOT DistCache: keys are on their way to another server, and these would not be together; give them one \
                     {hash tag}\r\n";
const BETWEEN: &str = "-TRYAGAIN DistCache: some of these keys could not be moved to another server yet; the command was not executed\r\n";
const AWAY: &str = "-ERR DistCache: the storage server that has the key now cannot be reached; the command was not executed\r\n";
const OK: Bytes = Bytes::from_static(b"+OK\r\n");

/// The connections that take commands in their order.
const ORDERED: [Lane; 4] = [
    Lane::Shared { resp3: false },
    Lane::Shared { resp3: true },
    Lane::Scripts { resp3: false },
    Lane::Scripts { resp3: true },
];

/// What keys a command names.
struct Named {
    leaving: SmallVec<[Bytes; 1]>,
    to: Option<ShimId>,
    /// There are some that stay, or that leave for elsewhere.
    is_apart: bool,
}

impl Migration {
    pub(super) fn store(&mut self, step: &mut MigrationStep<'_>, store: Store) {
        if !self.home.is_up() {
            return step.report(StorageEvent::Lost { ticket: store.ticket, sent: false });
        }
        let watching = match store.lane {
            Lane::Watching { number, .. } => Some(self.watching(number)),
            _ => None,
        };
        let named = self.divides_or_may().then(|| self.named(&store)).flatten();
        let Some(named) = named else {
            let place = watching.flatten().unwrap_or(MigrationPlace::Home);
            return match store.lane {
                Lane::Watching { number, .. } if number <= self.watch_void && store.commands[0] == MULTI => {
                    self.abort(step, &store);
                }
                _ => self.pass(step, place, store),
            };
        };
        let Some(to) = named.to.filter(|_| !named.is_apart) else {
            return refuse(step, &store, APART);
        };
        match watching.flatten() {
            // What it watched may have gone, and come back changed.
            Some(MigrationPlace::Home) if store.commands[0] == MULTI => return self.abort(step, &store),
            Some(place) if place != MigrationPlace::Destination(to) => return refuse(step, &store, APART),
            _ => {}
        }
        if let Lane::Watching { number, .. } = store.lane {
            self.watches.insert(number, to);
        }
        self.admit(step, HeldCommands { store, keys: named.leaving, shim: to, since: step.now });
    }

    /// As if what it watched had changed.
    fn abort(&mut self, step: &mut MigrationStep<'_>, store: &Store) {
        let resp3 = matches!(store.lane, Lane::Watching { resp3: true, .. });
        answer(step, store, Bytes::from_static(if resp3 { b"_\r\n" } else { b"*-1\r\n" }));
        let unwatch = SmallVec::from_elem(frame(&[b"UNWATCH"]), 1);
        self.ask_on(step, MigrationPlace::Home, store.lane, MoveQuestion::Unwatch, unwatch);
    }

    /// Where a connection that watches is; none of one that is new.
    fn watching(&mut self, number: u64) -> Option<MigrationPlace> {
        if number > self.watch_last {
            self.watch_last = number;
            return None;
        }
        Some(
            self.watches.get(&number).map_or(MigrationPlace::Home, |shim| MigrationPlace::Destination(*shim)),
        )
    }

    /// As it is.
    fn pass(&mut self, step: &mut MigrationStep<'_>, place: MigrationPlace, store: Store) {
        match place {
            MigrationPlace::Home if matches!(store.lane, Lane::Pinned { .. } | Lane::Watching { .. }) => {
                self.apart.insert(store.ticket, store.clone());
            }
            MigrationPlace::Home => {}
            MigrationPlace::Destination(shim) => {
                let sent = Sent { shim, left_out: SmallVec::new(), count: store.commands.len() };
                self.sent.insert(store.ticket, sent);
            }
        }
        step.effects.push(Effect::Store { place, store });
    }

    /// The keys that leave; nothing if none does.
    fn named(&self, store: &Store) -> Option<Named> {
        let departures = self.departures.as_ref()?;
        if store.reach == Reach::Proof || matches!(store.lane, Lane::Feed | Lane::ReadFeed | Lane::Subscriber)
        {
            return None;
        }
        let mut named = Named { leaving: SmallVec::new(), to: None, is_apart: false };
        let mut stays = false;
        for frame in &store.commands {
            let Ok(command) = Command::parse(frame.clone()) else { continue };
            let Ok(classified) = commands::classify(&command) else { continue };
            for index in classified.keys {
                let key = command.arg_bytes(index);
                match departures.destination(&key) {
                    None => stays = true,
                    Some(to) => {
                        named.is_apart |= named.to.is_some_and(|other| other != to);
                        named.to = Some(to);
                        if !named.leaving.contains(&key) {
                            named.leaving.push(key);
                        }
                    }
                }
            }
        }
        named.is_apart |= stays;
        (!named.leaving.is_empty()).then_some(named)
    }

    /// Has what is asked at home answered before anything leaves.
    pub(super) fn drain(&mut self, step: &mut MigrationStep<'_>) {
        self.phase = MigrationPhase::Draining;
        self.watch_void = self.watch_last;
        for (number, lane) in ORDERED.into_iter().enumerate() {
            self.drains.insert(number);
            self.ask_on(
                step,
                MigrationPlace::Home,
                lane,
                MoveQuestion::Drain(number),
                SmallVec::from_elem(PING, 1),
            );
        }
        for store in self.leaving_apart() {
            if matches!(store.lane, Lane::Pinned { .. }) {
                self.recalled.insert(store.ticket);
                let control = CommandControl::Unblock { error: false };
                step.effects.push(Effect::Control {
                    place: MigrationPlace::Home,
                    ticket: store.ticket,
                    control,
                });
            }
        }
    }

    fn leaving_apart(&self) -> Vec<Store> {
        self.apart.values().filter(|store| self.named(store).is_some()).cloned().collect()
    }

    pub(super) fn is_drained(&self) -> bool {
        self.drains.is_empty() && self.leaving_apart().is_empty()
    }

    fn admit(&mut self, step: &mut MigrationStep<'_>, unit: HeldCommands) {
        let keys = unit.keys.clone();
        let id = self.units.insert(unit);
        for key in &keys {
            self.queue(step, key, id);
        }
        self.try_send(step, id);
    }

    /// Sends what waits for nothing more, and then what waited for it.
    pub(super) fn try_send(&mut self, step: &mut MigrationStep<'_>, id: usize) {
        let mut due = vec![id];
        while let Some(id) = due.pop() {
            let Some(unit) = self.units.get(id) else { continue };
            let states = || unit.keys.iter().filter_map(|key| self.keys.get(key));
            let is_next = states().all(|state| state.queue.front() == Some(&id));
            let all = |stage| states().all(|state| state.stage == stage);
            let known = states().all(|state| matches!(state.stage, MoveStage::Settled | MoveStage::Stuck));
            if !is_next || !known {
                continue;
            }
            let place = match () {
                () if all(MoveStage::Settled) => Some(MigrationPlace::Destination(unit.shim)),
                () if all(MoveStage::Stuck) => Some(MigrationPlace::Home),
                () => None,
            };
            if place.and_then(|place| self.server(place)).is_some_and(|server| !server.is_up()) {
                self.held.insert(id);
                continue;
            }
            let unit = self.units.remove(id);
            match place {
                Some(MigrationPlace::Home) => self.send_home(step, &unit),
                Some(MigrationPlace::Destination(shim)) => self.send(step, shim, &unit.store),
                None => refuse(step, &unit.store, BETWEEN),
            }
            due.extend(self.unqueue(&unit.keys, id));
        }
    }

    fn send_home(&mut self, step: &mut MigrationStep<'_>, unit: &HeldCommands) {
        for key in &unit.keys {
            if let Some(state) = self.keys.get_mut(key) {
                state.at_home += 1;
            }
        }
        self.at_home.insert(unit.store.ticket, unit.keys.clone());
        self.pass(step, MigrationPlace::Home, unit.store.clone());
    }

    /// To where its keys are. Nobody hears there of changes that others make, so nothing is said to want that.
    fn send(&mut self, step: &mut MigrationStep<'_>, shim: ShimId, store: &Store) {
        let is_for_home = |command: &Bytes| *command == TRACKED;
        let places = store.commands.iter().enumerate().filter(|(_, command)| is_for_home(command));
        let left_out: SmallVec<[usize; 2]> = places.map(|(index, _)| index).collect();
        let commands = store.commands.iter().filter(|command| !is_for_home(command)).cloned().collect();
        self.sent.insert(store.ticket, Sent { shim, left_out, count: store.commands.len() });
        let place = MigrationPlace::Destination(shim);
        step.effects.push(Effect::Store { place, store: Store { commands, ..store.clone() } });
    }

    /// A server has answered the shim.
    pub(super) fn replied(
        &mut self,
        step: &mut MigrationStep<'_>,
        ticket: u64,
        replies: SmallVec<[Bytes; 2]>,
    ) {
        let sent = self.sent.get(&ticket).cloned();
        let recalled = self.recalled.contains(&ticket).then(|| self.apart.get(&ticket).cloned()).flatten();
        self.ended(ticket);
        if let Some(store) = recalled.filter(|_| is_unblocked(&replies)) {
            return self.store(step, store);
        }
        let mut given = replies.into_iter();
        let replies = match sent {
            None => given.collect(),
            Some(sent) => (0..sent.count)
                .filter_map(|index| if sent.left_out.contains(&index) { Some(OK) } else { given.next() })
                .collect(),
        };
        step.report(StorageEvent::Replies { ticket, replies });
    }

    /// Nothing more is heard of this ticket of the shim.
    pub(super) fn ended(&mut self, ticket: u64) {
        self.apart.remove(&ticket);
        self.recalled.remove(&ticket);
        self.sent.remove(&ticket);
        for key in self.at_home.remove(&ticket).unwrap_or_default() {
            if let Some(state) = self.keys.get_mut(&key) {
                state.at_home -= 1;
            }
        }
    }

    pub(super) fn control(&mut self, step: &mut MigrationStep<'_>, ticket: u64, control: CommandControl) {
        let waiting = self.units.iter().find(|(_, unit)| unit.store.ticket == ticket).map(|(id, _)| id);
        let Some(id) = waiting else {
            // Whoever ends it wants no other life for it.
            self.recalled.remove(&ticket);
            let place = self
                .sent
                .get(&ticket)
                .map_or(MigrationPlace::Home, |sent| MigrationPlace::Destination(sent.shim));
            step.effects.push(Effect::Control { place, ticket, control });
            if control == CommandControl::Skip {
                self.ended(ticket);
            }
            return;
        };
        let unit = &self.units[id];
        let event = match control {
            CommandControl::Abort => StorageEvent::Lost { ticket, sent: false },
            CommandControl::Unblock { error } => {
                let resp3 = unit.store.lane == Lane::Pinned { resp3: true };
                let replies = SmallVec::from_elem(unblocked(error, resp3), unit.store.commands.len());
                StorageEvent::Replies { ticket, replies }
            }
            // Nothing has been said yet.
            CommandControl::Skip | CommandControl::Take { .. } => return,
        };
        step.report(event);
        self.forget(step, id);
    }

    /// A unit that is not carried out.
    fn forget(&mut self, step: &mut MigrationStep<'_>, id: usize) {
        let unit = self.units.remove(id);
        for next in self.unqueue(&unit.keys, id) {
            self.try_send(step, next);
        }
    }

    /// What has waited for too long is told so.
    pub(super) fn give_up(&mut self, step: &mut MigrationStep<'_>) {
        let late = self.units.iter().filter(|(_, unit)| step.now.since(unit.since) >= self.config.patience);
        for id in late.map(|(id, _)| id).collect::<Vec<_>>() {
            refuse(step, &self.units[id].store, AWAY);
            self.forget(step, id);
        }
    }

    /// Nothing waits for a storage that is down.
    pub(super) fn drop_units(&mut self, step: &mut MigrationStep<'_>) {
        for (_, unit) in std::mem::take(&mut self.units) {
            step.report(StorageEvent::Lost { ticket: unit.store.ticket, sent: false });
        }
        self.keys.values_mut().for_each(|state| state.queue.clear());
    }

    /// Sends what waited for a server.
    pub(super) fn pump_units(&mut self, step: &mut MigrationStep<'_>) {
        let held: BTreeSet<usize> = std::mem::take(&mut self.held);
        held.into_iter().for_each(|id| self.try_send(step, id));
    }
}

/// Whether a blocking command was answered with nothing, so that it may go on elsewhere.
fn is_unblocked(replies: &[Bytes]) -> bool {
    const NOTHING: [&[u8]; 3] = [b"*-1\r\n", b"$-1\r\n", b"_\r\n"];
    replies.len() == 1 && NOTHING.contains(&&replies[0][..])
}

/// One error for all, or EXEC's where it is a transaction.
fn refuse(step: &mut MigrationStep<'_>, store: &Store, text: &'static str) {
    answer(step, store, Bytes::from_static(text.as_bytes()));
}

fn answer(step: &mut MigrationStep<'_>, store: &Store, last: Bytes) {
    let mut replies = SmallVec::from_elem(last, store.commands.len());
    if store.commands.last().is_some_and(|command| command == EXEC) {
        let before = replies.len() - 1;
        replies[..before].fill(Bytes::from_static(b"+QUEUED\r\n"));
    }
    step.report(StorageEvent::Replies { ticket: store.ticket, replies });
}
