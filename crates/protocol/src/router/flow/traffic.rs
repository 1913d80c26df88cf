//! Requests under way: at whom, for how long, and whether there is room for more. Not the clients whose they are.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use wire::Peer;

use crate::placement::Placement;
use crate::router::config::RouterConfig;
use crate::router::flow::budget::Budget;
use crate::router::flow::elastic::ElasticViews;
use crate::router::flow::handover::Handovers;
use crate::router::flow::interest::Interests;
use crate::router::flow::known_places::KnownPlaces;
use crate::router::flow::learned::Learned;
use crate::router::flow::members::KnownMembers;
use crate::router::flow::near::NearCopies;
use crate::router::flow::pending::{Pending, PendingTable};
use crate::router::flow::window::Windows;

#[derive(Debug)]
pub(crate) struct RequestTraffic {
    pub(crate) placement: Option<Arc<Placement>>,
    pub(crate) members: KnownMembers,
    pub(crate) learned: Learned,
    pub(crate) places: KnownPlaces,
    pub(crate) elastic: ElasticViews,
    pub(crate) pending: PendingTable,
    pub(crate) windows: Windows,
    pub(crate) interests: Interests,
    pub(crate) near: NearCopies,
    pub(crate) handovers: Handovers,
    pub(crate) budget: Budget,
    pub(crate) random: SmallRng,
}

impl RequestTraffic {
    pub(crate) fn new(config: &RouterConfig) -> RequestTraffic {
        RequestTraffic {
            placement: None,
            members: KnownMembers::new(),
            learned: Learned::new(config.settings.learned_max),
            places: KnownPlaces::new(),
            elastic: ElasticViews::default(),
            // A shim or node may yet answer what an earlier process asked in this router's name.
            pending: PendingTable::new((config.seed ^ config.seed >> 32) as u32),
            windows: Windows::default(),
            interests: Interests::default(),
            // Another process with this router's id draws other numbers.
            near: NearCopies::new(config.settings.near.clone(), config.lease, config.seed.rotate_left(32)),
            handovers: Handovers::default(),
            budget: Budget::new(),
            random: SmallRng::seed_from_u64(config.seed),
        }
    }

    pub(crate) fn over_limit(&self, config: &RouterConfig, more: usize) -> bool {
        self.pending.len() + more > config.place.part(config.pending_max)
    }

    /// A request that nobody waits for any more.
    pub(crate) fn forget(&mut self, request: u64) -> Option<Pending> {
        let pending = self.pending.remove(request)?;
        self.members.forgotten(pending.peer);
        Some(pending)
    }

    /// Whether one more request may be sent there at once.
    pub(crate) fn has_window(&self, peer: Peer) -> bool {
        self.windows.has_window(&self.pending, peer)
    }

    /// The same for whose turn it is.
    pub(crate) fn has_room(&self, peer: Peer) -> bool {
        self.windows.has_room(&self.pending, peer)
    }

    /// Commands that would have their turn there before one that comes now; none before one whose turn it is.
    pub(crate) fn queue_before(&self, peer: Peer, dealt: Option<Peer>) -> usize {
        if dealt == Some(peer) { 0 } else { self.windows.queue(&self.pending, peer) }
    }
}
