//! What a step of a machine does to the rest of a state: messages sent, commands at storage, answers to clients.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use protocol::coherence::lease::{EarlierIncarnations, Unrecorded};
use protocol::node::{self, Node};
use protocol::shim;
use protocol::storage::{StorageEvent, StorageTraits, Store};
use wire::message::Reply;
use wire::{Message, Peer, Status};

use super::backend::{self, InFlight, What};
use super::config::{Ticks, UNLIMITED, Write};
use super::coverage::Event;
use super::explore::FIRST_WRITE;
use super::network::Envelope;
use super::setup::Cluster;
use super::state::{Broken, NEXT, NodeCell, SHIM, ShimCell, State, time};

impl Cluster {
    pub(crate) fn step_node(&self, state: &mut State, index: usize, input: node::Input) {
        self.run_node(state, index, |node, now, effects| node.step(now, input, effects));
    }

    pub(crate) fn run_node(
        &self,
        state: &mut State,
        index: usize,
        step: impl FnOnce(&mut Node, protocol::time::Time, &mut Vec<node::Effect>),
    ) {
        let cell = &mut state.nodes[index];
        let mut machine = Node::clone(&cell.machine);
        let (now, before) = (cell.now(), (machine.statistics(), machine.version(&self.key)));
        let mut effects = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| step(&mut machine, now, &mut effects)));
        self.coverage.node(&before.0, &machine.statistics());
        if let (Some((session, from)), Some((same, to))) = (before.1, machine.version(&self.key))
            && session == same
            && to < from
        {
            state.broken = Some(Broken::VersionWentBack { from, to });
        }
        cell.machine = Arc::new(machine);
        cell.refresh();
        if let Err(panic) = result {
            state.broken = Some(Broken::Panicked(words(&*panic)));
        }
        for node::Effect::Send { to, message } in effects {
            match (to, message) {
                (Peer::Router(_), Message::Reply(reply)) => self.answer_read(state, &reply),
                (Peer::Shim(SHIM | NEXT), message) => {
                    let from = Peer::Node(state.nodes[index].id);
                    state.send(Envelope::new(from, to, message));
                }
                _ => {}
            }
        }
    }

    pub(crate) fn step_shim(&self, state: &mut State, index: usize, mut input: shim::Input) {
        if let shim::Input::Message { from: peer, .. }
        | shim::Input::Linked(peer)
        | shim::Input::Unlinked(peer) = &mut input
            && let Peer::Node(node) = *peer
        {
            *peer = self.holder(node);
        }
        let cell = &mut state.shims[index];
        let id = cell.id;
        let mut machine = shim::Shim::clone(&cell.machine);
        let (now, before) = (cell.now(), machine.statistics());
        let mut effects = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| machine.step(now, input, &mut effects)));
        let after = machine.statistics();
        self.coverage.shim(&before, &after);
        if machine.holds_writes(now) && machine.backlog().held > 0 {
            self.coverage.note(Event::WriteHeld);
        }
        if cell.fenced && after.grants > before.grants {
            self.coverage.note(Event::ReplacedShimGranted);
        }
        cell.machine = Arc::new(machine);
        if let Err(panic) = result {
            state.broken = Some(Broken::Panicked(words(&*panic)));
        }
        let mut answered = Vec::new();
        for effect in effects {
            let effect = match effect {
                shim::Effect::Send { to, message } => shim::Effect::Send { to: self.node_of(to), message },
                effect => effect,
            };
            match effect {
                shim::Effect::Send { to: to @ Peer::Node(_), message } => {
                    match message {
                        Message::Refuse(_) => self.coverage.note(Event::SessionRefused),
                        Message::Reject(_) => self.coverage.note(Event::NumberRejected),
                        _ => {}
                    }
                    state.send(Envelope::new(Peer::Shim(id), to, message));
                }
                shim::Effect::Send { message: Message::Reply(reply), .. } if reply.status == Status::Busy => {
                    let number = reply.request.checked_sub(FIRST_WRITE);
                    state.refused.extend(number.map(|number| self.config.writes[number as usize]));
                }
                shim::Effect::Store(store) => {
                    self.send_command(&mut state.shims[index], store, &mut answered)
                }
                shim::Effect::HandOver => state.shims[index].takes_leave = true,
                shim::Effect::Migrate { destinations, .. } => {
                    state.shims[index].moves |= !destinations.is_empty();
                }
                shim::Effect::Prepare { keys, .. } => state.shims[index].moves = keys.is_some(),
                shim::Effect::EndMigration => state.shims[index].ends = true,
                shim::Effect::Send { .. }
                | shim::Effect::Control { .. }
                | shim::Effect::Release { .. }
                | shim::Effect::Purged { .. }
                | shim::Effect::Vacant { .. }
                | shim::Effect::Renew => {}
            }
        }
        state.shims[index].refresh();
        for ticket in answered {
            let replies = backend::replies(What::Proof, 0);
            self.step_shim(state, index, shim::Input::Storage(StorageEvent::Replies { ticket, replies }));
        }
    }

    fn send_command(&self, cell: &mut ShimCell, store: Store, answered: &mut Vec<u64>) {
        // Nothing of a shim whose user is gone reaches storage.
        if cell.fenced || !cell.up {
            return;
        }
        let what = backend::what(&store, self.second);
        if cell.id == NEXT && matches!(what, What::Write(_)) {
            self.coverage.note(Event::NextWrites);
        }
        if what == What::Proof && !self.config.proofs_queue {
            answered.push(store.ticket);
            return;
        }
        let command = InFlight { ticket: store.ticket, what, done: None };
        Arc::make_mut(&mut cell.lanes[backend::lane(&store)]).push(command);
    }

    /// A node answers a client: with a value that storage has held since the read arrived, or with an error.
    fn answer_read(&self, state: &mut State, reply: &Reply) {
        let Some(index) = state.reads.iter().position(|read| read.request == reply.request) else { return };
        let read = state.reads.remove(index);
        if reply.status.is_refusal() {
            return;
        }
        let fits = |value: &&u8| backend::shown(read.view, **value) == (reply.status, reply.value.clone());
        let Some(&shown) = read.values.iter().find(fits) else {
            let got = String::from_utf8_lossy(&reply.value).replace("\r\n", " ");
            state.broken = Some(Broken::StaleRead { got, values: read.values });
            return;
        };
        // What a client sends later shows nothing older. Values grow where reads are ordered.
        let (before, after) = state.reads.split_at_mut(index);
        for earlier in before.iter_mut().filter(|other| read.ordered && other.node == read.node) {
            earlier.values.retain(|value| *value <= shown);
        }
        for later in after.iter_mut().filter(|other| other.ordered && other.node == read.node) {
            later.values.retain(|value| *value >= shown);
        }
    }

    pub(crate) fn write_storage(&self, state: &mut State, write: Write) {
        state.storage.run(write);
        if state.refused.contains(&write) {
            state.broken = Some(Broken::RefusedAndExecuted(write));
        }
        let value = state.storage.value;
        state.reads.iter_mut().for_each(|read| read.may_show(value));
    }

    /// Storage runs the oldest command of a connection that it has not run.
    pub(crate) fn run_command(&self, state: &mut State, shim: usize, lane: usize) {
        let commands = &state.shims[shim].lanes[lane];
        let Some(next) = commands.iter().position(|command| command.done.is_none()) else { return };
        if let What::Write(write) = commands[next].what {
            self.write_storage(state, write);
        }
        let value = state.storage.value;
        let cell = &mut state.shims[shim];
        Arc::make_mut(&mut cell.lanes[lane])[next].done = Some(value);
        cell.refresh();
    }

    /// The oldest reply of a connection reaches the shim.
    pub(crate) fn answer_command(&self, state: &mut State, shim: usize, lane: usize) {
        let lane = Arc::make_mut(&mut state.shims[shim].lanes[lane]);
        let InFlight { ticket, what, done } = lane.remove(0);
        let replies = backend::replies(what, done.unwrap_or_default());
        self.step_shim(state, shim, shim::Input::Storage(StorageEvent::Replies { ticket, replies }));
    }

    /// What was on the connections may still run; no reply comes.
    fn strand(&self, state: &mut State, shim: usize) -> Vec<InFlight> {
        let cell = &mut state.shims[shim];
        let lost: Vec<InFlight> = cell.in_flight().cloned().collect();
        cell.lanes = Default::default();
        for command in &lost {
            if let (What::Write(write), None) = (command.what, command.done) {
                state.storage.late.push(write);
            }
        }
        lost
    }

    pub(crate) fn lose_connections(&self, state: &mut State, shim: usize) {
        for command in self.strand(state, shim) {
            let event = StorageEvent::Lost { ticket: command.ticket, sent: true };
            self.step_shim(state, shim, shim::Input::Storage(event));
        }
        state.unfenced = true;
        state.shims[shim].refresh();
    }

    /// Its shim hears that, and reaches the next one later.
    pub(crate) fn restart_storage(&self, state: &mut State) {
        let governing = state.governing();
        let lost = self.strand(state, governing);
        state.storage.restart();
        state.unfenced = false;
        let value = state.storage.value;
        state.reads.iter_mut().for_each(|read| read.may_show(value));
        state.shims[governing].up = false;
        for command in lost {
            let event = StorageEvent::Lost { ticket: command.ticket, sent: true };
            self.step_shim(state, governing, shim::Input::Storage(event));
        }
        let event = StorageEvent::Down { reason: "it has ended".into(), gone: true };
        self.step_shim(state, governing, shim::Input::Storage(event));
    }

    pub(crate) fn fence(&self, state: &mut State) {
        state.storage.late.clear();
        state.unfenced = false;
        let governing = state.governing();
        self.step_shim(state, governing, shim::Input::Storage(StorageEvent::Fenced));
    }

    /// A shim has fenced all of its id that came before it, and begins.
    pub(crate) fn bring_up(&self, state: &mut State, governing: usize) {
        state.storage.late.clear();
        state.unfenced = false;
        let id = state.shims[governing].id;
        for old in state.shims[..governing].iter_mut().filter(|shim| shim.id == id) {
            old.fenced = true;
            for lane in &mut old.lanes {
                Arc::make_mut(lane).retain(|command| command.done.is_some());
            }
            old.refresh();
        }
        let cell = &mut state.shims[governing];
        cell.up = true;
        let incarnation = (u64::from(cell.life) + 1) << 32 | u64::from(state.storage.lost.is_some());
        let is_first = cell.life == 0 && state.storage.lost.is_none();
        let short_leases = self.config.later_lease_ticks.is_none();
        let earlier = match short_leases {
            true => EarlierIncarnations {
                same_data: state.storage.lost.is_none(),
                ..EarlierIncarnations::unrecorded(match is_first {
                    true => Unrecorded::Nobody,
                    false => Unrecorded::Within(Duration::ZERO),
                })
            },
            false => {
                let earlier = state.storage.take_over(&self.config, cell.life, is_first);
                let wait = self.config.lease_limits().wait(earlier, None);
                cell.others_end = cell.now().after(wait);
                earlier
            }
        };
        let traits = StorageTraits { short_leases, ..StorageTraits::default() };
        let event = StorageEvent::Up { incarnation, traits, earlier };
        self.step_shim(state, governing, shim::Input::Storage(event));
    }

    pub(crate) fn crash_node(&self, state: &mut State, index: usize) {
        let cell = &mut state.nodes[index];
        cell.life += 1;
        cell.machine = Arc::new(self.start_node(cell.id, cell.life, cell.now()));
        cell.refresh();
        state.reads.retain(|read| read.node != index);
    }

    /// A second process starts with a node's id; the first one does not know.
    pub(crate) fn double_node(&self, state: &mut State, index: usize) {
        let NodeCell { id, tick, .. } = state.nodes[index];
        let life = state.nodes.iter().map(|cell| cell.life + 1).max().unwrap_or(0);
        state.nodes.push(NodeCell::new(id, self.start_node(id, life, time(tick)), tick, life));
    }

    pub(crate) fn crash_shim(&self, state: &mut State) {
        let governing = state.governing();
        self.strand(state, governing);
        let cell = &state.shims[governing];
        let (tick, life) = (cell.tick, cell.life + 1);
        state.shims[governing] = ShimCell::new(SHIM, self.start_shim(SHIM, life), tick, life);
    }

    /// A second shim starts for the same storage; the first one does not know.
    pub(crate) fn take_over(&self, state: &mut State) {
        let cell = &state.shims[state.governing()];
        let (tick, life) = (cell.tick, cell.life + 1);
        state.shims.push(ShimCell::new(SHIM, self.start_shim(SHIM, life), tick, life));
    }

    /// Storage lets nothing of it run any more, and successors need not wait for it.
    pub(crate) fn take_leave(&self, state: &mut State, shim: usize) {
        let cell = &mut state.shims[shim];
        (cell.fenced, cell.takes_leave) = (true, false);
        state.storage.leave(cell.others_end.since(cell.now()));
        self.coverage.note(Event::HandedOver);
        self.step_shim(state, shim, shim::Input::Storage(StorageEvent::Left));
    }

    pub(crate) fn advance(&self, state: &mut State, shims: bool, nodes: std::ops::Range<usize>) {
        let ticks = self.config.ticks == Ticks::Clocked;
        if state.budget.time != UNLIMITED {
            state.budget.time = state.budget.time.saturating_sub(1);
        }
        if shims {
            for index in 0..state.shims.len() {
                state.shims[index].tick += 1;
                state.shims[index].refresh();
                if ticks && (index == state.governing() || state.shims[index].id == NEXT) {
                    self.step_shim(state, index, shim::Input::Tick);
                }
            }
        }
        for index in nodes {
            state.nodes[index].tick += 1;
            state.nodes[index].refresh();
            if ticks {
                self.step_node(state, index, node::Input::Tick);
            }
        }
        self.merge_old(state);
    }

    /// Leaves one of stamped messages that have become alike.
    pub(crate) fn merge_old(&self, state: &mut State) {
        let State { nodes, network, .. } = state;
        let age_max = self.config.age_max() * super::config::TICK.as_micros() as u64;
        network.merge_old(|node| nodes[node].now().0, age_max);
    }
}

pub(crate) fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words").to_owned()
}
