//! What the machines of a process have counted, before it ends. Not what it says of them.

use crate::cluster::Cluster;
use crate::network::HostId;

impl Cluster {
    /// Takes the numbers of a process into those of the run.
    pub(crate) fn count_up(&mut self, host: HostId) {
        if let Some(node) = self.hosts[host].node() {
            let statistics = node.statistics();
            self.watch.hits += statistics.hits;
            self.watch.fills += statistics.fills;
            self.watch.commits += statistics.commits;
            self.watch.poisoned += statistics.fills_poisoned;
            self.watch.lapses += statistics.leases_lost;
            self.watch.stale_hits += statistics.stale_hits;
        } else if let Some(shim) = self.hosts[host].shim() {
            let statistics = shim.statistics();
            self.watch.invalidations += statistics.invalidated_copies;
            self.watch.foreign_writes += statistics.foreign_writes;
            self.watch.raises += statistics.raises;
            self.watch.lowerings += statistics.lowerings;
        } else if let Some(router) = self.hosts[host].router() {
            self.watch.breakers += router.statistics().breakers_opened;
            self.watch.near_hits += router.statistics().near_hits;
        }
    }
}
