//! The nodes and shims as a router sees them: who is linked, how busy each is, and who had better be left alone. Not which
//! of them is asked.

use std::time::Duration;

use wire::message::Reply;
use wire::{NodeId, Peer, ShimId, Status};

use crate::awake::Awake;
use crate::load::LoadTable;
use crate::placement::Placement;
use crate::router::flow::breaker::Breaker;
use crate::router::flow::pending::Pending;
use crate::router::step::RouterStep;
use crate::time::Time;

/// A shim that was busy a moment ago would only say so again.
const SHIM_BUSY: Duration = Duration::from_millis(50);
/// A router that did not tick for this long was itself stopped.
const STOPPED: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct KnownMembers {
    nodes_linked: Vec<bool>,
    shims_linked: Vec<bool>,
    /// By `NodeId`, as many as `nodes_linked`.
    breakers: Vec<Breaker>,
    loads: LoadTable,
    /// Until when no read is asked again there, by `ShimId`.
    shims_busy: Vec<Time>,
    awake: Awake,
    /// A map has said how many there are.
    mapped: bool,
}

impl KnownMembers {
    pub(crate) fn new() -> KnownMembers {
        KnownMembers {
            nodes_linked: Vec::new(),
            shims_linked: Vec::new(),
            breakers: Vec::new(),
            loads: LoadTable::new(0),
            shims_busy: Vec::new(),
            awake: Awake::default(),
            mapped: false,
        }
    }

    pub(crate) fn set_linked(&mut self, peer: Peer, linked: bool) {
        let (table, index) = match peer {
            Peer::Node(node) => (&mut self.nodes_linked, usize::from(node.0)),
            Peer::Shim(shim) => (&mut self.shims_linked, usize::from(shim.0)),
            Peer::Router(_) => return,
        };
        if table.len() <= index {
            table.resize(index + 1, false);
        }
        table[index] = linked;
        if let Peer::Node(node) = peer {
            self.loads.set_reachable(node, linked);
            self.breakers.resize_with(self.nodes_linked.len(), Breaker::new);
            if !linked {
                self.breakers[index].lost();
            }
        }
    }

    /// Makes room for everybody in the map. Returns which nodes are down in it, by `NodeId`.
    pub(crate) fn take_map(&mut self, placement: &Placement) -> Vec<bool> {
        let members = placement.map().layers.iter().flat_map(|layer| &layer.nodes);
        let nodes = members.clone().map(|node| usize::from(node.id.0) + 1).max().unwrap_or(0);
        if !std::mem::replace(&mut self.mapped, true) || nodes > self.nodes_linked.len() {
            self.loads = LoadTable::new(nodes);
        }
        self.nodes_linked.resize(nodes.max(self.nodes_linked.len()), false);
        self.breakers.resize_with(self.nodes_linked.len(), Breaker::new);
        for (node, linked) in self.nodes_linked.iter().enumerate() {
            self.loads.set_reachable(NodeId(node as u16), *linked);
        }
        let shims = placement.map().shims.len();
        self.shims_linked.resize(shims.max(self.shims_linked.len()), false);
        self.shims_busy.resize(shims.max(self.shims_busy.len()), Time(0));
        let mut down = vec![false; self.nodes_linked.len()];
        members.filter(|node| !node.is_up()).for_each(|node| down[usize::from(node.id.0)] = true);
        down
    }

    pub(crate) fn node_linked(&self, node: NodeId) -> bool {
        self.nodes_linked.get(usize::from(node.0)).copied().unwrap_or(false)
    }

    /// Whether a read may be sent there now.
    pub(crate) fn node_admits(&self, now: Time, node: NodeId) -> bool {
        let breaker = self.breakers.get(usize::from(node.0));
        self.node_linked(node) && breaker.is_none_or(|breaker| breaker.admits(now))
    }

    pub(crate) fn shim_linked(&self, shim: ShimId) -> bool {
        self.shims_linked.get(usize::from(shim.0)).copied().unwrap_or(false)
    }

    /// Whether a read that is asked again had better not be asked there.
    pub(crate) fn shim_busy(&self, now: Time, shim: ShimId) -> bool {
        self.shims_busy.get(usize::from(shim.0)).is_some_and(|until| *until > now)
    }

    pub(crate) fn linked_shims(&self) -> impl Iterator<Item = ShimId> + '_ {
        let linked = self.shims_linked.iter().enumerate().filter(|(_, linked)| **linked);
        linked.map(|(index, _)| ShimId(index as u16))
    }

    pub(crate) fn missing_shims(&self) -> impl Iterator<Item = ShimId> + '_ {
        let missing = self.shims_linked.iter().enumerate().filter(|(_, linked)| !**linked);
        missing.map(|(index, _)| ShimId(index as u16))
    }

    pub(crate) fn linked_nodes_count(&self) -> usize {
        self.nodes_linked.iter().filter(|linked| **linked).count()
    }

    pub(crate) fn breakers_open(&self) -> usize {
        let linked = self.breakers.iter().zip(&self.nodes_linked);
        linked.filter(|(breaker, linked)| **linked && breaker.is_open()).count()
    }

    pub(crate) fn loads(&self, now: Time) -> impl Iterator<Item = u32> + '_ {
        (0..self.nodes_linked.len()).map(move |node| self.loads.load(now, NodeId(node as u16)))
    }

    /// The least loaded of these, with ties broken by `random`.
    pub(crate) fn choose(&self, now: Time, nodes: &[NodeId], random: u64) -> Option<NodeId> {
        self.loads.choose(now, nodes, random)
    }

    fn breaker(&mut self, peer: Peer) -> Option<&mut Breaker> {
        match peer {
            Peer::Node(node) => self.breakers.get_mut(usize::from(node.0)),
            Peer::Shim(_) | Peer::Router(_) => None,
        }
    }

    pub(crate) fn read_sent(&mut self, now: Time, node: NodeId) {
        self.loads.sent(now, node);
        if let Some(breaker) = self.breakers.get_mut(usize::from(node.0)) {
            breaker.sent(now);
        }
    }

    /// Nobody waits for a request to it any more.
    pub(crate) fn forgotten(&mut self, peer: Peer) {
        if let Some(breaker) = self.breaker(peer) {
            breaker.forgotten();
        }
    }

    /// It has answered what nobody waits for.
    pub(crate) fn late(&mut self, step: &mut RouterStep<'_>, peer: Peer) {
        step.counters.late_replies += 1;
        if let Some(breaker) = self.breaker(peer) {
            breaker.heard_late(step.now);
        }
    }

    /// It has said something without being asked.
    pub(crate) fn alive(&mut self, now: Time, peer: Peer) {
        if let Some(breaker) = self.breaker(peer) {
            breaker.alive(now);
        }
    }

    /// What a reply says about who gave it, and about the nodes that it has passed.
    pub(crate) fn judge(&mut self, step: &mut RouterStep<'_>, pending: &Pending, reply: &Reply) {
        let (now, busy) = (step.now, reply.status == Status::Busy);
        match pending.peer {
            Peer::Shim(shim) if busy => {
                if let Some(until) = self.shims_busy.get_mut(usize::from(shim.0)) {
                    *until = now.after(SHIM_BUSY);
                }
            }
            peer => match self.breaker(peer) {
                Some(breaker) if !busy => breaker.answered(now, now.since(pending.sent)),
                Some(breaker) => step.counters.breakers_opened += u64::from(breaker.refused(now)),
                None => {}
            },
        }
        for stamp in &reply.loads {
            if let Some(node) = stamp.node_plus_one.checked_sub(1).and_then(|node| u16::try_from(node).ok()) {
                self.loads.report(now, NodeId(node), stamp.load);
            }
        }
    }

    /// Whether nodes may be blamed for their silence: not if the router did not run itself.
    pub(crate) fn tick(&mut self, now: Time) -> bool {
        let runs = self.awake.tick(now, STOPPED);
        if !runs {
            self.breakers.iter_mut().for_each(|breaker| breaker.excuse(now));
        }
        runs
    }

    /// The next node, from this place on, that leaves reads unanswered for too long.
    pub(crate) fn hanging(&mut self, now: Time, from: usize) -> Option<usize> {
        (from..self.breakers.len()).find(|index| self.breakers[*index].hangs(now))
    }
}
