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

/// Keys that are tracked, at a shim and at a router, unless they are told otherwise.
pub(crate) const TRACKED_MAX: usize = 1_000_000;
/// From so many keys on whose writers' reports are awaited, the next PING is not put off: what has been answered by then
/// is awaited no longer.
const WRITERS_MANY: usize = 1 << 15;

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
    /// By key, where a router asks whose writes are reported.
    writers: KeyMap<SmallVec<[Writer; 1]>>,
    /// Writers that may have changed any key.
    any_key_writers: Vec<Writer>,
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
    /// A report may have been this one's, or another's: no later one is known to be.
    doubtful: bool,
    /// How many PINGs had been sent over the feed when it was answered.
    answered: Option<u64>,
}

const SILENT: &str =
    "-ERR DistCache: embedded storage does not report changes: CLIENT TRACKING needs Redis or Valkey\r\n";

impl Writer {
    /// Whether its report may still come when a PING of this number has been answered.
    fn is_awaited(&self, ping: u64) -> bool {
        self.answered.is_none_or(|answered| answered >= ping)
    }
}

impl Tracking {
    pub(super) fn is_wanted(&self) -> bool {
        !self.followers.is_empty()
    }

    pub(super) fn awaits_many(&self) -> bool {
        self.writers.len() + self.any_key_writers.len() >= WRITERS_MANY
    }

    /// Who is interested in a key that has changed, and is told of it. A router whose own request has changed it stays
    /// interested: the one among its clients that wrote may not be told, and may have read the key since.
    fn take_interested(&mut self, key: &Key, writer: Option<RouterId>) -> SmallVec<[RouterId; 2]> {
        let Some(interest) = self.interests.get_mut(key) else { return SmallVec::new() };
        match writer.filter(|writer| interest.routers.contains(writer)) {
            Some(writer) => std::mem::replace(&mut interest.routers, SmallVec::from_elem(writer, 1)),
            None => self.interests.remove(key).map(|interest| interest.routers).unwrap_or_default(),
        }
    }

    /// Whose change it was, if only one can have made it. Storage reports one moment's changes of a key once, and none
    /// for a write that changes nothing: of several writers that await a report each may be the one, or all.
    fn take_writer(&mut self, key: &Key) -> Option<Origin> {
        let writers = self.writers.get_mut(key)?;
        match (&writers[..], &self.any_key_writers[..]) {
            ([Writer { origin, doubtful: false, .. }], []) => {
                let origin = *origin;
                self.writers.remove(key);
                Some(origin)
            }
            _ => {
                writers.iter_mut().for_each(|writer| writer.doubtful = true);
                None
            }
        }
    }
}

impl Shim {
    /// Keys that are tracked, each counted once.
    pub fn tracked(&self) -> usize {
        self.tracking.interests.len()
    }

    pub(super) fn follow(&mut self, step: &mut ShimStep<'_>, router: RouterId, follow: Follow) {
        let Follow { request, follows, writers, prefixes } = follow;
        let is_silent = matches!(&self.storage, StorageState::Up { traits } if traits.reports_no_changes);
        if follows && is_silent {
            let origin = request.map(|request| Origin::new(Peer::Router(router), request));
            return origin.into_iter().for_each(|origin| step.reply_error(origin, SILENT));
        }
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
            StorageState::Down { reason, .. } => {
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
        let leaves = self.placement.departure(self.config.id, &key.bytes).is_some();
        if leaves || !self.feed.is_open() || !self.tracking.followers.contains_key(&router) {
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

    /// Keys leave: what becomes of them at other servers is not reported here.
    pub(super) fn untrack_what_leaves(&mut self, step: &mut ShimStep<'_>) {
        let leaves = |key: &&Key| self.placement.departure(self.config.id, &key.bytes).is_some();
        let mut left: Vec<Key> = self.tracking.interests.keys().filter(leaves).cloned().collect();
        left.sort_unstable_by_key(|key| key.digest);
        for key in left {
            self.tell_interested(step, &key);
        }
    }

    fn tell_interested(&mut self, step: &mut ShimStep<'_>, key: &Key) {
        let routers = self.tracking.interests.remove(key).map(|interest| interest.routers);
        for router in routers.unwrap_or_default() {
            self.tell(step, router, None, std::slice::from_ref(&key.bytes));
        }
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
            self.tell_interested(step, &key);
        }
    }

    /// Storage has reported these keys.
    pub(super) fn tell_of(&mut self, step: &mut ShimStep<'_>, names: &[Bytes]) {
        let mut runs: Vec<(RouterId, Option<u64>, Vec<Bytes>)> = Vec::new();
        for name in names {
            let key = self.placement.key(0, name.clone());
            let origin = self.tracking.take_writer(&key);
            let writer = origin.and_then(|origin| match origin.from {
                Peer::Router(router) => Some((router, origin.request)),
                _ => None,
            });
            let interested = self.tracking.take_interested(&key, writer.map(|(router, _)| router));
            for (&router, follower) in &self.tracking.followers {
                let tracks = interested.contains(&router);
                if !tracks && !follower.prefixes.iter().any(|prefix| name.starts_with(prefix)) {
                    continue;
                }
                let own = writer.filter(|(writer, _)| *writer == router).map(|(_, request)| request);
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
        self.tracking.any_key_writers.clear();
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
    pub(super) fn expect_report(&mut self, step: &mut ShimStep<'_>, id: u32) {
        let operation: &Operation = &self.operations[id as usize];
        let Some(origin) = operation.origin.filter(|_| operation.kind.writes()) else { return };
        if !self.tracking.followers.values().any(|follower| follower.writers) {
            return;
        }
        let writer = Writer { origin, doubtful: false, answered: None };
        match operation.kind {
            OperationKind::Barrier => self.tracking.any_key_writers.push(writer),
            _ => {
                for key in &operation.keys[..operation.written] {
                    self.tracking.writers.entry(own(key)).or_default().push(writer);
                }
            }
        }
        if self.tracking.awaits_many() {
            self.tick_feed(step);
        }
    }

    /// An operation has ended. Of what failed nobody knows what it has changed.
    pub(super) fn report_due(&mut self, operation: &Operation, success: bool) {
        let Tracking { writers, any_key_writers, .. } = &mut self.tracking;
        if writers.is_empty() && any_key_writers.is_empty() {
            return;
        }
        let pings = self.feed.pings();
        let answer = |writer: &mut Writer| {
            if Some(writer.origin) == operation.origin {
                writer.answered = Some(pings);
                writer.doubtful |= !success;
            }
        };
        any_key_writers.iter_mut().for_each(answer);
        for key in &operation.keys {
            writers.get_mut(key).into_iter().flatten().for_each(answer);
        }
    }

    /// The PING of this number is answered: what was written before it was sent has been reported, or changed nothing.
    pub(super) fn reports_came(&mut self, ping: u64) {
        self.tracking.any_key_writers.retain(|writer| writer.is_awaited(ping));
        self.tracking.writers.retain(|_, writers| {
            writers.retain(|writer| writer.is_awaited(ping));
            !writers.is_empty()
        });
    }
}
