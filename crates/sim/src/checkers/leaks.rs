//! That nothing is left over once clients have been quiet for a while: no operations, tickets, readers, dead entries.

use protocol::node::NodeBacklog;
use protocol::shim::ShimBacklog;

use crate::cluster::Cluster;
use crate::network::HostId;

impl Cluster {
    /// What is left over now. The shim's own work goes on: it has to be over at some time, not at any.
    pub(crate) fn leak(&self) -> Option<String> {
        let mut found = Vec::new();
        for host in self.holders() {
            let Some(node) = self.hosts[host].holder() else { continue };
            let backlog = node.backlog();
            if backlog != NodeBacklog::default() {
                found.push(format!("holder {host} is left with {backlog:?}"));
            }
            if !node.is_consistent() {
                found.push(format!("holder {host} has lost count of its objects"));
            }
        }
        for server in &self.servers {
            let Some(shim) = self.hosts[server.current].shim() else { continue };
            let backlog = shim.backlog();
            // A proof of storage may be on its way at any time, and one of each feed.
            let feeds = [self.shape.has_feed(), self.shape.bounded.is_none()];
            let proofs = 1 + feeds.into_iter().filter(|has| *has).count();
            let at_rest = ShimBacklog { tickets: backlog.tickets.saturating_sub(proofs), ..backlog };
            if !shim.is_consistent() {
                found.push(format!("shim {} has lost count of its copies", server.current));
            }
            if at_rest != ShimBacklog::default() {
                found.push(format!("shim {} is left with {backlog:?}", server.current));
            }
        }
        for host in self.routers() {
            let Some(router) = self.hosts[host].router() else { continue };
            if router.pending_count() > 0 {
                found.push(format!("router {host} is left with {} requests", router.pending_count()));
            }
        }
        found.into_iter().next()
    }

    /// Holders and keys that they are said to have.
    pub(crate) fn phantoms(&self) -> Vec<(HostId, usize)> {
        let mut phantoms = Vec::new();
        for shim in self.servers.iter().filter_map(|server| self.hosts[server.current].shim()) {
            for (index, key) in self.keys.iter().enumerate() {
                for holder in shim.holders(&key.key) {
                    let Some(host) = self.holder_host(holder) else { continue };
                    let node = self.hosts[host].holder();
                    if !node.is_some_and(|node| node.knows(&key.key)) {
                        phantoms.push((host, index));
                    }
                }
            }
        }
        phantoms
    }
}
