//! Reads at a node: hits, fetches, what is passed on, and who is answered when a fill arrives.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Fetch, Fill, LAYERS_MAX, LoadStamp, Offer, Read, Reply};
use wire::{Key, LayerSet, Message, Peer, ShimId, Status, View};

use super::agent::Verdict;
use super::object::{Fetching, Object, Waiter};
use super::{Effect, Forwarded, Node, OFFERS_WAITING_MAX};
use crate::coherence::copy::{Filled, Filling};
use crate::policy::Eligibility;
use crate::time::Time;

/// Fills refused in a row before a key is held off: its replies cannot be cached at present.
const REFUSED_MAX: u8 = 16;

impl Node {
    pub(super) fn read(&mut self, now: Time, from: Peer, read: Read, effects: &mut Vec<Effect>) {
        self.meter.record(now);
        self.statistics.requests += 1;
        self.serve(now, Waiter { from, request: read.request, resp3: read.resp3 }, read, effects);
    }

    fn serve(&mut self, now: Time, waiter: Waiter, read: Read, effects: &mut Vec<Effect>) {
        let Some(read) = self.keep_order(waiter, read, effects) else { return };
        let Some(object) = self.objects.get_mut(&read.key) else {
            self.statistics.misses += 1;
            return self.read_unknown(now, waiter, read, effects);
        };
        let link = &self.links[usize::from(object.shim.0)];
        let servable = if link.session.holds(now) { object.reply(now, read.view) } else { None };
        if let Some((status, value)) = servable {
            let (status, value) = (*status, value.clone());
            object.hits = object.hits.saturating_add(1);
            self.statistics.hits += 1;
            let reply = Reply { status, hit: true, cached: self.own_layer(), value, ..Reply::default() };
            return self.answer(now, waiter, reply, effects);
        }
        self.statistics.misses += 1;
        object.hits = object.hits.saturating_add(1);
        if object.admits(read.view) {
            self.fetch_or_join(now, waiter, read, effects);
        } else {
            self.read_unknown(now, waiter, read, effects);
        }
    }

    /// A client's earlier read of the same key may not be answered with something newer: a read flagged so goes
    /// behind those that wait here, or the same way as those that were passed on. Gives back what may be served now.
    fn keep_order(&mut self, waiter: Waiter, read: Read, effects: &mut Vec<Effect>) -> Option<Read> {
        if !read.ordered {
            return Some(read);
        }
        let object = self.objects.get_mut(&read.key);
        if let Some(object) = object.filter(|object| object.is_awaited_by(waiter.from)) {
            object.followers.push((waiter, read));
            return None;
        }
        if self.forwarded_keys.contains_key(&read.key) {
            self.statistics.misses += 1;
            self.forward(waiter, read, effects);
            return None;
        }
        Some(read)
    }

    /// A view that is not cached here: it counts toward its heat, and is fetched if that is enough.
    fn read_unknown(&mut self, now: Time, waiter: Waiter, read: Read, effects: &mut Vec<Effect>) {
        let always = self.config.settings.policies.is_always(&read.key.bytes);
        let floor = if always { 1 } else { self.agent.heat_floor(self.objects.len(), self.bytes) };
        if let Some(heat) = self.heat.record(now, heat_item(&read.key, read.view), floor) {
            if self.admit(now, &read.key, read.view, heat, effects) {
                return self.fetch_or_join(now, waiter, read, effects);
            }
            self.offer_later(&read, heat);
        }
        self.forward(waiter, read, effects);
    }

    /// While a session opens, hot keys wait for it: they would be reported again only in another window.
    fn offer_later(&mut self, read: &Read, heat: u32) {
        let shim = self.placement.shim(&read.key);
        let link = &self.links[usize::from(shim.0)];
        let opening = link.linked && link.session.id().is_none();
        // No session is opened for a key that is never cached.
        let opening = opening && !self.config.settings.policies.of(&read.key.bytes).is_never();
        if opening && !self.admits_nothing() && self.offers.len() < OFFERS_WAITING_MAX {
            let Read { key, view, resp3, command, .. } = read.clone();
            self.offers.push(Offer { key, view, resp3, heat, command });
        }
    }

    /// A shim says that a key of this node's partition is hot.
    pub(super) fn offer(&mut self, now: Time, offer: Offer, effects: &mut Vec<Effect>) {
        self.statistics.offers += 1;
        let shim = self.placement.shim(&offer.key);
        let link = &self.links[usize::from(shim.0)];
        if self.admits_nothing() || !link.linked {
            return;
        }
        if link.session.id().is_none() {
            self.open_session(now, shim, effects);
            if self.offers.len() < OFFERS_WAITING_MAX {
                self.offers.push(offer);
            }
            return;
        }
        let object = self.objects.get(&offer.key).filter(|object| object.admits(offer.view));
        // Routers may have unlearned an object without a copy: then no read will come that fills it on demand.
        let wanted = match object {
            Some(object) => object.is_hollow(now, offer.view),
            None => self.admit(now, &offer.key, offer.view, offer.heat, effects),
        };
        if wanted {
            self.statistics.offers_accepted += 1;
            self.fetch(now, &offer.key, offer.view, offer.resp3, offer.command, SmallVec::new(), effects);
        }
    }

    /// Makes room for a view if it is hot enough; the session must be open, so that the copy belongs to it.
    fn admit(&mut self, now: Time, key: &Key, view: View, heat: u32, effects: &mut Vec<Effect>) -> bool {
        let rule = self.config.settings.policies.of(&key.bytes);
        if self.admits_nothing() || rule.is_never() {
            return false;
        }
        let shim = self.placement.shim(key);
        if self.links[usize::from(shim.0)].session.id().is_none() {
            self.open_session(now, shim, effects);
            return false;
        }
        if let Some(object) = self.objects.get_mut(key) {
            return object.admit(view, self.config.settings.views_max);
        }
        let always = rule.cache == Eligibility::Always;
        match self.agent.judge((heat, always), key, self.bytes, &self.objects) {
            Verdict::Decline => return false,
            Verdict::Insert => {}
            Verdict::Replace(victim) => self.evict(&victim, effects),
        }
        let own = Key { bytes: Bytes::copy_from_slice(&key.bytes), ..*key };
        let mut object = Object::new(shim, own.bytes.len(), heat);
        object.admit(view, self.config.settings.views_max);
        self.bytes += object.bytes;
        self.links[usize::from(shim.0)].objects += 1;
        self.objects.insert(own, object);
        self.statistics.insertions += 1;
        true
    }

    fn fetch_or_join(&mut self, now: Time, waiter: Waiter, read: Read, effects: &mut Vec<Effect>) {
        let Some(object) = self.objects.get_mut(&read.key) else {
            return self.forward(waiter, read, effects);
        };
        if let Some(fetching) = object.fetching.iter_mut().find(|fetching| fetching.view == read.view) {
            fetching.waiters.push(waiter);
            self.statistics.joined += 1;
            return;
        }
        let waiters = SmallVec::from_elem(waiter, 1);
        self.fetch(now, &read.key, read.view, read.resp3, read.command, waiters, effects);
    }

    /// Asks the shim for a copy. Everyone in `waiters` arrived before the read that this causes.
    #[expect(clippy::too_many_arguments, reason = "a fetch is a read plus those who wait for it")]
    fn fetch(
        &mut self,
        now: Time,
        key: &Key,
        view: View,
        resp3: bool,
        command: Bytes,
        waiters: SmallVec<[Waiter; 2]>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(object) = self.objects.get_mut(key) else { return };
        let link = &mut self.links[usize::from(object.shim.0)];
        let shim = object.shim;
        let (Some(session), true) = (link.session.id(), link.linked) else {
            for waiter in waiters {
                let (resp3, command) = (waiter.resp3, command.clone());
                let key = key.clone();
                let read = Read {
                    request: 0,
                    key,
                    view,
                    resp3,
                    ordered: false,
                    streams: false,
                    waited_ms: 0,
                    command,
                };
                self.forward(waiter, read, effects);
            }
            return;
        };
        link.fill_last += 1;
        let fill = link.fill_last;
        object.fill_highest = fill;
        let filling = Filling::new(fill, now, object.copy);
        let covered = waiters.len();
        let sent = command.clone();
        object.fetching.push(Fetching { filling, view, resp3, command: sent, waiters, covered });
        self.statistics.fetches += 1;
        let fetch = Fetch { session, fill, key: key.clone(), view, resp3, command };
        self.send(Peer::Shim(shim), Message::Fetch(fetch), effects);
    }

    /// A fill arrives: it answers those who asked before it was read, and everyone if it became a copy.
    pub(super) fn filled(&mut self, now: Time, shim: ShimId, fill: Fill, effects: &mut Vec<Effect>) {
        let link = &self.links[usize::from(shim.0)];
        if link.session.id() != Some(fill.session) {
            return;
        }
        let Some(object) = self.objects.get_mut(&fill.key).filter(|object| object.shim == shim) else {
            return;
        };
        let Some(index) = object.fetching.iter().position(|fetching| fetching.filling.fill == fill.fill)
        else {
            return;
        };
        let mut fetching = object.fetching.swap_remove(index);
        let followers = std::mem::take(&mut object.followers);
        let rule = self.config.settings.policies.of(&fill.key.bytes);
        let bytes_max = self.config.settings.value_bytes_max.min(rule.value_bytes_max);
        let fits = fill.value.len() <= bytes_max && !rule.is_never() && !fill.status.is_refusal();
        self.statistics.ungranted += u64::from(!fill.granted);
        let kept = fill.granted && fits && self.keep(&fill, &fetching.filling);
        // What lives briefly may have expired on its way.
        let servable = kept && self.servable(now, &fill.key, fill.view).is_some();
        // A refusal is no value: whoever waits may have it, and asking once more would be refused, too.
        let busy = fill.status == Status::Busy;
        let refused = busy || fill.status == Status::Large;
        let joined = fetching.waiters.split_off_covered(fetching.covered, servable || refused);
        let own = if kept { fill.cached.with(self.config.layer) } else { fill.cached };
        for waiter in fetching.waiters {
            let (status, value) = (fill.status, fill.value.clone());
            let reply = Reply { status, cached: own, value, ..Reply::default() };
            self.answer(now, waiter, reply, effects);
        }
        if !joined.is_empty() {
            self.fetch(now, &fill.key, fill.view, fetching.resp3, fetching.command, joined, effects);
        }
        if !busy {
            self.after_fill(now, &fill.key, kept, fits, effects);
        }
        for (waiter, read) in followers {
            self.serve(now, waiter, read, effects);
        }
    }

    /// Stores the reply if it is as new as all that this node knows.
    fn keep(&mut self, fill: &Fill, filling: &Filling) -> bool {
        let Some(object) = self.objects.get_mut(&fill.key) else { return false };
        let filled = object.copy.fill(fill.version, filling);
        if filled == Filled::Unusable {
            self.statistics.poisoned += 1;
            return false;
        }
        if filled == Filled::Replaced {
            self.bytes -= object.drop_replies();
        }
        let change = object.keep(fill.view, fill.status, &fill.value, filling.sent, fill.ttl_ms);
        self.bytes = self.bytes.saturating_add_signed(change);
        self.statistics.fills += 1;
        true
    }

    /// Keeps the books in order: refused keys are held off, too many bytes push the coldest out.
    fn after_fill(&mut self, now: Time, key: &Key, kept: bool, fits: bool, effects: &mut Vec<Effect>) {
        if let Some(object) = self.objects.get_mut(key) {
            object.refused = if kept { 0 } else { object.refused.saturating_add(1) };
            if (!fits || object.refused >= REFUSED_MAX) && object.fetching.is_empty() {
                self.agent.hold_off(now, key);
                self.evict(key, effects);
            }
        }
        while let Some(victim) = self.agent.next_victim(self.bytes, &self.objects) {
            self.evict(&victim, effects);
        }
    }

    /// Passes a read on to its shim; the reply comes back through this node.
    pub(super) fn forward(&mut self, waiter: Waiter, mut read: Read, effects: &mut Vec<Effect>) {
        let shim = self.placement.shim(&read.key);
        if !self.links[usize::from(shim.0)].linked
            || self.forwarded.len() >= self.config.settings.forwarded_max
        {
            self.statistics.sheds += 1;
            return self.fail(waiter, effects);
        }
        *self.forwarded_keys.entry(read.key.clone()).or_default() += 1;
        self.forwarded_serial = self.forwarded_serial.wrapping_add(1);
        let serial = self.forwarded_serial;
        let forwarded = Forwarded { serial, waiter, shim, key: read.key.clone(), view: read.view };
        // What a node passes on it passes on whole.
        read.streams = false;
        read.request = u64::from(serial) << 32 | self.forwarded.insert(forwarded) as u64;
        self.statistics.forwarded += 1;
        self.send(Peer::Shim(shim), Message::Read(read), effects);
    }

    pub(super) fn relay(&mut self, now: Time, shim: ShimId, mut reply: Reply, effects: &mut Vec<Effect>) {
        let (serial, index) = ((reply.request >> 32) as u32, reply.request as u32 as usize);
        let asked = |forwarded: &Forwarded| forwarded.shim == shim && forwarded.serial == serial;
        if !self.forwarded.get(index).is_some_and(asked) {
            self.statistics.unexpected += 1;
            return;
        }
        let forwarded = self.take_forwarded(index);
        let here = self.objects.get(&forwarded.key).is_some_and(|object| object.admits(forwarded.view));
        let layer = self.config.layer;
        reply.cached = if here { reply.cached.with(layer) } else { reply.cached.without(layer) };
        self.answer(now, forwarded.waiter, reply, effects);
    }

    pub(super) fn take_forwarded(&mut self, index: usize) -> Forwarded {
        let forwarded = self.forwarded.remove(index);
        if let Some(count) = self.forwarded_keys.get_mut(&forwarded.key) {
            *count -= 1;
            if *count == 0 {
                self.forwarded_keys.remove(&forwarded.key);
            }
        }
        forwarded
    }

    pub(super) fn answer(&mut self, now: Time, waiter: Waiter, mut reply: Reply, effects: &mut Vec<Effect>) {
        reply.request = waiter.request;
        reply.loads[self.config.layer] = self.stamp(now);
        self.send(waiter.from, Message::Reply(reply), effects);
    }

    /// The shim cannot be reached from here, or too much waits for it: the router may try it directly.
    pub(super) fn fail(&mut self, waiter: Waiter, effects: &mut Vec<Effect>) {
        let value = Bytes::from_static(b"-BUSY DistCache: the cache node cannot pass this read on now\r\n");
        let reply = Reply { request: waiter.request, status: Status::Busy, value, ..Reply::default() };
        self.send(waiter.from, Message::Reply(reply), effects);
    }

    fn stamp(&mut self, now: Time) -> LoadStamp {
        let load = self.meter.load(now, self.config.capacity);
        LoadStamp { node_plus_one: u32::from(self.config.id.0) + 1, load }
    }

    fn own_layer(&self) -> LayerSet {
        debug_assert!(self.config.layer < LAYERS_MAX);
        LayerSet::EMPTY.with(self.config.layer)
    }
}

/// What the heavy-hitter sketches count: views, because a key may have hot and cold ones.
pub(crate) fn heat_item(key: &Key, view: View) -> u64 {
    (key.digest.0 >> 64) as u64 ^ view.0.rotate_left(17)
}

trait SplitCovered {
    /// Keeps those who may be answered by this fill and returns the others.
    fn split_off_covered(&mut self, covered: usize, all: bool) -> Self;
}

impl SplitCovered for SmallVec<[Waiter; 2]> {
    fn split_off_covered(&mut self, covered: usize, all: bool) -> Self {
        if all || covered >= self.len() { SmallVec::new() } else { self.drain(covered..).collect() }
    }
}
