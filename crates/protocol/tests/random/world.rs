//! Two nodes, a shim and perhaps its predecessor, storage and clients on one random schedule. Not what goes wrong.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use protocol::node::{self, Node};
use protocol::placement::{Placement, Secret};
use protocol::shim::{self, Shim};
use protocol::storage::StorageEvent;
use protocol::time::Time;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use wire::resp::Command;
use wire::{
    ClusterMap, LayerMap, Message, NodeId, NodeMember, Partition, Peer, RackId, SHARE_WHOLE, ShimId,
    ShimMember,
};

use crate::backend::{Backend, Connection};
use crate::clients::{self, CLIENTS, Request, TestKey};
use crate::faults::Fault;
use crate::history::History;
use crate::network::{End, NODES, Network, Place, ROUTERS, SLOTS, peer};
use crate::storage::MiniStorage;
use crate::swarm::Swarm;

/// What is slow takes so many times as long as the rest.
const SLOWNESS: u32 = 10;

/// One machine's clock: an offset, and a rate that is wrong by up to half a percent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset: u64,
    rate_ppm: u64,
}

impl Clock {
    pub(crate) fn draw(random: &mut SmallRng) -> Clock {
        let offset = random.random_range(1_000_000_000..2_000_000_000);
        Clock { offset, rate_ppm: random.random_range(995_000..=1_005_000) }
    }

    pub(crate) fn at(&self, real: u64) -> Time {
        Time(self.offset + real * self.rate_ppm / 1_000_000)
    }
}

pub(crate) struct Process<M> {
    pub(crate) machine: Option<M>,
    pub(crate) clock: Clock,
    pub(crate) paused_until: u64,
    /// Tells its ticks from those of the process that was here before.
    pub(crate) life: u64,
}

impl<M> Process<M> {
    fn none(random: &mut SmallRng) -> Process<M> {
        Process { machine: None, clock: Clock::draw(random), paused_until: 0, life: 0 }
    }

    pub(crate) fn is_awake(&self, now: u64) -> bool {
        self.machine.is_some() && self.paused_until <= now
    }
}

/// What happens at a time rather than by chance.
#[derive(Debug)]
pub(crate) enum Timer {
    Tick {
        end: End,
        life: u64,
    },
    Client(usize),
    Cancel(u64),
    Fault(Fault),
    /// Whoever is not linked dials.
    Dial,
    Start(End),
    Kill(End),
    Takeover(End),
    Notice(End),
    Fence(End),
    Up(End),
    NewIncarnation(End),
    Map(End, Arc<Placement>),
    /// A copy of a message that was delivered before.
    Late {
        from: End,
        to: End,
        message: Message,
    },
}

/// What may happen next, in any order.
#[derive(Clone, Copy, Debug)]
enum Action {
    Deliver(Place),
    Tell(Place),
    Execute { slot: End, connection: usize },
    Answer { slot: End, connection: usize },
    Event { slot: End },
    Stranded { index: usize },
}

pub(crate) struct World {
    pub(crate) swarm: Swarm,
    pub(crate) random: SmallRng,
    /// Real time in microseconds.
    pub(crate) now: u64,
    pub(crate) placement: Arc<Placement>,
    pub(crate) nodes: [Process<Node>; 2],
    pub(crate) shims: [Process<Shim>; 2],
    pub(crate) backends: [Backend; 2],
    /// The slot of the shim that storage obeys, or will obey.
    pub(crate) current: End,
    /// When storage ceased to obey what is in a slot.
    pub(crate) cut_at: [Option<u64>; 2],
    pub(crate) network: Network,
    pub(crate) storage: MiniStorage,
    pub(crate) storage_clock: Clock,
    pub(crate) storage_paused_until: u64,
    /// Lost connections of which storage may still execute what it has read.
    pub(crate) stranded: Vec<Connection>,
    pub(crate) keys: Vec<TestKey>,
    pub(crate) requests: BTreeMap<u64, Request>,
    pub(crate) history: History,
    pub(crate) key_operations: Vec<usize>,
    pub(crate) serial: u64,
    timers: BTreeMap<(u64, u64), Timer>,
    /// Clients are quiet and nothing more goes wrong.
    pub(crate) calm: bool,
    pub(crate) failure: Option<String>,
    pub(crate) report: Report,
    digest: DefaultHasher,
    trace: Option<String>,
}

pub(crate) fn placement(epoch: u32, shares: [u16; 2]) -> Arc<Placement> {
    let layer = |index: usize| {
        let node = NodeMember { id: NodeId(index as u16), rack: None, capacity: 1000, share: shares[index] };
        LayerMap { name: format!("layer-{index}"), partition: Partition::Hash, nodes: vec![node] }
    };
    let shims = vec![ShimMember { id: ShimId(0), rack: RackId(0) }];
    let map = ClusterMap { epoch, layers: vec![layer(0), layer(1)], shims };
    Arc::new(Placement::new(Secret([7; 16]), map).expect("the map is in order"))
}

impl World {
    pub(crate) fn new(seed: u64, traced: bool) -> World {
        let mut random = SmallRng::seed_from_u64(seed);
        let swarm = Swarm::draw(&mut random);
        let placement = placement(1, [SHARE_WHOLE; 2]);
        let keys = clients::keys(&swarm, &placement);
        World {
            now: 0,
            nodes: [Process::none(&mut random), Process::none(&mut random)],
            shims: [Process::none(&mut random), Process::none(&mut random)],
            backends: Default::default(),
            current: SLOTS.start,
            cut_at: [None; 2],
            network: Network::new(),
            storage: MiniStorage::default(),
            storage_clock: Clock::draw(&mut random),
            storage_paused_until: 0,
            stranded: Vec::new(),
            key_operations: vec![0; keys.len()],
            keys,
            requests: BTreeMap::new(),
            history: History::default(),
            serial: 0,
            timers: BTreeMap::new(),
            calm: false,
            failure: None,
            report: Report::default(),
            digest: DefaultHasher::new(),
            trace: traced.then(|| format!("seed {seed}: {swarm:#?}\n")),
            swarm,
            random,
            placement,
        }
    }

    pub(crate) fn trace(&self) -> &str {
        self.trace.as_deref().unwrap_or_default()
    }

    pub(crate) fn run(&mut self) -> Result<Report, String> {
        for end in NODES {
            self.start(end);
        }
        self.start(self.current);
        self.takeover(self.current);
        self.at(0, Timer::Dial);
        for client in 0..CLIENTS {
            self.at(0, Timer::Client(client));
        }
        self.network.slow_down(self.swarm.slow_channels, &mut self.random);
        self.plan_faults();
        self.run_until(self.swarm.duration);
        self.settle();
        self.finish();
        match self.failure.take() {
            Some(failure) => Err(format!("at {} us: {failure}\n{:?}", self.now, self.swarm)),
            None => Ok(self.report.clone()),
        }
    }

    pub(crate) fn fail(&mut self, failure: String) {
        self.failure.get_or_insert(failure);
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let _ = writeln!(trace, "{:9} {}", self.now, what());
        }
    }

    pub(crate) fn at(&mut self, time: u64, timer: Timer) {
        self.serial += 1;
        self.timers.insert((time, self.serial), timer);
    }

    /// Up to `most` microseconds from now.
    pub(crate) fn soon(&mut self, most: u64) -> u64 {
        self.now + self.random.random_range(0..=most)
    }

    pub(crate) fn recovering(&self) -> bool {
        self.timers.values().any(|timer| {
            !matches!(timer, Timer::Tick { .. } | Timer::Client(_) | Timer::Fault(_) | Timer::Dial)
        })
    }

    pub(crate) fn run_until(&mut self, end: u64) {
        while self.failure.is_none() && self.now < end {
            while let Some(timer) = self.timers.first_entry().filter(|timer| timer.key().0 <= self.now) {
                let timer = timer.remove();
                self.fire(timer);
            }
            if self.act() {
                self.now += self.random.random_range(0..=self.swarm.latency * 2);
            } else {
                let next = self.timers.first_key_value().map_or(end, |((time, _), _)| *time);
                self.now = next.clamp(self.now, end);
            }
        }
    }

    /// Everything that is on its way arrives, without any time passing.
    pub(crate) fn drain(&mut self) {
        while self.failure.is_none() && self.act() {}
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Tick { end, life } => self.tick(end, life),
            Timer::Client(client) => self.client_acts(client),
            Timer::Cancel(request) => self.cancel(request),
            Timer::Late { from, to, message } => {
                if self.is_awake(to) && self.network.is_linked(to, from) {
                    self.note(|| format!("late copy {from}>{to} {message:?}"));
                    self.handle(from, to, message);
                }
            }
            other => self.recover(other),
        }
    }

    fn tick(&mut self, end: End, life: u64) {
        let (current, paused_until) = match SLOTS.contains(&end) {
            true => (self.shims[end - SLOTS.start].life, self.shims[end - SLOTS.start].paused_until),
            false => (self.nodes[end].life, self.nodes[end].paused_until),
        };
        if current != life {
            return;
        }
        if paused_until > self.now {
            return self.at(paused_until, Timer::Tick { end, life });
        }
        match SLOTS.contains(&end) {
            true => self.step_shim(end, shim::Input::Tick),
            false => self.step_node(end, node::Input::Tick),
        }
        self.check_node(0);
        self.check_node(1);
        self.at(self.now + self.swarm.tick, Timer::Tick { end, life });
    }

    pub(crate) fn is_awake(&self, end: End) -> bool {
        if NODES.contains(&end) {
            self.nodes[end].is_awake(self.now)
        } else if SLOTS.contains(&end) {
            self.shims[end - SLOTS.start].is_awake(self.now)
        } else {
            true
        }
    }

    /// Does one of all things that can happen. False if there is none.
    fn act(&mut self) -> bool {
        let (mut places, mut news) = (Vec::new(), Vec::new());
        self.network.deliverable(self.now, |end| self.is_awake(end), &mut places, &mut news);
        let mut actions: Vec<Action> = places.into_iter().map(Action::Deliver).collect();
        actions.extend(news.into_iter().map(Action::Tell));
        for slot in SLOTS {
            let backend = &self.backends[slot - SLOTS.start];
            let (executable, answered) = backend.choices();
            if self.storage_paused_until <= self.now {
                actions.extend(executable.into_iter().map(|connection| Action::Execute { slot, connection }));
            }
            if self.is_awake(slot) {
                actions.extend(answered.into_iter().map(|connection| Action::Answer { slot, connection }));
                actions.extend((!backend.events.is_empty()).then_some(Action::Event { slot }));
            }
        }
        if !actions.is_empty() && self.storage_paused_until <= self.now {
            // What is stranded is executed at leisure, and perhaps never.
            actions.extend((0..self.stranded.len()).map(|index| Action::Stranded { index }));
        }
        if actions.is_empty() {
            return false;
        }
        let action = actions[self.random.random_range(0..actions.len())];
        let slow = match action {
            Action::Deliver(place) => self.network.is_slow(place),
            Action::Execute { .. } | Action::Answer { .. } => self.swarm.slow_storage,
            _ => false,
        };
        if slow && self.random.random_range(0..SLOWNESS) > 0 {
            return true;
        }
        self.report.steps += 1;
        self.perform(action);
        if self.swarm.expiry {
            self.check_node(0);
            self.check_node(1);
        }
        true
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Deliver(place) => {
                let Some((from, to, message)) = self.network.take(place) else { return };
                self.note(|| format!("{from}>{to} {message:?}"));
                (self.now, from, to, &message).hash(&mut self.digest);
                self.report.digest = self.digest.finish();
                if !self.calm && message.is_control() && self.random.random_bool(self.swarm.duplicates) {
                    let due = self.soon(self.swarm.lease * 2);
                    self.at(due, Timer::Late { from, to, message: message.clone() });
                }
                self.handle(from, to, message);
            }
            Action::Tell(place) => {
                let Some((to, of, up)) = self.network.tell(place) else { return };
                self.note(|| {
                    format!("{to} hears that the link to {of} is {}", if up { "up" } else { "down" })
                });
                self.told(to, of, up);
            }
            Action::Execute { slot, connection } => {
                let backend = &self.backends[slot - SLOTS.start];
                let Some(frame) = backend.connections[connection].head() else { return };
                let reply = self.apply(frame);
                self.serial += 1;
                let connection = &mut self.backends[slot - SLOTS.start].connections[connection];
                match reply {
                    Some(reply) => connection.executed(reply),
                    None => connection.blocked = Some(self.serial),
                }
                self.wake_blocked();
            }
            Action::Answer { slot, connection } => {
                let event = self.backends[slot - SLOTS.start].read(connection);
                self.storage_says(slot, event);
            }
            Action::Event { slot } => {
                let event = self.backends[slot - SLOTS.start].events.pop_front();
                self.storage_says(slot, event);
            }
            Action::Stranded { index } => self.execute_stranded(index),
        }
    }

    fn storage_says(&mut self, slot: End, event: Option<StorageEvent>) {
        if let Some(event) = event {
            self.note(|| format!("storage>{slot} {event:?}"));
            self.step_shim(slot, shim::Input::Storage(event));
        }
    }

    fn handle(&mut self, from: End, to: End, message: Message) {
        let from_peer = peer(from);
        if NODES.contains(&to) {
            let check = matches!(message, Message::Fill(_) | Message::Commit(_) | Message::Grant(_));
            self.step_node(to, node::Input::Message { from: from_peer, message });
            if check {
                self.check_node(to);
            }
        } else if SLOTS.contains(&to) {
            self.step_shim(to, shim::Input::Message { from: from_peer, message });
        } else if let Message::Reply(reply) = message {
            self.reply(from, to, &reply);
        } else {
            self.fail(format!("a router was sent {message:?}"));
        }
    }

    fn told(&mut self, to: End, of: End, up: bool) {
        let of_peer = peer(of);
        if NODES.contains(&to) {
            let input = if up { node::Input::Linked(of_peer) } else { node::Input::Unlinked(of_peer) };
            self.step_node(to, input);
        } else if SLOTS.contains(&to) {
            let input = if up { shim::Input::Linked(of_peer) } else { shim::Input::Unlinked(of_peer) };
            self.step_shim(to, input);
        } else if !up {
            self.unlinked(to, of);
        }
    }

    pub(crate) fn step_node(&mut self, index: End, input: node::Input) {
        let mut effects = Vec::new();
        let Process { machine: Some(machine), clock, .. } = &mut self.nodes[index] else { return };
        machine.step(clock.at(self.now), input, &mut effects);
        for node::Effect::Send { to, message } in effects {
            self.send(index, to, message);
        }
    }

    pub(crate) fn step_shim(&mut self, slot: End, input: shim::Input) {
        let mut effects = Vec::new();
        let Process { machine: Some(machine), clock, .. } = &mut self.shims[slot - SLOTS.start] else {
            return;
        };
        machine.step(clock.at(self.now), input, &mut effects);
        for effect in effects {
            match effect {
                shim::Effect::Send { to, message } => self.send(slot, to, message),
                shim::Effect::Store(store) => self.backends[slot - SLOTS.start].store(store),
                shim::Effect::Abort { ticket } => self.abort(slot, ticket),
            }
        }
    }

    pub(crate) fn send(&mut self, from: End, to: Peer, message: Message) {
        let to = match to {
            Peer::Node(node) => Some(usize::from(node.0)),
            Peer::Router(router) => Some(ROUTERS.start + usize::from(router.0)),
            Peer::Shim(_) => self.network.slot_of(from),
        };
        if let Some(to) = to {
            self.network.send(from, to, message);
        }
    }

    pub(crate) fn storage_ms(&self) -> u64 {
        self.storage_clock.at(self.now).0 / 1000
    }

    /// Storage executes one command. `None`: it blocks.
    pub(crate) fn apply(&mut self, frame: Bytes) -> Option<Bytes> {
        let command = Command::parse(frame).expect("the shim sends whole commands");
        self.note(|| format!("storage executes {command:?}"));
        let reply = self.storage.execute(self.storage_ms(), &command)?;
        if !matches!(
            command.name(),
            b"PING" | b"GET" | b"PTTL" | b"HGETALL" | b"HGET" | b"HLEN" | b"LLEN" | b"TOUCH"
        ) {
            self.check_node(0);
            self.check_node(1);
        }
        Some(reply)
    }
}

/// What the runs did, to see that they did something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Of every delivery: the same for the same seed.
    digest: u64,
    steps: u64,
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
    pub(crate) hits: u64,
    pub(crate) joined: u64,
    pub(crate) fills: u64,
    pub(crate) poisoned: u64,
    pub(crate) ungranted: u64,
    pub(crate) commits: u64,
    pub(crate) evictions: u64,
    pub(crate) lease_losses: u64,
    pub(crate) repeats: u64,
    pub(crate) revokes: u64,
    pub(crate) lapses: u64,
    pub(crate) storage_lost: u64,
    pub(crate) late_replies: u64,
}

impl Report {
    fn numbers(&mut self) -> [&mut u64; 16] {
        let Report { steps, operations, unknown, hits, joined, fills, poisoned, ungranted, .. } = self;
        let Report {
            commits,
            evictions,
            lease_losses,
            repeats,
            revokes,
            lapses,
            storage_lost,
            late_replies,
            ..
        } = self;
        [
            steps,
            operations,
            unknown,
            hits,
            joined,
            fills,
            poisoned,
            ungranted,
            commits,
            evictions,
            lease_losses,
            repeats,
            revokes,
            lapses,
            storage_lost,
            late_replies,
        ]
    }

    pub(crate) fn add(&mut self, other: &Report) {
        let mut other = other.clone();
        for (total, more) in self.numbers().into_iter().zip(other.numbers()) {
            *total += *more;
        }
    }

    pub(crate) fn assert_busy(&self) {
        let mut all = self.clone();
        assert!(all.numbers().iter().all(|number| **number >= 3), "too little happened: {self:?}");
    }
}
