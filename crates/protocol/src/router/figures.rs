//! What a router tells about itself and its clients. It changes nothing, but for what is handed over once.

use std::time::Duration;

use crate::node::Node;
use crate::router::Router;
use crate::router::effect::ClientId;
use crate::router::front::spans::CommandSpan;
use crate::router::statistics::{Latencies, RouterStatistics};
use crate::time::Time;

impl Router {
    /// Whether the client's next command may be handed in.
    pub fn ready(&self, client: ClientId) -> bool {
        self.front.sessions.get(client.0).is_some_and(|session| !session.closing)
            && !self.flow.is_stalled(client.0)
    }

    /// Whether nothing that the client sends is carried out any more: it is closed once it has its replies.
    pub fn is_closing(&self, client: ClientId) -> bool {
        self.front.sessions.get(client.0).is_none_or(|session| session.closing)
    }

    /// Whether a reply goes to the client in parts now, and nothing else may be told in between.
    pub fn is_streaming(&self, client: ClientId) -> bool {
        self.flow.streams(client.0)
    }

    /// Whether nothing of the client is unanswered.
    pub fn is_idle(&self, client: ClientId) -> bool {
        self.flow.len(client.0) == 0
    }

    /// Since when a client has been there without showing who it is; `None` if it has or need not.
    pub fn unauthenticated_since(&self, client: ClientId) -> Option<Time> {
        self.front.unauthenticated_since(client.0)
    }

    /// Users that are not defined alike at all servers: the strictest counts.
    pub fn users_differing(&self) -> &[String] {
        &self.front.storage_users.differing
    }

    /// Totals only, at no cost.
    pub fn statistics(&self) -> &RouterStatistics {
        &self.counters
    }

    /// The counters with sums and with what there is now.
    pub fn measured(&self) -> RouterStatistics {
        let Router { counters, front, flow, .. } = self;
        let RouterStatistics { refusals, unavailable, commands_lost, sheds, turns_expired, .. } = *counters;
        RouterStatistics {
            errors: refusals + unavailable + commands_lost + sheds + turns_expired,
            users_differing: self.users_differing().len() as u64,
            breakers_open: flow.members().breakers_open() as u64,
            load: front.rate.per_second(),
            queue_depth: self.pending_count() as u64,
            waiting: flow.turns_waiting() as u64,
            subscriptions: front.subscriptions.len() as u64,
            tracked_keys: flow.interests().keys_count() as u64,
            slow_commands: front.slow_log.total(),
            learned: flow.learned_count() as u64,
            near_objects: self.near().map_or(0, |near| near.objects() as u64),
            near_fetches: self.near().map_or(0, |near| near.statistics().fetches),
            near_invalidations: self.near().map_or(0, |near| near.statistics().invalidations),
            ..*counters
        }
    }

    /// For how long nothing is due if nothing comes: not at all while anybody waits.
    pub fn rest(&self, now: Time) -> Duration {
        let waits = self.pending_count() > 0 || self.flow.turns_waiting() > 0;
        let is_quiet = !waits && !self.flow.is_paused() && self.front.permissions.known();
        if is_quiet { self.flow.near_rest(now) } else { Duration::ZERO }
    }

    /// The node that holds its near copies, if there may be any.
    pub fn near(&self) -> Option<&Node> {
        self.flow.near()
    }

    /// Times from a command's arrival to its reply, for the driver to drain.
    pub fn latencies(&mut self) -> &mut Latencies {
        &mut self.front.latencies
    }

    pub fn clients_count(&self) -> usize {
        self.front.sessions.count()
    }

    /// The spans of commands that have ended since this was asked last.
    pub fn take_spans(&mut self) -> Vec<CommandSpan> {
        self.front.sampler.take()
    }

    /// Commands of the sample whose spans nobody took in time.
    pub fn spans_dropped(&self) -> u64 {
        self.front.sampler.dropped()
    }

    /// The epoch of the map in use; zero before the first.
    pub fn epoch(&self) -> u32 {
        self.flow.epoch()
    }

    /// Shims whose keys this router cannot reach now.
    pub fn shims_missing(&self) -> impl Iterator<Item = wire::ShimId> + '_ {
        let has_keys = |shim: &wire::ShimId| {
            self.flow.placement().is_none_or(|placement| placement.may_have_keys(*shim))
        };
        self.flow.members().missing_shims().filter(has_keys)
    }

    /// Requests in flight to nodes and shims.
    pub fn pending_count(&self) -> usize {
        self.flow.pending_count()
    }

    /// The load of each node as this router sees it, by `NodeId`, in requests per second over capacity.
    pub fn loads(&self, now: Time) -> impl Iterator<Item = u32> + '_ {
        self.flow.members().loads(now)
    }
}
