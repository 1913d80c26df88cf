//! The shim's status from its machine's counters.

use protocol::time::Time;
use runtime::status::{HOTTEST_MAX, HotKey, MemberStatus, ShimStatus};

use crate::driver::ShimDriver;

impl ShimDriver {
    pub(crate) fn make_status(&mut self, now: Time) -> MemberStatus {
        let load = self.parts.shim.load(now);
        let parts = &self.parts;
        let member = parts.config.shim(parts.id);
        let counts = parts.shim.statistics();
        let feed = parts.shim.feed(now);
        let sheds = [
            ("rate", counts.overflowed),
            ("queue", counts.sheds),
            ("waited-too-long", counts.expired),
            ("storage-limit", counts.sheds_storage),
            ("large-reply", self.parts.peers.replies_dropped()),
        ];
        let hottest_max = if parts.config.security.hide_keys { 0 } else { HOTTEST_MAX };
        let hottest = parts.shim.hottest(now, hottest_max).into_iter();
        MemberStatus::Shim(ShimStatus {
            id: member.id.clone(),
            rack: member.rack.clone(),
            epoch: parts.placement.epoch(),
            requests_total: counts.requests,
            storage_reads_total: counts.storage_reads,
            storage_writes_total: counts.storage_writes,
            invalidations_total: counts.invalidations,
            invalidated_copies_total: counts.invalidated_copies,
            coherence_messages_total: counts.coherence_messages,
            commits_total: counts.commits,
            copies: parts.shim.copies() as u64,
            load: u64::from(load),
            fills_total: counts.fills,
            fills_ungranted_total: counts.fills_ungranted,
            offers_total: counts.offers,
            observed_reads_total: counts.observed_reads,
            observed_hits_total: counts.observed_hits,
            observed_keys: parts.shim.observed() as u64,
            purged_copies_total: counts.purged_copies,
            revokes_total: counts.revokes,
            leases_lost_total: counts.lease_lapses,
            queue_depth: parts.shim.pending() as u64,
            waiting: parts.shim.waiting() as u64,
            waited_total: counts.waited,
            reads_joined_total: counts.reads_joined,
            large_replies_total: counts.transfers,
            large_replies_skipped_total: counts.larges_skipped,
            large_replies_cut_total: counts.transfers_cut,
            storage_limit: u64::from(parts.shim.storage_limit()),
            storage_pending: parts.storage.pending_count() as u64,
            standing_by: parts.storage.is_replaced(),
            storage_up: parts.storage.is_up(),
            storage_errors_total: counts.storage_lost,
            storage_reconnects_total: parts.storage.reconnects(),
            hottest: hottest.map(|(key, heat)| HotKey::new(&key.bytes, heat)).collect(),
            sheds_total: sheds.map(|(rule, count)| (rule.to_owned(), count)).into_iter().collect(),
            messages_in_total: self.counts.messages_in,
            messages_out_total: self.counts.messages_out,
            peers: self.counts.linked,
            sessions: parts.shim.sessions() as u64,
            subscriptions: parts.shim.subscriptions() as u64,
            messages_delivered_total: counts.messages_delivered,
            feed_up: feed.open,
            feed_losses_total: counts.feed_losses,
            feed_changes_total: counts.feed_changes,
            feed_delay_us: feed.delay.as_micros() as u64,
            staleness_us: feed.staleness.as_micros() as u64,
            staleness_longest_us: feed.staleness_longest.as_micros() as u64,
            tracked_keys: parts.shim.tracked() as u64,
            changes_told_total: counts.changes_told,
            quarantined: parts.shim.quarantined() as u64,
        })
    }
}
