//! What the flow tells about itself: how much is under way, and at whom. It changes nothing.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use wire::ShimId;

use crate::node::Node;
use crate::placement::Placement;
use crate::router::flow::Flow;
use crate::router::flow::interest::Interests;
use crate::router::flow::members::KnownMembers;
use crate::time::Time;

impl Flow {
    /// The map in use.
    pub(crate) fn placement(&self) -> Option<&Arc<Placement>> {
        self.traffic.placement.as_ref()
    }

    /// All shims of the map.
    pub(crate) fn shims(&self) -> SmallVec<[ShimId; 8]> {
        let map = self.traffic.placement.as_ref().map(|placement| placement.map());
        map.into_iter().flat_map(|map| &map.shims).map(|shim| shim.id).collect()
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.traffic.placement.as_ref().map_or(0, |placement| placement.epoch())
    }

    pub(crate) fn members(&self) -> &KnownMembers {
        &self.traffic.members
    }

    pub(crate) fn near(&self) -> Option<&Node> {
        self.traffic.near.node()
    }

    pub(crate) fn near_rest(&self, now: Time) -> Duration {
        self.traffic.near.rest(now)
    }

    pub(crate) fn interests(&self) -> &Interests {
        &self.traffic.interests
    }

    /// Keys that clients keep, for the front to say what has become of them.
    pub(crate) fn interests_mut(&mut self) -> &mut Interests {
        &mut self.traffic.interests
    }

    pub(crate) fn learned_count(&self) -> usize {
        self.traffic.learned.len()
    }

    /// Requests in flight to nodes and shims.
    pub(crate) fn pending_count(&self) -> usize {
        self.traffic.pending.len()
    }

    /// Requests that wait for another client's write.
    pub(crate) fn blocking_count(&self) -> usize {
        self.traffic.pending.blocking()
    }

    pub(crate) fn runs_scripts(&self) -> bool {
        self.traffic.pending.scripts() > 0
    }

    /// Commands that wait for room at a node or shim.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    pub(crate) fn turns_waiting(&self) -> usize {
        if !self.traffic.windows.anybody_waits() {
            return 0;
        }
        self.callers.all().map(|caller| caller.pipeline.turns().len()).sum()
    }

    /// How many clients a pause holds back.
    pub(crate) fn paused_count(&self, now: Time) -> usize {
        let Some(pause) = self.pause else { return 0 };
        let callers = self.callers.all();
        callers.filter(|caller| caller.pipeline.waiting_kinds().any(|kind| pause.holds(now, kind))).count()
    }
}
