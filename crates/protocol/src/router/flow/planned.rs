//! A command is sent to the places that its plan says, if its order allows that and there is room. Not what becomes of it
//! then.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::{Key, Peer, Status, View};

use crate::hash::DigestHasher;
use crate::node::NearRead;
use crate::router::flow::gather::{self, Merge};
use crate::router::flow::launch::{Hold, Launch, LaunchJob};
use crate::router::flow::pending::{PendingRead, Tried};
use crate::router::flow::pipeline::{FanPart, KeyOrder, OperationProgress, SentRequest};
use crate::router::flow::plan::{self, CommandPlan};
use crate::router::flow::refusal::{cross_shim, may_read_elsewhere, unnamed_keys};
use crate::router::flow::reply::PartReply;
use crate::router::flow::request::low;
use crate::router::flow::route::{Route, Unroutable, Wanted};
use crate::router::flow::send::{Outgoing, blocks};
use crate::router::replies;

impl Launch<'_, '_> {
    /// As the plan of its command says.
    pub(crate) fn planned(&mut self) -> Result<OperationProgress, Hold> {
        let launched = match plan::plan(self.job.command, self.job.classified) {
            CommandPlan::Read => self.read(),
            CommandPlan::Each if plan::share_tag(self.job) => self.groups(None),
            CommandPlan::Each => self.each(),
            CommandPlan::Whole => self.groups(None),
            CommandPlan::Grouped(merge) => self.groups(Some(merge)),
            CommandPlan::Subscription | CommandPlan::Info => return Err(Hold::Front),
            CommandPlan::Publish => return Ok(self.publish()),
            CommandPlan::Watch => self.watch(),
            keyless => return Ok(self.keyless(keyless)),
        };
        match launched {
            Ok(progress) => Ok(progress),
            Err(Unroutable::Wait) => Err(Hold::Order),
            Err(Unroutable::Full(peer)) => Err(Hold::Turn(peer)),
            Err(Unroutable::Unavailable(shim)) => Ok(self.unavailable(shim)),
        }
    }

    fn read(&mut self) -> Result<OperationProgress, Unroutable> {
        let job = self.job;
        let key = &job.keys[0];
        let view = commands::view(job.placement.view_hash(), job.command, job.classified, job.resp3);
        let order = self.order(key);
        if self.traffic.near.is_on()
            && let Some(held) = self.one_near(key, view, order)
        {
            return Ok(OperationProgress::Done(held));
        }
        let route = self.route(key, view, order)?;
        self.room_for(std::iter::once(route.peer))?;
        if self.over_limit(1) {
            return Ok(self.busy());
        }
        self.keep_all();
        let command = if view == View::GET { Bytes::new() } else { job.command.frame().clone() };
        let (streams, tried) = (self.step.config.streams, Tried::default());
        let read = PendingRead { key: key.clone(), view, command, streams, tried };
        Ok(OperationProgress::Sent(self.send_read(0, route, read)))
    }

    /// MGET: each key is asked for by itself, and once, however often it is named.
    fn each(&mut self) -> Result<OperationProgress, Unroutable> {
        let job = self.job;
        let NamedKeys { keys, places } = NamedKeys::of(job.keys);
        let orders: SmallVec<[KeyOrder; 16]> = keys.iter().map(|key| self.order(key)).collect();
        if orders.contains(&KeyOrder::Wait) {
            return Err(Unroutable::Wait);
        }
        let mut held = self.each_near(&keys, &orders);
        let found = held.iter().flatten().count();
        if found == keys.len() {
            let parts: Vec<PartReply> = held.into_iter().flatten().collect();
            self.keep_all();
            self.count_near(found);
            return Ok(OperationProgress::Done(gather::merge(&Merge::Values { places }, &parts, job.resp3)));
        }
        let mut routes = Vec::with_capacity(keys.len());
        for (index, (key, order)) in keys.iter().zip(orders).enumerate() {
            routes.push(match held.get(index) {
                Some(Some(_)) => None,
                _ => Some(self.route(key, View::GET, order)?),
            });
        }
        self.room_for(routes.iter().flatten().map(|route| route.peer))?;
        if self.over_limit(keys.len() - found) {
            return Ok(self.busy());
        }
        self.keep_all();
        self.count_near(found);
        let mut parts = Vec::with_capacity(routes.len());
        for (index, (&key, route)) in keys.iter().zip(routes).enumerate() {
            let Some(route) = route else {
                parts.extend(held[index].take().map(FanPart::answered));
                continue;
            };
            let tried = Tried::default();
            let (view, command) = (View::GET, Bytes::new());
            let read = PendingRead { key: key.clone(), view, command, streams: false, tried };
            let sent = self.send_read(index as u32, route, read);
            parts.push(FanPart { sent, touch: SmallVec::from_slice(&[low(key)]), reply: None });
        }
        Ok(OperationProgress::fan(parts, Merge::Values { places }))
    }

    /// Sends a command to the shims of its keys: to one as it is, to several in groups if it can be merged.
    fn groups(&mut self, merge: Option<Merge>) -> Result<OperationProgress, Unroutable> {
        let job = self.job;
        let kind = job.classified.kind;
        let groups = plan::groups(job.keys, |key| job.placement.home(key));
        if groups.len() > 1 && merge.is_none() {
            return Ok(OperationProgress::Done(cross_shim(self.step, job.placement, job.command)));
        }
        if may_read_elsewhere(job.placement, job.classified) {
            return Ok(OperationProgress::Done(unnamed_keys(self.step, job.placement)));
        }
        let mut routes: SmallVec<[Route; 1]> = SmallVec::new();
        for group in &groups {
            let mut route = self.traffic.route_to_shim(group.home.shim, KeyOrder::Free)?;
            for &member in &group.members {
                let order = self.order(&job.keys[member]);
                route.ordered |= self.traffic.route_to_shim(group.home.shim, order)?.ordered;
            }
            routes.push(route);
        }
        if !blocks(kind) {
            self.room_for(routes.iter().map(|route| route.peer))?;
        }
        if self.over_limit(groups.len()) {
            return Ok(self.busy());
        }
        self.keep_all();
        let Some(merge) = merge.filter(|_| groups.len() > 1) else {
            let (key, frame) = (job.keys[0].clone(), job.command.frame());
            return Ok(OperationProgress::Sent(
                self.execute(0, Outgoing { kind, route: routes[0], key, frame }),
            ));
        };
        let mut parts = Vec::with_capacity(groups.len());
        for (index, (group, route)) in groups.iter().zip(routes).enumerate() {
            let narrowed = plan::narrowed(job.command, job.classified, group);
            let (key, frame) = (job.keys[group.members[0]].clone(), narrowed.frame());
            let sent = self.execute(index as u32, Outgoing { kind, route, key, frame });
            let touch = group.members.iter().map(|&member| low(&job.keys[member])).collect();
            parts.push(FanPart { sent, touch, reply: None });
        }
        Ok(OperationProgress::fan(parts, merge))
    }

    /// What a near copy answers. Behind earlier commands on the key, and where a copy of any node will not do, none does. A read
    /// behind reads alone, which went to a node, makes its key no less hot.
    fn near(&mut self, key: &Key, view: View, order: KeyOrder) -> Option<PartReply> {
        let counts = matches!(order, KeyOrder::Free | KeyOrder::Follow(Peer::Node(_)));
        if !counts || self.is_for_shim(key) {
            return None;
        }
        let resp3 = self.job.resp3;
        let held = match order {
            KeyOrder::Free => self.traffic.near.hit(self.step.now, key, view),
            _ => None,
        };
        let Some((status, value)) = held else {
            let none = Bytes::new();
            let command = if view == View::GET { &none } else { self.job.command.frame() };
            let read = NearRead { key, view, resp3, command };
            self.traffic.near.missed(self.step, &read);
            return None;
        };
        Some(PartReply { status, value })
    }

    #[inline(never)]
    fn one_near(&mut self, key: &Key, view: View, order: KeyOrder) -> Option<Bytes> {
        let PartReply { status, value } = self.near(key, view, order)?;
        self.keep_all();
        self.count_near(1);
        Some(if status == Status::Nil { Bytes::from_static(replies::nil(self.job.resp3)) } else { value })
    }

    /// What near copies answer for each key of a command on several; the others are asked for elsewhere. Nothing where there are
    /// none.
    fn each_near(&mut self, keys: &[&Key], orders: &[KeyOrder]) -> Vec<Option<PartReply>> {
        if !self.traffic.near.is_on() {
            return Vec::new();
        }
        keys.iter().zip(orders).map(|(key, order)| self.near(key, View::GET, *order)).collect()
    }

    fn count_near(&mut self, reads: usize) {
        self.step.counters.near_hits += reads as u64;
        self.step.counters.hits += reads as u64;
    }

    /// Whether copies may not know yet what the client has been told or has seen. One that is kept, until the interest in its
    /// key stands: it goes behind that one's registration.
    fn is_for_shim(&self, key: &Key) -> bool {
        let registers =
            !self.job.kept.is_empty() && (self.step.config.bounded || !self.traffic.interests.stands(key));
        registers || self.caller.reads_at_shims
    }

    fn route(&mut self, key: &Key, view: View, order: KeyOrder) -> Result<Route, Unroutable> {
        let LaunchJob { placement, dealt, .. } = *self.job;
        if self.is_for_shim(key) {
            return self.traffic.route_to_shim(placement.shim(key), order);
        }
        self.traffic.route_read(self.step, Wanted { placement, key, view, dealt }, order)
    }

    /// Whether there is room wherever the job's requests go; if not, the first of the members that it has not waited for.
    fn room_for(&self, peers: impl Iterator<Item = Peer>) -> Result<(), Unroutable> {
        let dealt = self.job.dealt;
        let full = |peer: &Peer| dealt.is_none_or(|dealt| *peer > dealt) && !self.traffic.has_window(*peer);
        peers.filter(full).min().map_or(Ok(()), |peer| Err(Unroutable::Full(peer)))
    }

    fn send_read(&mut self, part: u32, route: Route, read: PendingRead) -> SentRequest {
        self.traffic.budget.earn();
        if self.job.kept.is_empty() {
            return self.traffic.send_read(self.step, self.job.origin(part), route, read);
        }
        let key = read.key.clone();
        let sent = self.traffic.send_read(self.step, self.job.origin(part), route, read);
        self.traffic.interests.confirm_later(&key, sent);
        sent
    }
}

/// The keys that a command names, each once, and where each of those that it names is among them, if that is not where it
/// stands.
struct NamedKeys<'a> {
    keys: SmallVec<[&'a Key; 16]>,
    places: Option<Box<[u32]>>,
}

impl<'a> NamedKeys<'a> {
    /// So many are looked through for each.
    const FEW: usize = 16;

    fn of(named: &'a [Key]) -> NamedKeys<'a> {
        let mut keys: SmallVec<[&Key; 16]> = SmallVec::with_capacity(named.len());
        let mut places: SmallVec<[u32; 16]> = SmallVec::with_capacity(named.len());
        let mut known: HashMap<&Key, u32, BuildHasherDefault<DigestHasher>> = HashMap::default();
        let is_short = named.len() <= NamedKeys::FEW;
        for key in named {
            let next = keys.len() as u32;
            let place = match is_short {
                true => keys.iter().position(|known| *known == key).map_or(next, |at| at as u32),
                false => *known.entry(key).or_insert(next),
            };
            if place == next {
                keys.push(key);
            }
            places.push(place);
        }
        let places = (keys.len() < named.len()).then(|| places.into_boxed_slice());
        NamedKeys { keys, places }
    }
}
