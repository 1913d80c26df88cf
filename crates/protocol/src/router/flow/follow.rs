//! What shims are told of the keys that clients want to hear of, whoever reads them. Not who these clients are.

use wire::message::Follow;
use wire::{Message, Peer, ShimId};

use crate::router::flow::Flow;
use crate::router::flow::pending::Pending;
use crate::router::flow::pipeline::{FanPart, SentRequest};
use crate::router::flow::request::RequestOrigin;
use crate::router::step::RouterStep;

impl Flow {
    /// Tells all linked shims, if it is news. With a place their answers are awaited there: these are the parts.
    pub(crate) fn follow(
        &mut self,
        step: &mut RouterStep<'_>,
        follow: &Follow,
        place: Option<RequestOrigin>,
    ) -> Vec<FanPart> {
        if !self.traffic.interests.tell(follow) {
            return Vec::new();
        }
        let mut parts = Vec::new();
        let linked: Vec<ShimId> = self.traffic.members.linked_shims().collect();
        for shim in linked {
            let peer = Peer::Shim(shim);
            let origin = place.map(|place| RequestOrigin { part: parts.len() as u32, ..place });
            let request = origin.map(|origin| self.traffic.pending.insert(Pending::new(origin, peer)));
            if let Some(request) = request {
                parts.push(FanPart::alone(SentRequest { request, peer, read: false }));
            }
            step.send(peer, Message::Follow(Follow { request, ..follow.clone() }));
        }
        parts
    }
}
