//! Who watches keys, each on a storage connection of its own: storage alone knows whether they have changed. Not what
//! clients do with that.
use smallvec::SmallVec;
use wire::message::Execute;
use wire::{Peer, RouterId};

use super::operation::Origin;
use super::step::ShimStep;
use super::{Effect, Purpose, Shim};
use crate::storage::Lane;

const ALONE: &str = "-ERR DistCache: a WATCH must say to which client it belongs\r\n";
const LOST: &str =
    "-ERR DistCache: the connection that watched the keys was lost; EXEC will execute nothing\r\n";

/// A client between its first WATCH and the end of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Watcher {
    number: u64,
    resp3: bool,
    /// Its connection is gone, or never came: nothing may be executed in its name.
    lost: bool,
}

impl Shim {
    /// Only after `turned_away`.
    pub(super) fn watch(&mut self, step: &mut ShimStep<'_>, origin: Origin, execute: &Execute) {
        let (Some(request), Peer::Router(router)) = (execute.watch, origin.from) else {
            self.statistics.unexpected += 1;
            return step.reply_error(origin, ALONE);
        };
        let first = request == origin.request;
        if first && !self.watchers.contains_key(&(router, request)) {
            self.watches += 1;
            self.watching += 1;
            let watcher = Watcher { number: self.watches, resp3: execute.resp3, lost: false };
            self.watchers.insert((router, request), watcher);
        }
        let watcher = self.watchers.get(&(router, request));
        let Some(&Watcher { number, resp3, .. }) = watcher.filter(|watcher| !watcher.lost) else {
            return step.reply_error(origin, LOST);
        };
        let purpose = Purpose::Watch { origin, first, request };
        let commands = SmallVec::from_elem(execute.command.clone(), 1);
        let reach = self.reach(&execute.key);
        self.store(step, purpose, Lane::Watching { number, resp3 }, reach, commands);
    }

    pub(super) fn watch_lost(&mut self, origin: Origin, request: u64) {
        let Peer::Router(router) = origin.from else { return };
        if let Some(watcher) = self.watchers.get_mut(&(router, request)) {
            watcher.lost = true;
        }
    }

    /// EXEC ends the watch: its connection, if it has watched all the time.
    pub(super) fn take_watcher(&mut self, from: Peer, request: u64) -> Option<u64> {
        let Peer::Router(router) = from else { return None };
        let watcher = self.watchers.get(&(router, request)).copied()?;
        if watcher.lost {
            return None;
        }
        self.watchers.remove(&(router, request));
        Some(watcher.number)
    }

    /// The client watches no more, or is gone.
    pub(super) fn unwatch(&mut self, step: &mut ShimStep<'_>, from: Peer, request: u64) {
        let Peer::Router(router) = from else { return };
        if let Some(watcher) = self.watchers.remove(&(router, request)) {
            self.release_watching(step, watcher.number, false);
        }
    }

    /// The router is gone, and all its clients with it.
    pub(super) fn unwatch_all(&mut self, step: &mut ShimStep<'_>, router: Peer) {
        let Peer::Router(router) = router else { return };
        let all = (router, 0)..=(router, u64::MAX);
        let requests: Vec<(RouterId, u64)> = self.watchers.range(all).map(|(key, _)| *key).collect();
        for (router, request) in requests {
            self.unwatch(step, Peer::Router(router), request);
        }
    }

    /// `clean`: its last command was an EXEC that was answered.
    pub(super) fn release_watching(&mut self, step: &mut ShimStep<'_>, number: u64, clean: bool) {
        self.watching = self.watching.saturating_sub(1);
        step.effects.push(Effect::Release { number, clean });
    }
}
