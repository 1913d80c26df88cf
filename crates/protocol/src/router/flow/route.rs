//! Where a read goes: the less loaded of the nodes that may hold it, or its shim. Sends nothing.

use rand::Rng;
use smallvec::SmallVec;
use wire::message::LAYERS_MAX;
use wire::{Key, LayerSet, NodeId, Peer, ShimId, View};

use crate::placement::Placement;
use crate::router::config::Routing;
use crate::router::flow::elastic::{self, DRAWN};
use crate::router::flow::pending::PendingRead;
use crate::router::flow::pipeline::KeyOrder;
use crate::router::flow::traffic::RequestTraffic;
use crate::router::step::RouterStep;

/// One in so many reads of a cached view may go to any of its places, listed or not: a hit tells only of its own
/// layer, so nothing else shows a router the copy that another layer has made since. Smaller costs detours, larger
/// leaves a hot key on one node for longer.
const EXPLORE_ONE_IN: u64 = 16;

/// Nodes that are compared for one read.
const CANDIDATES_MAX: usize = if LAYERS_MAX > DRAWN { LAYERS_MAX } else { DRAWN };

/// A destination, and whether the request queues behind earlier ones there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) peer: Peer,
    pub(crate) ordered: bool,
}

/// Why a command cannot be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unroutable {
    /// Earlier commands on its keys come first.
    Wait,
    Unavailable(ShimId),
    /// There is no room at this member.
    Full(Peer),
}

/// What decides among equals, and the member at which the read has its turn, if it has waited for one.
#[derive(Clone, Copy, Debug)]
struct Draw {
    dealt: Option<Peer>,
    random: u64,
}

/// One read, and the member at which it has its turn, if it has waited for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) placement: &'a Placement,
    pub(crate) key: &'a Key,
    pub(crate) view: View,
    pub(crate) dealt: Option<Peer>,
}

impl RequestTraffic {
    /// The destination of one read, given what the earlier operations on its key demand.
    pub(crate) fn route_read(
        &mut self,
        step: &RouterStep<'_>,
        wanted: Wanted<'_>,
        order: KeyOrder,
    ) -> Result<Route, Unroutable> {
        let shim = || wanted.placement.shim(wanted.key);
        match order {
            KeyOrder::Wait => Err(Unroutable::Wait),
            KeyOrder::Follow(Peer::Node(node)) if self.members.node_linked(node) => {
                Ok(Route { peer: Peer::Node(node), ordered: true })
            }
            KeyOrder::Follow(_) => self.route_to_shim(shim(), order),
            KeyOrder::Free => match self.choose_node(step, wanted) {
                Some(node) => Ok(Route { peer: Peer::Node(node), ordered: false }),
                None => self.route_to_shim(shim(), order),
            },
        }
    }

    pub(crate) fn route_to_shim(&self, shim: ShimId, order: KeyOrder) -> Result<Route, Unroutable> {
        let ordered = match order {
            KeyOrder::Free => false,
            KeyOrder::Follow(peer) if peer == Peer::Shim(shim) => true,
            KeyOrder::Follow(_) | KeyOrder::Wait => return Err(Unroutable::Wait),
        };
        if !self.members.shim_linked(shim) {
            return Err(Unroutable::Unavailable(shim));
        }
        Ok(Route { peer: Peer::Shim(shim), ordered })
    }

    /// Power of k choices (design, section 4; paper, section 3.1).
    fn choose_node(&mut self, step: &RouterStep<'_>, wanted: Wanted<'_>) -> Option<NodeId> {
        let Wanted { placement, key, view, dealt } = wanted;
        let further = self.elastic.places(step.now, key, view);
        if !further.is_empty() {
            let random = [self.random.next_u64(), self.random.next_u64()];
            let drawn = elastic::draw(further, random, |node| self.members.node_admits(step.now, node));
            if !drawn.is_empty() {
                let random = self.random.next_u64();
                return self.least_of(step, drawn.into_iter(), Draw { dealt, random });
            }
        }
        let layers = match step.config.routing {
            Routing::OnPath => None,
            Routing::Learned => {
                let layers = self.learned.layers(key.digest, view);
                if layers.is_empty() {
                    return None;
                }
                Some(layers)
            }
        };
        let (places, random) = (self.places.of(placement, key), self.random.next_u64());
        let layers = layers.filter(|_| (random >> 32) % EXPLORE_ONE_IN != 0);
        let candidates = (places.into_iter().enumerate())
            .filter(|(layer, _)| layers.is_none_or(|layers| layers.contains(*layer)))
            .filter_map(|(_, place)| place)
            .filter(|node| self.members.node_admits(step.now, *node));
        self.least_of(step, candidates, Draw { dealt, random })
    }

    fn least_of(
        &self,
        step: &RouterStep<'_>,
        candidates: impl Iterator<Item = NodeId>,
        draw: Draw,
    ) -> Option<NodeId> {
        let Draw { dealt, random } = draw;
        // Nodes that have all that they can do have equal loads: then those count for which fewer commands wait.
        let (mut shortest, mut least) = (usize::MAX, SmallVec::<[NodeId; CANDIDATES_MAX]>::new());
        for node in candidates {
            let queue = self.queue_before(Peer::Node(node), dealt);
            if queue < shortest {
                shortest = queue;
                least.clear();
            }
            if queue == shortest {
                least.push(node);
            }
        }
        match least.as_slice() {
            [node] => Some(*node),
            several => self.members.choose(step.now, several, random),
        }
    }

    /// The less loaded of the nodes that may hold the key and have not been asked.
    pub(crate) fn other_node(
        &mut self,
        step: &RouterStep<'_>,
        placement: &Placement,
        read: &PendingRead,
    ) -> Option<NodeId> {
        let layers = match step.config.routing {
            Routing::OnPath => LayerSet(u8::MAX),
            Routing::Learned => self.learned.layers(read.key.digest, read.view),
        };
        let may_hold = |layer| layers.contains(layer) && !read.tried.layers.contains(layer);
        let places = placement.places(&read.key);
        let nodes: SmallVec<[NodeId; LAYERS_MAX]> = (places.iter().enumerate())
            .filter(|(layer, _)| may_hold(*layer))
            .filter_map(|(_, place)| *place)
            .filter(|node| self.members.node_admits(step.now, *node))
            .collect();
        let random = self.random.next_u64();
        self.members.choose(step.now, &nodes, random)
    }
}
