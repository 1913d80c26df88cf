//! What a router shows of itself, refreshed ten times a second. Not how it is published.

use hdrhistogram::Histogram;
use protocol::node::Node;
use protocol::time::Time;
use runtime::status::{HOTTEST_MAX, HotKey, LatencyStatus, MemberStatus, RouterStatus, sheds};

use crate::driver::RouterDriver;
use crate::engine::Engine;

/// Anything slower counts as this slow.
const LATENCY_US_MAX: u64 = 60_000_000;

pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 2).expect("valid bounds")
}

impl RouterDriver {
    pub(crate) fn make_status(&mut self, now: Time) -> MemberStatus {
        let Engine { router, siblings, .. } = &mut self.engine;
        let mut latencies = siblings.latencies();
        router.latencies().drain(|value, count| {
            // Values are within the bounds, so recording cannot fail.
            let _ = latencies.record_n(value.clamp(1, LATENCY_US_MAX), count);
        });
        let latency = LatencyStatus::of(&latencies);
        drop(latencies);
        MemberStatus::Router(self.router_status(now, latency))
    }

    fn hottest(&self, near: &Node) -> Vec<HotKey> {
        let count = if self.config.security.hide_keys { 0 } else { HOTTEST_MAX };
        near.hottest(count).into_iter().map(|hot| HotKey::new(&hot.key, hot.heat)).collect()
    }

    fn router_status(&self, now: Time, latency: LatencyStatus) -> RouterStatus {
        let router = &self.engine.router;
        let mut statistics = router.measured();
        statistics.closed_unread += self.connections.slow_total;
        RouterStatus {
            id: self.id.clone(),
            epoch: router.epoch(),
            sheds_total: sheds(&statistics),
            statistics,
            clients: self.connections.count() as u64,
            clients_refused_total: self.refused_total,
            spans_exported_total: self.spans.exported(),
            spans_dropped_total: self.spans.dropped() + router.spans_dropped(),
            shims_linked: (self.config.shims.len() - router.shims_missing().count()) as u64,
            shims_needed: self.config.shims_needed(&self.id) as u64,
            shims_missing: router.shims_missing().map(|shim| self.config.shim(shim).id.clone()).collect(),
            hottest: router.near().map_or_else(Vec::new, |near| self.hottest(near)),
            links: self.engine.peers.status(now),
            latency,
        }
    }
}
