//! Keys on a list of servers where other software has put them, so that both look for a key at the same server. Not which
//! servers there are, nor who has shown it (decision 59).

use md5::{Digest as _, Md5};
use wire::{Distribution, HashTag, PoolHash, PoolServer, ShimId, StoragePool, WideHash};

use super::hashes::{one_at_a_time, pool_hash, wide_hash, word};
use super::slot;

/// Points of each server on libmemcached's circle without weights.
const POINTS: u32 = 100;
/// Points of a server of average weight on twemproxy's circle; four come of one hash. A server of weight 1 has as many on Jedis'.
const WEIGHTED_POINTS: u32 = 160;
const POINTS_PER_HASH: u32 = 4;

/// The servers of a pool, ready to be asked for.
#[derive(Clone, Debug)]
pub(super) struct PoolServers {
    part: KeyPart,
    rule: PoolRule,
}

/// Which part of a key is hashed.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyPart {
    tag: HashTag,
    /// A regular expression of Java finds the tag.
    by_pattern: bool,
}

#[derive(Clone, Debug)]
enum PoolRule {
    /// The first point at or after the hash.
    Circle(Box<[(u32, ShimId)]>, PoolHash),
    /// As many numbers for each server as it has weight; up to which ones, and whose.
    Modula(Box<[(u32, ShimId)]>, PoolHash),
    /// By slot.
    Slots(Box<[ShimId]>),
    Jump(u32, WideHash),
    /// The first point at or after the hash, both with signs.
    JavaCircle(Box<[(i64, ShimId)]>),
    /// By the hashes of the servers' names.
    Rendezvous(Box<[u64]>),
}

impl KeyPart {
    /// As Redis Cluster and DistCache's own ring have it.
    pub(super) const REDIS: KeyPart = KeyPart { tag: HashTag::Between(b'{', b'}'), by_pattern: false };

    pub(super) fn of(pool: &StoragePool) -> KeyPart {
        let by_pattern = matches!(pool.distribution, Distribution::Jedis | Distribution::Jedis2);
        KeyPart { tag: pool.hash_tag, by_pattern }
    }

    /// The key's hash tag, if it has one.
    pub(super) fn tag(self, key: &[u8]) -> Option<&[u8]> {
        let HashTag::Between(open, close) = self.tag else { return None };
        if self.by_pattern {
            return by_pattern(key, open, close);
        }
        let after = &key[key.iter().position(|&byte| byte == open)? + 1..];
        let length = after.iter().position(|&byte| byte == close)?;
        (length > 0).then(|| &after[..length])
    }

    pub(super) fn marks(self) -> HashTag {
        self.tag
    }

    pub(super) fn is_redis(self) -> bool {
        self.tag == KeyPart::REDIS.tag && !self.by_pattern
    }
}

/// What Java's `\{(.+?)\}` captures: at least one character, none of which ends a line.
fn by_pattern(key: &[u8], open: u8, close: u8) -> Option<&[u8]> {
    let opened =
        key.iter().enumerate().filter(|(_, byte)| **byte == open).map(|(index, _)| &key[index + 1..]);
    let found = |after: &[u8]| {
        let line = (0..after.len()).find(|&index| ends_line(&after[index..])).unwrap_or(after.len());
        Some(after[..line].iter().skip(1).position(|&byte| byte == close)? + 1)
    };
    opened.into_iter().find_map(|after| Some(&after[..found(after)?]))
}

/// Whether a key goes on with what Java takes for the end of a line.
fn ends_line(bytes: &[u8]) -> bool {
    let ends: [&[u8]; 5] = [b"\n", b"\r", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"];
    ends.iter().any(|end| bytes.starts_with(end))
}

impl PoolServers {
    /// The servers are those of the shims of the same places.
    pub(super) fn new(pool: &StoragePool) -> PoolServers {
        let servers = &pool.servers;
        let count = servers.len() as u32;
        let rule = match pool.distribution {
            Distribution::Libmemcached => {
                PoolRule::Circle(circle(servers, plain_points), PoolHash::OneAtATime)
            }
            Distribution::Ketama(hash) => {
                let total: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
                PoolRule::Circle(
                    circle(servers, |server| weighted_points(server, total, servers.len())),
                    hash,
                )
            }
            Distribution::Modula(hash) => {
                let ends =
                    in_twemproxy_s_order(servers).into_iter().scan(0, |end: &mut u32, (index, server)| {
                        *end += server.weight;
                        Some((*end, ShimId(index as u16)))
                    });
                PoolRule::Modula(ends.collect(), hash)
            }
            Distribution::Slots => PoolRule::Slots(slot::dealt(servers)),
            Distribution::Jump(hash) => PoolRule::Jump(count, hash),
            Distribution::Jedis => {
                PoolRule::JavaCircle(java_circle(servers, |name, _, n| format!("{name}*{n}")))
            }
            Distribution::Jedis2 => {
                PoolRule::JavaCircle(java_circle(servers, |name, weight, n| format!("{name}*{weight}{n}")))
            }
            Distribution::Rendezvous => {
                let hash = |server: &PoolServer| wide_hash(WideHash::Xxh64, name(server).as_bytes());
                PoolRule::Rendezvous(servers.iter().map(hash).collect())
            }
        };
        PoolServers { part: KeyPart::of(pool), rule }
    }

    pub(super) fn shim(&self, key: &[u8]) -> ShimId {
        let key = self.part.tag(key).unwrap_or(key);
        match &self.rule {
            PoolRule::Circle(points, hash) => at_or_after(points, pool_hash(*hash, key)),
            PoolRule::Modula(ends, hash) => {
                let all = ends.last().map_or(1, |(end, _)| *end);
                let number = pool_hash(*hash, key) % all;
                ends[ends.partition_point(|(end, _)| *end <= number)].1
            }
            PoolRule::Slots(owners) => owners[usize::from(slot::of(key))],
            PoolRule::Jump(count, hash) => ShimId(jump(wide_hash(*hash, key), *count) as u16),
            PoolRule::JavaCircle(points) => at_or_after(points, wide_hash(WideHash::Murmur64a, key) as i64),
            PoolRule::Rendezvous(names) => {
                let key = wide_hash(WideHash::Xxh64, key);
                let scores = names.iter().map(|name| scrambled(key ^ name));
                // The first of equal ones.
                let best = scores.enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
                ShimId(best.map_or(0, |(index, _)| index as u16))
            }
        }
    }

    /// The part of all keys that each server has, if there are many.
    pub(super) fn shares(&self, servers: usize) -> Vec<f64> {
        let mut shares = vec![0.0; servers];
        match &self.rule {
            PoolRule::Circle(points, _) => {
                pieces(points, 2f64.powi(32), f64::from, |shim, share| shares[shim] += share);
            }
            PoolRule::JavaCircle(points) => {
                let from_start = |point: i64| point as f64 - i64::MIN as f64;
                pieces(points, 2f64.powi(64), from_start, |shim, share| shares[shim] += share);
            }
            PoolRule::Modula(ends, _) => {
                let all = f64::from(ends.last().map_or(1, |(end, _)| *end));
                let mut from = 0;
                for &(end, shim) in ends {
                    shares[usize::from(shim.0)] = f64::from(end - from) / all;
                    from = end;
                }
            }
            PoolRule::Slots(owners) => {
                owners.iter().for_each(|shim| shares[usize::from(shim.0)] += 1.0 / owners.len() as f64);
            }
            PoolRule::Jump(..) | PoolRule::Rendezvous(_) => shares.fill(1.0 / servers as f64),
        }
        shares
    }
}

/// Whose the first point at or after a hash is.
fn at_or_after<H: Ord + Copy>(points: &[(H, ShimId)], hash: H) -> ShimId {
    let next = points.partition_point(|(point, _)| *point < hash);
    points.get(next).unwrap_or(&points[0]).1
}

/// Tells each server's pieces of a circle of this size; `place` is how far a point is from its start.
fn pieces<H: Copy>(
    points: &[(H, ShimId)],
    size: f64,
    place: impl Fn(H) -> f64,
    mut tell: impl FnMut(usize, f64),
) {
    let mut from = 0.0;
    for &(point, shim) in points {
        tell(usize::from(shim.0), (place(point) - from) / size);
        from = place(point);
    }
    // The rest of the circle is the first point's.
    tell(usize::from(points[0].1.0), 1.0 - from / size);
}

fn name(server: &PoolServer) -> &str {
    server.name.as_deref().unwrap_or_default()
}

/// twemproxy sorts its servers to find names that are there twice, shorter names first, and leaves them so.
fn in_twemproxy_s_order(servers: &[PoolServer]) -> Vec<(usize, &PoolServer)> {
    let mut servers: Vec<(usize, &PoolServer)> = servers.iter().enumerate().collect();
    servers.sort_by_key(|(_, server)| (name(server).len(), name(server)));
    servers
}

/// All points of all servers, in their order; of equal ones the first server's.
fn circle(servers: &[PoolServer], points_of: impl Fn(&PoolServer) -> Vec<u32>) -> Box<[(u32, ShimId)]> {
    let mut points = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        points.extend(points_of(server).into_iter().map(|point| (point, ShimId(index as u16))));
    }
    points.sort_by_key(|(point, _)| *point);
    points.into()
}

fn plain_points(server: &PoolServer) -> Vec<u32> {
    let name = name(server);
    (0..POINTS).map(|number| one_at_a_time(format!("{name}-{number}").as_bytes())).collect()
}

/// With the precision of C's `float`, which decides where the product is next to a whole number.
fn weighted_points(server: &PoolServer, total: u64, servers: usize) -> Vec<u32> {
    let share = server.weight as f32 / total as f32;
    let hashes = share * WEIGHTED_POINTS as f32 / POINTS_PER_HASH as f32 * servers as f32 + 0.000_000_000_1;
    let (name, mut points) = (name(server), Vec::new());
    for number in 0..hashes.floor() as u32 {
        points.extend(Md5::digest(format!("{name}-{number}")).chunks_exact(4).map(word));
    }
    points
}

/// Servers without names have their numbers. Of equal points the last server's stays.
fn java_circle(servers: &[PoolServer], named: impl Fn(&str, u32, u32) -> String) -> Box<[(i64, ShimId)]> {
    let mut points = std::collections::BTreeMap::new();
    for (index, server) in servers.iter().enumerate() {
        for number in 0..WEIGHTED_POINTS * server.weight {
            let name = match &server.name {
                None => format!("SHARD-{index}-NODE-{number}"),
                Some(name) => named(name, server.weight, number),
            };
            points.insert(wide_hash(WideHash::Murmur64a, name.as_bytes()) as i64, ShimId(index as u16));
        }
    }
    points.into_iter().collect()
}

/// Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", figure 1.
fn jump(mut state: u64, servers: u32) -> u32 {
    let (mut found, mut next) = (0, 0i64);
    while next < i64::from(servers) {
        found = next;
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((found + 1) as f64 * ((1u64 << 31) as f64 / ((state >> 33) + 1) as f64)) as i64;
    }
    found as u32
}

/// The xorshift* of the Ring's rendezvous hashing.
fn scrambled(mut bits: u64) -> u64 {
    bits ^= bits >> 12;
    bits ^= bits << 25;
    bits ^= bits >> 27;
    bits.wrapping_mul(2_685_821_657_736_338_717)
}

#[cfg(test)]
mod tests;
