//! That reads of hot keys are shared: with copies in two layers no node is asked nearly all of them.

use crate::cluster::Cluster;

/// Fewer hits say nothing.
const HITS_MIN: u64 = 300;
/// Thousandths of all requests that one node may have. Not of the hits: where the keys of one node are written all the
/// time, the other ones have them.
const SHARE_MAX: u64 = 700;

/// Leases that one node may lose, or it leaves its share to the others: with slow channels some lapse all the time.
const LAPSES_MAX: u64 = 5;

impl Cluster {
    /// Only where nothing went wrong: a node that is away leaves its share to the others.
    pub(crate) fn check_load(&mut self) {
        if self.shape.map.layers.len() < 2 || !self.shape.faults.is_empty() || !self.shape.has_room() {
            return;
        }
        let nodes = || self.nodes().filter_map(|host| self.hosts[host].node()).map(|node| node.statistics());
        if nodes().any(|statistics| statistics.leases_lost > LAPSES_MAX) {
            return;
        }
        let requests: Vec<u64> = nodes().map(|statistics| statistics.requests).collect();
        let hits: u64 = nodes().map(|statistics| statistics.hits).sum();
        // What routers answer themselves, nodes need not share.
        let near = self.routers().filter_map(|host| self.hosts[host].router());
        let near: u64 = near.map(|router| router.statistics().near_hits).sum();
        let (all, most) = (requests.iter().sum::<u64>() + near, requests.iter().copied().max().unwrap_or(0));
        if hits >= HITS_MIN && most * 1000 > all * SHARE_MAX {
            self.world.fail(format!("one node has {most} of {all} requests, by node {requests:?}"));
        }
    }
}
