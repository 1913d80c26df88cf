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
    ClusterMap, HashTag, Key, LayerMap, NodeId, NodeMember, Partition, RackId, SHARE_WHOLE, Sharding, ShimId,
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
}

/// Where a key is at home. Keys with the same home may go into one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    pub shim: ShimId,
    /// Only where storage is divided by slots.
    pub slot: Option<u16>,
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
            Sharding::Ring => {
                let shims = map.shims.iter().map(|shim| (shim.id.0, SHIM_CAPACITY, SHARE_WHOLE));
                Shards::Ring(Ring::new(&functions.storage, shims))
            }
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
                Home { shim: ShimId(owner.expect("a map without shims is refused")), slot: None }
            }
            Shards::Slots(owners) => {
                let slot = slot::slot(&key.bytes);
                Home { shim: owners[usize::from(slot)], slot: Some(slot) }
            }
            Shards::One(shim) => Home { shim: *shim, slot: None },
            Shards::Pool(pool) => Home { shim: pool.shim(&key.bytes), slot: None },
        }
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
            Shards::One(_) => vec![1.0],
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
