//! What a node counts, row by row, and what it holds now. Not how it is shown.

use std::time::Duration;

use bytes::Bytes;
use wire::ShimId;

use super::Node;
use super::object::HEAT_ONE;
use crate::statistics::statistics;
use crate::time::Time;

statistics! {
    /// Totals since the start, and what there is now.
    pub struct NodeStatistics {
        requests: counter("requests", "Requests received", "traffic of this node"),
        hits: counter("reads", "Reads answered from a copy", "`hits` / (`hits` + `misses`) is its hit ratio"),
        stale_hits: counter("reads", "Reads answered from a copy that may be stale, because storage is gone",
            "any: a storage server is, or was, away; see `stale_periods` of the shims"),
        misses: counter("reads", "Reads that had to ask a shim",
            "a rise without more load: copies are invalidated or evicted a lot, or its leases are lost"),
        reads_held: counter("reads", "Reads that waited behind earlier ones of their client",
            "harmless: nobody sees two values of a key the wrong way round"),
        reads_joined: counter("reads", "Misses that waited for another one's fetch",
            "near misses: hot keys lose their copies a lot"),
        reads_forwarded: counter("reads", "Reads passed on to a shim as they are",
            "near misses: they may not or need not be copied"),
        fetches: counter("fetches", "Reads that asked a shim for a copy",
            "far more than all fills: shims or links are lost"),
        load: gauge("requests/s", "Requests in the sliding last second",
            "should be nearly equal over the nodes of a layer (by `capacity`): it is what DistCache is for. One \
             above the others for minutes: one key alone is hotter than a node"),
        objects: gauge("objects", "Objects held", "at `objects_max`: the node is full, and only hotter keys come in"),
        bytes: gauge("bytes", "Bytes held",
            "at `bytes_max`: the node is full. The process itself takes some MiB more: see \
             [memory](runbooks.md#memory-grows)"),
        leases_lost: counter("leases", "Leases that lapsed while copies existed",
            "a rise: pauses, or a broken link; each may have held up a write for up to `lease_ms`"),
        fills: counter("fills", "Fills received", "copies filled"),
        /// Granted ones.
        fills_poisoned: counter("fills", "Fills that an invalidation overtook",
            "near `fills`: keys are written while they are read, and hardly worth a copy"),
        fills_ungranted: counter("fills", "Fills answered without a grant",
            "a steady rate: the shim is writing these keys, or a policy, a lost feed or a hash that expires \
             forbids the copy"),
        inserts: counter("objects", "Objects inserted", "with `evictions`: how fast the set of hot keys changes"),
        evictions: counter("objects", "Objects evicted",
            "near `inserts` on a full node while hit ratios are low: raise `objects_max` or `bytes_max`"),
        write_hot: counter("objects", "Objects evicted because they are written more than read",
            "a rise: a cache does not help them"),
        invalidations: counter("messages", "Invalidations received", "writes of cached keys"),
        commits: counter("messages", "Commits received", "new values that came with a write"),
        offers: counter("keys", "Hot keys offered by shims", "hot keys that shims have seen"),
        offers_accepted: counter("keys", "Offers that were followed by a fetch",
            "far fewer than `offers`: the node is full of hotter keys"),
        held_off: gauge("keys", "Keys held off because they are write-hot",
            "many: the hot keys are written more than read; a cache does not help them"),
        queue_depth: gauge("reads", "Reads that wait for a fill", "grows and stays: a shim or its storage is slow"),
        waiting: gauge("reads", "Reads that wait to be begun",
            "above 0 for long: the node is asked for more than its `rate_max`"),
        waited: counter("reads", "Reads that had to wait to be begun", "as above"),
        overflowed: shed("rate",
            "with `overload = \"refuse\"`, a read that a node with a `rate_max` could only serve late: after 250 \
             ms, or 50 ms if its queue has not been empty for as long. Its router asks elsewhere. With `\"wait\"`, \
             one that has waited for `queue_ms_max`"),
        sheds: shed("shim-unreachable",
            "a read that the node cannot pass on: the shim is not linked, or `node_queue_max` reads wait for it"),
        unexpected: counter("messages", "Messages that a node must not get or no longer knows",
            "a steady rate: a peer's version or an intruder"),
    }
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
    /// Totals only, at no cost.
    pub fn statistics(&self) -> NodeStatistics {
        self.statistics
    }

    /// The statistics with what there is now.
    pub fn measured(&mut self, now: Time) -> NodeStatistics {
        NodeStatistics {
            load: u64::from(self.meter.rate(now)),
            objects: self.objects.len() as u64,
            bytes: self.objects.bytes(),
            held_off: self.agent.held_off() as u64,
            queue_depth: self.pending() as u64,
            waiting: self.waiting() as u64,
            ..self.statistics
        }
    }

    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Reads that wait for a shim.
    pub fn pending(&self) -> usize {
        self.forwarded.len()
    }

    /// Shims whose keys this node cannot serve now.
    pub fn shims_missing(&self) -> impl Iterator<Item = ShimId> + '_ {
        let missing = self.links.iter().enumerate().filter(|(_, link)| !link.linked);
        let missing = missing.map(|(index, _)| ShimId(index as u16));
        missing.filter(|shim| self.placement.may_have_keys(*shim))
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

    /// The hottest cached keys as of the last second, hottest first; a few dozen are known.
    pub fn hottest(&self, count: usize) -> Vec<HotKey> {
        let there = self.agent.hottest().iter().filter(|(_, key)| self.objects.contains_key(key));
        there
            .take(count)
            .map(|(heat, key)| HotKey { key: key.bytes.clone(), heat: heat / HEAT_ONE })
            .collect()
    }
}
