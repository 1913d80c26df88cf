//! The places of the keys that were asked for last, so that a hot key's are not computed anew for each read. Not a rule.

use wire::{Digest, Key};

use crate::placement::{Placement, Places};

/// Keys that are remembered, each in the one slot of its digest.
const SLOTS: usize = 4096;

/// Places by digest, as they are in one map.
#[derive(Debug)]
pub(crate) struct KnownPlaces {
    slots: Vec<Option<(Digest, Places)>>,
}

impl KnownPlaces {
    pub(crate) fn new() -> KnownPlaces {
        KnownPlaces { slots: vec![None; SLOTS] }
    }

    /// Another map gives keys other places.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(None);
    }

    /// The places of `key`, which is of the database and name that its digest says.
    pub(crate) fn of(&mut self, placement: &Placement, key: &Key) -> Places {
        let slot = &mut self.slots[key.digest.0 as usize % SLOTS];
        match slot {
            Some((digest, places)) if *digest == key.digest => *places,
            _ => {
                let places = placement.places(key);
                *slot = Some((key.digest, places));
                places
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rand::rngs::SmallRng;
    use rand::{RngExt as _, SeedableRng as _};
    use wire::{ClusterMap, LayerMap, NodeId, NodeMember, Partition, RackId, Sharding, ShimId, ShimMember};

    use super::KnownPlaces;
    use crate::placement::{Placement, Secret};

    /// Two racks of four leaves each and four spines, of which the first `down` are down.
    fn placement(epoch: u32, down: u16) -> Placement {
        let node = |id, rack| NodeMember {
            id: NodeId(id),
            rack,
            capacity: 1000,
            share: if id < down { 0 } else { wire::SHARE_WHOLE },
        };
        let layer = |name: &str, partition, nodes| LayerMap { name: name.to_owned(), partition, nodes };
        let leaves = (0..8).map(|id| node(id, Some(RackId(id % 2)))).collect();
        let spines = (8..12).map(|id| node(id, None)).collect();
        let map = ClusterMap {
            epoch,
            level: 1,
            layers: vec![layer("leaf", Partition::Rack, leaves), layer("spine", Partition::Hash, spines)],
            sharding: Sharding::Ring,
            shims: (0..2).map(|id| ShimMember::new(ShimId(id), RackId(id))).collect(),
        };
        Placement::new(Secret([1; 16]), map).expect("a well-formed map")
    }

    /// Many more keys than slots, hot and cold ones, and maps that change.
    #[test]
    fn they_are_those_of_the_map() {
        let mut known = KnownPlaces::new();
        let mut random = SmallRng::seed_from_u64(1);
        for epoch in 1..4 {
            let placement = placement(epoch, epoch as u16);
            known.clear();
            for _ in 0..20_000 {
                let number: u32 = if random.random() { random.random_range(0..50) } else { random.random() };
                let (database, name) = (random.random_range(0..2), Bytes::from(number.to_string()));
                let key = placement.key(database, name);
                assert_eq!(known.of(&placement, &key), placement.places(&key), "{key:?}");
            }
        }
    }
}
