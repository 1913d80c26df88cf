//! Keys on a pool of memcached servers, placed as libmemcached places them, so that both ask the same server for a key.
//! Not which servers there are. Without weights it hashes names and keys with its default hash, with weights by MD5.

use md5::{Digest as _, Md5};
use wire::{Ketama, ShimId};

/// Points of each server without weights.
const POINTS: u32 = 100;
/// Points of a server of average weight; four come of one hash.
const WEIGHTED_POINTS: u32 = 160;
const POINTS_PER_HASH: u32 = 4;
/// A server on this port has no port in its name.
const DEFAULT_PORT: u16 = 11211;

/// The circle of the servers' points, in their order.
#[derive(Clone, Debug)]
pub(super) struct Continuum {
    weighted: bool,
    points: Box<[(u32, ShimId)]>,
}

impl Continuum {
    /// The servers are those of the shims of the same places.
    pub(super) fn new(ketama: &Ketama) -> Continuum {
        let total: u64 = ketama.servers.iter().map(|server| u64::from(server.weight)).sum();
        let mut points = Vec::new();
        for (index, server) in ketama.servers.iter().enumerate() {
            let shim = ShimId(index as u16);
            let name = match server.port {
                DEFAULT_PORT => server.host.clone(),
                port => format!("{}:{port}", server.host),
            };
            let hashes = match ketama.weighted {
                false => POINTS,
                true => weighted_hashes(server.weight, total, ketama.servers.len()),
            };
            for hash in 0..hashes {
                let name = format!("{name}-{hash}");
                match ketama.weighted {
                    false => points.push((one_at_a_time(name.as_bytes()), shim)),
                    true => points.extend(Md5::digest(name).chunks_exact(4).map(|part| (word(part), shim))),
                }
            }
        }
        points.sort_by_key(|(point, _)| *point);
        Continuum { weighted: ketama.weighted, points: points.into() }
    }

    pub(super) fn shim(&self, key: &[u8]) -> ShimId {
        let hash = if self.weighted { word(&Md5::digest(key)[..4]) } else { one_at_a_time(key) };
        let next = self.points.partition_point(|(point, _)| *point < hash);
        self.points.get(next).unwrap_or(&self.points[0]).1
    }

    /// The part of the circle that each server owns.
    pub(super) fn shares(&self, servers: usize) -> Vec<f64> {
        let mut shares = vec![0.0; servers];
        let mut from = 0;
        for &(point, shim) in &self.points {
            shares[usize::from(shim.0)] += f64::from(point - from) / 2f64.powi(32);
            from = point;
        }
        // The rest of the circle is the first point's.
        shares[usize::from(self.points[0].1.0)] += 1.0 - f64::from(from) / 2f64.powi(32);
        shares
    }
}

/// With the precision of libmemcached, which decides where the product is next to a whole number.
fn weighted_hashes(weight: u32, total: u64, servers: usize) -> u32 {
    let share = weight as f32 / total as f32;
    (share * WEIGHTED_POINTS as f32 / POINTS_PER_HASH as f32 * servers as f32 + 0.000_000_000_1).floor()
        as u32
}

/// Bob Jenkins' hash, with bytes that have a sign, as libmemcached has it.
fn one_at_a_time(bytes: &[u8]) -> u32 {
    let mixed = bytes.iter().fold(0u32, |hash, &byte| {
        let hash = hash.wrapping_add(i32::from(byte as i8) as u32);
        let hash = hash.wrapping_add(hash << 10);
        hash ^ hash >> 6
    });
    let mixed = mixed.wrapping_add(mixed << 3);
    let mixed = mixed ^ mixed >> 11;
    mixed.wrapping_add(mixed << 15)
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use wire::{Ketama, KetamaServer};

    use super::*;

    fn continuum(weighted: bool, servers: &[(&str, u16, u32)]) -> Continuum {
        let server =
            |&(host, port, weight): &(&str, u16, u32)| KetamaServer { host: host.to_owned(), port, weight };
        Continuum::new(&Ketama { weighted, servers: servers.iter().map(server).collect() })
    }

    fn check(continuum: &Continuum, expected: &str) {
        let got: String = (0..expected.len())
            .map(|key| continuum.shim(format!("key-{key}").as_bytes()).0.to_string())
            .collect();
        assert_eq!(got, expected);
    }

    /// What libmemcached 1.1.4 answers.
    #[test]
    fn servers_are_those_that_libmemcached_chooses() {
        let servers = [("10.0.0.1", 11211, 1), ("10.0.0.2", 11211, 1), ("cache.example", 11212, 1)];
        check(
            &continuum(false, &servers),
            "201201220211022112000110121222202201011112101121201202101112112002120210111010201220000211221022000120100002122110001112",
        );
        check(
            &continuum(true, &servers),
            "110220202210001120011021122021221101121210102220010210021012102200120002222002011211012120201221110122101120222101011102",
        );
        check(
            &continuum(true, &[("10.0.0.1", 11211, 1), ("10.0.0.2", 11211, 3), ("10.0.0.3", 11212, 2)]),
            "120221221220001120011121111021121101101110102112110110121112120112110222111201011111121110101111112111221122101121021222",
        );
        let seven: Vec<(&str, u16, u32)> = ["a", "b", "c", "d", "e", "f", "g"]
            .into_iter()
            .zip(1..)
            .map(|(host, port)| (host, port, 1))
            .collect();
        check(
            &continuum(true, &seven),
            "244111604241200212555161036064661124305412155104430462630220500655440241421416536646334215462616212424621604305026015463",
        );
    }

    #[test]
    fn every_server_has_its_share() {
        let servers = [("10.0.0.1", 11211, 1), ("10.0.0.2", 11211, 3), ("10.0.0.3", 11212, 1)];
        for (weighted, expected) in [(false, [33, 33, 33]), (true, [20, 60, 20])] {
            let continuum = continuum(weighted, &servers);
            let mut counts = [0; 3];
            (0..100_000)
                .for_each(|key| counts[usize::from(continuum.shim(format!("k{key}").as_bytes()).0)] += 1);
            for ((count, share), due) in counts.iter().zip(expected).zip(continuum.shares(3)) {
                let percent = f64::from(*count) / 1000.0;
                assert!((percent - f64::from(share)).abs() < 9.0, "{counts:?}, weighted: {weighted}");
                assert!((percent - 100.0 * due).abs() < 1.0, "{counts:?}, weighted: {weighted}");
            }
        }
    }
}
