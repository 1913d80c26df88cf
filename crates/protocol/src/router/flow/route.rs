//! Where a read goes: the less loaded of the nodes that may hold it, or its shim. Sends nothing.

use rand::Rng;
use smallvec::SmallVec;
use wire::message::LAYERS_MAX;
use wire::{Key, NodeId, Peer, ShimId, View};

use crate::placement::Placement;
use crate::router::flow::pipeline::Order;
use crate::router::{Router, Routing};
use crate::time::Time;

/// One in so many reads of a cached view may go to any of its places, listed or not: a hit tells only of its own
/// layer, so nothing else shows a router the copy that another layer has made since. Smaller costs detours, larger
/// leaves a hot key on one node for longer.
const EXPLORE_ONE_IN: u64 = 16;

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

impl Router {
    /// The destination of one read, given what the earlier operations on its key demand.
    pub(crate) fn route_read(
        &mut self,
        now: Time,
        placement: &Placement,
        key: &Key,
        view: View,
        order: Order,
        dealt: Option<Peer>,
    ) -> Result<Route, Unroutable> {
        match order {
            Order::Wait => Err(Unroutable::Wait),
            Order::Follow { peer: Peer::Node(node), reads: true } if self.node_linked(node) => {
                Ok(Route { peer: Peer::Node(node), ordered: true })
            }
            Order::Follow { .. } => self.route_to_shim(placement.shim(key), order),
            Order::Free => match self.choose_node(now, placement, key, view, dealt) {
                Some(node) => Ok(Route { peer: Peer::Node(node), ordered: false }),
                None => self.route_to_shim(placement.shim(key), order),
            },
        }
    }

    pub(crate) fn route_to_shim(&self, shim: ShimId, order: Order) -> Result<Route, Unroutable> {
        let ordered = match order {
            Order::Free => false,
            Order::Follow { peer, .. } if peer == Peer::Shim(shim) => true,
            Order::Follow { .. } | Order::Wait => return Err(Unroutable::Wait),
        };
        if !self.shim_linked(shim) {
            return Err(Unroutable::Unavailable(shim));
        }
        Ok(Route { peer: Peer::Shim(shim), ordered })
    }

    /// Power of k choices (design, section 4; paper, section 3.1).
    fn choose_node(
        &mut self,
        now: Time,
        placement: &Placement,
        key: &Key,
        view: View,
        dealt: Option<Peer>,
    ) -> Option<NodeId> {
        let layers = match self.config.routing {
            Routing::OnPath => None,
            Routing::Learned => {
                let layers = self.learned.layers(key.digest, view);
                if layers.is_empty() {
                    return None;
                }
                Some(layers)
            }
        };
        let (places, random) = (placement.places(key), self.random.next_u64());
        let layers = layers.filter(|_| (random >> 32) % EXPLORE_ONE_IN != 0);
        let candidates: SmallVec<[NodeId; LAYERS_MAX]> = places
            .iter()
            .enumerate()
            .filter(|(layer, _)| layers.is_none_or(|layers| layers.contains(*layer)))
            .filter_map(|(_, place)| *place)
            .filter(|node| self.node_admits(now, *node))
            .collect();
        // Nodes that have all that they can do have equal loads: then those count for which fewer commands wait.
        let queue = |node: &NodeId| self.queue_before(Peer::Node(*node), dealt);
        let shortest = candidates.iter().map(queue).min()?;
        let candidates: SmallVec<[NodeId; LAYERS_MAX]> =
            candidates.into_iter().filter(|node| queue(node) == shortest).collect();
        match candidates.as_slice() {
            [node] => Some(*node),
            several => self.loads.choose(now, several, random),
        }
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
}
