//! What routers track for their clients: which of them to tell of a change, and whose change it was. Not how the shim
//! hears of changes, nor which clients there are.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Changed, Follow, Track};
use wire::resp::{Command, reply};
use wire::{Key, Message, Peer, RouterId};

use super::operation::{Operation, OperationKind, Origin};
use super::reads::own;
use super::step::ShimStep;
use super::{Shim, StorageState};
use crate::hash::KeyMap;

/// Writes whose report is awaited only to learn whose it is; more are reported as anybody's.
const WRITERS_MAX: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Tracking {
    followers: BTreeMap<RouterId, Follower>,
    /// Keys that routers' clients keep: told of once, then forgotten.
    interests: KeyMap<Interest>,
    /// The oldest first; of each key only the entry with its own serial counts.
    order: VecDeque<(u64, Key)>,
    serial: u64,
    /// To be answered once the feed is open.
    waiting: Vec<Origin>,
    writers: KeyMap<SmallVec<[Writer; 1]>>,
}

#[derive(Clone, Debug)]
struct Follower {
    prefixes: Vec<Bytes>,
    writers: bool,
}

#[derive(Clone, Debug)]
struct Interest {
    routers: SmallVec<[RouterId; 2]>,
    serial: u64,
}

/// A write of a key that storage may not have reported yet.
#[derive(Clone, Copy, Debug)]
struct Writer {
    origin: Origin,
    /// How many PINGs had been sent over the feed when it was answered.
    answered: Option<u64>,
}

impl Tracking {
    pub(super) fn is_wanted(&self) -> bool {
        !self.followers.is_empty()
    }
}

impl Shim {
    /// Keys that are tracked, each counted once.
    pub fn tracked(&self) -> usize {
        self.tracking.interests.len()
    }

    pub(super) fn follow(&mut self, step: &mut ShimStep<'_>, router: RouterId, follow: Follow) {
        let Follow { request, follows, writers, prefixes } = follow;
        if follows {
            let names =
                Command::parse(prefixes).map(|names| names.args().map(Bytes::copy_from_slice).collect());
            let prefixes = names.unwrap_or_default();
            self.tracking.followers.insert(router, Follower { prefixes, writers });
        } else {
            self.forget_follower(router);
        }
        let Some(request) = request else { return };
        let origin = Origin::new(Peer::Router(router), request);
        match &self.storage {
            _ if !follows || self.feed.is_open() => self.followed(step, origin),
            StorageState::Up { .. } => {
                self.tracking.waiting.push(origin);
                self.tick_feed(step);
            }
            StorageState::Down { reason } => {
                let text = format!("-ERR DistCache: storage cannot be reached: {reason}\r\n");
                step.reply_error(origin, &text);
            }
        }
    }

    fn followed(&mut self, step: &mut ShimStep<'_>, origin: Origin) {
        step.reply(origin, Bytes::from_static(reply::OK));
    }

    /// Storage reports changes, or will not; whoever waits is told.
    pub(super) fn follow_settled(&mut self, step: &mut ShimStep<'_>, refusal: Option<&str>) {
        for origin in std::mem::take(&mut self.tracking.waiting) {
            match refusal {
                None => self.followed(step, origin),
                Some(refusal) => {
                    let text = format!("-ERR DistCache: storage does not report changes: {refusal}\r\n");
                    step.reply_error(origin, &text);
                }
            }
        }
    }

    /// The next change of the key is the router's to hear. What nobody would report has changed for all that is known.
    pub(super) fn track(&mut self, step: &mut ShimStep<'_>, router: RouterId, track: Track) {
        let Track { key } = track;
        if !self.feed.is_open() || !self.tracking.followers.contains_key(&router) {
            return self.tell(step, router, None, &[key.bytes]);
        }
        self.tracking.serial += 1;
        let serial = self.tracking.serial;
        let key = own(&key);
        self.tracking.order.push_back((serial, key.clone()));
        let interest = self.tracking.interests.entry(key);
        let interest = interest.or_insert_with(|| Interest { routers: SmallVec::new(), serial });
        interest.serial = serial;
        if !interest.routers.contains(&router) {
            interest.routers.push(router);
        }
        self.forget_oldest(step);
    }

    fn forget_oldest(&mut self, step: &mut ShimStep<'_>) {
        let tracked_max = self.config.tracked_max;
        // Entries of keys that were told of or tracked again are passed over; they are as many as the others at most.
        while self.tracking.interests.len() > tracked_max || self.tracking.order.len() > 2 * tracked_max + 16
        {
            let Some((serial, key)) = self.tracking.order.pop_front() else { return };
            let current = self.tracking.interests.get(&key).is_some_and(|interest| interest.serial == serial);
            if !current {
                continue;
            }
            let routers = self.tracking.interests.remove(&key).map(|interest| interest.routers);
            for router in routers.unwrap_or_default() {
                self.tell(step, router, None, std::slice::from_ref(&key.bytes));
            }
        }
    }

    /// Storage has reported these keys.
    pub(super) fn tell_of(&mut self, step: &mut ShimStep<'_>, names: &[Bytes]) {
        let mut runs: Vec<(RouterId, Option<u64>, Vec<Bytes>)> = Vec::new();
        for name in names {
            let key = self.placement.key(0, name.clone());
            let writer = self.take_writer(&key);
            let interest = self.tracking.interests.remove(&key);
            for (&router, follower) in &self.tracking.followers {
                let tracks = interest.as_ref().is_some_and(|interest| interest.routers.contains(&router));
                if !tracks && !follower.prefixes.iter().any(|prefix| name.starts_with(prefix)) {
                    continue;
                }
                let own = writer.filter(|origin| origin.from == Peer::Router(router));
                let own = own.map(|origin| origin.request);
                match runs.iter_mut().rfind(|(to, ..)| *to == router) {
                    Some((_, known, keys)) if *known == own => keys.push(name.clone()),
                    _ => runs.push((router, own, vec![name.clone()])),
                }
            }
        }
        for (router, writer, keys) in runs {
            self.tell(step, router, writer, &keys);
        }
    }

    /// Any key may have changed.
    pub(super) fn tell_of_all(&mut self, step: &mut ShimStep<'_>) {
        self.tracking.interests.clear();
        self.tracking.order.clear();
        self.tracking.writers.clear();
        let routers: Vec<RouterId> = self.tracking.followers.keys().copied().collect();
        for router in routers {
            let message = Changed { writer: None, keys: Bytes::new() };
            step.send(Peer::Router(router), Message::Changed(message));
        }
    }

    fn tell(&mut self, step: &mut ShimStep<'_>, router: RouterId, writer: Option<u64>, keys: &[Bytes]) {
        self.statistics.changes_told += 1;
        let keys = Command::from_args(keys).frame().clone();
        step.send(Peer::Router(router), Message::Changed(Changed { writer, keys }));
    }

    pub(super) fn forget_follower(&mut self, router: RouterId) {
        self.tracking.followers.remove(&router);
        self.tracking.waiting.retain(|origin| origin.from != Peer::Router(router));
        self.tracking.interests.retain(|_, interest| {
            interest.routers.retain(|known| *known != router);
            !interest.routers.is_empty()
        });
    }

    /// Storage gets a write now, which it will report if it changes anything.
    pub(super) fn expect_report(&mut self, id: u32) {
        let operation: &Operation = &self.operations[id as usize];
        // What blocks may change its keys at any time, or never.
        let (Some(origin), OperationKind::Write) = (operation.origin, operation.kind) else { return };
        let Peer::Router(router) = origin.from else { return };
        let wanted = self.tracking.followers.get(&router).is_some_and(|follower| follower.writers);
        if !wanted || self.tracking.writers.len() >= WRITERS_MAX {
            return;
        }
        for key in &operation.keys[..operation.written] {
            let writers = self.tracking.writers.entry(own(key)).or_default();
            writers.push(Writer { origin, answered: None });
        }
    }

    /// An operation has ended. What failed has changed nothing, or nobody knows.
    pub(super) fn report_due(&mut self, operation: &Operation, success: bool) {
        if self.tracking.writers.is_empty() {
            return;
        }
        let pings = self.feed.pings();
        for key in &operation.keys {
            let Some(writers) = self.tracking.writers.get_mut(key) else { continue };
            let own = writers.iter().position(|writer| Some(writer.origin) == operation.origin);
            match own {
                Some(index) if success => writers[index].answered = Some(pings),
                Some(index) => drop(writers.remove(index)),
                None => {}
            }
            if writers.is_empty() {
                self.tracking.writers.remove(key);
            }
        }
    }

    /// Whose change it was. Storage reports one moment's changes of a key once, so those that have ended before are done
    /// with as well.
    fn take_writer(&mut self, key: &Key) -> Option<Origin> {
        let writers = self.tracking.writers.get_mut(key)?;
        let writer = (!writers.is_empty()).then(|| writers.remove(0));
        writers.retain(|writer| writer.answered.is_none());
        if writers.is_empty() {
            self.tracking.writers.remove(key);
        }
        writer.map(|writer| writer.origin)
    }

    /// The PING of this number is answered: what was written before it was sent has been reported, or changed nothing.
    pub(super) fn reports_came(&mut self, ping: u64) {
        self.tracking.writers.retain(|_, writers| {
            writers.retain(|writer| writer.answered.is_none_or(|answered| answered >= ping));
            !writers.is_empty()
        });
    }
}
