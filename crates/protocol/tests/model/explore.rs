//! What may happen in a state: the actions of the model, which of them are open, and the state after one.

use std::sync::Arc;

use protocol::node;
use protocol::shim::{self, ReshardingPhase};
use protocol::storage::StorageEvent;
use smallvec::SmallVec;
use stateright::{Model, Property};
use wire::message::{Execute, Heat, Read, SetDegree};
use wire::{Degree, Key, Message, NodeId, Peer, Relocation, RouterId, View};

use super::backend::What;
use super::config::{Start, Ticks, Write};
use super::coverage::Event;
use super::idle;
use super::network::Envelope;
use super::properties;
use super::setup::Cluster;
use super::state::{NEXT, NodeCell, OpenRead, SHIM, ShimCell, State, time};

const ROUTER: Peer = Peer::Router(RouterId(0));
/// The number of the first write; reads have lower ones.
pub(crate) const FIRST_WRITE: u64 = 200;
/// The step at which the key has its place and one more.
const FURTHER: Degree = Degree(1);
/// Far enough from zero for everything that counts from there to be long past.
const START: u64 = 1000;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Deliver {
        envelope: Arc<Envelope>,
        to: usize,
    },
    /// All clocks, or one of them where they drift.
    Time,
    ShimTime,
    NodeTime(usize),
    TickNode(usize),
    TickShim(usize),
    Run {
        shim: usize,
        lane: usize,
    },
    Answer {
        shim: usize,
        lane: usize,
    },
    RunLate(usize),
    Offer {
        node: usize,
        view: View,
    },
    Read {
        node: usize,
        view: View,
    },
    /// Behind another one of its client that the node has not answered.
    OrderedRead {
        node: usize,
        view: View,
    },
    /// By a router that takes the key to have further places.
    ElasticRead {
        node: usize,
    },
    Heat {
        node: usize,
        session: u64,
    },
    Degree {
        node: usize,
        degree: Degree,
    },
    Write {
        shim: usize,
        write: Write,
    },
    Evict(usize),
    CrashNode(usize),
    DoubleNode(usize),
    CrashShim,
    TakeOver,
    HandOver,
    /// Storage hears that a shim leaves.
    TakeLeave(usize),
    NextStage,
    NodeStage(usize),
    ShimStage(usize),
    /// Storage says that keys have moved, or that it has nothing to do with them any more.
    StorageMoves(usize),
    BringUp,
    LoseConnections,
    RestartStorage,
    Fence,
    Relink(usize),
    RemapShim,
    RemapNode,
    DrainNode(usize),
}

impl Cluster {
    fn deliveries(&self, state: &State, actions: &mut Vec<Action>) {
        for envelope in state.network.iter() {
            match envelope.to {
                Peer::Node(_) if is_rejected_beyond(&envelope.message, self.config.hellos_max) => {}
                Peer::Node(node) => {
                    let processes = state.nodes.iter().enumerate().filter(|(_, cell)| cell.id == node);
                    let deliver = |(to, _)| Action::Deliver { envelope: Arc::clone(envelope), to };
                    actions.extend(processes.map(deliver));
                }
                _ => {
                    for to in 0..state.shims.len() {
                        if envelope.to != Peer::Shim(state.shims[to].id) {
                            continue;
                        }
                        let asks = matches!(envelope.message, Message::Fetch(_) | Message::Read(_));
                        if !asks || self.has_room(&state.shims[to]) {
                            actions.push(Action::Deliver { envelope: Arc::clone(envelope), to });
                        }
                    }
                }
            }
        }
    }

    /// Whether storage may be asked for one more read: the same message can ask again and again.
    fn has_room(&self, shim: &ShimCell) -> bool {
        let reads = |what| matches!(what, What::Read(_) | What::Fill(_));
        let asked = shim.in_flight().filter(|command| reads(command.what)).count();
        let backlog = shim.machine.backlog();
        let joined = shim.machine.pending() - backlog.operations - backlog.tickets;
        asked + joined + backlog.waiting < self.config.storage_slots
    }

    fn machines(&self, state: &State, actions: &mut Vec<Action>) {
        let lowest = state.nodes.iter().map(|node| node.tick).min().unwrap_or(0);
        let shims = state.shims[0].tick;
        if state.budget.time == 0 {
            // No lease ends.
        } else if self.config.drift == 0 {
            actions.push(Action::Time);
        } else {
            if shims < lowest {
                actions.push(Action::ShimTime);
            }
            let ahead = |node: &&NodeCell| node.tick < shims + self.config.drift;
            let may = state.nodes.iter().enumerate().filter(|(_, node)| ahead(node));
            actions.extend(may.map(|(index, _)| Action::NodeTime(index)));
        }
        let free = self.config.ticks == Ticks::Free;
        if free {
            actions.extend((0..state.nodes.len()).map(Action::TickNode));
        }
        for (index, shim) in state.shims.iter().enumerate() {
            let replaced = shim.id == SHIM && index < state.governing();
            if free || replaced {
                actions.push(Action::TickShim(index));
            }
            if shim.takes_leave && !shim.fenced {
                actions.push(Action::TakeLeave(index));
            }
            for (lane, commands) in shim.lanes.iter().enumerate() {
                if commands.iter().any(|command| command.done.is_none()) {
                    actions.push(Action::Run { shim: index, lane });
                }
                if commands.first().is_some_and(|command| command.done.is_some()) {
                    actions.push(Action::Answer { shim: index, lane });
                }
            }
        }
        actions.extend((0..state.storage.late.len()).map(Action::RunLate));
    }

    fn clients(&self, state: &State, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        for (node, cell) in state.nodes.iter().enumerate() {
            if budget.offers > 0 {
                actions.push(Action::Offer { node, view: View::GET });
            }
            if budget.offers_second > 0 {
                actions.push(Action::Offer { node, view: self.second });
            }
            // A key that the node does not know is passed on to storage: nothing to learn there.
            if budget.reads > 0 && cell.machine.knows(&self.key) {
                let second = self.config.budget.offers_second > 0 || budget.ordered_reads > 0;
                let views = self.views().into_iter().take(1 + usize::from(second));
                actions.extend(views.map(|view| Action::Read { node, view }));
            }
        }
        for node in (0..state.nodes.len()).filter(|_| budget.ordered_reads > 0) {
            let last = state.reads.iter().rfind(|read| read.node == node);
            actions.extend(last.map(|_| Action::OrderedRead { node, view: View::GET }));
            // Two that were passed on come to storage in any order on a network that has none.
            let held = last.filter(|read| read.view == View::GET);
            actions.extend(held.map(|_| Action::OrderedRead { node, view: self.second }));
        }
        for (node, cell) in state.nodes.iter().enumerate() {
            if budget.elastic_reads > 0 {
                actions.push(Action::ElasticRead { node });
            }
            if budget.degrees > 0 && cell.machine.knows(&self.key) {
                actions.extend([Degree::BASE, FURTHER].map(|degree| Action::Degree { node, degree }));
            }
            let session = cell.machine.session(cell.now(), SHIM).filter(|_| budget.heats > 0);
            actions.extend(session.map(|(session, _)| Action::Heat { node, session }));
        }
        if let Some(&write) = self.config.writes.get(state.written) {
            let up = state.shims.iter().enumerate().filter(|(_, shim)| shim.up);
            actions.extend(up.map(|(shim, _)| Action::Write { shim, write }));
        }
    }

    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        let may = |own: u8| own > 0 && budget.faults != Some(0);
        for (node, cell) in state.nodes.iter().enumerate() {
            if may(budget.evictions) && cell.machine.knows(&self.key) {
                actions.push(Action::Evict(node));
            }
            if may(budget.node_crashes) {
                actions.push(Action::CrashNode(node));
            }
            if may(budget.doubles) {
                actions.push(Action::DoubleNode(node));
            }
            if may(budget.relinks) {
                actions.push(Action::Relink(node));
            }
            if may(budget.drains) {
                actions.push(Action::DrainNode(node));
            }
        }
        let governing = &state.shims[state.governing()];
        if !governing.up {
            actions.push(Action::BringUp);
            // What the last one has left at storage may be lost before the next one sees it.
            if self.config.later_lease_ticks.is_some() && may(budget.storage_restarts) {
                actions.push(Action::RestartStorage);
            }
            return;
        }
        if may(budget.shim_crashes) {
            actions.push(Action::CrashShim);
        }
        if may(budget.takeovers) {
            actions.push(Action::TakeOver);
        }
        if may(budget.handovers) {
            actions.push(Action::HandOver);
        }
        if may(budget.losses) && governing.in_flight().next().is_some() {
            actions.push(Action::LoseConnections);
        }
        if may(budget.storage_restarts) {
            actions.push(Action::RestartStorage);
        }
        if state.unfenced {
            actions.push(Action::Fence);
        }
        if may(budget.remaps) {
            actions.extend([Action::RemapShim, Action::RemapNode]);
        }
    }

    /// The maps by which keys are divided anew, and what the storage of those whose keys leave says. Nobody but these is waited
    /// for: others may act on old maps for as long as they like.
    fn divisions(&self, state: &State, actions: &mut Vec<Action>) {
        let latest = state.stage;
        let owner = &state.shims[state.governing()];
        let phase = owner.machine.resharding();
        let is_prepared = || state.shims[1].machine.resharding() == ReshardingPhase::Prepared;
        let is_over = match self.stages[latest].map().shims[usize::from(SHIM.0)].relocation {
            _ if owner.stage < latest => false,
            Relocation::Moving if latest == 1 => is_prepared(),
            Relocation::Moving => latest == 0 || phase == ReshardingPhase::Moved,
            Relocation::Announced | Relocation::Gone => true,
            Relocation::Closing => phase == ReshardingPhase::Ended,
        };
        if is_over && latest + 1 < self.stages.len() {
            actions.push(Action::NextStage);
        }
        let late = |stage: usize| stage < latest;
        let nodes = state.nodes.iter().enumerate().filter(|(_, node)| late(node.stage));
        actions.extend(nodes.map(|(node, _)| Action::NodeStage(node)));
        for (index, shim) in state.shims.iter().enumerate() {
            if late(shim.stage) {
                actions.push(Action::ShimStage(index));
            }
            if shim.moves || shim.ends {
                actions.push(Action::StorageMoves(index));
            }
        }
    }

    fn divide(&self, state: &mut State, action: &Action) {
        let latest = Arc::clone(&self.stages[state.stage]);
        match *action {
            Action::NextStage => {
                state.stage += 1;
                if state.stage + 1 == self.stages.len() {
                    self.coverage.note(Event::Divided);
                }
            }
            Action::NodeStage(node) => {
                state.nodes[node].stage = state.stage;
                self.step_node(state, node, node::Input::Map(latest));
            }
            Action::ShimStage(shim) => {
                state.shims[shim].stage = state.stage;
                self.step_shim(state, shim, shim::Input::Map(latest));
            }
            Action::StorageMoves(shim) => {
                let cell = &mut state.shims[shim];
                let event = match std::mem::take(&mut cell.moves) {
                    true => StorageEvent::Migrated,
                    false => {
                        cell.ends = false;
                        StorageEvent::MigrationEnded
                    }
                };
                self.step_shim(state, shim, shim::Input::Storage(event));
            }
            _ => self.fail(state, action),
        }
    }

    fn deliver(&self, state: &mut State, envelope: &Envelope, to: usize) {
        let (from, message) = (envelope.from, envelope.message.clone());
        match envelope.to {
            Peer::Node(_) => self.step_node(state, to, node::Input::Message { from, message }),
            _ => self.step_shim(state, to, shim::Input::Message { from, message }),
        }
    }

    fn perform(&self, state: &mut State, action: &Action) {
        match *action {
            Action::Deliver { .. } => unreachable!("deliveries have their own way"),
            Action::Time => self.advance(state, true, 0..state.nodes.len()),
            Action::ShimTime => self.advance(state, true, 0..0),
            Action::NodeTime(node) => self.advance(state, false, node..node + 1),
            Action::TickNode(node) => self.step_node(state, node, node::Input::Tick),
            Action::TickShim(shim) => self.step_shim(state, shim, shim::Input::Tick),
            Action::Run { shim, lane } => self.run_command(state, shim, lane),
            Action::Answer { shim, lane } => self.answer_command(state, shim, lane),
            Action::TakeLeave(shim) => self.take_leave(state, shim),
            Action::RunLate(index) => {
                let write = state.storage.late.remove(index);
                self.coverage.note(Event::LateWrite);
                self.write_storage(state, write);
            }
            Action::Offer { node, view } => {
                let left = if view == View::GET {
                    &mut state.budget.offers
                } else {
                    &mut state.budget.offers_second
                };
                *left -= 1;
                let (from, message) = (Peer::Shim(SHIM), self.offer(view));
                self.step_node(state, node, node::Input::Message { from, message });
            }
            Action::Read { node, view } => {
                state.budget.reads -= 1;
                let request = 100 + u64::from(state.budget.reads);
                self.read(state, OpenRead::new(request, node, view), Degree::BASE);
            }
            Action::OrderedRead { node, view } => {
                state.budget.ordered_reads -= 1;
                let request = 125 + u64::from(state.budget.ordered_reads);
                let read = OpenRead { ordered: true, ..OpenRead::new(request, node, view) };
                self.read(state, read, Degree::BASE);
            }
            Action::ElasticRead { node } => {
                state.budget.elastic_reads -= 1;
                self.elastic_read(state, node);
            }
            Action::Heat { node, session } => {
                state.budget.heats -= 1;
                let (from, key, governing) =
                    (Peer::Node(state.nodes[node].id), self.key.clone(), state.governing());
                let (degree, permille, hits, invalidations) = (Degree::BASE, 1000, 1000, 0);
                let message = Message::Heat(Heat { session, key, degree, permille, hits, invalidations });
                self.step_shim(state, governing, shim::Input::Message { from, message });
            }
            Action::Degree { node, degree } => {
                state.budget.degrees -= 1;
                let (from, key) = (Peer::Shim(SHIM), self.key.clone());
                let message = Message::SetDegree(SetDegree { key, degree });
                self.step_node(state, node, node::Input::Message { from, message });
                if !state.nodes[node].machine.knows(&self.key) {
                    self.coverage.note(Event::ToldToLeave);
                }
            }
            Action::Write { shim, write } => self.write(state, shim, write),
            _ => self.divide(state, action),
        }
    }

    fn elastic_read(&self, state: &mut State, node: usize) {
        let request = 150 + u64::from(state.budget.elastic_reads);
        self.read(state, OpenRead::new(request, node, View::GET), FURTHER);
    }

    fn read(&self, state: &mut State, mut read: OpenRead, degree: Degree) {
        let OpenRead { request, node, view, ordered, .. } = read;
        read.values.push(state.storage.value);
        // Until anybody can see that storage has lost it.
        read.values.extend(state.storage.lost.filter(|_| state.is_loss_hidden()));
        state.reads.push(read);
        let (key, command) = (self.key.clone(), self.command(view));
        let message = Message::Read(Read {
            request,
            key,
            view,
            resp3: true,
            ordered,
            streams: false,
            waited_ms: 0,
            degree,
            command,
        });
        self.step_node(state, node, node::Input::Message { from: ROUTER, message });
    }

    fn write(&self, state: &mut State, shim: usize, write: Write) {
        let request = FIRST_WRITE + state.written as u64;
        state.written += 1;
        let key = if write == Write::Flush { Key::default() } else { self.key.clone() };
        let command = write.command(&self.key.bytes).frame().clone();
        let (resp3, ordered) = (write.resp3(), false);
        let message =
            Message::Execute(Execute { request, key, resp3, ordered, watch: None, waited_ms: 0, command });
        self.step_shim(state, shim, shim::Input::Message { from: ROUTER, message });
    }

    fn fail(&self, state: &mut State, action: &Action) {
        let budget = &mut state.budget;
        if !matches!(action, Action::BringUp | Action::Fence) {
            budget.faults = budget.faults.map(|left| left - 1);
        }
        match *action {
            Action::Evict(node) => {
                budget.evictions -= 1;
                self.run_node(state, node, |node, now, effects| self.press(node, now, effects));
                if !state.nodes[node].machine.knows(&self.key) {
                    self.coverage.note(Event::Evicted);
                }
            }
            Action::CrashNode(node) => {
                budget.node_crashes -= 1;
                self.crash_node(state, node);
            }
            Action::DoubleNode(node) => {
                budget.doubles -= 1;
                self.double_node(state, node);
            }
            Action::CrashShim => {
                budget.shim_crashes -= 1;
                self.crash_shim(state);
            }
            Action::TakeOver => {
                budget.takeovers -= 1;
                self.take_over(state);
            }
            Action::HandOver => {
                budget.handovers -= 1;
                let governing = state.governing();
                self.step_shim(state, governing, shim::Input::HandOver);
                self.take_over(state);
            }
            Action::BringUp => {
                let governing = state.governing();
                self.bring_up(state, governing);
            }
            Action::LoseConnections => {
                budget.losses -= 1;
                let governing = state.governing();
                self.lose_connections(state, governing);
            }
            Action::RestartStorage => {
                budget.storage_restarts -= 1;
                self.restart_storage(state);
            }
            Action::Fence => self.fence(state),
            Action::Relink(node) => {
                budget.relinks -= 1;
                self.relink(state, node);
            }
            Action::RemapShim => {
                budget.remaps -= 1;
                let governing = state.governing();
                self.step_shim(state, governing, shim::Input::Map(Arc::clone(&self.remapped)));
            }
            Action::RemapNode => {
                budget.remaps -= 1;
                self.step_node(state, 0, node::Input::Map(Arc::clone(&self.remapped)));
            }
            Action::DrainNode(node) => {
                budget.drains -= 1;
                self.step_node(state, node, node::Input::Drain);
            }
            _ => unreachable!("not a fault"),
        }
    }

    fn relink(&self, state: &mut State, node: usize) {
        let governing = state.governing();
        self.step_node(state, node, node::Input::Unlinked(Peer::Shim(SHIM)));
        self.step_node(state, node, node::Input::Linked(Peer::Shim(SHIM)));
        let peer = Peer::Node(state.nodes[node].id);
        self.step_shim(state, governing, shim::Input::Unlinked(peer));
        self.step_shim(state, governing, shim::Input::Linked(peer));
    }

    fn start(&self) -> State {
        let nodes = 0..self.config.nodes;
        let nodes = nodes.map(|index| {
            let id = NodeId(index as u16);
            NodeCell::new(id, self.start_node(id, 0, time(START)), START, 0)
        });
        let ids = if self.config.divides { &[SHIM, NEXT][..] } else { &[SHIM] };
        let shims = ids.iter().map(|id| ShimCell::new(*id, self.start_shim(*id, 0), START, 0));
        let mut state = State {
            nodes: nodes.collect(),
            shims: shims.collect(),
            network: Default::default(),
            storage: Default::default(),
            reads: SmallVec::new(),
            written: 0,
            refused: SmallVec::new(),
            stage: 0,
            unfenced: false,
            budget: self.config.budget.clone(),
            broken: None,
            network_digest: 0,
            sent: SmallVec::new(),
        };
        state.storage.value = 5;
        for shim in 0..state.shims.len() {
            self.bring_up(&mut state, shim);
            self.step_shim(&mut state, shim, shim::Input::Tick);
        }
        self.settle(&mut state);
        if self.config.start != Start::Cold {
            self.warm_up(&mut state);
        }
        state.refresh_network(self.config.age_max());
        state
    }

    fn warm_up(&self, state: &mut State) {
        // And until leases have grown.
        let grown = self.config.later_lease_ticks.map_or(0, |_| u64::from(self.config.lease_ticks));
        let grown = state.shims[0].tick + grown;
        while state.shims[0].machine.holds_writes(state.shims[0].now()) || state.shims[0].tick < grown {
            self.advance(state, true, 0..state.nodes.len());
            // Where ticks are free nobody has had one.
            self.step_shim(state, 0, shim::Input::Tick);
            self.settle(state);
        }
        if self.config.start != Start::Quiet {
            let is_place = |node: &usize| self.placement.is_place(&self.key, NodeId(*node as u16));
            // Others get their sessions, and no copy.
            for node in (0..state.nodes.len()).filter(|node| !is_place(node)) {
                self.elastic_read(state, node);
            }
            for node in (0..state.nodes.len()).filter(is_place) {
                let (from, message) = (Peer::Shim(SHIM), self.offer(View::GET));
                self.step_node(state, node, node::Input::Message { from, message });
            }
            let opening = |message: &Message| matches!(message, Message::Hello(_) | Message::Welcome(_));
            let warm = self.config.start == Start::Warm;
            self.settle_some(state, |message| warm || opening(message));
            state.network.retain(|message| !warm && !opening(message));
        } else {
            state.network.clear();
        }
        state.budget = self.config.budget.clone();
    }

    fn settle(&self, state: &mut State) {
        self.settle_some(state, |_| true);
    }

    /// Delivers once, in their order, the messages that may arrive, and lets storage answer.
    fn settle_some(&self, state: &mut State, arrives: impl Fn(&Message) -> bool) {
        let mut next = 0;
        loop {
            if let Some(lane) = (0..3).find(|lane| !state.shims[0].lanes[*lane].is_empty()) {
                self.run_command(state, 0, lane);
                self.answer_command(state, 0, lane);
            } else if let Some(envelope) = state.network.get(next).cloned() {
                next += 1;
                let to = match envelope.to {
                    Peer::Node(node) => usize::from(node.0),
                    _ => 0,
                };
                if arrives(&envelope.message) {
                    self.deliver(state, &envelope, to);
                }
            } else {
                return;
            }
        }
    }
}

fn is_rejected_beyond(message: &Message, number: u64) -> bool {
    matches!(message, Message::Reject(reject) if reject.last >= number)
}

impl Model for Cluster {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        self.deliveries(state, actions);
        self.machines(state, actions);
        self.divisions(state, actions);
        self.clients(state, actions);
        self.faults(state, actions);
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match &action {
            Action::Deliver { envelope, to } => {
                let receiver = match envelope.to {
                    Peer::Node(_) => before.nodes[*to].digest,
                    _ => before.shims[*to].digest,
                };
                let idle = (receiver, envelope.likeness(|node| before.clock(node)));
                match idle::answers(&idle) {
                    Some(sent) => sent.iter().for_each(|envelope| state.network.add(envelope)),
                    None => {
                        self.deliver(&mut state, envelope, *to);
                        if state.is_idle_after(before, envelope, *to) {
                            idle::learn(idle, &state.sent);
                        }
                    }
                }
                if state.network.len() == before.network.len() && state.is_idle_after(before, envelope, *to) {
                    return None;
                }
            }
            other => self.perform(&mut state, other),
        }
        if state.sent.iter().any(|envelope| envelope.is_stamped()) {
            self.merge_old(&mut state);
        }
        state.sent.clear();
        state.refresh_network(self.config.age_max());
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Cluster>> {
        properties::all()
    }
}
