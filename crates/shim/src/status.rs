//! The shim's status from its machine's statistics.

use protocol::storage::redis::clients::ForeignConnection;
use protocol::time::Time;
use runtime::status::{HOTTEST_MAX, HotKey, MemberStatus, ReshardingStatus, ShimStatus, sheds};

use crate::driver::ShimDriver;

/// So many connections are told by name; an application may have hundreds.
const TOLD_MAX: usize = 5;

/// Connections for people, or nothing.
pub(crate) fn listed(connections: &[ForeignConnection]) -> String {
    let mut told: Vec<String> = connections.iter().take(TOLD_MAX).map(ToString::to_string).collect();
    if let Some(more) = connections.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    told.join(", ")
}

impl ShimDriver {
    pub(crate) fn make_status(&mut self, now: Time) -> MemberStatus {
        let statistics = self.parts.shim.measured(now);
        let parts = &self.parts;
        let foreign = parts.shim.foreign_writers();
        let member = parts.config.shim(parts.id.shim);
        let mut sheds_total = sheds(&statistics);
        sheds_total.insert("large-reply".to_owned(), parts.peers.replies_dropped());
        let hottest_max = if parts.config.security.hide_keys { 0 } else { HOTTEST_MAX };
        let hottest = parts.shim.hottest(now, hottest_max).into_iter();
        MemberStatus::Shim(ShimStatus {
            id: parts.config.shim_process(parts.id).0.to_owned(),
            of: member.id.clone(),
            rack: member.rack.clone(),
            epoch: parts.placement.epoch(),
            statistics,
            storage_pending: parts.storage.pending_count() as u64,
            storage_up: parts.storage.is_up(),
            standing_by: parts.storage.is_replaced(),
            replaceable: parts.config.standbys_of(parts.id.shim).next().is_some(),
            storage_reconnects_total: parts.storage.reconnects(),
            resharding: Box::new(ReshardingStatus::new(parts.shim.resharding(), parts.storage.migration())),
            feed_up: parts.shim.feed(now).open,
            foreign_writers: listed(&foreign.connections),
            eviction: foreign.eviction.clone(),
            caching_refused: foreign.refused,
            hottest: hottest.map(|(key, heat)| HotKey::new(&key.bytes, heat)).collect(),
            sheds_total,
            links: parts.peers.status(now),
        })
    }
}
