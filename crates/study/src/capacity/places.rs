//! Where objects are, by the product's own hash functions and rings: server, spine and further places. Never what is
//! cached there.

use bytes::Bytes;
use protocol::placement::elastic::Rendezvous;
use protocol::placement::{Functions, Placement, Secret};
use trace::key_name;
use wire::{
    ClusterMap, LayerMap, NodeId, NodeMember, Partition, RackId, SHARE_WHOLE, Sharding, ShimId, ShimMember,
};

use super::{CapacityError, CapacityModel, CapacityPlacing};

/// The spine layer of the paper, and a function that it has no name for: where a failed spine's objects go.
const SPINE: usize = 1;
const REMAPPED: usize = 2;

/// Servers are numbered rack by rack; of the spines, the last ones have failed.
pub(super) struct CapacityPlaces {
    racks: u32,
    servers_per_rack: u32,
    spines: u32,
    spines_live: u32,
    remap: bool,
    /// Where all random numbers come from.
    pub(super) seed: u64,
    functions: Functions,
    rendezvous: Rendezvous,
    rings: Option<Placement>,
}

impl CapacityPlaces {
    pub(super) fn new(model: &CapacityModel, seed: u64) -> Result<CapacityPlaces, CapacityError> {
        let secret = Secret(u128::from(seed).to_be_bytes());
        let rings = match model.placing {
            CapacityPlacing::Uniform => None,
            CapacityPlacing::Ring => Some(Placement::new(secret, cluster_map(model)?)?),
        };
        Ok(CapacityPlaces {
            racks: model.racks,
            servers_per_rack: model.servers_per_rack,
            spines: model.spines,
            spines_live: model.spines_live(),
            remap: model.remap,
            seed,
            functions: Functions::new(secret, REMAPPED + 1),
            rendezvous: Rendezvous::new(secret),
            rings,
        })
    }

    /// The server of the object of this rank.
    pub(super) fn server(&self, rank: u64) -> u32 {
        let name = key_name(rank);
        match &self.rings {
            Some(placement) => u32::from(placement.shim(&placement.key(0, Bytes::copy_from_slice(&name))).0),
            None => share(self.functions.storage(&name), self.racks * self.servers_per_rack),
        }
    }

    /// Which part of many objects each server has.
    pub(super) fn parts(&self) -> Vec<f64> {
        let servers = (self.racks * self.servers_per_rack) as usize;
        self.rings.as_ref().map_or_else(|| vec![1.0 / servers as f64; servers], Placement::shim_shares)
    }

    /// Its spine, which may have failed unless partitions are remapped.
    pub(super) fn spine(&self, rank: u64) -> u32 {
        let name = key_name(rank);
        if let Some(placement) = &self.rings {
            let node = placement.places(&placement.key(0, Bytes::copy_from_slice(&name)))[SPINE];
            return u32::from(node.expect("a spine is left").0) - self.racks;
        }
        let digest = self.functions.digest(0, &name);
        let spine = share(self.functions.layer(SPINE, digest), self.spines);
        if self.remap && spine >= self.spines_live {
            return share(self.functions.layer(REMAPPED, digest), self.spines_live);
        }
        spine
    }

    /// Up to so many live nodes besides its leaf and its spine, in its order of preference: leaves are numbered before spines.
    pub(super) fn further(&self, rank: u64, leaf: u32, spine: u32, count: usize) -> Vec<u32> {
        let name = key_name(rank);
        let is_further = |node: &u32| {
            *node < self.racks + self.spines_live && *node != leaf && *node != self.racks + spine
        };
        if let Some(placement) = &self.rings {
            let nodes = placement.preferences(&placement.key(0, Bytes::copy_from_slice(&name)));
            return nodes.into_iter().map(|node| u32::from(node.0)).filter(is_further).take(count).collect();
        }
        let nodes = (0..self.racks + self.spines_live).filter(is_further);
        self.rendezvous.order(self.functions.digest(0, &name), nodes.map(|node| (node, 1.0)), count)
    }
}

/// Which of `owners` equal shares of a circle a position is in.
fn share(position: u64, owners: u32) -> u32 {
    ((u128::from(position) * u128::from(owners)) >> 64) as u32
}

/// The cluster as the product would be told of it.
fn cluster_map(model: &CapacityModel) -> Result<ClusterMap, CapacityError> {
    let members = u64::from(model.servers()).max(u64::from(model.racks) + u64::from(model.spines));
    if members > u64::from(u16::MAX) {
        let why = format!("the product's rings have room for {} servers and for as many nodes", u16::MAX);
        return Err(CapacityError::Wrong { flag: "placement", given: "ring".to_owned(), why });
    }
    let node = |id: u32, rack, share| NodeMember { id: NodeId(id as u16), rack, capacity: 1000, share };
    let leaf = |rack: u32| node(rack, Some(RackId(rack as u16)), SHARE_WHOLE);
    let spine = |spine: u32| {
        let gone = model.remap && spine >= model.spines_live();
        node(model.racks + spine, None, if gone { 0 } else { SHARE_WHOLE })
    };
    let rack_of = |server: u32| RackId((server / model.servers_per_rack) as u16);
    let shim = |server: u32| ShimMember::new(ShimId(server as u16), rack_of(server));
    let leaves = (0..model.racks).map(leaf).collect();
    let spines = (0..model.spines).map(spine).collect();
    Ok(ClusterMap {
        epoch: 1,
        level: 1,
        sharding: Sharding::Ring,
        layers: vec![
            LayerMap { name: "leaf".to_owned(), partition: Partition::Rack, nodes: leaves },
            LayerMap { name: "spine".to_owned(), partition: Partition::Hash, nodes: spines },
        ],
        shims: (0..model.servers()).map(shim).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> CapacityModel {
        CapacityModel { racks: 7, spines: 5, servers_per_rack: 3, ..CapacityModel::default() }
    }

    /// Chi-square over the counts, in standard deviations from its mean.
    fn unevenness(counts: &[u32]) -> f64 {
        let due = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        let freedom = counts.len() as f64 - 1.0;
        let square: f64 = counts.iter().map(|&count| (f64::from(count) - due).powi(2) / due).sum();
        (square - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn servers_and_spines_have_equal_shares_and_are_independent() {
        let places = CapacityPlaces::new(&model(), 3).unwrap();
        let mut pairs = vec![0u32; 21 * 5];
        (0..50_000).for_each(|rank| pairs[(places.server(rank) * 5 + places.spine(rank)) as usize] += 1);
        assert!(unevenness(&pairs) < 4.0, "{pairs:?}");
    }

    #[test]
    fn remapped_partitions_spread_and_nothing_else_moves() {
        let before = CapacityPlaces::new(&model(), 3).unwrap();
        let after =
            CapacityPlaces::new(&CapacityModel { failed_spines: 2, remap: true, ..model() }, 3).unwrap();
        let mut moved = [0u32; 3];
        for rank in 0..30_000 {
            match (before.spine(rank), after.spine(rank)) {
                (old @ 0..3, new) => assert_eq!(old, new),
                (_, new) => moved[new as usize] += 1,
            }
        }
        assert!(unevenness(&moved) < 4.0, "{moved:?}");
    }

    #[test]
    fn further_places_are_all_other_live_nodes_in_any_order() {
        let places = CapacityPlaces::new(&CapacityModel { failed_spines: 1, ..model() }, 3).unwrap();
        let mut first = [0u32; 9];
        for rank in 0..20_000 {
            let mut all = places.further(rank, 2, 1, 1000);
            assert_eq!(places.further(rank, 2, 1, 4), all[..4]);
            first[all[0] as usize - usize::from(all[0] > 2) - usize::from(all[0] > 8)] += 1;
            all.sort_unstable();
            assert_eq!(all, [0, 1, 3, 4, 5, 6, 7, 9, 10]);
        }
        assert!(unevenness(&first) < 4.0, "{first:?}");
        assert_eq!(places.further(9, 2, 4, 1000).len(), 10, "its own spine has failed");
    }

    /// Both ways of placing, with spines that have failed and with those that are gone from the map.
    #[test]
    fn further_places_are_the_product_s_preferences() {
        for (failed_spines, remap) in [(0, false), (1, false), (1, true)] {
            let model = CapacityModel { failed_spines, remap, ..model() };
            let equal = CapacityPlaces::new(&model, 5).unwrap();
            let rings = CapacityModel { placing: CapacityPlacing::Ring, ..model.clone() };
            let rings = CapacityPlaces::new(&rings, 5).unwrap();
            let placement =
                Placement::new(Secret(5u128.to_be_bytes()), cluster_map(&model).unwrap()).unwrap();
            for rank in 0..500 {
                let key = placement.key(0, Bytes::copy_from_slice(&key_name(rank)));
                let preferences = placement.preferences(&key);
                let nodes: Vec<u32> = preferences.iter().map(|node| u32::from(node.0)).collect();
                let (leaf, spine) = (nodes[0], nodes[1] - 7);
                let due: Vec<u32> =
                    nodes[2..].iter().copied().filter(|node| *node < 12 - failed_spines).collect();
                assert_eq!(rings.further(rank, leaf, spine, 12), due);
                assert_eq!(equal.further(rank, leaf, spine, 12), due, "whatever its spine is");
            }
        }
    }

    #[test]
    fn rings_place_by_the_rules_of_the_product() {
        let model =
            CapacityModel { placing: CapacityPlacing::Ring, failed_spines: 1, remap: true, ..model() };
        let places = CapacityPlaces::new(&model, 5).unwrap();
        let placement = Placement::new(Secret(5u128.to_be_bytes()), cluster_map(&model).unwrap()).unwrap();
        for rank in 0..2_000 {
            let key = placement.key(0, Bytes::copy_from_slice(&key_name(rank)));
            let due = placement.places(&key);
            assert_eq!(u32::from(due[0].unwrap().0), places.server(rank) / 3);
            assert_eq!(u32::from(due[SPINE].unwrap().0), 7 + places.spine(rank));
            assert!(places.spine(rank) < 4);
        }
    }
}
