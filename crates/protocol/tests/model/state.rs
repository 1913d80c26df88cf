//! One state of the model: machines with their clocks, the network, storage, open reads, and what may yet go wrong.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use protocol::node::Node;
use protocol::shim::Shim;
use protocol::time::Time;
use smallvec::SmallVec;
use wire::{NodeId, Peer, ShimId, View};

use super::backend::{InFlight, Storage};
use super::config::{Budget, TICK, Write};
use super::network::{Envelope, Network};

pub(crate) const SHIM: ShimId = ShimId(0);
/// To which the key goes where keys are divided anew.
pub(crate) const NEXT: ShimId = ShimId(2);

/// Machines are shared between states: only the one that steps is copied.
#[derive(Clone)]
pub(crate) struct NodeCell {
    /// Several processes may have one.
    pub(crate) id: NodeId,
    pub(crate) machine: Arc<Node>,
    pub(crate) tick: u64,
    /// How often it has crashed.
    pub(crate) life: u8,
    /// The last of the maps by which keys are divided anew that it acts on.
    pub(crate) stage: usize,
    pub(crate) digest: u64,
}

#[derive(Clone)]
pub(crate) struct ShimCell {
    /// Several processes may have one.
    pub(crate) id: ShimId,
    pub(crate) machine: Arc<Shim>,
    pub(crate) tick: u64,
    pub(crate) life: u8,
    /// Its fence is up and storage listens to it.
    pub(crate) up: bool,
    /// A successor's fence has cut it off from storage.
    pub(crate) fenced: bool,
    /// It is ready to go, and storage has not heard of it.
    pub(crate) takes_leave: bool,
    /// When no lease of those before it runs any more.
    pub(crate) others_end: Time,
    /// The last of the maps by which keys are divided anew that it acts on.
    pub(crate) stage: usize,
    /// Its storage has to move keys, and to end with that.
    pub(crate) moves: bool,
    pub(crate) ends: bool,
    /// Connections to storage by RESP version, and the one of blocking commands.
    pub(crate) lanes: [Arc<Vec<InFlight>>; 3],
    pub(crate) digest: u64,
}

/// A client's read that a node has not answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpenRead {
    pub(crate) request: u64,
    pub(crate) node: usize,
    pub(crate) view: View,
    /// Its client has others before it.
    pub(crate) ordered: bool,
    /// Every value that storage has held since the read arrived: one of these is the answer.
    pub(crate) values: SmallVec<[u8; 8]>,
}

impl OpenRead {
    pub(crate) fn new(request: u64, node: usize, view: View) -> OpenRead {
        OpenRead { request, node, view, ordered: false, values: SmallVec::new() }
    }

    pub(crate) fn may_show(&mut self, value: u8) {
        if !self.values.contains(&value) {
            self.values.push(value);
            self.values.sort_unstable();
        }
    }
}

/// What no state shows afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    StaleRead { got: String, values: SmallVec<[u8; 8]> },
    VersionWentBack { from: u64, to: u64 },
    RefusedAndExecuted(Write),
    Panicked(String),
}

#[derive(Clone)]
pub(crate) struct State {
    /// Each in its place, and then further processes with the id of one.
    pub(crate) nodes: SmallVec<[NodeCell; 2]>,
    /// In the order of their starts: the last one with an id governs.
    pub(crate) shims: SmallVec<[ShimCell; 2]>,
    pub(crate) network: Network,
    pub(crate) storage: Storage,
    pub(crate) reads: SmallVec<[OpenRead; 2]>,
    pub(crate) written: usize,
    /// Writes of which a client was told that they are not executed.
    pub(crate) refused: SmallVec<[Write; 2]>,
    /// The last map by which keys are divided anew.
    pub(crate) stage: usize,
    /// A connection has broken and no fence has followed.
    pub(crate) unfenced: bool,
    pub(crate) budget: Budget,
    pub(crate) broken: Option<Broken>,
    /// Digest of the network: counted once per state.
    pub(crate) network_digest: u64,
    /// What the step that led here sent. No part of the state.
    pub(crate) sent: SmallVec<[Arc<Envelope>; 2]>,
}

pub(crate) fn time(tick: u64) -> Time {
    Time(tick * TICK.as_micros() as u64)
}

impl NodeCell {
    pub(crate) fn new(id: NodeId, machine: Node, tick: u64, life: u8) -> NodeCell {
        let mut cell = NodeCell { id, machine: Arc::new(machine), tick, life, stage: 0, digest: 0 };
        cell.refresh();
        cell
    }

    pub(crate) fn now(&self) -> Time {
        time(self.tick)
    }

    pub(crate) fn refresh(&mut self) {
        let mut digest = DefaultHasher::new();
        for shim in [SHIM, NEXT] {
            self.machine.fingerprint(self.now(), shim, &mut digest);
        }
        self.digest = digest.finish();
    }
}

impl ShimCell {
    pub(crate) fn new(id: ShimId, machine: Shim, tick: u64, life: u8) -> ShimCell {
        let lanes = std::array::from_fn(|_| Arc::default());
        let mut cell = ShimCell {
            id,
            machine: Arc::new(machine),
            tick,
            life,
            up: false,
            fenced: false,
            takes_leave: false,
            others_end: Time(0),
            stage: 0,
            moves: false,
            ends: false,
            lanes,
            digest: 0,
        };
        cell.refresh();
        cell
    }

    pub(crate) fn now(&self) -> Time {
        time(self.tick)
    }

    /// Must follow every change of machine, clock or lanes.
    pub(crate) fn refresh(&mut self) {
        let now = self.now();
        let mut digest = DefaultHasher::new();
        self.machine.fingerprint(now, &mut digest);
        for lane in &self.lanes {
            lane.len().hash(&mut digest);
            for command in lane.iter() {
                (command.what, command.done).hash(&mut digest);
                self.machine.ticket_fingerprint(now, command.ticket, &mut digest);
            }
        }
        (self.up, self.fenced, self.takes_leave, self.others_end.since(now)).hash(&mut digest);
        (self.moves, self.ends).hash(&mut digest);
        self.digest = digest.finish();
    }

    /// Commands at storage or on the way to it.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &InFlight> {
        self.lanes.iter().flat_map(|lane| lane.iter())
    }
}

impl State {
    pub(crate) fn governing(&self) -> usize {
        self.shims.iter().rposition(|shim| shim.id == SHIM).expect("it is never taken away")
    }

    /// Whether nothing that storage holds now has been read since it lost what it held.
    pub(crate) fn is_loss_hidden(&self) -> bool {
        let shim = &self.shims[self.governing()];
        !shim.up || shim.machine.holds_reads(shim.now())
    }

    pub(crate) fn send(&mut self, envelope: Envelope) {
        let envelope = Arc::new(envelope);
        self.network.add(&envelope);
        self.sent.push(envelope);
    }

    /// Whether a delivery has changed nothing but the network.
    pub(crate) fn is_idle_after(&self, before: &State, envelope: &Envelope, to: usize) -> bool {
        let same = match envelope.to {
            Peer::Node(_) => self.nodes[to].digest == before.nodes[to].digest,
            _ => self.shims[to].digest == before.shims[to].digest,
        };
        same && self.broken == before.broken && self.reads.len() == before.reads.len()
    }

    /// What a node's clock shows.
    pub(crate) fn clock(&self, node: usize) -> u64 {
        self.nodes[node].now().0
    }

    fn ticks(&self) -> impl Iterator<Item = u64> + '_ {
        self.nodes.iter().map(|node| node.tick).chain(self.shims.iter().map(|shim| shim.tick))
    }

    pub(crate) fn refresh_network(&mut self, age_max: u64) {
        let age_max = age_max * TICK.as_micros() as u64;
        let nodes = &self.nodes;
        let clocks = |node: usize| nodes[node].now().0;
        self.network_digest = self.network.fingerprint(clocks, age_max);
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let earliest = self.ticks().min().unwrap_or(0);
        for node in &self.nodes {
            (node.id, node.digest, node.tick - earliest, node.life, node.stage).hash(state);
        }
        for shim in &self.shims {
            (shim.id, shim.digest, shim.tick - earliest, shim.life, shim.stage).hash(state);
        }
        let mut late = self.storage.late.clone();
        late.sort_unstable();
        let Storage { value, lost, recorded, .. } = self.storage;
        (self.network_digest, value, lost, recorded, late).hash(state);
        (&self.reads, self.stage).hash(state);
        (self.written, &self.refused[..], self.unfenced, &self.budget, &self.broken).hash(state);
    }
}

/// States are told apart by what they are hashed by.
impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        let digest = |state: &State| {
            let mut digest = DefaultHasher::new();
            state.hash(&mut digest);
            digest.finish()
        };
        digest(self) == digest(other)
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "storage {}, {} messages", self.storage.value, self.network.iter().count())?;
        self.broken.as_ref().map_or(Ok(()), |broken| write!(f, ", {broken:?}"))
    }
}
