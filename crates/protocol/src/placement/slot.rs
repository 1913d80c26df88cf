//! The hash slots of Redis Cluster, and which shim has each. Not which server has a slot at the moment.

use wire::key::hash_tag;
use wire::{ClusterMap, PoolServer, ShimId};

pub const SLOTS: u16 = 16_384;

const CRC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);

/// The slot of a key.
pub fn slot(key: &[u8]) -> u16 {
    of(hash_tag(key))
}

/// The slot of keys with this hash tag.
pub(super) fn of(tag: &[u8]) -> u16 {
    CRC.checksum(tag) % SLOTS
}

/// The first slot of a shim of so many, and the first of the next. Rounded as `redis-cli --cluster create` does it, so
/// that with as many primaries as shims each shim has to do with one.
pub fn range(shim: ShimId, shims_count: usize) -> (u16, u16) {
    let count = shims_count.max(1) as u64;
    let first =
        |index: u64| ((2 * index * u64::from(SLOTS) + count) / (2 * count)).min(u64::from(SLOTS)) as u16;
    (first(u64::from(shim.0)), first(u64::from(shim.0) + 1))
}

/// The shim of every slot.
pub(super) fn owners(map: &ClusterMap) -> Box<[ShimId]> {
    let mut owners = Vec::with_capacity(usize::from(SLOTS));
    for shim in &map.shims {
        let (first, end) = range(shim.id, map.shims.len());
        owners.extend((first..end).map(|_| shim.id));
    }
    owners.into_boxed_slice()
}

/// The server of every slot, where they are dealt to servers for ever: as each says, or in equal ranges.
pub(super) fn dealt(servers: &[PoolServer]) -> Box<[ShimId]> {
    let mut owners = vec![ShimId(0); usize::from(SLOTS)];
    let equal = servers.iter().all(|server| server.slots.is_empty());
    for (index, server) in servers.iter().enumerate() {
        let shim = ShimId(index as u16);
        let (first, end) = range(shim, servers.len());
        let ranges = if equal { vec![(first, end - 1)] } else { server.slots.clone() };
        for (first, last) in ranges {
            owners[usize::from(first)..=usize::from(last)].fill(shim);
        }
    }
    owners.into()
}

/// Whether each slot is dealt once, if any is.
pub fn are_dealt<'a>(slots: impl Iterator<Item = &'a Vec<(u16, u16)>>) -> bool {
    let mut ranges: Vec<(u16, u16)> = slots.flatten().copied().collect();
    ranges.sort_unstable();
    let mut next = 0;
    for (first, last) in &ranges {
        if *first != next || last < first || *last >= SLOTS {
            return false;
        }
        next = last + 1;
    }
    ranges.is_empty() || next == SLOTS
}

#[cfg(test)]
mod tests {
    use super::{SLOTS, range, slot};
    use wire::ShimId;

    /// What `CLUSTER KEYSLOT` says.
    #[test]
    fn slots_are_those_of_redis_cluster() {
        for (key, expected) in
            [("", 0), ("123456789", 12739), ("foo", 12182), ("{foo}bar", 12182), ("a{}foo", slot(b"a{}foo"))]
        {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_ne!(slot(b"a{}foo"), slot(b"b{}foo"), "an empty tag is none");
    }

    /// What `redis-cli --cluster create` deals to three and to seven primaries.
    #[test]
    fn ranges_are_those_of_redis_cli() {
        let ranges = |count| (0..count as u16).map(|shim| range(ShimId(shim), count)).collect::<Vec<_>>();
        assert_eq!(ranges(3), [(0, 5461), (5461, 10923), (10923, SLOTS)]);
        let seven = [0, 2341, 4681, 7022, 9362, 11703, 14043, SLOTS];
        assert_eq!(ranges(7), seven.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>());
        assert_eq!(ranges(1), [(0, SLOTS)]);
    }
}
