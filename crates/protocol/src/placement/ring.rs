//! One consistent-hash ring with weighted virtual nodes. Not which ring a key uses, nor where on it the key lies.

use siphasher::sip::SipHasher24;
use wire::SHARE_WHOLE;

/// Virtual nodes of a member of capacity 1.0 (1,000 thousandths): a share then strays from its due by about
/// 1/sqrt(512) = 4 %. More would make rings outgrow the processor's caches, fewer would unbalance partitions.
pub(super) const POINTS_PER_UNIT: u64 = 512;

/// How many virtual nodes a member of this capacity has when it owns its whole partition.
pub(super) fn points_of(capacity: u32) -> u64 {
    (u64::from(capacity) * POINTS_PER_UNIT / 1000).max(1)
}

/// How many of them a member has that owns `share` thousandths.
fn points_shared(capacity: u32, share: u16) -> u32 {
    match share {
        0 => 0,
        share => (points_of(capacity) * u64::from(share) / u64::from(SHARE_WHOLE)).max(1) as u32,
    }
}

/// Points on a circle of 2^64 positions; a position belongs to the owner of the first point at or after it.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Ascending; the last one is a sentinel at the top that wraps around to the owner of the first.
    points: Vec<u64>,
    /// The owner of each point.
    owners: Vec<u16>,
    /// Where the search for a position starts, by the position's top bits: about one entry per point, so a
    /// lookup looks at one or two points however large the ring is.
    starts: Vec<u32>,
    shift: u32,
}

impl Ring {
    /// Places `members` (id, capacity in thousandths, share) on the circle. Points depend on the hash key and the
    /// member's own id, capacity and share alone, so that a member that leaves moves nobody else's keys. The points
    /// of a smaller share are the first ones of a larger one: as a share grows, keys only move to its owner.
    pub(super) fn new(hash: &SipHasher24, members: impl Iterator<Item = (u16, u32, u16)>) -> Ring {
        let mut placed: Vec<(u64, u16)> = Vec::new();
        for (id, capacity, share) in members {
            let count = points_shared(capacity, share);
            placed.extend((0..count).map(|index| (point(hash, id, index), id)));
        }
        placed.sort_unstable();
        let bits = placed.len().next_power_of_two().trailing_zeros().max(1);
        let shift = 64 - bits;
        let mut points: Vec<u64> = placed.iter().map(|&(point, _)| point).collect();
        let mut owners: Vec<u16> = placed.iter().map(|&(_, id)| id).collect();
        let starts = (0..1u64 << bits)
            .map(|top| points.partition_point(|&point| point < top << shift) as u32)
            .collect();
        if let Some(&first) = owners.first() {
            points.push(u64::MAX);
            owners.push(first);
        }
        Ring { points, owners, starts, shift }
    }

    /// Who owns `position`; nobody if the ring has no members.
    pub(super) fn owner(&self, position: u64) -> Option<u16> {
        let mut index = self.starts[(position >> self.shift) as usize] as usize;
        while *self.points.get(index)? < position {
            index += 1;
        }
        Some(self.owners[index])
    }

    /// The part of the circle that each of so many members owns; their ids are below `members`.
    pub(super) fn shares(&self, members: usize) -> Vec<f64> {
        let mut shares = vec![0.0; members];
        let mut from = 0;
        for (&point, &owner) in self.points.iter().zip(&self.owners) {
            shares[usize::from(owner)] += (point - from) as f64 / 2f64.powi(64);
            from = point;
        }
        shares
    }
}

/// Six bytes, so it never hashes like a digest of sixteen; like a key of six it may, which harms nobody.
fn point(hash: &SipHasher24, id: u16, index: u32) -> u64 {
    let mut name = [0; 6];
    name[..2].copy_from_slice(&id.to_be_bytes());
    name[2..].copy_from_slice(&index.to_be_bytes());
    hash.hash(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash() -> SipHasher24 {
        SipHasher24::new_with_keys(7, 11)
    }

    /// The naive twin: the smallest point at or after the position, or the smallest of all.
    fn owner_by_scan(ring: &Ring, position: u64) -> Option<u16> {
        let real = ring.points.len().checked_sub(1)?;
        let all = || ring.points[..real].iter().zip(&ring.owners);
        let next = all().filter(|(point, _)| **point >= position).min();
        next.or_else(|| all().min()).map(|(_, owner)| *owner)
    }

    #[test]
    fn lookup_agrees_with_a_scan_of_all_points() {
        for members in [1u16, 2, 3, 17] {
            let ring = Ring::new(&hash(), (0..members).map(|id| (id, 100 + 37 * u32::from(id), SHARE_WHOLE)));
            let edges = ring.points.iter().flat_map(|&p| [p.wrapping_sub(1), p, p.wrapping_add(1)]);
            let spread = (0..2000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for position in edges.chain(spread).chain([0, 1, u64::MAX - 1, u64::MAX]) {
                assert_eq!(
                    ring.owner(position),
                    owner_by_scan(&ring, position),
                    "{members} at {position:#x}"
                );
            }
        }
    }

    #[test]
    fn a_share_is_how_often_a_position_is_the_member_s() {
        let ring = Ring::new(&hash(), (0..5).map(|id| (id, 400 + 300 * u32::from(id), SHARE_WHOLE)));
        let mut counts = [0u32; 5];
        for n in 0..1u64 << 18 {
            counts[usize::from(ring.owner(n << 46).unwrap())] += 1;
        }
        let shares = ring.shares(5);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        for (share, count) in shares.into_iter().zip(counts) {
            let due = f64::from(count) / f64::from(1 << 18);
            assert!((share / due - 1.0).abs() < 0.01, "{share}, not {due}");
        }
    }

    #[test]
    fn an_empty_ring_has_no_owner() {
        let ring = Ring::new(&hash(), std::iter::empty());
        assert_eq!(ring.owner(0), None);
        assert_eq!(ring.owner(u64::MAX), None);
    }

    #[test]
    fn the_smallest_capacity_still_owns_something() {
        let ring = Ring::new(&hash(), [(0, 1, 1), (1, 1000, SHARE_WHOLE)].into_iter());
        assert!(ring.owners.contains(&0));
    }
}
