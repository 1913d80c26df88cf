//! One member each of a large cluster: its machine, and what it has done. Not who it talks to.

use std::sync::Arc;

use protocol::node::Node;
use protocol::placement::Placement;
use protocol::router::{self, ClientId, Router};
use protocol::shim::Shim;
use protocol::time::Time;
use wire::{NodeId, ShimId};

use super::Scenario;

pub(super) struct CacheNode {
    pub(super) node: Node,
    pub(super) alive: bool,
    /// It is woken when its rate allows one more.
    pub(super) awaited: bool,
    /// Hits of processes that are gone.
    hits_before: u64,
}

pub(super) struct ScaleServer {
    pub(super) shim: Shim,
    pub(super) awaited: bool,
    /// Copies whose invalidation has been charged.
    pub(super) charged: u64,
    /// What of it is not a whole request yet.
    owed: f64,
}

/// A router and the clients that it has at the moment: one for each request in flight, so that none waits for another.
pub(super) struct ScaleFront {
    pub(super) router: Router,
    idle: Vec<ClientId>,
    opened: u32,
}

impl CacheNode {
    pub(super) fn new(scenario: &Scenario, id: NodeId, placement: &Arc<Placement>, seed: u64) -> CacheNode {
        let config = scenario.node(id, placement.layer_of(id), seed);
        let node = Node::new(config, Arc::clone(placement));
        CacheNode { node, alive: true, awaited: false, hits_before: 0 }
    }

    /// Reads answered from copies, ever.
    pub(super) fn hits(&self) -> u64 {
        self.hits_before + self.node.statistics().hits
    }

    /// A new process in its place, or none.
    pub(super) fn replace(
        &mut self,
        scenario: &Scenario,
        id: NodeId,
        placement: &Arc<Placement>,
        alive: bool,
    ) {
        let (hits_before, seed) = (self.hits(), scenario.seed ^ u64::from(id.0) << 32);
        let fresh = CacheNode::new(scenario, id, placement, seed);
        // Whoever was to be woken finds nothing.
        *self = CacheNode { alive, hits_before, awaited: self.awaited, ..fresh };
    }
}

impl ScaleServer {
    pub(super) fn new(scenario: &Scenario, id: ShimId, placement: &Arc<Placement>, seed: u64) -> ScaleServer {
        let shim = Shim::new(scenario.shim(id, seed), Arc::clone(placement));
        ScaleServer { shim, awaited: false, charged: 0, owed: 0.0 }
    }

    /// How many whole requests the invalidations cost that have been sent since this was asked last.
    pub(super) fn coherence_due(&mut self, cost: f64) -> u32 {
        let copies = self.shim.statistics().invalidated_copies;
        self.owed += (copies - std::mem::replace(&mut self.charged, copies)) as f64 * cost;
        let whole = self.owed.floor();
        self.owed -= whole;
        whole as u32
    }
}

impl ScaleFront {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> ScaleFront {
        ScaleFront { router: Router::new(scenario.router(seed)), idle: Vec::new(), opened: 0 }
    }

    /// A client without a request.
    pub(super) fn client(&mut self, now: Time, effects: &mut Vec<router::Effect>) -> ClientId {
        self.idle.pop().unwrap_or_else(|| {
            let client = ClientId(self.opened);
            self.opened += 1;
            self.router.step(now, router::Input::Opened { client }, effects);
            client
        })
    }

    pub(super) fn answered(&mut self, client: ClientId) {
        self.idle.push(client);
    }

    /// Requests that have not been answered.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> u64 {
        u64::from(self.opened) - self.idle.len() as u64
    }
}
