//! The shim's ends of what it has with all who may hold copies: nodes, and routers that keep near copies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use wire::message::Invalidate;
use wire::{NodeId, Peer, RouterId};

use crate::coherence::lease::ShimSession;
use crate::time::Time;

/// An INV that its holder has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Outstanding {
    pub(super) operation: u32,
    pub(super) message: Invalidate,
    pub(super) sent: Time,
    pub(super) repeated: Time,
    /// Up to when changes of others had been heard of when it was sent.
    pub(super) heard: Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Revoking {
    pub(super) number: u64,
    pub(super) sent: Time,
    pub(super) repeated: Time,
    pub(super) heard: Time,
}

/// This shim's end of everything it has with one holder.
#[derive(Clone, Debug, Default)]
pub(super) struct HolderLink {
    pub(super) session: ShimSession,
    /// By version: the first is the oldest.
    pub(super) outstanding: BTreeMap<u64, Outstanding>,
    /// The REVOKE that the holder has not acknowledged.
    pub(super) revoking: Option<Revoking>,
    pub(super) heat_floor: u32,
    /// Until when nothing is granted to it.
    pub(super) shunned: Time,
}

impl HolderLink {
    /// Since when it owes an answer.
    pub(super) fn owes_since(&self) -> Option<Time> {
        let invalidate = self.outstanding.values().next().map(|outstanding| outstanding.sent);
        [invalidate, self.revoking.map(|revoking| revoking.sent)].into_iter().flatten().min()
    }

    /// Whether it owes an answer.
    pub(super) fn owes(&self) -> bool {
        self.owes_since().is_some()
    }
}

/// Nodes are there from the start; a router is from its first message about copies until it is gone and its lease over.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    nodes: Vec<HolderLink>,
    routers: BTreeMap<RouterId, HolderLink>,
    /// Routers among these that are not linked.
    absent: BTreeSet<RouterId>,
}

impl Holders {
    pub(super) fn nodes_count(&self) -> usize {
        self.nodes.len()
    }

    /// There are so many nodes; new ones say nothing yet of what they ask of a key.
    pub(super) fn set_nodes(&mut self, count: usize, heat_floor: u32) {
        self.nodes.resize_with(count, || HolderLink { heat_floor, ..HolderLink::default() });
    }

    pub(super) fn nodes(&self) -> &[HolderLink] {
        &self.nodes
    }

    pub(super) fn nodes_mut(&mut self) -> &mut [HolderLink] {
        &mut self.nodes
    }

    /// A router says something about copies.
    pub(super) fn admit(&mut self, router: RouterId) {
        self.routers.entry(router).or_default();
    }

    pub(super) fn linked(&mut self, router: RouterId) {
        self.absent.remove(&router);
    }

    pub(super) fn unlinked(&mut self, router: RouterId) {
        if self.routers.contains_key(&router) {
            self.absent.insert(router);
        }
    }

    /// Forgets the routers that are gone and hold nothing.
    pub(super) fn forget_absent(&mut self) {
        let Holders { routers, absent, .. } = self;
        absent.retain(|router| {
            let holds = routers.get(router).is_some_and(|link| link.session.id().is_some() || link.owes());
            if !holds {
                routers.remove(router);
            }
            holds
        });
    }

    pub(super) fn get(&self, holder: Peer) -> Option<&HolderLink> {
        match holder {
            Peer::Node(node) => self.nodes.get(usize::from(node.0)),
            Peer::Router(router) => self.routers.get(&router),
            Peer::Shim(_) => None,
        }
    }

    pub(super) fn get_mut(&mut self, holder: Peer) -> Option<&mut HolderLink> {
        match holder {
            Peer::Node(node) => self.nodes.get_mut(usize::from(node.0)),
            Peer::Router(router) => self.routers.get_mut(&router),
            Peer::Shim(_) => None,
        }
    }

    pub(super) fn routers_mut(&mut self) -> impl Iterator<Item = &mut HolderLink> {
        self.routers.values_mut()
    }

    /// Routers that have a session.
    pub(super) fn near_sessions(&self) -> usize {
        self.routers.values().filter(|link| link.session.id().is_some()).count()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HolderLink> {
        self.nodes.iter().chain(self.routers.values())
    }

    /// Who they are, nodes first.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> + use<> {
        let nodes = (0..self.nodes.len()).map(|index| Peer::Node(NodeId(index as u16)));
        let routers: Vec<Peer> = self.routers.keys().map(|router| Peer::Router(*router)).collect();
        nodes.chain(routers)
    }
}

impl Index<Peer> for Holders {
    type Output = HolderLink;

    fn index(&self, holder: Peer) -> &HolderLink {
        self.get(holder).expect("who holds copies is known")
    }
}

impl IndexMut<Peer> for Holders {
    fn index_mut(&mut self, holder: Peer) -> &mut HolderLink {
        self.get_mut(holder).expect("who holds copies is known")
    }
}
