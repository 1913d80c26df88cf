//! That an epoch of a history stands for one map, and that everybody acts on the store's map once nothing goes wrong.

use protocol::controller::{Controller, StoredMap};
use wire::{ClusterMap, SHARE_WHOLE};

use crate::cast::CastRoster;
use crate::cluster::Cluster;
use crate::network::HostId;

impl Cluster {
    /// A controller is about to tell this map.
    pub(crate) fn check_told(&mut self, host: HostId, map: &StoredMap<CastRoster>) {
        let told = self.watch.told.entry((map.history, map.epoch)).or_insert_with(|| map.nodes.clone());
        if *told != map.nodes {
            let (epoch, told) = (map.epoch, told.clone());
            self.world
                .fail(format!("controller {host} tells epoch {epoch} as {:?}, it was {told:?}", map.nodes));
        }
    }

    pub(crate) fn unsettled(&self) -> Option<String> {
        let map = self.registry.map();
        for host in self.controllers() {
            let told = self.hosts[host].controller().and_then(Controller::told);
            let same = |map: &StoredMap<CastRoster>, told: &StoredMap<CastRoster>| {
                (map.epoch, map.history, &map.nodes) == (told.epoch, told.history, &told.nodes)
            };
            if !told.is_some_and(|told| map.is_none_or(|map| same(map, told))) {
                return Some(format!("controller {host} tells {told:?}, the store has {map:?}"));
            }
        }
        let expected = map.map_or_else(|| (*self.placement.map()).clone(), |map| self.cast.told(map));
        let owned = |map: &ClusterMap| {
            let nodes = map.layers.iter().flat_map(|layer| &layer.nodes);
            (map.epoch, nodes.map(|node| node.share).collect::<Vec<_>>())
        };
        let expected = owned(&expected);
        if expected.1.iter().any(|share| *share < SHARE_WHOLE) {
            return Some(format!("the store has {map:?}"));
        }
        let spare = |host: HostId| self.is_slot(host) && self.servers[self.server_of(host)].current != host;
        let members = (0..self.controllers_first).filter(|host| !spare(*host));
        let mut acting = members.map(|host| (host, owned(self.hosts[host].follower.placement.map())));
        let (host, acting) = acting.find(|(_, acting)| *acting != expected)?;
        Some(format!("{host} acts on {acting:?} and should on {expected:?}"))
    }
}
