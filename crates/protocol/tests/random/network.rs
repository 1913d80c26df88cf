//! Links between machines: two channels each way, first in, first out, until the link breaks. Not who speaks.

use std::collections::VecDeque;
use std::ops::Range;

use rand::RngExt;
use rand::rngs::SmallRng;
use wire::{Message, NodeId, Peer, RouterId, ShimId};

/// A process's place: a restarted node or router has the old one's, a shim's successor the other slot.
pub(crate) type End = usize;
pub(crate) const NODES: Range<End> = 0..2;
pub(crate) const SLOTS: Range<End> = 2..4;
pub(crate) const ROUTERS: Range<End> = 4..6;
const ENDS: usize = 6;

pub(crate) fn peer(end: End) -> Peer {
    if NODES.contains(&end) {
        Peer::Node(NodeId(end as u16))
    } else if SLOTS.contains(&end) {
        Peer::Shim(ShimId(0))
    } else {
        Peer::Router(RouterId((end - ROUTERS.start) as u16))
    }
}

/// Where a message waits: a link's index, the side that sent it, its channel (1: control).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) link: usize,
    pub(crate) from: usize,
    pub(crate) channel: usize,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Message>,
    stalled_until: u64,
    slow: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Side {
    linked: bool,
    /// What this side has not been told yet.
    news: Option<bool>,
}

#[derive(Debug)]
struct Link {
    ends: [End; 2],
    whole: bool,
    sides: [Side; 2],
    /// By sending side and channel.
    queues: [[Queue; 2]; 2],
}

#[derive(Debug)]
pub(crate) struct Network {
    links: Vec<Link>,
    /// The link between two ends.
    between: [[Option<usize>; ENDS]; ENDS],
}

impl Network {
    pub(crate) fn new() -> Network {
        let mut network = Network { links: Vec::new(), between: [[None; ENDS]; ENDS] };
        let pairs = [(NODES, SLOTS), (ROUTERS, NODES), (ROUTERS, SLOTS)];
        for (first, second) in pairs {
            for a in first {
                for b in second.clone() {
                    let index = network.links.len();
                    (network.between[a][b], network.between[b][a]) = (Some(index), Some(index));
                    let (sides, queues) = (Default::default(), Default::default());
                    network.links.push(Link { ends: [a, b], whole: false, sides, queues });
                }
            }
        }
        network
    }

    pub(crate) fn count(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn ends(&self, link: usize) -> [End; 2] {
        self.links[link].ends
    }

    pub(crate) fn is_whole(&self, link: usize) -> bool {
        self.links[link].whole
    }

    pub(crate) fn side(&self, link: usize, end: End) -> usize {
        usize::from(self.links[link].ends[1] == end)
    }

    pub(crate) fn is_linked(&self, at: End, to: End) -> bool {
        let Some(link) = self.between[at][to] else { return false };
        self.links[link].sides[self.side(link, at)].linked
    }

    /// The slot that `at` talks to when it talks to the shim.
    pub(crate) fn slot_of(&self, at: End) -> Option<End> {
        SLOTS.into_iter().find(|slot| self.is_linked(at, *slot))
    }

    /// A message to an end that is not linked is lost.
    pub(crate) fn send(&mut self, from: End, to: End, message: Message) {
        let Some(index) = self.between[from][to] else { return };
        let side = self.side(index, from);
        let link = &mut self.links[index];
        if link.whole && link.sides[side].linked {
            let channel = usize::from(message.is_control());
            link.queues[side][channel].messages.push_back(message);
        }
    }

    /// Appends what can be delivered now to ends that are awake: messages, and news of links.
    pub(crate) fn deliverable(
        &self,
        now: u64,
        awake: impl Fn(End) -> bool,
        places: &mut Vec<Place>,
        news: &mut Vec<Place>,
    ) {
        for (index, link) in self.links.iter().enumerate() {
            for from in 0..2 {
                let to = 1 - from;
                if !awake(link.ends[to]) {
                    continue;
                }
                if link.sides[to].news.is_some() {
                    news.push(Place { link: index, from, channel: 0 });
                }
                if !link.sides[to].linked {
                    continue;
                }
                for (channel, queue) in link.queues[from].iter().enumerate() {
                    if !queue.messages.is_empty() && queue.stalled_until <= now {
                        places.push(Place { link: index, from, channel });
                    }
                }
            }
        }
    }

    /// The next message of a queue with its two ends.
    pub(crate) fn take(&mut self, place: Place) -> Option<(End, End, Message)> {
        let link = &mut self.links[place.link];
        let message = link.queues[place.from][place.channel].messages.pop_front()?;
        Some((link.ends[place.from], link.ends[1 - place.from], message))
    }

    /// Tells the side opposite to `place.from` what became of the link: who is told, of whom, and what.
    pub(crate) fn tell(&mut self, place: Place) -> Option<(End, End, bool)> {
        let link = &mut self.links[place.link];
        let to = 1 - place.from;
        let up = link.sides[to].news.take()?;
        link.sides[to].linked = up;
        if !up {
            // What came before and was not read is gone with the connection.
            link.queues[place.from].iter_mut().for_each(|queue| queue.messages.clear());
        }
        Some((link.ends[to], link.ends[place.from], up))
    }

    /// Some of what is on its way still arrives, the rest never; each side notices in its own time.
    pub(crate) fn break_link(&mut self, index: usize, random: &mut SmallRng) {
        let link = &mut self.links[index];
        link.whole = false;
        for queue in link.queues.iter_mut().flatten() {
            let kept = random.random_range(0..=queue.messages.len());
            queue.messages.truncate(kept);
        }
        for side in &mut link.sides {
            side.news = side.linked.then_some(false);
        }
    }

    /// Whether both sides know that the link is gone, so that it can be made anew.
    pub(crate) fn is_idle(&self, index: usize) -> bool {
        let link = &self.links[index];
        !link.whole && link.sides.iter().all(|side| !side.linked && side.news.is_none())
    }

    pub(crate) fn heal(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.whole = true;
        for side in &mut link.sides {
            *side = Side { linked: false, news: Some(true) };
        }
        for queue in link.queues.iter_mut().flatten() {
            queue.messages.clear();
            queue.stalled_until = 0;
        }
    }

    /// A process ends: its peers notice in their own time.
    pub(crate) fn kill(&mut self, end: End, random: &mut SmallRng) {
        for index in 0..self.links.len() {
            if self.links[index].ends.contains(&end) {
                self.break_link(index, random);
                let side = self.side(index, end);
                let link = &mut self.links[index];
                link.sides[side] = Side::default();
                link.queues[1 - side].iter_mut().for_each(|queue| queue.messages.clear());
            }
        }
    }

    pub(crate) fn slow_down(&mut self, share: f64, random: &mut SmallRng) {
        let queues = self.links.iter_mut().flat_map(|link| link.queues.iter_mut().flatten());
        queues.for_each(|queue| queue.slow = random.random_bool(share));
    }

    pub(crate) fn is_slow(&self, place: Place) -> bool {
        self.links[place.link].queues[place.from][place.channel].slow
    }

    pub(crate) fn stall(&mut self, index: usize, from: usize, channel: usize, until: u64) {
        self.links[index].queues[from][channel].stalled_until = until;
    }

    pub(crate) fn unstall(&mut self) {
        let queues = self.links.iter_mut().flat_map(|link| link.queues.iter_mut().flatten());
        queues.for_each(|queue| queue.stalled_until = 0);
    }
}
