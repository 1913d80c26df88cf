//! The members of a simulated cluster as configurations number them: some have fewer than others. Not which live.

use std::sync::Arc;

use protocol::controller::{Members, StoredMap};
use wire::{ClusterMap, NodeMember, Peer, RouterId};

/// How many members there are; their order is the same everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CastRoster {
    pub(crate) nodes: usize,
    pub(crate) routers: usize,
    /// Whether they are members of another cluster.
    pub(crate) stranger: bool,
}

impl CastRoster {
    /// As long as there are some left.
    pub(crate) fn without_the_last(self) -> CastRoster {
        let fewer = |count: usize| count.saturating_sub(1).max(1);
        CastRoster { nodes: fewer(self.nodes), routers: fewer(self.routers), ..self }
    }
}

/// The first ones of all members.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    /// With everybody, and what each node owns before any map was made.
    whole: Arc<ClusterMap>,
    roster: CastRoster,
}

impl Cast {
    pub(crate) fn new(whole: Arc<ClusterMap>, roster: CastRoster) -> Cast {
        Cast { whole, roster }
    }

    /// Another number of the same members.
    pub(crate) fn with(&self, roster: CastRoster) -> Cast {
        Cast::new(Arc::clone(&self.whole), roster)
    }

    pub(crate) fn knows(&self, member: Peer) -> bool {
        match member {
            Peer::Node(id) => usize::from(id.0) < self.roster.nodes,
            Peer::Router(id) => usize::from(id.0) < self.roster.routers,
            Peer::Shim(_) => true,
        }
    }

    /// The map as members make it who know everybody.
    pub(crate) fn told(&self, map: &StoredMap<CastRoster>) -> ClusterMap {
        let mut whole = (*self.whole).clone();
        whole.epoch = map.epoch;
        for node in whole.layers.iter_mut().flat_map(|layer| &mut layer.nodes) {
            node.share = map.share(node.id);
        }
        whole
    }
}

impl Members for Cast {
    type Roster = CastRoster;

    fn roster(&self) -> CastRoster {
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

    fn grown(&self, roster: &CastRoster) -> Result<Option<Cast>, String> {
        let own = self.roster;
        if roster.stranger {
            return Err("it has other members".to_owned());
        }
        let (nodes, routers) = (own.nodes.max(roster.nodes), own.routers.max(roster.routers));
        let roster = CastRoster { nodes, routers, ..own };
        Ok((roster != own).then(|| self.with(roster)))
    }

    fn exceeds(&self, roster: &CastRoster) -> bool {
        self.roster.nodes > roster.nodes || self.roster.routers > roster.routers
    }
}
