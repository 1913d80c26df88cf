//! Reads at a node: hits, fetches, what is passed on, and who is answered when a fill arrives.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Fetch, Fill, LAYERS_MAX, LoadStamp, Offer, Read, Reply, SetDegree};
use wire::{Degree, Key, LayerSet, Message, Peer, ShimId, Status, View};

use super::agent::{Newcomer, Verdict};
use super::lifetime::Lifetime;
use super::object::{Fetching, Holding, Object, Waiter};
use super::stale::FoundReply;
use super::step::NodeStep;
use super::{Forwarded, Node, OFFERS_WAITING_MAX};
use crate::coherence::copy::{Filled, Filling};
use crate::key_view::KeyView;
use crate::policy::Eligibility;
use crate::time::Time;

/// Fills refused in a row before a key is held off, if it is so for longer than a write waits for a node that is lost: its replies
/// cannot be cached at present.
const REFUSED_MAX: u8 = 16;

/// A view that may come in, with its heat in requests per second, and how many places its key is said to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) key: &'a Key,
    pub(super) view: View,
    pub(super) heat: u32,
    pub(super) degree: Degree,
}

impl Node {
    pub(super) fn read(&mut self, step: &mut NodeStep<'_>, from: Peer, read: Read) {
        self.meter.record(step.now);
        self.statistics.requests += 1;
        self.arrivals += 1;
        let waiter = Waiter { from, request: read.request, resp3: read.resp3, arrival: self.arrivals };
        let behind = read.ordered && self.order.holds(&read.key, from);
        let held = if behind { Some(read) } else { self.serve(step, waiter, read) };
        if let Some(read) = held {
            self.statistics.reads_held += 1;
            self.order.hold(waiter, read);
        }
    }

    /// Reads that were held back, now that others before them are answered.
    fn serve_held(&mut self, step: &mut NodeStep<'_>, key: &Key, from: Peer) {
        while let Some((waiter, read)) = self.order.next(key, from) {
            if let Some(read) = self.serve(step, waiter, read) {
                return self.order.hold_first(waiter, read);
            }
        }
    }

    /// Serves a read, or gives it back if it has to wait for an earlier one of its client and key, which may not be answered with
    /// something newer. One that can be cached here waits for all before it; one that cannot goes the same way as those that were
    /// passed on.
    fn serve(&mut self, step: &mut NodeStep<'_>, waiter: Waiter, read: Read) -> Option<Read> {
        let behind = read.ordered && self.order.is_behind_passed_on(&read.key, &waiter);
        let Some(object) = self.objects.get_mut(&read.key) else {
            self.statistics.misses += 1;
            return self.serve_unknown(step, waiter, read, behind);
        };
        if read.ordered && (behind && object.admits(read.view) || object.is_awaited_before(&waiter)) {
            return Some(read);
        }
        let link = &self.links[usize::from(object.shim.0)];
        if let Some(FoundReply { status, value, stale }) =
            link.found(step.now, object, read.view, &self.config.settings.policies)
        {
            object.hits = object.hits.saturating_add(1);
            self.statistics.hits += 1;
            self.statistics.stale_hits += u64::from(stale);
            let (degree, holding) = (object.degree, object.holding);
            let cached = self.layers_with_own(LayerSet::EMPTY, holding);
            let reply = Reply { status, hit: true, cached, degree, value, ..Reply::default() };
            self.answer(step, waiter, reply);
            return None;
        }
        self.statistics.misses += 1;
        object.hits = object.hits.saturating_add(1);
        if object.shim != self.placement.shim(&read.key) && object.is_idle() {
            // What its shim has called back comes again from the one that has the key now.
            self.evict(step, &read.key);
            return self.serve_unknown(step, waiter, read, behind);
        }
        if !object.admits(read.view) {
            return self.serve_unknown(step, waiter, read, behind);
        }
        self.fetch_or_join(step, waiter, read);
        None
    }

    /// A view that is not cached here is fetched if it comes in now, unless it is behind one that was passed on: then it waits.
    fn serve_unknown(
        &mut self,
        step: &mut NodeStep<'_>,
        waiter: Waiter,
        read: Read,
        behind: bool,
    ) -> Option<Read> {
        match self.comes_in(step, &read) {
            true if behind => return Some(read),
            true => self.fetch_or_join(step, waiter, read),
            false => self.forward(step, waiter, read),
        }
        None
    }

    /// Counts a read toward the heat of a view that is not cached here. True if that is enough.
    fn comes_in(&mut self, step: &mut NodeStep<'_>, read: &Read) -> bool {
        if !read.degree.is_base() {
            return self.admits_elastic(step, read);
        }
        let always = self.config.settings.policies.is_always(&read.key.bytes);
        let floor = if always { 1 } else { self.heat_floor() };
        if let Some(heat) = self.heat.record(step.now, heat_item(&read.key, read.view), floor) {
            if self.admit(step, Asked { key: &read.key, view: read.view, heat, degree: Degree::BASE }) {
                return true;
            }
            self.offer_later(read, heat);
        }
        false
    }

    /// While a session opens, hot keys wait for it: they would be reported again only in another window.
    fn offer_later(&mut self, read: &Read, heat: u32) {
        let shim = self.placement.shim(&read.key);
        let link = &self.links[usize::from(shim.0)];
        let opening = link.is_asked() && link.session.id().is_none();
        // No session is opened for a key that is never cached.
        let opening = opening && !self.config.settings.policies.of(&read.key.bytes).is_never();
        if opening && !self.admits_nothing() && self.offers.len() < OFFERS_WAITING_MAX {
            let Read { key, view, resp3, command, .. } = read.clone();
            self.offers.push(Offer { key, view, resp3, heat, command });
        }
    }

    /// A shim says that a key of this node's partition is hot.
    pub(super) fn offer(&mut self, step: &mut NodeStep<'_>, offer: Offer) {
        self.statistics.offers += 1;
        let shim = self.placement.shim(&offer.key);
        let link = &self.links[usize::from(shim.0)];
        if self.admits_nothing() || !link.is_asked() {
            return;
        }
        if link.session.id().is_none() {
            self.open_session(step, shim);
            if self.offers.len() < OFFERS_WAITING_MAX {
                self.offers.push(offer);
            }
            return;
        }
        let object = self.objects.get(&offer.key).filter(|object| object.admits(offer.view));
        // Routers may have unlearned an object without a copy: then no read will come that fills it on demand.
        let wanted = match object {
            Some(object) => object.is_hollow(step.now, offer.view),
            None => {
                let Offer { key, view, heat, .. } = &offer;
                self.admit(step, Asked { key, view: *view, heat: *heat, degree: Degree::BASE })
            }
        };
        if wanted {
            self.statistics.offers_accepted += 1;
            let Offer { key, view, resp3, command, .. } = offer;
            self.fetch(step, KeyView { key, view, resp3 }, command, SmallVec::new());
        }
    }

    /// Makes room for a view if it is hot enough; the session must be open, so that the copy belongs to it.
    pub(super) fn admit(&mut self, step: &mut NodeStep<'_>, asked: Asked<'_>) -> bool {
        let Asked { key, view, heat, degree } = asked;
        let rule = self.config.settings.policies.of(&key.bytes);
        if self.admits_nothing() || rule.is_never() {
            return false;
        }
        let shim = self.placement.shim(key);
        if self.links[usize::from(shim.0)].session.id().is_none() {
            self.open_session(step, shim);
            return false;
        }
        let views_max = self.config.settings.views_max;
        if let Some(admitted) = self.objects.change(key, |object| object.admit(view, views_max)) {
            return admitted;
        }
        let always = rule.cache == Eligibility::Always || !degree.is_base();
        match self.agent.judge(Newcomer { key, heat, always }, self.objects.bytes(), &self.objects) {
            Verdict::Decline => return false,
            Verdict::Insert => {}
            Verdict::Replace(victim) => self.evict(step, &victim),
        }
        let mut object = Object::new(shim, key, view, heat);
        if !degree.is_base() {
            (object.degree, object.holding) = (degree, self.holding(key, degree, Holding::Place));
        }
        self.objects.insert(object, key);
        self.statistics.inserts += 1;
        true
    }

    pub(super) fn fetch_or_join(&mut self, step: &mut NodeStep<'_>, waiter: Waiter, read: Read) {
        let Some(object) = self.objects.get_mut(&read.key) else {
            return self.forward(step, waiter, read);
        };
        if let Some(fetching) = object.fetching_mut().iter_mut().find(|fetching| fetching.view == read.view) {
            fetching.waiters.push(waiter);
            self.statistics.reads_joined += 1;
            return;
        }
        let waiters = SmallVec::from_elem(waiter, 1);
        let Read { key, view, resp3, command, .. } = read;
        self.fetch(step, KeyView { key, view, resp3 }, command, waiters);
    }

    /// Asks the shim for a copy. Everyone in `waiters` arrived before the read that this causes.
    fn fetch(
        &mut self,
        step: &mut NodeStep<'_>,
        asked: KeyView,
        command: Bytes,
        waiters: SmallVec<[Waiter; 2]>,
    ) {
        let KeyView { key, view, resp3 } = asked;
        let Some(object) = self.objects.get_mut(&key) else { return };
        let link = &mut self.links[usize::from(object.shim.0)];
        let shim = object.shim;
        let is_its = shim == self.placement.shim(&key);
        let (Some(session), true) = (link.session.id(), link.is_asked() && is_its) else {
            for waiter in waiters {
                self.forward(step, waiter, waiter.read(key.clone(), view, command.clone()));
            }
            return;
        };
        link.fill_last += 1;
        let fill = link.fill_last;
        let filling = Filling::new(fill, step.now, object.copy());
        let covered = waiters.len();
        let sent = command.clone();
        link.fetching.insert(key.clone());
        object.begin_fetch(Fetching { filling, view, resp3, command: sent, waiters, covered });
        self.statistics.fetches += 1;
        let fetch = Fetch { session, fill, key, view, resp3, command };
        step.send(Peer::Shim(shim), Message::Fetch(fetch));
    }

    /// A fill arrives: it answers those who asked before it was read, and everyone if it became a copy.
    pub(super) fn filled(&mut self, step: &mut NodeStep<'_>, shim: ShimId, fill: Fill) {
        let link = &self.links[usize::from(shim.0)];
        if link.session.id() != Some(fill.session) {
            return;
        }
        let Some(object) = self.objects.get_mut(&fill.key).filter(|object| object.shim == shim) else {
            return;
        };
        let Some(mut fetching) = object.end_fetch(fill.fill) else { return };
        if object.is_idle() {
            self.links[usize::from(shim.0)].fetching.remove(&fill.key);
        }
        let rule = self.config.settings.policies.of(&fill.key.bytes);
        let bytes_max = self.config.settings.value_bytes_max.min(rule.value_bytes_max);
        let fits = fill.value.len() <= bytes_max && !rule.is_never() && !fill.status.is_refusal();
        self.statistics.fills_ungranted += u64::from(!fill.granted);
        let kept = fill.granted && fits && self.keep(&fill, &fetching.filling);
        // What lives briefly may have expired on its way.
        let servable = kept && self.servable(step.now, &fill.key, fill.view).is_some();
        // A refusal is no value: whoever waits may have it, and asking once more would be refused, too.
        let nothing_read = fill.status == Status::Refused;
        let refused = nothing_read || fill.status == Status::Large;
        let joined = fetching.waiters.split_off_covered(fetching.covered, servable || refused);
        let holding = object_holding(self.objects.get(&fill.key));
        let own = if kept { self.layers_with_own(fill.cached, holding) } else { fill.cached };
        for waiter in fetching.waiters {
            let (status, value) = (fill.status, fill.value.clone());
            let reply = Reply { status, cached: own, value, ..Reply::default() };
            self.answer(step, waiter, reply);
        }
        if !joined.is_empty() {
            let asked = KeyView { key: fill.key.clone(), view: fill.view, resp3: fetching.resp3 };
            self.fetch(step, asked, fetching.command, joined);
        }
        if !nothing_read {
            self.after_fill(step, &fill.key, kept, fits);
            self.set_degree(step, shim, &SetDegree { key: fill.key.clone(), degree: fill.degree });
        }
        for from in self.order.held_of(&fill.key) {
            self.serve_held(step, &fill.key, from);
        }
    }

    /// Stores the reply if it is as new as all that this node knows.
    fn keep(&mut self, fill: &Fill, filling: &Filling) -> bool {
        let life = Lifetime::new(filling.sent, fill.ttl_ms, fill.stale_ms);
        let keep = |object: &mut Object| {
            let filled = object.change(|copy| copy.fill(fill.version, filling));
            if filled == Filled::Replaced {
                object.drop_replies();
            }
            if filled != Filled::Unusable {
                object.keep(fill.view, fill.status, &fill.value, life);
            }
            filled
        };
        let Some(filled) = self.objects.change(&fill.key, keep) else { return false };
        let kept = filled != Filled::Unusable;
        *(if kept { &mut self.statistics.fills } else { &mut self.statistics.fills_poisoned }) += 1;
        kept
    }

    /// Keeps the books in order: refused keys are held off, too many bytes push the coldest out.
    fn after_fill(&mut self, step: &mut NodeStep<'_>, key: &Key, kept: bool, fits: bool) {
        if let Some(object) = self.objects.get_mut(key) {
            let (refused, refused_for) = object.refused(step.now, kept);
            let lasts = refused >= REFUSED_MAX && refused_for > self.config.lease.restart_wait() * 2;
            if (!fits || lasts) && object.is_idle() {
                self.agent.hold_off(step.now, key);
                self.evict(step, key);
            }
        }
        while let Some(victim) = self.agent.next_victim(self.objects.bytes(), &self.objects) {
            self.evict(step, &victim);
        }
    }

    /// Passes a read on to its shim; the reply comes back through this node.
    pub(super) fn forward(&mut self, step: &mut NodeStep<'_>, waiter: Waiter, mut read: Read) {
        let shim = self.placement.shim(&read.key);
        if !self.links[usize::from(shim.0)].is_asked() {
            self.statistics.sheds += 1;
            return self.fail_unlinked(step, waiter);
        }
        if self.forwarded.len() >= self.config.settings.forwarded_max {
            self.statistics.sheds += 1;
            let value =
                Bytes::from_static(b"-BUSY DistCache: the cache node cannot pass this read on now\r\n");
            let reply = Reply { request: waiter.request, status: Status::Busy, value, ..Reply::default() };
            return step.send(waiter.from, Message::Reply(reply));
        }
        self.order.passed_on(&read.key, &waiter);
        self.forwarded_serial = self.forwarded_serial.wrapping_add(1);
        let serial = self.forwarded_serial;
        let (key, view, elastic) = (read.key.clone(), read.view, !read.degree.is_base());
        let forwarded = Forwarded { serial, waiter, shim, key, view, elastic };
        // What a node passes on it passes on whole.
        read.streams = false;
        read.request = u64::from(serial) << 32 | self.forwarded.insert(forwarded) as u64;
        self.statistics.reads_forwarded += 1;
        step.send(Peer::Shim(shim), Message::Read(read));
    }

    pub(super) fn relay(&mut self, step: &mut NodeStep<'_>, shim: ShimId, mut reply: Reply) {
        let (serial, index) = ((reply.request >> 32) as u32, reply.request as u32 as usize);
        let asked = |forwarded: &Forwarded| forwarded.shim == shim && forwarded.serial == serial;
        if !self.forwarded.get(index).is_some_and(asked) {
            self.statistics.unexpected += 1;
            return;
        }
        let forwarded = self.take_forwarded(index);
        if reply.status == Status::Busy {
            reply.status = Status::Refused;
        }
        let here = self.objects.get(&forwarded.key).filter(|object| object.admits(forwarded.view));
        let layer = self.config.layer;
        reply.cached = match here {
            Some(object) => self.layers_with_own(reply.cached, object.holding),
            // What a further place lacks, the key's place in this layer may have.
            None if forwarded.elastic && !self.placement.is_place(&forwarded.key, self.config.id) => {
                reply.cached
            }
            None => reply.cached.without(layer),
        };
        self.answer(step, forwarded.waiter, reply);
        self.serve_held(step, &forwarded.key, forwarded.waiter.from);
    }

    pub(super) fn take_forwarded(&mut self, index: usize) -> Forwarded {
        let forwarded = self.forwarded.remove(index);
        self.order.over(&forwarded.key, &forwarded.waiter);
        forwarded
    }

    pub(super) fn answer(&mut self, step: &mut NodeStep<'_>, waiter: Waiter, mut reply: Reply) {
        reply.request = waiter.request;
        reply.loads[self.config.layer] = self.stamp(step.now);
        step.send(waiter.from, Message::Reply(reply));
    }

    /// The shim cannot be reached from here: the router may try it directly.
    pub(super) fn fail_unlinked(&mut self, step: &mut NodeStep<'_>, waiter: Waiter) {
        let reply = Reply { request: waiter.request, status: Status::Unlinked, ..Reply::default() };
        step.send(waiter.from, Message::Reply(reply));
    }

    /// What waits counts as if it had been asked for in the last second: nodes that all do what they can differ in that alone.
    fn stamp(&mut self, now: Time) -> LoadStamp {
        let waiting = self.waiting.len() as u64 * 1000 / u64::from(self.config.capacity);
        let load = self.meter.load(now, self.config.capacity).saturating_add(waiting as u32);
        LoadStamp { node_plus_one: u32::from(self.config.id.0) + 1, load }
    }

    /// These layers and, if the key is held here as in its place, this node's own.
    fn layers_with_own(&self, layers: LayerSet, holding: Holding) -> LayerSet {
        debug_assert!(self.config.layer < LAYERS_MAX);
        if holding == Holding::Place { layers.with(self.config.layer) } else { layers }
    }
}

/// What the heavy-hitter sketches count: views, because a key may have hot and cold ones.
pub(crate) fn heat_item(key: &Key, view: View) -> u64 {
    (key.digest.0 >> 64) as u64 ^ view.0.rotate_left(17)
}

fn object_holding(object: Option<&Object>) -> Holding {
    object.map_or(Holding::Place, |object| object.holding)
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
