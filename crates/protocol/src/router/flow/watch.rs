//! WATCH at the router: which shim watches for a client, and what ends that. Not whether a key has changed.
//!
//! Whatever concerns a watch takes its turn in the client's pipeline and runs alone, so that the state here is that of
//! the command whose turn it is, however many were sent ahead.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Cancel, Execute};
use wire::resp::Command;
use wire::{Key, Message, Peer};

use crate::placement::{Home, Placement};
use crate::router::flow::dispatch::{Job, Keys, cross_shim, runs_alone};
use crate::router::flow::pending::Pending;
use crate::router::flow::pipeline::{Operation, Order, Progress, Sent, Touch, Waiting};
use crate::router::flow::plan;
use crate::router::flow::route::{Route, Unroutable};
use crate::router::front::transaction::ABORTED;
use crate::router::{Effect, Router, replies};
use crate::time::Time;
use commands::{Classified, CommandKind, find};

/// What watches for a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// Of its first WATCH: the shim knows it by that.
    request: u64,
    home: Home,
    /// The shim was lost meanwhile: nothing may be executed.
    lost: bool,
}

impl Watch {
    /// Tells the shim that it watches for nobody any more.
    pub(crate) fn end(self, effects: &mut Vec<Effect>) {
        let message = Message::Cancel(Cancel { request: self.request });
        effects.push(Effect::Send { to: Peer::Shim(self.home.shim), message });
    }
}

impl Router {
    pub(crate) fn watches_lost(&mut self, peer: Peer) {
        let watches = self.clients.all_mut().filter_map(|client| client.watch.as_mut());
        watches.filter(|watch| Peer::Shim(watch.home.shim) == peer).for_each(|watch| watch.lost = true);
    }

    /// Whether the client's next command comes while keys are watched.
    pub(crate) fn is_watching(&self, client: u32) -> bool {
        self.clients.get(client).is_some_and(|state| state.is_watching())
    }

    /// UNWATCH, DISCARD, RESET or an EXEC that does nothing, in its turn.
    pub(crate) fn end_watch(&mut self, now: Time, client: u32, command: Command, effects: &mut Vec<Effect>) {
        let Some(spec) = find(b"unwatch") else { return };
        let classified = Classified::without_keys(spec, CommandKind::Watch);
        let Some(state) = self.clients.get_mut(client) else { return };
        let (silent, resp3, sequence) = (state.take_silence(), state.resp3, state.pipeline.next());
        let progress = match sequence == state.pipeline.first() {
            true => {
                self.drop_watch(client, effects);
                Progress::Done(ended(&command))
            }
            false => {
                let (own_replies, watched) = (Vec::new(), false);
                Progress::Waiting(Box::new(Waiting {
                    command,
                    classified,
                    own_replies,
                    watched,
                    tracked: Keys::new(),
                }))
            }
        };
        let (touch, held_bytes) = (Touch::All, 0);
        let operation = Operation { held_bytes, resp3, silent, ..Operation::new(now, touch, progress) };
        self.enqueue(now, client, operation, effects);
    }

    fn drop_watch(&mut self, client: u32, effects: &mut Vec<Effect>) {
        let state = self.clients.get_mut(client);
        if let Some(watch) = state.and_then(|state| state.watch.take()) {
            watch.end(effects);
        }
    }

    /// Only as the first of its pipeline.
    pub(crate) fn launch_watch(
        &mut self,
        placement: &Placement,
        job: &Job<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Progress, Unroutable> {
        let Some(first) = job.keys.first() else {
            self.drop_watch(job.client, effects);
            return Ok(Progress::Done(ended(job.command)));
        };
        let home = placement.home(first);
        let watch = self.clients.get(job.client).and_then(|state| state.watch);
        let elsewhere = watch.is_some_and(|watch| watch.home != home);
        if elsewhere || job.keys.iter().any(|key| placement.home(key) != home) {
            self.counters.refusals += 1;
            return Ok(Progress::Done(cross_shim(job.command)));
        }
        if watch.is_some_and(|watch| watch.lost) {
            // EXEC will do nothing whatever is watched.
            return Ok(Progress::Done(replies::OK));
        }
        let route = self.route_to_shim(home.shim, Order::Free)?;
        if self.over_limit(1) {
            return Ok(self.busy());
        }
        let sent = self.send_watched(job, route, first.clone(), watch, effects);
        if let Some(state) = self.clients.get_mut(job.client).filter(|_| watch.is_none()) {
            state.watch = Some(Watch { request: sent.request, home, lost: false });
        }
        Ok(Progress::Sent(sent))
    }

    /// Sends an EXEC to the shim that watches for its client, if its order allows; `None`: it has to wait.
    pub(crate) fn launch_watched(
        &mut self,
        placement: &Placement,
        job: &Job<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<Progress> {
        let state = self.clients.get(job.client)?;
        if runs_alone(job.classified) && state.pipeline.first() != job.sequence {
            return None;
        }
        let orders: SmallVec<[Order; 4]> = job.keys.iter().map(|key| self.order(job, key)).collect();
        if orders.contains(&Order::Wait) {
            return None;
        }
        let Some(watch) = state.watch.filter(|watch| !watch.lost) else {
            // Its WATCH failed, or what watched is gone: the keys may have changed.
            if let Some(state) = self.clients.get_mut(job.client) {
                state.watch = None;
            }
            return Some(Progress::Done(null(job.resp3)));
        };
        let elsewhere = job.keys.iter().any(|key| placement.home(key) != watch.home)
            || job.classified.reads_unnamed_keys && placement.map().shims.len() > 1
            || job.classified.kind == CommandKind::Barrier && placement.map().shims[0].id != watch.home.shim;
        if elsewhere {
            self.counters.refusals += 1;
            self.drop_watch(job.client, effects);
            return Some(Progress::Done(cross_shim(job.command)));
        }
        let mut route = Route { peer: Peer::Shim(watch.home.shim), ordered: false };
        for order in orders {
            route.ordered |= self.route_to_shim(watch.home.shim, order).ok()?.ordered;
        }
        if self.over_limit(1) {
            self.drop_watch(job.client, effects);
            return Some(self.busy());
        }
        self.track_all(placement, job, effects);
        let key = job.keys.first().cloned().unwrap_or_default();
        let sent = self.send_watched(job, route, key, Some(watch), effects);
        if let Some(state) = self.clients.get_mut(job.client) {
            state.watch = None;
        }
        Some(Progress::Sent(sent))
    }

    /// With the request of the watch that it belongs to, or its own if it is the first WATCH.
    fn send_watched(
        &mut self,
        job: &Job<'_>,
        route: Route,
        key: Key,
        watch: Option<Watch>,
        effects: &mut Vec<Effect>,
    ) -> Sent {
        self.counters.executes += 1;
        let (origin, peer) = (job.origin(0), route.peer);
        let writes = matches!(job.classified.kind, CommandKind::Write | CommandKind::Barrier);
        let request = self.pending.insert(Pending { writes, ..Pending::new(origin, peer) });
        if writes && self.knows_writers() {
            self.note_write(origin.client, request);
        }
        let watch = Some(watch.map_or(request, |watch| watch.request));
        let (resp3, ordered, command) = (job.resp3, route.ordered, job.command.frame().clone());
        let message =
            Message::Execute(Execute { request, key, resp3, ordered, watch, waited_ms: 0, command });
        effects.push(Effect::Send { to: peer, message });
        Sent { request, peer, read: false }
    }
}

/// What ends a watch answers that it is ended.
fn ended(command: &Command) -> Bytes {
    match command.name() {
        _ if plan::is(command, 0, "RESET") => Bytes::from_static(b"+RESET\r\n"),
        _ if plan::is(command, 0, "EXEC") => replies::error(ABORTED),
        _ => replies::OK,
    }
}

/// EXEC's reply if a watched key has changed.
fn null(resp3: bool) -> Bytes {
    Bytes::from_static(if resp3 { b"_\r\n" } else { b"*-1\r\n" })
}
