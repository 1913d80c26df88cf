//! Where channels and patterns are published, and what shims are told of who has them here. Not who that is.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Subscribe, Subscribers};
use wire::{Key, Message, Peer, Sharding, ShimId, TopicKind};

use crate::placement::Placement;
use crate::router::flow::Flow;
use crate::router::flow::gather::Merge;
use crate::router::flow::pending::Pending;
use crate::router::flow::pipeline::{FanPart, OperationProgress, SentRequest};
use crate::router::flow::refusal::{busy, unavailable};
use crate::router::flow::request::RequestOrigin;
use crate::router::step::RouterStep;

/// Channels that every server publishes about the keys that it has.
const KEY_EVENTS: [&[u8]; 2] = [b"__keyspace@", b"__keyevent@"];

/// The shims that publish there: the channel's own; all of them for patterns and for what servers say of their keys.
/// The servers of a Redis Cluster tell each other what is published, so there one has the pattern, or it comes twice.
fn shims_of(placement: &Placement, kind: TopicKind, name: &Key) -> SmallVec<[ShimId; 4]> {
    let of_key_events = || KEY_EVENTS.iter().any(|prefix| name.bytes.starts_with(prefix));
    let everywhere = match kind {
        TopicKind::Pattern => placement.map().sharding != Sharding::Slots || name.bytes.starts_with(b"__key"),
        TopicKind::Channel => of_key_events(),
        TopicKind::ShardChannel => false,
    };
    if everywhere {
        return placement.shims_with_keys().collect();
    }
    // While it changes its shim, it is published at the one, and then at the other.
    let home = placement.home(name);
    let other = home.other.filter(|other| *other != home.shim);
    std::iter::once(home.shim).chain(other).collect()
}

impl Flow {
    /// Whether all that publish these may be asked now; if not, what the client is told.
    pub(crate) fn reaches(
        &mut self,
        step: &mut RouterStep<'_>,
        kind: TopicKind,
        names: &[Key],
    ) -> Result<(), Bytes> {
        let Some(placement) = &self.traffic.placement else { return Ok(()) };
        let asked: Vec<ShimId> = names.iter().flat_map(|name| shims_of(placement, kind, name)).collect();
        if let Some(missing) = asked.iter().find(|shim| !self.traffic.members.shim_linked(**shim)) {
            return Err(unavailable(step, *missing));
        }
        if self.traffic.over_limit(step.config, asked.len()) {
            return Err(busy(step));
        }
        Ok(())
    }

    /// Asks all that publish these for a command in its turn: `FlowEvent::Subscribed` once all have answered.
    pub(crate) fn subscribe(
        &mut self,
        step: &mut RouterStep<'_>,
        origin: RequestOrigin,
        topics: Vec<Subscribers>,
    ) {
        let Some(placement) = self.traffic.placement.clone() else { return };
        let mut parts = Vec::new();
        for Subscribers { kind, name, clients } in topics {
            for shim in shims_of(&placement, kind, &name) {
                let peer = Peer::Shim(shim);
                let origin = RequestOrigin { part: parts.len() as u32, ..origin };
                let request = self.traffic.pending.insert(Pending::new(origin, peer));
                let message = Subscribe { request, kind, name: name.clone(), clients };
                step.send(peer, Message::Subscribe(message));
                parts.push(FanPart::alone(SentRequest { request, peer, read: false }));
            }
        }
        self.await_fan(origin, OperationProgress::fan(parts, Merge::Subscribed));
    }

    /// Tells all that publish it how many clients have this topic now.
    pub(crate) fn tell_subscribers(&self, step: &mut RouterStep<'_>, topic: &Subscribers) {
        let Some(placement) = &self.traffic.placement else { return };
        for shim in shims_of(placement, topic.kind, &topic.name) {
            step.send(Peer::Shim(shim), Message::Subscribers(topic.clone()));
        }
    }

    /// The same after another map, also those that publish it no more.
    pub(crate) fn tell_subscribers_since(
        &self,
        step: &mut RouterStep<'_>,
        before: &Placement,
        topic: Subscribers,
    ) {
        let Some(placement) = &self.traffic.placement else { return };
        let now = shims_of(placement, topic.kind, &topic.name);
        for shim in shims_of(before, topic.kind, &topic.name) {
            if !now.contains(&shim) {
                let none = Subscribers { clients: 0, ..topic.clone() };
                step.send(Peer::Shim(shim), Message::Subscribers(none));
            }
        }
        self.tell_subscribers(step, &topic);
    }

    /// The same for one shim, if it publishes it.
    pub(crate) fn tell_subscribers_at(&self, step: &mut RouterStep<'_>, shim: ShimId, topic: Subscribers) {
        let Some(placement) = &self.traffic.placement else { return };
        if shims_of(placement, topic.kind, &topic.name).contains(&shim) {
            step.send(Peer::Shim(shim), Message::Subscribers(topic));
        }
    }
}
