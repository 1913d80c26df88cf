//! Client-side caching: which of the router's clients keep which keys, and what they are told of changes. Not the
//! command that begins it, nor how changes become known.
//!
//! The interest in a key is the router's, registered at the key's shim on the link that reads take. Until a reply has
//! come over that link since, the interest may not stand yet, and reads go there behind it; then copies will do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Changed, Follow, Track};
use wire::resp::{Command, reply};
use wire::{Key, Message, Peer, ShimId, View};

use crate::hash::KeyMap;
use crate::placement::Placement;
use crate::router::flow::dispatch::{Job, Origin, low};
use crate::router::flow::pending::Pending;
use crate::router::flow::pipeline::{Part, Sent};
use crate::router::flow::plan;
use crate::router::flow::route::{Route, Unroutable};
use crate::router::front::client::Client;
use crate::router::front::client_tracking::{ClientTracking, Notice};
use crate::router::{Effect, Router};
use crate::time::Time;
use commands::integer;

/// Writes of one client that are remembered to know their reports (NOLOOP). An older one is taken for anybody's.
const WRITES_MAX: usize = 1024;
const CHANNEL: &[u8] = b"__redis__:invalidate";

#[derive(Debug, Default)]
pub(crate) struct Tracking {
    keys: KeyMap<Tracked>,
    /// The oldest first; of each key only the entry with its own serial counts.
    order: VecDeque<(u64, Key)>,
    serial: u64,
    /// Requests whose reply shows that the interest in a key stands.
    unconfirmed: BTreeMap<u64, (Key, u64)>,
    clients: BTreeSet<u32>,
    /// What shims were told last.
    told: Option<Follow>,
    /// What CONFIG SET tracking-table-max-keys said.
    pub(crate) keys_max: Option<usize>,
}

#[derive(Debug)]
struct Tracked {
    shim: ShimId,
    serial: u64,
    confirmed: bool,
    /// By number, with the number that CLIENT ID says.
    clients: SmallVec<[(u32, u64); 1]>,
}

impl Tracking {
    pub(crate) fn keys_count(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn items_count(&self) -> usize {
        self.keys.values().map(|tracked| tracked.clients.len()).sum()
    }

    pub(crate) fn clients_count(&self) -> usize {
        self.clients.len()
    }
}

impl Router {
    /// The client keeps what it reads of the key next.
    fn track(&mut self, client: u32, placement: &Placement, key: &Key, effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get_mut(client) else { return };
        let item = (client, state.number);
        if let Some(tracking) = &mut state.tracking {
            tracking.clean = false;
        }
        if let Some(tracked) = self.tracking.keys.get_mut(key) {
            if !tracked.clients.contains(&item) {
                tracked.clients.push(item);
            }
            return;
        }
        let shim = placement.shim(key);
        let key = Key { bytes: Bytes::copy_from_slice(&key.bytes), ..*key };
        self.tracking.serial += 1;
        let serial = self.tracking.serial;
        let clients = SmallVec::from_elem(item, 1);
        self.tracking.keys.insert(key.clone(), Tracked { shim, serial, confirmed: false, clients });
        self.tracking.order.push_back((serial, key.clone()));
        let message = Message::Track(Track { key });
        effects.push(Effect::Send { to: Peer::Shim(shim), message });
    }

    /// Whether a read of the key has to go to its shim if the client tracks it.
    fn is_untracked(&self, key: &Key) -> bool {
        self.config.bounded || self.tracking.keys.get(key).is_none_or(|tracked| !tracked.confirmed)
    }

    /// Whether the client is told of every change where a copy may be read that is older than what it was told of.
    fn hears_ahead(&self, client: u32) -> bool {
        let tracking = || self.clients.get(client)?.tracking.as_ref();
        self.config.bounded && tracking().is_some_and(|tracking| tracking.prefixes.is_some())
    }

    /// Where a read goes that may be tracked: until the interest stands, behind its registration.
    pub(crate) fn route_tracked(
        &mut self,
        now: Time,
        placement: &Placement,
        job: &Job<'_>,
        key: &Key,
        view: View,
    ) -> Result<Route, Unroutable> {
        let order = self.order(job, key);
        if (!job.tracked.is_empty() && self.is_untracked(key)) || self.hears_ahead(job.client) {
            return self.route_to_shim(placement.shim(key), order);
        }
        self.route_read(now, placement, key, view, order, job.dealt)
    }

    /// Right before the command is sent.
    pub(crate) fn track_all(&mut self, placement: &Placement, job: &Job<'_>, effects: &mut Vec<Effect>) {
        for key in job.tracked {
            self.track(job.client, placement, key, effects);
        }
    }

    /// The reply to this request of a read shows that the interest in its key stands.
    pub(crate) fn confirm_later(&mut self, key: &Key, sent: Sent) {
        if let Some(tracked) = self.tracking.keys.get(key).filter(|tracked| !tracked.confirmed)
            && matches!(sent.peer, Peer::Shim(_))
        {
            self.tracking.unconfirmed.insert(sent.request, (key.clone(), tracked.serial));
        }
    }

    pub(crate) fn confirm_tracked(&mut self, from: Peer, request: u64) {
        if self.tracking.unconfirmed.is_empty() || !matches!(from, Peer::Shim(_)) {
            return;
        }
        let Some((key, serial)) = self.tracking.unconfirmed.remove(&request) else { return };
        if let Some(tracked) = self.tracking.keys.get_mut(&key) {
            tracked.confirmed |= tracked.serial == serial;
        }
    }

    /// Forgets the oldest keys beyond the limit; their clients hear so. At the end of a step, when what reads the keys has
    /// its place in the pipeline and the notice can wait behind its reply.
    pub(crate) fn forget_tracked(&mut self, effects: &mut Vec<Effect>) {
        let keys_max = self.tracking.keys_max.unwrap_or(self.config.tracked_max);
        while self.tracking.keys.len() > keys_max || self.tracking.order.len() > 2 * keys_max + 16 {
            let Some((serial, key)) = self.tracking.order.pop_front() else { return };
            if self.tracking.keys.get(&key).is_some_and(|tracked| tracked.serial == serial) {
                self.key_changed(&key, None, effects);
            }
        }
    }

    /// CONFIG SET goes to storage, whose own table of what clients track is this one here.
    pub(crate) fn limit_tracking(&mut self, command: &Command) {
        let mut options = (2..command.len()).step_by(2);
        let Some(at) = options.find(|at| plan::is(command, *at, "tracking-table-max-keys")) else { return };
        let limit = command.get(at + 1).and_then(integer).and_then(|limit| usize::try_from(limit).ok());
        if let Some(limit) = limit {
            let keys_max = self.config.tracked_max;
            self.tracking.keys_max = Some(if limit == 0 { keys_max } else { limit.min(keys_max) });
        }
    }

    /// A shim says what has changed.
    pub(crate) fn changed(&mut self, from: Peer, changed: &Changed, effects: &mut Vec<Effect>) {
        let (Peer::Shim(shim), Some(placement)) = (from, self.placement.clone()) else { return };
        if changed.keys.is_empty() {
            return self.all_changed(shim, effects);
        }
        let Ok(names) = Command::parse(changed.keys.clone()) else { return };
        let names: Vec<Bytes> = names.args().map(Bytes::copy_from_slice).collect();
        for name in &names {
            self.key_changed(&placement.key(0, name.clone()), changed.writer, effects);
        }
        self.tell_broadcasts(&placement, &names, changed.writer, effects);
    }

    fn key_changed(&mut self, key: &Key, writer: Option<u64>, effects: &mut Vec<Effect>) {
        let Some(tracked) = self.tracking.keys.remove(key) else { return };
        for (client, number) in tracked.clients {
            let Some(state) = self.clients.get(client).filter(|state| state.number == number) else {
                continue;
            };
            let Some(tracking) = &state.tracking else { continue };
            if tracking.prefixes.is_some() || tracking.loops(writer) {
                continue;
            }
            self.notify(client, Notice::Keys(vec![key.bytes.clone()]), &[low(key)], effects);
        }
    }

    fn tell_broadcasts(
        &mut self,
        placement: &Placement,
        names: &[Bytes],
        writer: Option<u64>,
        effects: &mut Vec<Effect>,
    ) {
        let clients: Vec<u32> = self.tracking.clients.iter().copied().collect();
        for client in clients {
            let Some(tracking) = self.clients.get(client).and_then(|state| state.tracking.as_ref()) else {
                continue;
            };
            let Some(prefixes) = tracking.prefixes.as_ref().filter(|_| !tracking.loops(writer)) else {
                continue;
            };
            // Redis keeps the reports of each prefix by themselves.
            let reports = prefixes.iter().map(|prefix| {
                names.iter().filter(|name| name.starts_with(prefix)).cloned().collect::<Vec<_>>()
            });
            let reports: Vec<Vec<Bytes>> = reports.filter(|keys| !keys.is_empty()).collect();
            for keys in reports {
                let digests: Vec<u64> =
                    keys.iter().map(|name| low(&placement.key(0, name.clone()))).collect();
                self.notify(client, Notice::Keys(keys), &digests, effects);
            }
        }
    }

    /// Any key of the shim may have changed: what is tracked there is not any longer, and whoever tracks hears so.
    pub(crate) fn all_changed(&mut self, shim: ShimId, effects: &mut Vec<Effect>) {
        self.tracking.keys.retain(|_, tracked| tracked.shim != shim);
        self.tracking.order.retain(|(_, key)| self.tracking.keys.contains_key(key));
        let clients: Vec<u32> = self.tracking.clients.iter().copied().collect();
        for client in clients {
            let Some(state) = self.clients.get_mut(client) else { continue };
            let Some(tracking) = state.tracking.as_mut().filter(|tracking| !tracking.clean) else { continue };
            tracking.clean = true;
            self.notify(client, Notice::All, &[], effects);
        }
    }

    /// Behind the reply to what the client has asked about these keys, or now.
    fn notify(&mut self, client: u32, notice: Notice, digests: &[u64], effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get_mut(client) else { return };
        let behind = match &notice {
            Notice::All => {
                state.pipeline.next().checked_sub(1).filter(|last| *last >= state.pipeline.first())
            }
            Notice::Keys(_) => state.pipeline.last_about(digests),
        };
        match (behind, &mut state.tracking) {
            (Some(sequence), Some(tracking)) => tracking.held.push((sequence, notice)),
            _ => self.emit(client, &notice, effects),
        }
    }

    /// What waited for replies that have been given by now.
    pub(crate) fn release_notices(&mut self, client: u32, effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get_mut(client) else { return };
        let first = state.pipeline.first();
        let Some(tracking) = state.tracking.as_mut() else { return };
        let (due, held) =
            std::mem::take(&mut tracking.held).into_iter().partition(|(behind, _)| *behind < first);
        tracking.held = held;
        let due: Vec<(u64, Notice)> = due;
        for (_, notice) in due {
            self.emit(client, &notice, effects);
        }
    }

    /// In the form that the connection can take; RESP2 has none but a message of a channel, on another connection.
    fn emit(&mut self, client: u32, notice: &Notice, effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get(client) else { return };
        let Some(tracking) = &state.tracking else { return };
        let (own_resp3, redirect) = (state.resp3, tracking.redirect);
        let mut out = Vec::new();
        let (target, resp3) = match redirect {
            None => (client, own_resp3),
            Some((target, number)) => {
                match self.clients.get(target).filter(|state| state.number == number && !state.closing) {
                    Some(state) if !state.resp3 && state.subscribed.is_none() => return,
                    Some(state) => (target, state.resp3),
                    None => {
                        if let Some(tracking) =
                            self.clients.get_mut(client).and_then(|state| state.tracking.as_mut())
                        {
                            tracking.broken = true;
                        }
                        if own_resp3 {
                            reply::push_header(2, true, &mut out);
                            reply::bulk(b"tracking-redir-broken", &mut out);
                            reply::integer(number as i64, &mut out);
                            self.push_out(client, out, effects);
                        }
                        return;
                    }
                }
            }
        };
        if resp3 {
            reply::push_header(2, true, &mut out);
            reply::bulk(b"invalidate", &mut out);
        } else if redirect.is_some() {
            reply::array_header(3, &mut out);
            reply::bulk(b"message", &mut out);
            reply::bulk(CHANNEL, &mut out);
        } else {
            return;
        }
        match notice {
            Notice::All => reply::null(own_resp3, &mut out),
            Notice::Keys(keys) => {
                reply::array_header(keys.len(), &mut out);
                keys.iter().for_each(|key| reply::bulk(key, &mut out));
            }
        }
        self.push_out(target, out, effects);
    }

    fn push_out(&mut self, client: u32, bytes: Vec<u8>, effects: &mut Vec<Effect>) {
        self.counters.pushes += 1;
        self.push_behind(client, bytes.into(), effects);
    }

    /// The client tracks from now on, or not any longer.
    pub(crate) fn set_tracking(&mut self, client: u32, mut tracking: Option<Box<ClientTracking>>) {
        let Some(state) = self.clients.get_mut(client) else { return };
        if let (Some(tracking), Some(before)) = (&mut tracking, state.tracking.take()) {
            (tracking.held, tracking.writes) = (before.held, before.writes);
        }
        match tracking.is_some() {
            true => self.tracking.clients.insert(client),
            false => self.tracking.clients.remove(&client),
        };
        state.tracking = tracking;
    }

    /// Prefixes that clients broadcast, each counted once.
    pub(crate) fn tracking_prefixes(&self) -> usize {
        let told = self.tracking.told.as_ref().map(|told| told.prefixes.clone());
        told.and_then(|prefixes| Command::parse(prefixes).ok()).map_or(0, |prefixes| prefixes.len())
    }

    /// A client that tracks is gone.
    pub(crate) fn stop_tracking(&mut self, client: u32, effects: &mut Vec<Effect>) {
        self.tracking.clients.remove(&client);
        self.follow(None, effects);
    }

    /// Tells shims what clients follow now, if that is news. With an `origin` its parts are to be answered.
    pub(crate) fn follow(&mut self, origin: Option<Origin>, effects: &mut Vec<Effect>) -> Vec<Part> {
        let tracking = |client: &u32| self.clients.get(*client).and_then(|state| state.tracking.as_ref());
        let all: Vec<&ClientTracking> =
            self.tracking.clients.iter().filter_map(tracking).map(|tracking| &**tracking).collect();
        let prefixes: BTreeSet<&Bytes> =
            all.iter().filter_map(|own| own.prefixes.as_ref()).flatten().collect();
        let names: Vec<&[u8]> = prefixes.iter().map(|prefix| &prefix[..]).collect();
        let prefixes = match names.is_empty() {
            true => Bytes::new(),
            false => Command::from_args(&names).frame().clone(),
        };
        let (follows, writers) = (!all.is_empty(), all.iter().any(|own| own.noloop));
        let follow = Follow { request: None, follows, writers, prefixes };
        if self.tracking.told.as_ref().map_or(!follows, |told| *told == follow) {
            return Vec::new();
        }
        if !follows {
            // Shims forget all of it, too.
            self.tracking.keys.clear();
            self.tracking.order.clear();
            self.tracking.unconfirmed.clear();
        }
        self.tracking.told = Some(follow.clone());
        let mut parts = Vec::new();
        for index in (0..self.shims_linked.len()).filter(|index| self.shims_linked[*index]) {
            let peer = Peer::Shim(ShimId(index as u16));
            let origin = origin.map(|origin| Origin { part: parts.len() as u32, ..origin });
            let request = origin.map(|origin| self.pending.insert(Pending::new(origin, peer)));
            if let Some(request) = request {
                let sent = Sent { request, peer, read: false };
                parts.push(Part { sent, touch: SmallVec::new(), reply: None });
            }
            let message = Message::Follow(Follow { request, ..follow.clone() });
            effects.push(Effect::Send { to: peer, message });
        }
        parts
    }

    /// A shim's link is back: it has forgotten what is followed.
    pub(crate) fn follow_again(&mut self, shim: ShimId, effects: &mut Vec<Effect>) {
        if let Some(follow) = self.tracking.told.clone().filter(|follow| follow.follows) {
            effects.push(Effect::Send { to: Peer::Shim(shim), message: Message::Follow(follow) });
        }
    }

    /// A client with NOLOOP writes.
    pub(crate) fn note_write(&mut self, client: u32, request: u64) {
        let tracking = self.clients.get_mut(client).and_then(|state| state.tracking.as_mut());
        let Some(tracking) = tracking.filter(|tracking| tracking.noloop) else { return };
        if tracking.writes.len() >= WRITES_MAX {
            tracking.writes.pop_front();
        }
        tracking.writes.push_back(request);
    }

    /// Whether shims are asked whose writes they report.
    pub(crate) fn knows_writers(&self) -> bool {
        self.tracking.told.as_ref().is_some_and(|told| told.writers)
    }

    /// The client's next command: whether what it reads is kept.
    pub(crate) fn take_caching(state: &mut Client) -> bool {
        state.tracking.as_mut().is_some_and(|tracking| tracking.take_caching())
    }
}
