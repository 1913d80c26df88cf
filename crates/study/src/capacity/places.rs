//! Where objects are, by the product's own hash functions and rings: server, spine and elastic places. Never what is
//! cached there.

use bytes::Bytes;
use protocol::placement::{Functions, Placement, Secret};
use trace::key_name;
use wire::{
    ClusterMap, Digest, LayerMap, NodeId, NodeMember, Partition, RackId, SHARE_WHOLE, Sharding, ShimId,
    ShimMember,
};

use super::{CapacityError, CapacityModel, CapacityPlacing};

/// The layers of the paper, and two functions that it has no name for: where a failed spine's objects go, and where
/// elastic copies are.
const LEAF: usize = 0;
const SPINE: usize = 1;
const REMAPPED: usize = 2;
const ELASTIC: usize = 3;

/// Servers are numbered rack by rack; of the spines, the last ones have failed.
pub(super) struct CapacityPlaces {
    racks: u32,
    servers_per_rack: u32,
    spines: u32,
    spines_live: u32,
    remap: bool,
    functions: Functions,
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
            functions: Functions::new(secret, ELASTIC + 1),
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

    /// Distinct live nodes besides the two of the paper, up to `count`, from both layers in turn: leaves are numbered
    /// before spines.
    pub(super) fn further(&self, rank: u64, leaf: u32, spine: u32, count: u32) -> Vec<u32> {
        let digest = self.functions.digest(0, &key_name(rank));
        let mut taken = vec![false; (self.racks + self.spines) as usize];
        taken[leaf as usize] = true;
        taken[(self.racks + spine) as usize] = true;
        let spine_lives = u32::from(spine < self.spines_live);
        let mut left = [self.racks - 1, self.spines_live - spine_lives];
        let mut places = Vec::new();
        let mut draw = 0u128;
        let mut layer = SPINE;
        while places.len() < count as usize && left != [0, 0] {
            layer = if left[1 - layer] > 0 { 1 - layer } else { layer };
            loop {
                draw += 1;
                let position = self.functions.layer(ELASTIC, Digest(digest.0.wrapping_add(draw)));
                let node = match layer {
                    LEAF => share(position, self.racks),
                    _ => self.racks + share(position, self.spines_live),
                };
                if !std::mem::replace(&mut taken[node as usize], true) {
                    places.push(node);
                    break;
                }
            }
            left[layer] -= 1;
        }
        places
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
    let shim = |server: u32| ShimMember {
        id: ShimId(server as u16),
        rack: RackId((server / model.servers_per_rack) as u16),
    };
    let leaves = (0..model.racks).map(leaf).collect();
    let spines = (0..model.spines).map(spine).collect();
    Ok(ClusterMap {
        epoch: 1,
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
    fn further_places_are_distinct_live_and_from_both_layers() {
        let places = CapacityPlaces::new(&CapacityModel { failed_spines: 1, ..model() }, 3).unwrap();
        let four = places.further(9, 2, 1, 4);
        assert_eq!(four.iter().filter(|place| **place < 7).count(), 2);
        let mut all = places.further(9, 2, 1, 1000);
        assert_eq!(all[..4], four);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 3, 4, 5, 6, 7, 9, 10]);
        assert_eq!(places.further(9, 2, 4, 1000).len(), 10);
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
            assert_eq!(u32::from(due[LEAF].unwrap().0), places.server(rank) / 3);
            assert_eq!(u32::from(due[SPINE].unwrap().0), 7 + places.spine(rank));
            assert!(places.spine(rank) < 4);
        }
    }
}
