//! What a shim has done, in plain counters, and what it tracks now. Not how it is shown.

use wire::Key;

use super::Shim;
use crate::time::Time;

/// Totals since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShimStatistics {
    /// Requests begun.
    pub requests: u64,
    pub storage_reads: u64,
    pub storage_writes: u64,
    /// INVs sent, repeats included.
    pub invalidations: u64,
    /// Copies that a write invalidated: one per key and node.
    pub invalidated_copies: u64,
    /// Copies dropped because somebody asked for it or the policies changed.
    pub purged_copies: u64,
    /// Reads while observing only, and those that copies would have answered.
    pub observed_reads: u64,
    pub observed_hits: u64,
    /// INVs and ACKs.
    pub coherence_messages: u64,
    pub commits: u64,
    pub repeats: u64,
    pub revokes: u64,
    pub grants: u64,
    /// Leases that ran out although their nodes had copies.
    pub lease_lapses: u64,
    pub fills: u64,
    pub fills_ungranted: u64,
    pub offers: u64,
    pub incarnations: u64,
    /// Commands whose connection to storage broke.
    pub storage_lost: u64,
    /// Commands refused because storage is down or the key is not this shim's.
    pub refused: u64,
    /// Commands refused because too many wait: for this shim, for their key, or to block.
    pub sheds: u64,
    /// Commands refused because storage is at its limit.
    pub sheds_storage: u64,
    /// Requests that had to wait before they were begun; those that had to wait for too long; those that came over the rate
    /// or found the queue full.
    pub waited: u64,
    pub expired: u64,
    pub overflowed: u64,
    /// Reads answered together with another one of their view.
    pub reads_joined: u64,
    /// Published messages sent on, one for each router.
    pub messages_delivered: u64,
    /// Keys that storage has reported as changed.
    pub feed_changes: u64,
    /// Reports that any key may have changed.
    pub feed_flushes: u64,
    pub feed_losses: u64,
    /// Messages to routers about keys that their clients track.
    pub changes_told: u64,
    /// Large replies handed on in parts; those thrown away to be asked for so; those cut off because nobody read them.
    pub transfers: u64,
    pub larges_skipped: u64,
    pub transfers_cut: u64,
    pub unexpected: u64,
}

impl Shim {
    pub fn statistics(&self) -> ShimStatistics {
        self.statistics
    }

    /// The hottest keys among those that clients read here, with their requests per second.
    pub fn hottest(&self, now: Time, count: usize) -> Vec<(&Key, u32)> {
        self.hottest.top(now, count)
    }

    /// Copies that the directory knows of.
    pub fn copies(&self) -> usize {
        self.keys.values().map(|state| state.directory.entries.len()).sum()
    }

    /// Nodes whose lease runs.
    pub fn sessions(&self) -> usize {
        self.links.iter().filter(|link| link.session.id().is_some()).count()
    }

    /// Keys of which nothing is granted because the outcome of a write is unknown.
    pub fn quarantined(&self) -> usize {
        self.quarantined.len()
    }

    /// Requests that wait to be begun.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests per second that were begun in the last one.
    pub fn load(&mut self, now: Time) -> u32 {
        self.meter.load(now, 1000)
    }

    /// Commands queued or at storage.
    pub fn pending(&self) -> usize {
        self.tickets.len() + self.operations.len() + self.joined
    }

    /// Channels and patterns that routers have clients for.
    pub fn subscriptions(&self) -> usize {
        self.topics.len()
    }

    /// Commands that storage may have at a time before reads are refused.
    pub fn storage_limit(&self) -> u32 {
        self.storage_limit.limit()
    }
}
