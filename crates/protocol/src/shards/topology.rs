//! Which server has each slot, as the servers themselves tell, and which of them this shim therefore needs.
//! Not what is asked of them.

use core::net::SocketAddr;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

use super::flight::{Asked, Flight};
use super::step::ShardsStep;
use super::view::{Seen, parse};
use super::{Effect, Shards};
use crate::placement::slot::SLOTS;
use crate::storage::{Lane, Reach, StorageEvent, Store};

/// How often servers in use are asked for the view that they have.
const VIEW_INTERVAL: Duration = Duration::from_secs(1);
/// How often somebody is asked while the view is known to be old.
const SCOUT_INTERVAL: Duration = Duration::from_millis(100);
/// A slot has settled when nothing was heard of its move for this long: three views.
const SETTLED: Duration = Duration::from_secs(3);
/// A server that is not in use any more is kept for this long: a slot that moves key by key needs it again and again.
const KEPT: Duration = Duration::from_secs(10);
const CLUSTER_NODES: &[u8] = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n";

impl Shards {
    pub(super) fn seen(&mut self, step: &mut ShardsStep<'_>, from: SocketAddr, text: &[u8]) {
        match parse(&String::from_utf8_lossy(text), from) {
            Ok(servers) => self.adopt(step, from, &servers),
            Err(error) => self.warn(step, format!("{from}: {error}")),
        }
    }

    fn adopt(&mut self, step: &mut ShardsStep<'_>, from: SocketAddr, servers: &[Seen]) {
        let moving_before = self.moving.len();
        let mut altered = false;
        let mut changed: Vec<(u16, SocketAddr, SocketAddr)> = Vec::new();
        for seen in servers.iter().filter(|seen| seen.primary) {
            for slot in seen.slots.iter().flat_map(|&(first, last)| first..=last) {
                let at = usize::from(slot);
                let old = self.owners[at];
                // Whose slot it was knows best that it has lost it; of others the later word counts.
                let believed = old.is_none_or(|old| old == seen.address || old == from);
                if !believed && seen.epoch < self.epochs[at] {
                    continue;
                }
                altered |= old != Some(seen.address);
                (self.owners[at], self.epochs[at]) = (Some(seen.address), seen.epoch);
                if let Some(old) = old.filter(|old| *old != seen.address && self.is_own(slot)) {
                    changed.push((slot, old, seen.address));
                }
            }
        }
        for &(slot, old, new) in &changed {
            // A primary that hands its slots over key by key goes on as one. A replica in its place may lack the last
            // writes, and a primary that is gone has handed nothing over.
            let goes_on = servers.iter().any(|seen| seen.address == old && seen.primary && seen.alive);
            self.void |= !goes_on || self.replicas.contains(&new);
            self.moving.insert(slot, step.now);
        }
        let replicas = servers.iter().filter(|seen| !seen.primary);
        self.replicas = replicas.map(|seen| seen.address).collect();
        self.known.extend(servers.iter().filter(|seen| seen.alive).map(|seen| seen.address));
        for slot in servers.iter().flat_map(|seen| &seen.moving) {
            if self.is_own(*slot) {
                self.moving.insert(*slot, step.now);
            }
        }
        if self.moving.len() > moving_before {
            self.report_moving(step);
        }
        if !changed.is_empty() {
            self.disturb_changed();
        }
        self.hurry = !self.up;
        if altered || self.in_use.is_empty() {
            self.find_used(step);
        }
        self.evaluate(step);
        self.pump_all(step);
    }

    /// What follows for a slot must not overtake what is on its way to another server.
    fn disturb_changed(&mut self) {
        for (slot, server) in self.in_flight() {
            if self.owner(slot) != Some(server) {
                self.disturb(slot);
            }
        }
    }

    fn find_used(&mut self, step: &mut ShardsStep<'_>) {
        let mut met = BTreeSet::new();
        self.in_use.clear();
        self.stewarded.clear();
        self.shared = false;
        for slot in 0..SLOTS {
            let Some(owner) = self.owner(slot) else { continue };
            let is_lowest = met.insert(owner);
            if self.is_own(slot) {
                self.in_use.entry(owner).or_insert(slot);
                if is_lowest {
                    self.stewarded.push(owner);
                }
            }
        }
        let others = (0..SLOTS).filter(|slot| !self.is_own(*slot)).filter_map(|slot| self.owner(slot));
        self.shared = others.into_iter().any(|owner| self.in_use.contains_key(&owner));
        for server in self.in_use.keys().copied().collect::<Vec<_>>() {
            self.connect(step, server);
        }
        if self.in_use.is_empty() {
            let (first, last) = (self.range.0, self.range.1.saturating_sub(1));
            let reason = format!("no primary of the Redis Cluster has any of the slots {first} to {last}");
            self.down(step, reason, false);
        }
    }

    pub(super) fn connect(&mut self, step: &mut ShardsStep<'_>, server: SocketAddr) {
        let place = self.servers.entry(server).or_insert_with(|| {
            step.effects.push(Effect::Connect { server });
            super::Server::default()
        });
        place.used = step.now;
    }

    /// The slot is between two servers, as far as is known.
    pub(super) fn moves(&mut self, step: &mut ShardsStep<'_>, slot: u16) {
        if self.moving.insert(slot, step.now).is_none() {
            self.report_moving(step);
        }
    }

    fn report_moving(&self, step: &mut ShardsStep<'_>) {
        let slots = StorageEvent::Moving(self.moving.keys().copied().collect());
        step.report(slots);
    }

    /// The view is old: `server` has turned a command away.
    pub(super) fn look_again(&mut self, step: &mut ShardsStep<'_>, server: SocketAddr) {
        self.hurry = true;
        self.ask_view(step, server);
    }

    fn ask_view(&mut self, step: &mut ShardsStep<'_>, server: SocketAddr) {
        if self.servers.get(&server).is_some_and(|place| !place.viewing) {
            self.ask_view_anew(step, server);
        }
    }

    /// The answer to what it was asked before may be too old.
    pub(super) fn ask_view_anew(&mut self, step: &mut ShardsStep<'_>, server: SocketAddr) {
        let place = self.servers.get_mut(&server);
        let Some(place) =
            place.filter(|place| place.up.is_some() && !(place.viewing && place.viewed == step.now))
        else {
            return;
        };
        (place.viewing, place.viewed) = (true, step.now);
        let nodes = SmallVec::from_elem(Bytes::from_static(CLUSTER_NODES), 1);
        let (lane, reach) = (Lane::Shared { resp3: false }, Reach::Whole);
        let store = Store { ticket: 0, lane, reach, commands: nodes };
        self.ask(step, Asked { server, flight: Flight::View }, store);
    }

    pub(super) fn tick(&mut self, step: &mut ShardsStep<'_>) {
        self.pump_all(step);
        let interval = if self.hurry { SCOUT_INTERVAL } else { VIEW_INTERVAL };
        let due = self.servers.iter().filter(|(_, server)| step.now.since(server.viewed) >= interval);
        for server in due.map(|(server, _)| *server).collect::<Vec<_>>() {
            self.ask_view(step, server);
        }
        if (self.hurry || !self.up) && step.now.since(self.scouted) >= SCOUT_INTERVAL {
            self.scouted = step.now;
            let after = self.scout_last.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.known.range((after, Bound::Unbounded)).next().or(self.known.first());
            self.scout_last = next.copied();
            step.effects.extend(self.scout_last.map(|server| Effect::Ask { server }));
        }
        let before = self.moving.len();
        self.moving.retain(|_, heard| step.now.since(*heard) < SETTLED);
        if self.moving.len() < before {
            self.report_moving(step);
        }
        self.leave_unused(step);
    }

    fn leave_unused(&mut self, step: &mut ShardsStep<'_>) {
        if !self.up {
            return;
        }
        let unused = self.servers.iter().filter(|(address, server)| {
            let rests = step.now.since(server.used) >= KEPT && !server.owes_fence;
            let idle = || !self.asked.iter().any(|(_, asked)| asked.server == **address);
            rests && !self.in_use.contains_key(address) && idle()
        });
        for server in unused.map(|(server, _)| *server).collect::<Vec<_>>() {
            self.servers.remove(&server);
            step.effects.push(Effect::Leave { server });
        }
    }
}
