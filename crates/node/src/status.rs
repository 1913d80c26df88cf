//! The node's status from its machine's statistics.

use protocol::time::Time;
use runtime::status::{HOTTEST_MAX, HotKey, LeaseStatus, MemberStatus, NodeStatus, sheds};

use crate::driver::NodeDriver;

impl NodeDriver {
    pub(crate) fn make_status(&mut self, now: Time) -> MemberStatus {
        let member = self.config.node(self.id);
        let lease = |lease: protocol::node::LeaseStatus| LeaseStatus {
            shim: self.config.shim(lease.shim).id.clone(),
            held: lease.held,
            remaining_ms: lease.remaining.as_millis() as u64,
        };
        let hottest_max = if self.config.security.hide_keys { 0 } else { HOTTEST_MAX };
        let hottest = |hot: protocol::node::HotKey| HotKey::new(&hot.key, hot.heat);
        let statistics = self.node.measured(now);
        let mut sheds_total = sheds(&statistics);
        sheds_total.insert("large-reply".to_owned(), self.peers.replies_dropped());
        MemberStatus::Node(NodeStatus {
            id: member.id.clone(),
            layer: member.layer.clone(),
            epoch: self.placement.epoch(),
            statistics,
            leases: self.node.leases(now).into_iter().map(lease).collect(),
            shims_linked: (self.config.shims.len() - self.node.shims_missing().count()) as u64,
            shims_missing: self.node.shims_missing().map(|shim| self.config.shim(shim).id.clone()).collect(),
            sheds_total,
            links: self.peers.status(now),
            hottest: self.node.hottest(hottest_max).into_iter().map(hottest).collect(),
        })
    }
}
