//! The members of a simulated cluster as configurations number them: some have fewer than others. Not which live.

use std::sync::Arc;

use protocol::controller::{Members, StoredMap};
use wire::{ClusterMap, NodeMember, Peer, RouterId};

/// How many members there are; their order is the same everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roster {
    pub(crate) nodes: usize,
    pub(crate) routers: usize,
}

/// The first ones of all members.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    /// With everybody, and what each node owns before any map was made.
    whole: Arc<ClusterMap>,
    roster: Roster,
}

impl Cast {
    pub(crate) fn new(whole: Arc<ClusterMap>, roster: Roster) -> Cast {
        Cast { whole, roster }
    }

    /// The map as members make it who know everybody.
    pub(crate) fn told(&self, map: &StoredMap<Roster>) -> ClusterMap {
        let mut whole = (*self.whole).clone();
        whole.epoch = map.epoch;
        for node in whole.layers.iter_mut().flat_map(|layer| &mut layer.nodes) {
            node.share = map.share(node.id);
        }
        whole
    }
}

impl Members for Cast {
    type Roster = Roster;

    fn roster(&self) -> Roster {
        self.roster
    }

    fn map(&self) -> ClusterMap {
        let mut map = (*self.whole).clone();
        let known = |node: &NodeMember| usize::from(node.id.0) < self.roster.nodes;
        map.layers.iter_mut().for_each(|layer| layer.nodes.retain(known));
        map.layers.retain(|layer| !layer.nodes.is_empty());
        map
    }

    fn others(&self) -> Vec<Peer> {
        (0..self.roster.routers).map(|index| Peer::Router(RouterId(index as u16))).collect()
    }

    fn grown(&self, roster: &Roster) -> Result<Option<Cast>, String> {
        let own = self.roster;
        let roster = Roster { nodes: own.nodes.max(roster.nodes), routers: own.routers.max(roster.routers) };
        Ok((roster != own).then(|| Cast::new(Arc::clone(&self.whole), roster)))
    }

    fn exceeds(&self, roster: &Roster) -> bool {
        self.roster.nodes > roster.nodes || self.roster.routers > roster.routers
    }
}
