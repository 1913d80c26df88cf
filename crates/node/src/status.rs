//! The node's status from its machine's counters.

use std::collections::BTreeMap;

use protocol::time::Time;
use runtime::status::{HOTTEST_MAX, HotKey, LeaseStatus, MemberStatus, NodeStatus};

use crate::driver::NodeDriver;

impl NodeDriver {
    pub(crate) fn make_status(&mut self, now: Time) -> MemberStatus {
        let member = self.config.node(self.id);
        let counts = self.node.statistics();
        let lease = |lease: protocol::node::LeaseStatus| LeaseStatus {
            shim: self.config.shim(lease.shim).id.clone(),
            held: lease.held,
            remaining_ms: lease.remaining.as_millis() as u64,
        };
        let hottest_max = if self.config.security.hide_keys { 0 } else { HOTTEST_MAX };
        let hottest = |hot: protocol::node::HotKey| HotKey::new(&hot.key, hot.heat);
        let sheds = [
            ("rate", counts.overflowed),
            ("shim-unreachable", counts.sheds),
            ("large-reply", self.peers.replies_dropped()),
        ];
        MemberStatus::Node(NodeStatus {
            id: member.id.clone(),
            layer: member.layer.clone(),
            epoch: self.placement.epoch(),
            requests_total: counts.requests,
            hits_total: counts.hits,
            misses_total: counts.misses,
            load: u64::from(self.node.load(now)),
            objects: self.node.objects() as u64,
            bytes: self.node.bytes(),
            leases: self.node.leases(now).into_iter().map(lease).collect(),
            fills_total: counts.fills,
            fills_poisoned_total: counts.poisoned,
            fills_ungranted_total: counts.ungranted,
            inserts_total: counts.insertions,
            evictions_total: counts.evictions,
            invalidations_total: counts.invalidations,
            commits_total: counts.commits,
            leases_lost_total: counts.lease_losses,
            offers_total: counts.offers,
            offers_accepted_total: counts.offers_accepted,
            held_off: self.node.held_off() as u64,
            shims_linked: (self.config.shims.len() - self.node.shims_missing().count()) as u64,
            shims_missing: self.node.shims_missing().map(|shim| self.config.shim(shim).id.clone()).collect(),
            queue_depth: self.node.pending() as u64,
            waiting: self.node.waiting() as u64,
            waited_total: counts.waited,
            sheds_total: sheds
                .map(|(rule, count)| (rule.to_owned(), count))
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
            messages_in_total: self.messages_in,
            messages_out_total: self.messages_out,
            peers: self.linked,
            hottest: self.node.hottest(hottest_max).into_iter().map(hottest).collect(),
        })
    }
}
