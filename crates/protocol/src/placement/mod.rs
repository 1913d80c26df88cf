//! Where keys go: the shim of each key and its one place in every layer (paper, section 3.1). Never who holds copies.

pub mod agreement;
pub mod elastic;
mod functions;
mod hashes;
mod map_error;
mod pool;
mod ring;
mod secret;
pub mod slot;

use bytes::Bytes;
use siphasher::sip;
use wire::message::LAYERS_MAX;
use wire::{
    ClusterMap, HashTag, Key, LayerMap, NodeId, NodeMember, Partition, RackId, Relocation, SHARE_WHOLE,
    Sharding, ShimId, ShimMember, ShimState,
};

use elastic::Rendezvous;
pub use functions::Functions;
pub use map_error::MapError;
use pool::{KeyPart, PoolServers};
use ring::Ring;
pub use secret::Secret;

/// The node that may hold a key, per layer; none where every node of that part is down.
pub type Places = [Option<NodeId>; LAYERS_MAX];

/// The capacity of a shim's share of the keys; all shims are alike.
const SHIM_CAPACITY: u32 = 1000;

/// One epoch's assignment of keys to shims and nodes. Immutable; every role computes the same one from the
/// same secret and map. Digests and shims do not depend on the epoch.
#[derive(Clone, Debug)]
pub struct Placement {
    map: ClusterMap,
    functions: Functions,
    views: sip::SipHasher24,
    rendezvous: Rendezvous,
    shards: Shards,
    part: KeyPart,
    /// By layer. The functions of two layers are independent, which is what lets one layer spread the keys that
    /// overload a node of another.
    layers: Vec<Rings>,
    /// By node.
    layer_of: Vec<usize>,
}

/// Which keys are whose.
#[derive(Clone, Debug)]
enum Shards {
    Ring(Ring),
    /// By slot.
    Slots(Box<[ShimId]>),
    /// There is no other shim, and nothing to compute.
    One(ShimId),
    Pool(PoolServers),
    Changing(ChangingRing),
}

/// Keys that are divided anew while they are served.
#[derive(Clone, Debug)]
struct ChangingRing {
    before: Ring,
    after: Ring,
    /// By shim.
    relocations: Box<[Relocation]>,
}

/// Where a key is at home. Keys with the same home may go into one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    pub shim: ShimId,
    /// Only where storage is divided by slots.
    pub slot: Option<u16>,
    /// The shim at the other end of its way, while keys are divided anew; the same where it stays.
    pub other: Option<ShimId>,
}

/// Whether a shim has a key. No two have it at the same time, as long as each acts on what one of the maps says that follow
/// each other, and none is followed by the next before all act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Custody {
    Own,
    /// Another one has it and is about to give it up.
    Awaited,
    Foreign,
}

#[derive(Clone, Debug)]
enum Rings {
    /// By rack.
    Racks(Vec<Ring>),
    Whole(Ring),
}

impl Placement {
    /// Builds the rings of one map. Fails on a map that no configuration check should have let through.
    pub fn new(secret: Secret, map: ClusterMap) -> Result<Placement, MapError> {
        map_error::check(&map)?;
        let functions = Functions::new(secret, map.layers.len());
        let shards = match &map.sharding {
            Sharding::Pool(_) | Sharding::Ring if map.shims.len() == 1 => Shards::One(map.shims[0].id),
            Sharding::Pool(pool) => Shards::Pool(PoolServers::new(pool)),
            Sharding::Ring => Shards::ring(&functions, &map),
            Sharding::Slots => Shards::Slots(slot::owners(&map)),
        };
        let racks_count = map.shims.iter().map(|shim| usize::from(shim.rack.0) + 1).max().unwrap_or(0);
        let mut layer_of = vec![0; map.layers.iter().map(|layer| layer.nodes.len()).sum()];
        let mut layers = Vec::with_capacity(map.layers.len());
        for (index, layer) in map.layers.iter().enumerate() {
            for node in &layer.nodes {
                layer_of[usize::from(node.id.0)] = index;
            }
            layers.push(Rings::new(&functions.layers[index], layer, racks_count));
        }
        let views = sip::SipHasher24::new_with_key(&secret.derive(b"view"));
        let part = match &map.sharding {
            Sharding::Pool(pool) => KeyPart::of(pool),
            Sharding::Ring | Sharding::Slots => KeyPart::REDIS,
        };
        let rendezvous = Rendezvous::new(secret);
        Ok(Placement { map, functions, views, rendezvous, shards, part, layers, layer_of })
    }

    /// The hash that tells the views of a key apart; see `command::view`.
    pub fn view_hash(&self) -> &sip::SipHasher24 {
        &self.views
    }

    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    pub fn epoch(&self) -> u32 {
        self.map.epoch
    }

    /// How many places a key has in the base: one in each layer.
    pub fn layers_count(&self) -> usize {
        self.layers.len()
    }

    /// How many nodes all layers have together; ids are below it.
    pub fn nodes_count(&self) -> usize {
        self.layer_of.len()
    }

    /// The key with its digest.
    pub fn key(&self, database: u16, bytes: Bytes) -> Key {
        Key { digest: self.functions.digest(database, &bytes), database, bytes }
    }

    /// The shim that has the key. Keys with the same hash tag have the same shim, and so have the same keys of all databases, because
    /// MOVE, COPY and SWAPDB work inside one server.
    pub fn shim(&self, key: &Key) -> ShimId {
        self.home(key).shim
    }

    /// The key's shim, and its slot where there are slots.
    pub fn home(&self, key: &Key) -> Home {
        match &self.shards {
            Shards::Ring(ring) => {
                let owner = ring.owner(self.functions.storage(&key.bytes));
                Home::at(ShimId(owner.expect("a map without shims is refused")))
            }
            Shards::Slots(owners) => {
                let slot = slot::slot(&key.bytes);
                Home { slot: Some(slot), ..Home::at(owners[usize::from(slot)]) }
            }
            Shards::One(shim) => Home::at(*shim),
            Shards::Pool(pool) => Home::at(pool.shim(&key.bytes)),
            Shards::Changing(rings) => rings.home(self.functions.storage(&key.bytes)),
        }
    }

    /// Whether the shim has the key.
    pub fn custody(&self, shim: ShimId, key: &Key) -> Custody {
        match &self.shards {
            Shards::Changing(rings) => rings.custody(shim, self.functions.storage(&key.bytes)),
            _ if self.shim(key) == shim => Custody::Own,
            _ => Custody::Foreign,
        }
    }

    /// The shim to whose storage a key of this one is to go or has gone, while keys are divided anew; none if it stays.
    pub fn departure(&self, from: ShimId, key: &[u8]) -> Option<ShimId> {
        let Shards::Changing(rings) = &self.shards else { return None };
        let [before, after] = rings.owners(self.functions.storage(key));
        (before == from && after != from).then_some(after)
    }

    /// The shims before servers that may hold keys, in their order.
    pub fn shims_with_keys(&self) -> impl Iterator<Item = ShimId> + '_ {
        self.map.shims.iter().filter(|shim| shim.state != ShimState::Absent).map(|shim| shim.id)
    }

    /// Whether the shim's server may hold keys.
    pub fn may_have_keys(&self, shim: ShimId) -> bool {
        self.map.shims.get(usize::from(shim.0)).is_some_and(|shim| shim.state != ShimState::Absent)
    }

    /// The shim where commands without keys are carried out that need one server, whichever it is.
    pub fn first_shim(&self) -> ShimId {
        self.shims_with_keys().next().expect("a map without owners is refused")
    }

    /// Whether every key has the same shim as in another map of the cluster, now and at the other end of its way.
    pub fn divides_keys_as(&self, other: &Placement) -> bool {
        let parts = |placement: &Placement| -> Vec<_> {
            placement.map.shims.iter().map(|shim| (shim.state, shim.relocation)).collect()
        };
        parts(self) == parts(other)
    }

    /// Whether keys are divided anew.
    pub fn is_changing(&self) -> bool {
        matches!(self.shards, Shards::Changing(_))
    }

    /// The shims whose storage keys of this one go to, while they are divided anew.
    pub fn destinations(&self, from: ShimId) -> Vec<ShimId> {
        let gives = self.map.givers().any(|shim| shim.id == from);
        self.map.takers().filter(|_| gives).map(|shim| shim.id).collect()
    }

    /// Whether the key is another shim's and is to come to this one.
    pub fn arrives(&self, shim: ShimId, key: &[u8]) -> bool {
        let Shards::Changing(rings) = &self.shards else { return false };
        let [before, after] = rings.owners(self.functions.storage(key));
        before != shim && after == shim
    }

    /// Whether keys are to come to this shim once nothing is left there of earlier ones.
    pub fn is_unprepared(&self, shim: ShimId) -> bool {
        self.map.takers().any(|taker| taker.id == shim) && !self.is_prepared(shim)
    }

    /// Whether keys that come to this shim find nothing that earlier ones have left.
    pub fn is_prepared(&self, shim: ShimId) -> bool {
        self.map.shims[usize::from(shim.0)].relocation >= Relocation::Announced
    }

    /// The part of a key for whose sake it lies with others that have the same one, if it has such a part: by the rule of Redis
    /// Cluster, unless other software has laid out the keys.
    pub fn tag<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        self.part.tag(key)
    }

    /// Between which characters hash tags stand, if there are any.
    pub fn hash_tag(&self) -> HashTag {
        self.part.marks()
    }

    /// Whether hash tags are those of Redis Cluster.
    pub fn has_redis_tags(&self) -> bool {
        self.part.is_redis()
    }

    /// The part of all keys that each shim has, if there are many.
    pub fn shim_shares(&self) -> Vec<f64> {
        let shims = self.map.shims.len();
        match &self.shards {
            Shards::Ring(ring) => ring.shares(shims),
            Shards::Slots(owners) => {
                let mut shares = vec![0.0; shims];
                owners.iter().for_each(|shim| shares[usize::from(shim.0)] += 1.0 / owners.len() as f64);
                shares
            }
            Shards::One(shim) => {
                (0..shims).map(|index| f64::from(u8::from(index == usize::from(shim.0)))).collect()
            }
            Shards::Changing(rings) => rings.before.shares(shims),
            Shards::Pool(pool) => pool.shares(shims),
        }
    }

    /// The key's places, one per layer.
    pub fn places(&self, key: &Key) -> Places {
        let rack = self.rack_of(self.shim(key));
        let mut places = [None; LAYERS_MAX];
        for (index, (rings, place)) in self.layers.iter().zip(&mut places).enumerate() {
            let ring = match rings {
                Rings::Racks(rings) => &rings[usize::from(rack.0)],
                Rings::Whole(ring) => ring,
            };
            *place = ring.owner(self.functions.layer(index, key.digest)).map(NodeId);
        }
        places
    }

    /// The layer of a node that is known to be in the map. Panics on others.
    pub fn layer_of(&self, node: NodeId) -> usize {
        self.layer_of[usize::from(node.0)]
    }

    /// The rack of a shim that is known to be in the map. Panics on others.
    pub fn rack_of(&self, shim: ShimId) -> RackId {
        self.map.shims[usize::from(shim.0)].rack
    }
}

impl Home {
    fn at(shim: ShimId) -> Home {
        Home { shim, slot: None, other: None }
    }
}

impl Shards {
    fn ring(functions: &Functions, map: &ClusterMap) -> Shards {
        let ring = |owns: fn(&ShimMember) -> bool| {
            let owners = map.shims.iter().filter(|shim| owns(shim));
            Ring::new(&functions.storage, owners.map(|shim| (shim.id.0, SHIM_CAPACITY, SHARE_WHOLE)))
        };
        if map.is_changing() {
            let relocations = map.shims.iter().map(|shim| shim.relocation).collect();
            let (before, after) = (ring(ShimMember::is_owner), ring(ShimMember::will_be_owner));
            return Shards::Changing(ChangingRing { before, after, relocations });
        }
        let mut owners = map.shims.iter().filter(|shim| shim.is_owner());
        match (owners.next(), owners.next()) {
            (Some(one), None) => Shards::One(one.id),
            _ => Shards::Ring(ring(ShimMember::is_owner)),
        }
    }
}

impl ChangingRing {
    fn owners(&self, position: u64) -> [ShimId; 2] {
        let owner = |ring: &Ring| ShimId(ring.owner(position).expect("a map without owners is refused"));
        [owner(&self.before), owner(&self.after)]
    }

    fn home(&self, position: u64) -> Home {
        let [before, after] = self.owners(position);
        let (shim, other) = match self.relocation(before) {
            Relocation::Moving => (before, after),
            _ => (after, before),
        };
        Home { other: Some(other), ..Home::at(shim) }
    }

    fn relocation(&self, from: ShimId) -> Relocation {
        self.relocations[usize::from(from.0)]
    }

    fn custody(&self, shim: ShimId, position: u64) -> Custody {
        let [before, after] = self.owners(position);
        let relocation = self.relocation(before);
        match () {
            () if before == after => {
                if shim == before {
                    Custody::Own
                } else {
                    Custody::Foreign
                }
            }
            () if shim == before && relocation < Relocation::Closing => Custody::Own,
            () if shim == after && relocation == Relocation::Gone => Custody::Own,
            () if shim == after => Custody::Awaited,
            () => Custody::Foreign,
        }
    }
}

impl Rings {
    /// A node that is down has no points, so its neighbours on the circle take over its pieces.
    fn new(hash: &sip::SipHasher24, layer: &LayerMap, racks_count: usize) -> Rings {
        let member = |node: &NodeMember| (node.id.0, node.capacity, node.share);
        match layer.partition {
            Partition::Hash => Rings::Whole(Ring::new(hash, layer.nodes.iter().map(member))),
            Partition::Rack => Rings::Racks(
                (0..racks_count)
                    .map(|rack| {
                        let here = |node: &&NodeMember| node.rack.is_some_and(|r| usize::from(r.0) == rack);
                        Ring::new(hash, layer.nodes.iter().filter(here).map(member))
                    })
                    .collect(),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
