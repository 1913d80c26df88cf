//! Further places of keys that are hotter than one node per layer can bear: which nodes, in which order, and how many of them.
//! Not which keys, and not how hot they are.
//!
//! The theorem needs every object's rate to be at most half of what a node serves (paper, theorem 1). One that is read `r` times
//! a second counts as `ceil(2 r / T)` objects of half a node's rate `T` each, with two places apiece. A key's places are a
//! prefix of one list of all nodes, so that more of them keep the earlier ones, and a node that leaves moves no other.

use siphasher::sip::SipHasher24;
use wire::{Degree, Digest, Key, NodeId};

use super::{Placement, Secret};

/// The last step: more places than a map can have nodes.
const STEP_MAX: u8 = 31;
/// Precision of a hash as a fraction.
const FRACTION_BITS: u32 = 53;
/// Reads that a copy has to answer for each time that it is invalidated. With fewer it costs the shim, two messages a write, about
/// what it spares it; with more, keys that are written now and then stay too hot for their nodes.
const HITS_PER_INVALIDATION: f64 = 4.0;
/// What a shim spends on the invalidations of elastic keys, of all that it can do: an invalidation of a copy counts as a request. With
/// all of it, written keys would cost their server more than their copies bring; with a quarter, much that could be served is not.
pub const COHERENCE_SHARE: f64 = 0.5;

/// Says which of two nodes a key prefers: rendezvous hashing with weights.
#[derive(Clone, Debug)]
pub struct Rendezvous(SipHasher24);

impl Rendezvous {
    pub fn new(secret: Secret) -> Rendezvous {
        Rendezvous(SipHasher24::new_with_key(&secret.derive(b"elastic")))
    }

    /// How much a key prefers a node of this capacity: the greatest of several wins, each as often as its capacity says.
    pub fn score(&self, digest: Digest, node: u32, capacity: f64) -> f64 {
        // Twenty bytes, so that it never hashes like anything else that is placed.
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&digest.0.to_be_bytes());
        bytes[16..].copy_from_slice(&node.to_be_bytes());
        let hash = self.0.hash(&bytes) >> (u64::BITS - FRACTION_BITS);
        let fraction = (hash as f64 + 0.5) / (1u64 << FRACTION_BITS) as f64;
        -capacity / fraction.ln()
    }

    /// So many numbers of nodes, each with its capacity, that the key prefers to all others, in its order.
    pub fn order(&self, digest: Digest, nodes: impl Iterator<Item = (u32, f64)>, count: usize) -> Vec<u32> {
        let mut nodes: Vec<(f64, u32)> =
            nodes.map(|(node, capacity)| (self.score(digest, node, capacity), node)).collect();
        let order = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if count < nodes.len() {
            nodes.select_nth_unstable_by(count, order);
            nodes.truncate(count);
        }
        nodes.sort_unstable_by(order);
        nodes.into_iter().map(|(_, node)| node).collect()
    }
}

/// What a key asks of all nodes together.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// How many nodes it would keep busy with nothing else.
    pub nodes: f64,
    /// Reads that its copies answer, and invalidations of each of them, in any one unit of time.
    pub hits: f64,
    pub invalidations: f64,
    /// Invalidations of its copies, all together, for which its shim has time in that time.
    pub invalidations_max: f64,
}

impl Demand {
    /// The step for it, as far as its writes and `copies_max` allow, where the base has a place in each of `layers`.
    pub fn degree(&self, layers: usize, copies_max: usize) -> Degree {
        let allowed = self.copies_paid_for().min(copies_max);
        degree_for(places_needed(self.nodes), layers).min(degree_within(allowed, layers))
    }

    /// How many copies answer enough reads for each of their invalidations, and leave the shim time for all else.
    fn copies_paid_for(&self) -> usize {
        if self.invalidations == 0.0 {
            return usize::MAX;
        }
        // Of floats, `as` keeps to the range of the target.
        let by_hits = self.hits / HITS_PER_INVALIDATION;
        (by_hits.min(self.invalidations_max) / self.invalidations) as usize
    }
}

impl Placement {
    /// Every node that may hold a copy of the key, in the key's order of preference: its place in each layer first, then all
    /// others that are up, whatever their layer and rack. Takes time in proportion to the nodes.
    pub fn preferences(&self, key: &Key) -> Vec<NodeId> {
        let mut preferences: Vec<NodeId> = self.places(key).into_iter().flatten().collect();
        let nodes = self.map.layers.iter().flat_map(|layer| &layer.nodes);
        let others = nodes.filter(|node| node.is_up() && !preferences.contains(&node.id));
        let others = others.map(|node| (node.id.0.into(), f64::from(node.capacity) * f64::from(node.share)));
        let others = self.rendezvous.order(key.digest, others, usize::MAX);
        preferences.extend(others.into_iter().map(|node| NodeId(node as u16)));
        preferences
    }

    /// Whether the node is the key's place in its layer.
    pub fn is_place(&self, key: &Key, node: NodeId) -> bool {
        self.places(key).contains(&Some(node))
    }
}

/// How many places a step means, at least: 2, 3, 4, 6, 8, 12, ... after the base, which is no number of its own.
pub fn places_of(degree: Degree) -> usize {
    match degree.0.min(STEP_MAX) {
        0 => 0,
        step if step % 2 == 1 => 2 << (step / 2),
        step => 3 << (step / 2 - 1),
    }
}

/// The least step with so many places, where the base has one in each of `layers`.
pub fn degree_for(places: usize, layers: usize) -> Degree {
    if places <= layers {
        return Degree::BASE;
    }
    let steps = (1..STEP_MAX).map(Degree);
    steps.into_iter().find(|degree| places_of(*degree) >= places).unwrap_or(Degree(STEP_MAX))
}

/// The greatest step with no more than so many places.
fn degree_within(places: usize, layers: usize) -> Degree {
    let mut steps = (1..=STEP_MAX).rev().map(Degree);
    let found = steps.find(|degree| places_of(*degree) <= places).unwrap_or_default();
    if places_of(found) > layers { found } else { Degree::BASE }
}

/// How many places a key needs that would keep so many nodes busy: two for each half of a node, and none but the base for the
/// first half.
fn places_needed(nodes: f64) -> usize {
    // Of floats, `as` keeps to the range of the target.
    if nodes <= 0.5 { 0 } else { ((2.0 * nodes).ceil() as usize).saturating_mul(2) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::{
        ClusterMap, LayerMap, NodeMember, Partition, RackId, SHARE_WHOLE, Sharding, ShimId, ShimMember,
    };

    use super::*;

    /// Leaves of two racks, and spines; `changed` has another capacity or share.
    fn placement(nodes: u16, changed: Option<(u16, u32, u16)>) -> Placement {
        let node = |id: u16, rack: Option<RackId>| {
            let (capacity, share) = match changed {
                Some((other, capacity, share)) if other == id => (capacity, share),
                _ => (1000, SHARE_WHOLE),
            };
            NodeMember { id: NodeId(id), rack, capacity, share }
        };
        let leaves = (0..nodes).map(|id| node(id, Some(RackId(id % 2)))).collect();
        let spines = (nodes..2 * nodes).map(|id| node(id, None)).collect();
        let shim = |id: u16| ShimMember::new(ShimId(id), RackId(id % 2));
        let map = ClusterMap {
            epoch: 1,
            level: 1,
            shims: (0..4).map(shim).collect(),
            layers: vec![
                LayerMap { name: "leaf".into(), partition: Partition::Rack, nodes: leaves },
                LayerMap { name: "spine".into(), partition: Partition::Hash, nodes: spines },
            ],
            sharding: Sharding::Ring,
        };
        Placement::new(Secret([7; 16]), map).unwrap()
    }

    fn preferences(placement: &Placement, number: u32) -> Vec<NodeId> {
        placement.preferences(&placement.key(0, Bytes::from(number.to_string())))
    }

    #[test]
    fn all_nodes_once_and_the_places_first() {
        let placement = placement(8, None);
        for number in 0..500 {
            let key = placement.key(0, Bytes::from(number.to_string()));
            let all = placement.preferences(&key);
            let places: Vec<NodeId> = placement.places(&key).into_iter().flatten().collect();
            assert_eq!(all[..2], places);
            let mut sorted = all.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..16).map(NodeId).collect::<Vec<_>>());
            assert!(all[..2].iter().all(|node| placement.is_place(&key, *node)));
            assert!(!placement.is_place(&key, all[2]));
        }
    }

    /// One that goes down leaves the others in their order; one that may do more only rises.
    #[test]
    fn a_change_of_one_node_moves_that_one_alone() {
        let all_up = placement(6, None);
        for node in 0..12u16 {
            let down = placement(6, Some((node, 1000, 0)));
            let stronger = placement(6, Some((node, 1001 + 500 * u32::from(node), SHARE_WHOLE)));
            let further = |all: &[NodeId]| -> Vec<NodeId> {
                all.iter().skip(2).copied().filter(|other| other.0 != node).collect()
            };
            let place = |all: &[NodeId]| all.iter().position(|other| other.0 == node);
            for number in 0..200 {
                let all = preferences(&all_up, number);
                if place(&all) >= Some(2) {
                    let without = preferences(&down, number);
                    assert_eq!((place(&without), further(&without)), (None, further(&all)));
                }
                let risen = preferences(&stronger, number);
                if risen[..2] == all[..2] {
                    assert_eq!(further(&risen), further(&all));
                    assert!(place(&risen) <= place(&all));
                }
            }
        }
    }

    #[test]
    fn a_step_is_found_for_any_number() {
        for layers in 1..5 {
            for places in (0..300).chain((300..70_000).step_by(97)) {
                let (least, most) = (degree_for(places, layers), degree_within(places, layers));
                assert_eq!(least.is_base(), places <= layers, "{places} of {layers}");
                assert!(least.is_base() || places_of(least) >= places.min(65_536));
                assert!(least.0 <= 1 || places_of(Degree(least.0 - 1)) < places);
                assert!(places_of(most) <= places && (most.is_base() || places_of(most) > layers));
                assert!(most.is_base() || places_of(Degree(most.0 + 1)) > places || most.0 == STEP_MAX);
                assert!(most <= least);
            }
        }
    }

    #[test]
    fn half_octaves() {
        let steps: Vec<usize> = (1..=9).map(|step| places_of(Degree(step))).collect();
        assert_eq!(steps, [2, 3, 4, 6, 8, 12, 16, 24, 32]);
        assert_eq!(places_of(Degree(u8::MAX)), 65_536, "what nobody sends is no panic");
    }

    #[test]
    fn two_places_for_each_half_of_a_node() {
        let needed = [0.0, 0.5, 0.501, 1.0, 1.001, 16.0].map(places_needed);
        assert_eq!(needed, [0, 0, 4, 4, 6, 64]);
        // Thousandths of a node, as the product counts, are exact where it matters.
        for permille in (0..200_000u64).chain((200_000..70_000_000).step_by(333)) {
            let due = if permille <= 500 { 0 } else { 2 * (2 * permille).div_ceil(1000) };
            assert_eq!(places_needed(permille as f64 / 1000.0) as u64, due, "{permille}");
        }
        assert_eq!(places_needed(f64::INFINITY), usize::MAX);
    }

    #[test]
    fn copies_answer_four_reads_for_each_invalidation() {
        let check = |hits: f64, invalidations, copies_max, due| {
            let invalidations_max = f64::INFINITY;
            let degree = Demand { nodes: 4.0, hits, invalidations, invalidations_max }.degree(2, copies_max);
            assert_eq!(places_of(degree), due, "{hits} of {invalidations}, at most {copies_max}");
        };
        check(1000.0, 0.0, usize::MAX, 16);
        check(1000.0, 10.0, usize::MAX, 16);
        check(1000.0, 16.0, usize::MAX, 12);
        check(48.0, 1.0, usize::MAX, 12);
        check(47.9, 1.0, usize::MAX, 8);
        check(12.0, 1.0, usize::MAX, 3);
        check(11.9, 1.0, usize::MAX, 0);
        check(0.0, 1.0, usize::MAX, 0);
        check(1000.0, 0.0, 7, 6);
        check(1000.0, 0.0, 1, 0);
    }

    #[test]
    fn the_shim_has_time_for_all_else() {
        let places = |invalidations_max| {
            let demand = Demand { nodes: 4.0, hits: 1e6, invalidations: 10.0, invalidations_max };
            places_of(demand.degree(2, usize::MAX))
        };
        assert_eq!([1e9, 160.0, 159.0, 30.0, 29.0, 0.0, -5.0].map(places), [16, 16, 12, 3, 0, 0, 0]);
    }

    /// The third place of many keys, by capacity.
    #[test]
    fn stronger_nodes_are_preferred_as_often_as_their_capacity_says() {
        let placement = placement(4, Some((5, 3000, SHARE_WHOLE)));
        let mut counts = [0u32; 8];
        for number in 0..40_000 {
            counts[usize::from(preferences(&placement, number)[2].0)] += 1;
        }
        // It is the key's own spine in a half of all cases; each other spine in a sixth.
        let expected = |node: u16| {
            let mut share = 0.0;
            for leaf in 0..4u16 {
                for spine in 4..8u16 {
                    if node != leaf && node != spine {
                        let weight = |id: u16| if id == 5 { 3.0 } else { 1.0 };
                        let all: f64 = (0..8).filter(|id| ![leaf, spine].contains(id)).map(weight).sum();
                        share += 0.25 * weight(spine) / 6.0 * weight(node) / all;
                    }
                }
            }
            share
        };
        for (node, count) in counts.into_iter().enumerate() {
            let due = expected(node as u16);
            let share = f64::from(count) / 40_000.0;
            assert!((share / due - 1.0).abs() < 0.12, "node {node}: {share}, not {due}");
        }
    }
}
