//! WATCH, and an EXEC under it: to the shim that watches for their client. Not whether a key has changed.
//!
//! Whatever concerns a watch takes its turn in the client's pipeline and runs alone, so that the state here is that of
//! the command whose turn it is, however many were sent ahead.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::Execute;
use wire::{Key, Message, Peer};

use crate::router::flow::launch::{Hold, Launch};
use crate::router::flow::pending::Pending;
use crate::router::flow::pipeline::{KeyOrder, OperationProgress, SentRequest};
use crate::router::flow::refusal::{cross_shim, may_read_elsewhere};
use crate::router::flow::request::runs_alone;
use crate::router::flow::route::{Route, Unroutable};
use crate::router::flow::watched::ClientWatch;
use crate::router::replies;
use commands::CommandKind;

impl Launch<'_, '_> {
    pub(crate) fn drop_watch(&mut self) {
        if let Some(watch) = self.caller.watch.take() {
            watch.end(self.step);
        }
    }

    /// Only as the first of its pipeline.
    pub(crate) fn watch(&mut self) -> Result<OperationProgress, Unroutable> {
        let job = self.job;
        let Some(first) = job.keys.first() else { return Ok(OperationProgress::Done(replies::OK)) };
        let home = job.placement.home(first);
        let watch = self.caller.watch;
        let elsewhere = watch.is_some_and(|watch| watch.home != home);
        if elsewhere || job.keys.iter().any(|key| job.placement.home(key) != home) {
            return Ok(OperationProgress::Done(cross_shim(self.step, job.placement, job.command)));
        }
        if watch.is_some_and(|watch| watch.lost) {
            // EXEC will do nothing whatever is watched.
            return Ok(OperationProgress::Done(replies::OK));
        }
        let route = self.traffic.route_to_shim(home.shim, KeyOrder::Free)?;
        if self.over_limit(1) {
            return Ok(self.busy());
        }
        let sent = self.send_watched(route, first.clone(), watch);
        if watch.is_none() {
            self.caller.watch = Some(ClientWatch { request: sent.request, home, lost: false });
        }
        Ok(OperationProgress::Sent(sent))
    }

    /// Sends an EXEC to the shim that watches for its client, if its order allows.
    pub(crate) fn watched(&mut self) -> Result<OperationProgress, Hold> {
        let job = self.job;
        if runs_alone(job.classified) && self.caller.pipeline.first() != job.sequence {
            return Err(Hold::Order);
        }
        let orders: SmallVec<[KeyOrder; 4]> = job.keys.iter().map(|key| self.order(key)).collect();
        if orders.contains(&KeyOrder::Wait) {
            return Err(Hold::Order);
        }
        let Some(watch) = self.caller.watch.filter(|watch| !watch.lost) else {
            // Its WATCH failed, or what watched is gone: the keys may have changed.
            self.caller.watch = None;
            self.step.counters.transactions_unwatched += 1;
            return Ok(OperationProgress::Done(null(job.resp3)));
        };
        let elsewhere = job.keys.iter().any(|key| job.placement.home(key) != watch.home)
            || may_read_elsewhere(job.placement, job.classified)
            || job.classified.kind == CommandKind::Barrier && job.placement.first_shim() != watch.home.shim;
        if elsewhere {
            let refused = cross_shim(self.step, job.placement, job.command);
            self.drop_watch();
            return Ok(OperationProgress::Done(refused));
        }
        let mut route = Route { peer: Peer::Shim(watch.home.shim), ordered: false };
        for order in orders {
            let routed = self.traffic.route_to_shim(watch.home.shim, order);
            route.ordered |= routed.map_err(|_| Hold::Order)?.ordered;
        }
        if self.over_limit(1) {
            self.drop_watch();
            return Ok(self.busy());
        }
        self.keep_all();
        let key = job.keys.first().cloned().unwrap_or_default();
        let sent = self.send_watched(route, key, Some(watch));
        self.caller.watch = None;
        Ok(OperationProgress::Sent(sent))
    }

    /// With the request of the watch that it belongs to, or its own if it is the first WATCH.
    fn send_watched(&mut self, route: Route, key: Key, watch: Option<ClientWatch>) -> SentRequest {
        self.step.counters.writes += 1;
        let (origin, peer) = (self.job.origin(0), route.peer);
        let writes = matches!(self.job.classified.kind, CommandKind::Write | CommandKind::Barrier);
        let request = self.traffic.pending.insert(Pending { writes, ..Pending::new(origin, peer) });
        let sent = SentRequest { request, peer, read: false };
        if writes {
            self.wrote(sent);
        }
        let watch = Some(watch.map_or(request, |watch| watch.request));
        let (resp3, ordered, command) = (self.job.resp3, route.ordered, self.job.command.frame().clone());
        let execute = Execute { request, key, resp3, ordered, watch, waited_ms: 0, command };
        self.step.send(peer, Message::Execute(execute));
        sent
    }
}

/// EXEC's reply if a watched key has changed.
fn null(resp3: bool) -> Bytes {
    Bytes::from_static(if resp3 { b"_\r\n" } else { b"*-1\r\n" })
}
