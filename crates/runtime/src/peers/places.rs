//! Links to processes of which one at a time is a shim, and of such processes to each other. Which of them is the shim is
//! `protocol::succession`'s business: a driver sees one peer, which is lost and linked anew when another process becomes it.

use protocol::succession::Succession;
use protocol::time::Time;
use wire::message::Tenure;
use wire::{Message, Peer, ShimId};

use crate::peers::frame::Name;
use crate::peers::link::{Dial, PeerLink};
use crate::peers::{PeerEvent, Peers};
use crate::reactor::Io;
use config::Address;

/// What a link is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// The only one to its peer.
    Only,
    /// To one of the processes that may be its peer, by its place.
    Candidate(u8),
    /// To another process that may be what this one is.
    Sibling(u8),
}

/// The processes that may be one shim.
pub(crate) struct ShimCandidates {
    /// In `links`, by place.
    positions: Vec<u32>,
    succession: Succession,
    /// As the driver was told.
    followed: Option<usize>,
}

impl Peers {
    /// Keeps links to all processes that may be `shim`, by their places.
    pub fn dial_shim<'a>(
        &mut self,
        io: &mut Io,
        shim: ShimId,
        addresses: impl IntoIterator<Item = &'a Address>,
    ) {
        let addresses: Vec<&Address> = addresses.into_iter().collect();
        let peer = Peer::Shim(shim);
        if let [only] = addresses[..] {
            return self.dial(io, peer, only.clone());
        }
        let dial = |(place, address): (usize, &&Address)| {
            self.links.push(PeerLink::new(peer, LinkKind::Candidate(place as u8)));
            let position = self.links.len() - 1;
            self.links[position].dial = Some(Dial::new((*address).clone(), io.now()));
            position as u32
        };
        let positions: Vec<u32> = addresses.iter().enumerate().map(dial).collect();
        let succession = Succession::new(positions.len());
        self.candidates
            .insert(shim, ShimCandidates { positions: positions.clone(), succession, followed: None });
        positions.into_iter().for_each(|position| self.dial_link(io, position as usize));
    }

    /// Keeps links to the other processes that may be what this one is. Of two the later in the file dials.
    /// `place`: of this one.
    pub fn dial_siblings<'a>(
        &mut self,
        io: &mut Io,
        place: u8,
        addresses: impl IntoIterator<Item = &'a Address>,
    ) {
        self.place = place;
        for (place, address) in addresses.into_iter().enumerate().take(place.into()) {
            let position = self.sibling(place as u8);
            self.links[position].dial = Some(Dial::new(address.clone(), io.now()));
            self.dial_link(io, position);
        }
    }

    /// The position of the link to a sibling.
    pub(super) fn sibling(&mut self, place: u8) -> usize {
        let kind = LinkKind::Sibling(place);
        if let Some(position) = self.links.iter().position(|link| link.kind == kind) {
            return position;
        }
        self.links.push(PeerLink::new(self.identity.peer, kind));
        self.links.len() - 1
    }

    /// Where the link is to who is the shim now; none if it has one candidate only.
    pub(super) fn followed(&self, shim: ShimId) -> Option<Option<usize>> {
        let candidates = self.candidates.get(&shim)?;
        Some(candidates.followed.map(|place| candidates.positions[place] as usize))
    }

    pub(super) fn send_to_siblings(&mut self, io: &mut Io, message: &Message) -> bool {
        let is_linked = |link: &PeerLink| link.linked && matches!(link.kind, LinkKind::Sibling(_));
        let linked: Vec<usize> = (0..self.links.len()).filter(|at| is_linked(&self.links[*at])).collect();
        linked
            .into_iter()
            .map(|position| self.send_over(io, position, message))
            .fold(false, |any, sent| any | sent)
    }

    /// A link is whole.
    pub(super) fn link_made(&mut self, io: &mut Io, position: usize) {
        let PeerLink { peer, kind, .. } = self.links[position];
        match (kind, peer) {
            (LinkKind::Candidate(place), Peer::Shim(shim)) => {
                self.change(io, shim, |succession| succession.linked(place.into()));
            }
            _ => self.queued.push(PeerEvent::Linked(peer)),
        }
    }

    /// A link that was whole is gone.
    pub(super) fn link_lost(&mut self, io: &mut Io, position: usize) {
        let PeerLink { peer, kind, .. } = self.links[position];
        match (kind, peer) {
            (LinkKind::Candidate(place), Peer::Shim(shim)) => {
                self.change(io, shim, |succession| succession.unlinked(place.into()));
            }
            _ => self.queued.push(PeerEvent::Unlinked(peer)),
        }
    }

    /// A message over a link. One that is not followed says only whether it is the shim.
    pub(super) fn heard(&mut self, io: &mut Io, position: usize, now: Time, message: Message) {
        let PeerLink { peer: from, kind, .. } = self.links[position];
        match (kind, from, message) {
            (LinkKind::Candidate(place), Peer::Shim(shim), Message::Tenure(tenure)) => {
                self.change(io, shim, |succession| succession.told(now, place.into(), &tenure));
            }
            (LinkKind::Candidate(_), Peer::Shim(shim), message) => {
                if self.followed(shim) == Some(Some(position)) {
                    self.queued.push(PeerEvent::Message { from, now, message });
                }
            }
            (LinkKind::Only, _, Message::Tenure(Tenure { .. })) => {}
            (_, _, message) => self.queued.push(PeerEvent::Message { from, now, message }),
        }
    }

    /// The driver hears that its peer is lost and there again if another process is it now. The link to the one before begins
    /// anew, so that nothing is left of what it was asked.
    fn change(&mut self, io: &mut Io, shim: ShimId, change: impl FnOnce(&mut Succession)) {
        let Some(candidates) = self.candidates.get_mut(&shim) else { return };
        change(&mut candidates.succession);
        let (before, after) = (candidates.followed, candidates.succession.followed());
        if before == after {
            return;
        }
        candidates.followed = after;
        let before = before.map(|place| candidates.positions[place] as usize);
        let peer = Peer::Shim(shim);
        if let Some(position) = before {
            self.queued.push(PeerEvent::Unlinked(peer));
            if self.links[position].linked {
                self.end_link(io, position, &"another process is this shim now", true);
            }
        }
        if let Some(place) = after {
            tracing::info!(own = %Name(self.identity.peer), shim = shim.0, place, "follows the process that is this shim now");
            self.queued.push(PeerEvent::Linked(peer));
        }
    }
}
