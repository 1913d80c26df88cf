//! What a router shows of itself, refreshed ten times a second. Not how it is published.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use runtime::status::{LatencyStatus, MemberStatus, RouterStatus};

use crate::driver::RouterDriver;

/// Anything slower counts as this slow.
const LATENCY_US_MAX: u64 = 60_000_000;

pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 2).expect("valid bounds")
}

impl RouterDriver {
    pub(crate) fn make_status(&mut self) -> MemberStatus {
        let latencies = &mut self.latencies;
        self.engine.router.latencies().drain(|value, count| {
            // Values are within the bounds, so recording cannot fail.
            let _ = latencies.record_n(value.clamp(1, LATENCY_US_MAX), count);
        });
        MemberStatus::Router(self.router_status())
    }

    fn router_status(&self) -> RouterStatus {
        let router = &self.engine.router;
        let counters = router.counters();
        let sheds = [
            ("busy", counters.sheds),
            ("waited-too-long", counters.turns_expired),
            ("unavailable", counters.unavailable),
            ("everybody-busy", counters.exhausted),
            ("retry-budget", counters.retries_denied),
            ("slow_client", counters.closed_unread + self.connections.slow_total),
            ("client_memory", counters.closed_for_memory),
            ("unauthenticated", counters.closed_unauthenticated),
        ];
        RouterStatus {
            id: self.id.clone(),
            epoch: router.epoch(),
            requests_total: counters.requests,
            reads_to_nodes_total: counters.reads_to_nodes,
            reads_to_shims_total: counters.reads_to_shims,
            writes_total: counters.executes,
            hits_total: counters.hits,
            errors_total: counters.refusals
                + counters.unavailable
                + counters.lost
                + counters.sheds
                + counters.turns_expired,
            denials_total: counters.denials,
            users_differing: router.users_differing().len() as u64,
            authentication_failures_total: counters.authentication_failures,
            retries_total: counters.retries,
            reads_lost_total: counters.reads_lost,
            breakers_opened_total: counters.breakers_opened,
            breakers_open: router.breakers_open() as u64,
            load: router.rate(),
            clients: self.connections.count() as u64,
            clients_total: counters.clients_opened,
            clients_refused_total: self.refused_total,
            queue_depth: router.pending_count() as u64,
            waiting: router.turns_waiting() as u64,
            waited_total: counters.turns_awaited,
            subscriptions: router.subscriptions_count() as u64,
            tracked_keys: router.tracked_count() as u64,
            pushes_total: counters.pushes,
            large_replies_total: counters.streamed,
            large_replies_broken_total: counters.broken_off,
            slow_commands_total: router.slow_total(),
            spans_exported_total: self.spans.exported(),
            spans_dropped_total: self.spans.dropped() + router.spans_dropped(),
            learned: router.learned_count() as u64,
            shims_linked: (self.config.shims.len() - router.shims_missing().count()) as u64,
            shims_needed: self.config.shims_needed(&self.id) as u64,
            shims_missing: router.shims_missing().map(|shim| self.config.shim(shim).id.clone()).collect(),
            sheds_total: BTreeMap::from(sheds.map(|(rule, count)| (rule.to_owned(), count))),
            messages_in_total: self.engine.messages_in,
            messages_out_total: self.engine.messages_out,
            peers: self.engine.linked as u64,
            latency: LatencyStatus::of(&self.latencies),
        }
    }
}
