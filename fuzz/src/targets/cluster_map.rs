//! Cluster maps and keys: a map is refused or places every key, and hash tags decide as in Redis Cluster, or as other software has them.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use protocol::placement::{Placement, Secret};
use wire::map::SHARE_WHOLE;
use wire::{
    ClusterMap, Distribution, HashTag, LayerMap, NodeId, NodeMember, Partition, PoolHash, PoolServer, RackId,
    Sharding, ShimId, ShimMember, StoragePool, WideHash,
};

pub(crate) fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let Ok(map) = map(&mut bytes) else { return };
    let placement = match Placement::new(Secret([7; 16]), map.clone()) {
        Ok(placement) => placement,
        Err(refused) => return assert!(!refused.to_string().is_empty()),
    };
    while !bytes.is_empty() {
        let Ok(key) = bytes.arbitrary::<&[u8]>() else { return };
        check(&placement, &map, key);
    }
}

/// Mostly in order, so that some are accepted.
fn map(bytes: &mut Unstructured<'_>) -> Result<ClusterMap> {
    let mut next = 0;
    let shims = (0..bytes.int_in_range(0..=5)?)
        .map(|index| Ok(ShimMember::new(ShimId(number(bytes, index)?), RackId(number(bytes, index % 3)?))))
        .collect::<Result<Vec<_>>>()?;
    let layers = (0..bytes.int_in_range(0..=5)?)
        .map(|layer| {
            let partition = if bytes.ratio(1, 2)? { Partition::Rack } else { Partition::Hash };
            let nodes = (0..bytes.int_in_range(0..=4)?)
                .map(|index| {
                    let id = NodeId(number(bytes, next)?);
                    next += 1;
                    let rack = if bytes.ratio(4, 5)? { Some(RackId(number(bytes, index)?)) } else { None };
                    // Larger ones are refused or cost rings of many MiB: that limit has a test of its own.
                    let capacity = u32::from(bytes.arbitrary::<u8>()?) * 40;
                    let share = *bytes.choose(&[SHARE_WHOLE, SHARE_WHOLE, 0, 1, 500, SHARE_WHOLE + 1])?;
                    Ok(NodeMember { id, rack, capacity, share })
                })
                .collect::<Result<Vec<_>>>()?;
            Ok(LayerMap { name: format!("layer-{layer}"), partition, nodes })
        })
        .collect::<Result<Vec<_>>>()?;
    let sharding = match bytes.int_in_range(0..=3)? {
        0 => Sharding::Slots,
        1 => Sharding::Pool(pool(bytes, shims.len())?),
        _ => Sharding::Ring,
    };
    Ok(ClusterMap { epoch: bytes.arbitrary()?, level: 1, sharding, layers, shims })
}

fn pool(bytes: &mut Unstructured<'_>, shims: usize) -> Result<StoragePool> {
    let distribution = *bytes.choose(&[
        Distribution::Libmemcached,
        Distribution::Ketama(PoolHash::Hsieh),
        Distribution::Modula(PoolHash::Jenkins),
        Distribution::Slots,
        Distribution::Jump(WideHash::Xxh64),
        Distribution::Jedis,
        Distribution::Jedis2,
        Distribution::Rendezvous,
    ])?;
    let hash_tag =
        *bytes.choose(&[HashTag::Whole, HashTag::Between(b'{', b'}'), HashTag::Between(b'$', b'$')])?;
    let count = number(bytes, shims as u16)?.min(8);
    let servers = (0..count)
        .map(|index| {
            let name = bytes.ratio(1, 2)?.then(|| format!("server-{index}"));
            let slots =
                if bytes.ratio(1, 8)? { vec![(bytes.arbitrary()?, bytes.arbitrary()?)] } else { Vec::new() };
            Ok(PoolServer { name, weight: u32::from(bytes.arbitrary::<u8>()? % 4), slots })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(StoragePool { distribution, hash_tag, servers: servers.into() })
}

fn number(bytes: &mut Unstructured<'_>, due: u16) -> Result<u16> {
    if bytes.ratio(1, 16)? { bytes.arbitrary() } else { Ok(due) }
}

fn check(placement: &Placement, map: &ClusterMap, bytes: &[u8]) {
    let key = placement.key(0, Bytes::copy_from_slice(bytes));
    let shim = placement.shim(&key);
    let rack = placement.rack_of(shim);
    assert_eq!(map.shims[usize::from(shim.0)].rack, rack);
    for (index, place) in placement.places(&key).into_iter().enumerate() {
        let Some(layer) = map.layers.get(index) else { return assert_eq!(place, None) };
        let fits = |node: &&NodeMember| {
            node.is_up() && (layer.partition == Partition::Hash || node.rack == Some(rack))
        };
        match place {
            Some(place) => {
                let node = layer.nodes.iter().find(|node| node.id == place).expect("a node of the layer");
                assert!(fits(&node), "{place:?} does not own this key");
                assert_eq!(placement.layer_of(place), index);
            }
            None => assert_eq!(layer.nodes.iter().find(fits), None, "a node could own this key"),
        }
    }
    let tag = match map.sharding {
        Sharding::Pool(_) => placement.tag(bytes).unwrap_or(bytes),
        Sharding::Ring | Sharding::Slots => tag(bytes).unwrap_or(bytes),
    };
    // What Jedis takes for a tag may have one inside.
    if placement.tag(tag).is_none() {
        let alone = placement.shim(&placement.key(9, Bytes::copy_from_slice(tag)));
        assert_eq!(alone, shim, "the tag alone goes elsewhere");
    }
}

/// As the specification of Redis Cluster puts it, written anew: what must be hashed instead of the whole key.
fn tag(key: &[u8]) -> Option<&[u8]> {
    let mut halves = key.splitn(2, |byte| *byte == b'{');
    let (_, after) = (halves.next()?, halves.next()?);
    let close = after.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &after[..close])
}
