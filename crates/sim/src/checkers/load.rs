//! That reads of hot keys are shared: with copies in two layers no node answers nearly all of them.

use crate::cluster::Cluster;

/// Fewer hits say nothing.
const HITS_MIN: u64 = 300;
/// Thousandths of all hits that one node may have.
const SHARE_MAX: u64 = 900;

impl Cluster {
    /// Only where nothing went wrong: a node that is away leaves its share to the others.
    pub(crate) fn check_load(&mut self) {
        if self.shape.map.layers.len() < 2 || !self.shape.faults.is_empty() || !self.shape.has_room() {
            return;
        }
        let hits: Vec<u64> =
            self.nodes().filter_map(|host| Some(self.hosts[host].node()?.statistics().hits)).collect();
        let (all, most) = (hits.iter().sum::<u64>(), hits.iter().copied().max().unwrap_or(0));
        if all >= HITS_MIN && most * 1000 > all * SHARE_MAX {
            self.world.fail(format!("one node has {most} of {all} hits, by node {hits:?}"));
        }
    }
}
