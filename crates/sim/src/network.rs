//! Links between hosts: two channels each way, first in, first out, until the link breaks. Not who speaks.

use std::collections::VecDeque;

use wire::{Message, Peer};

use crate::random::SimRandom;

/// A process's place. A restarted node or router has the old one's; a shim's successor has the other slot.
pub(crate) type HostId = usize;

/// Where a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) link: usize,
    /// The side that sent it: 0 dials, 1 listens.
    pub(crate) from: usize,
    /// 1: control.
    pub(crate) channel: usize,
}

#[derive(Debug, Default)]
struct LinkChannel {
    messages: VecDeque<Message>,
    /// When the last message in it arrives.
    arrives_at: u64,
    slow: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct LinkSide {
    linked: bool,
    /// What this side has not been told yet.
    news: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct SimLink {
    pub(crate) hosts: [HostId; 2],
    pub(crate) peers: [Peer; 2],
    whole: bool,
    /// Counts lives, so that what belonged to an earlier one is told apart.
    pub(crate) life: u32,
    sides: [LinkSide; 2],
    /// By sending side and channel.
    channels: [[LinkChannel; 2]; 2],
}

impl SimLink {
    pub(crate) fn side_of(&self, peer: Peer) -> usize {
        usize::from(self.peers[1] == peer)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    pub(crate) fn is_linked(&self, side: usize) -> bool {
        self.sides[side].linked
    }

    pub(crate) fn has_news(&self, side: usize) -> bool {
        self.sides[side].news.is_some()
    }

    /// Whether both sides know that it is gone, so that it can be made anew.
    pub(crate) fn is_idle(&self) -> bool {
        !self.whole && self.sides.iter().all(|side| !side.linked && side.news.is_none())
    }
}

#[derive(Debug, Default)]
pub(crate) struct SimNetwork {
    pub(crate) links: Vec<SimLink>,
    /// By role and id of the two peers: the link between them.
    between: std::collections::BTreeMap<(Peer, Peer), usize>,
    /// One way: until when nothing from the first reaches the second.
    cuts: Vec<(HostId, HostId, u64)>,
}

impl SimNetwork {
    pub(crate) fn add(&mut self, dialer: (HostId, Peer), listener: (HostId, Peer)) {
        let index = self.links.len();
        self.between.insert((dialer.1, listener.1), index);
        self.between.insert((listener.1, dialer.1), index);
        self.links.push(SimLink {
            hosts: [dialer.0, listener.0],
            peers: [dialer.1, listener.1],
            whole: false,
            life: 0,
            sides: Default::default(),
            channels: Default::default(),
        });
    }

    pub(crate) fn between(&self, a: Peer, b: Peer) -> Option<usize> {
        self.between.get(&(a, b)).copied()
    }

    pub(crate) fn slow_down(&mut self, percent: u64, random: &mut SimRandom) {
        for channel in self.links.iter_mut().flat_map(|link| link.channels.iter_mut().flatten()) {
            channel.slow = random.percent(percent);
        }
    }

    pub(crate) fn is_slow(&self, place: Place) -> bool {
        self.links[place.link].channels[place.from][place.channel].slow
    }

    /// Puts a message on its way; when it arrives, or `None` if it is lost because there is no link.
    pub(crate) fn send(&mut self, place: Place, arrives_at: u64, message: Message) -> Option<u64> {
        let link = &mut self.links[place.link];
        if !link.whole || !link.sides[place.from].linked {
            return None;
        }
        let channel = &mut link.channels[place.from][place.channel];
        channel.arrives_at = channel.arrives_at.max(arrives_at);
        channel.messages.push_back(message);
        Some(channel.arrives_at)
    }

    /// The next message of a channel in this life of the link, if its receiver still listens.
    pub(crate) fn take(&mut self, place: Place, life: u32) -> Option<Message> {
        let link = &mut self.links[place.link];
        if link.life != life || !link.sides[1 - place.from].linked {
            return None;
        }
        link.channels[place.from][place.channel].messages.pop_front()
    }

    /// Makes an idle link whole; each side is told at its time, before which nothing arrives there.
    pub(crate) fn heal(&mut self, index: usize, told_at: [u64; 2]) -> u32 {
        let link = &mut self.links[index];
        link.whole = true;
        link.life += 1;
        link.sides = [LinkSide { linked: false, news: Some(true) }; 2];
        for (from, channels) in link.channels.iter_mut().enumerate() {
            for channel in channels {
                channel.messages.clear();
                channel.arrives_at = told_at[1 - from];
            }
        }
        link.life
    }

    /// Some of what is on its way still arrives, the rest never. When each side notices: after that.
    pub(crate) fn break_link(&mut self, index: usize, now: u64, random: &mut SimRandom) -> [Option<u64>; 2] {
        let link = &mut self.links[index];
        if !link.whole {
            return [None; 2];
        }
        link.whole = false;
        let mut noticed = [None; 2];
        for (from, channels) in link.channels.iter_mut().enumerate() {
            let side = &mut link.sides[1 - from];
            let known = side.linked || side.news == Some(true);
            let mut at = now;
            for channel in channels {
                channel.messages.truncate(random.index(channel.messages.len() + 1));
                at = if channel.messages.is_empty() { at } else { at.max(channel.arrives_at) };
            }
            side.news = known.then_some(false);
            noticed[1 - from] = known.then_some(at);
        }
        noticed
    }

    /// Tells a side what became of the link. `None` if it was overtaken by something else.
    pub(crate) fn tell(&mut self, index: usize, side: usize, life: u32, up: bool) -> Option<()> {
        let link = &mut self.links[index];
        if link.life != life || link.sides[side].news != Some(up) {
            return None;
        }
        link.sides[side].news = None;
        let was_linked = std::mem::replace(&mut link.sides[side].linked, up);
        if !up {
            // What came before and was not read is gone with the connection.
            link.channels[1 - side].iter_mut().for_each(|channel| channel.messages.clear());
        }
        (was_linked != up).then_some(())
    }

    /// A process ends: it hears nothing more.
    pub(crate) fn forget(&mut self, index: usize, side: usize) {
        let link = &mut self.links[index];
        link.sides[side] = LinkSide::default();
        link.channels[1 - side].iter_mut().for_each(|channel| channel.messages.clear());
    }

    pub(crate) fn cut(&mut self, from: HostId, to: HostId, until: u64) {
        self.cuts.push((from, to, until));
    }

    /// Until when nothing from `from` reaches `to`.
    pub(crate) fn cut_until(&self, now: u64, from: HostId, to: HostId) -> Option<u64> {
        let cuts = self.cuts.iter().filter(|(a, b, until)| *a == from && *b == to && *until > now);
        cuts.map(|(_, _, until)| *until).max()
    }

    pub(crate) fn forget_cuts(&mut self, now: u64) {
        self.cuts.retain(|(_, _, until)| *until > now);
    }
}
