//! What a node has done, in plain counters, and what it holds now. Not how it is shown.

use std::time::Duration;

use bytes::Bytes;
use wire::ShimId;

use super::Node;
use super::object::HEAT_ONE;
use crate::time::Time;

/// Totals since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStatistics {
    pub requests: u64,
    pub hits: u64,
    pub misses: u64,
    /// Misses that waited for another one's fetch.
    pub joined: u64,
    pub forwarded: u64,
    pub fetches: u64,
    pub fills: u64,
    /// Granted fills that an invalidation had overtaken.
    pub poisoned: u64,
    /// Fills answered without a grant.
    pub ungranted: u64,
    pub offers: u64,
    pub offers_accepted: u64,
    pub insertions: u64,
    pub evictions: u64,
    pub write_hot: u64,
    pub invalidations: u64,
    pub commits: u64,
    pub lease_losses: u64,
    pub sheds: u64,
    /// Reads that had to wait before they were begun, and those refused because they came over the rate.
    pub waited: u64,
    pub overflowed: u64,
    /// Messages that this role does not expect or no longer knows.
    pub unexpected: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    pub shim: ShimId,
    pub held: bool,
    pub remaining: Duration,
}

/// A cached key and its hits per second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    pub key: Bytes,
    pub heat: u32,
}

impl Node {
    pub fn statistics(&self) -> NodeStatistics {
        self.statistics
    }

    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Requests in the sliding last second.
    pub fn load(&mut self, now: Time) -> u32 {
        self.meter.rate(now)
    }

    /// Keys that are kept out for now.
    pub fn held_off(&self) -> usize {
        self.agent.held_off()
    }

    /// Reads that wait for a shim.
    pub fn pending(&self) -> usize {
        self.forwarded.len()
    }

    /// Shims whose keys this node cannot serve now.
    pub fn shims_missing(&self) -> impl Iterator<Item = ShimId> + '_ {
        let missing = self.links.iter().enumerate().filter(|(_, link)| !link.linked);
        missing.map(|(index, _)| ShimId(index as u16))
    }

    pub fn leases(&self, now: Time) -> Vec<LeaseStatus> {
        let links = self.links.iter().enumerate();
        links
            .map(|(index, link)| LeaseStatus {
                shim: ShimId(index as u16),
                held: link.session.holds(now),
                remaining: link.session.remaining(now),
            })
            .collect()
    }

    /// The hottest cached keys, hottest first.
    pub fn hottest(&self, count: usize) -> Vec<HotKey> {
        let mut ranked: Vec<_> = self.objects.iter().map(|(key, object)| (object.heat, key)).collect();
        let count = count.min(ranked.len());
        if count == 0 {
            return Vec::new();
        }
        let order = |(heat, key): &(u32, &wire::Key)| (std::cmp::Reverse(*heat), key.digest);
        ranked.select_nth_unstable_by_key(count - 1, order);
        ranked.truncate(count);
        ranked.sort_unstable_by_key(order);
        ranked
            .into_iter()
            .map(|(heat, key)| HotKey { key: key.bytes.clone(), heat: heat / HEAT_ONE })
            .collect()
    }
}
