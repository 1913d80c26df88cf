//! What clients ask for, drawn so evenly that a short run has the rates of a long one. Not who is asked.
//!
//! All requests of one object lie side by side on a circle, and objects of one server do. Points that follow each other
//! by the golden ratio fall into every arc as often as its length says, to within a few (a sequence of low discrepancy):
//! a server that is due 300 requests gets 298 to 302 of them, and not 250 to 350.

use bytes::Bytes;
use protocol::placement::Placement;
use wire::resp::Command;
use wire::{Sharding, ShimId};

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// What storage holds of every object, and what is written.
pub(super) const VALUE: &[u8] = b"12345678";

/// How often objects are asked for, by rank.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalePopularity {
    /// Probabilities of the hottest objects, each of which has a place of its own.
    pub head: Vec<f64>,
    /// The other objects, of which each server has its share: they are so many and so cold that chance deals them so, too.
    pub tail: Option<Tail>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// Probability of all of them together.
    pub probability: f64,
    /// Ranks that divide the tail into parts that are equally often asked for, from its first rank to its last.
    pub ranks: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScaleTarget {
    Head(u32),
    Tail(ShimId),
}

/// How objects are called, which decides where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    /// By a number that the rank is mixed to: ranks in a row would fall into hash slots in a row, more evenly than by
    /// chance.
    Mixed(u64),
    /// As everywhere else.
    Numbered,
}

#[derive(Debug)]
pub(super) struct ScaleWorkload {
    naming: Naming,
    head: usize,
    tail: Option<Tail>,
    /// By server: a name that the server is at home for.
    tags: Vec<[u8; 16]>,
    targets: Vec<ScaleTarget>,
    /// Where each arc ends; the next begins there.
    ends: Vec<u64>,
    /// By the top bits of a point, about as many of them as there are arcs: the first arc that ends behind them.
    guide: Vec<u32>,
    shift: u32,
    /// Part of each arc that is writes, in 2^-32.
    writes: u64,
    point: u64,
}

impl ScaleWorkload {
    pub(super) fn new(
        popularity: &ScalePopularity,
        write_ratio: f64,
        placement: &Placement,
        seed: u64,
    ) -> ScaleWorkload {
        let naming = match placement.map().sharding {
            Sharding::Slots => Naming::Mixed(seed),
            Sharding::Ring | Sharding::Pool(_) => Naming::Numbered,
        };
        let servers = placement.map().shims.len();
        let tail = popularity.tail.clone().filter(|tail| tail.probability > 0.0);
        let mut arcs: Vec<(u16, ScaleTarget, f64)> = Vec::with_capacity(popularity.head.len() + servers);
        for (rank, probability) in popularity.head.iter().enumerate() {
            let shim = placement.shim(&placement.key(0, name(naming, rank as u64)));
            arcs.push((shim.0, ScaleTarget::Head(rank as u32), *probability));
        }
        if let Some(tail) = &tail {
            for (shim, share) in (0..).zip(placement.shim_shares()) {
                arcs.push((shim, ScaleTarget::Tail(ShimId(shim)), tail.probability * share));
            }
        }
        arcs.sort_by_key(|(shim, ..)| *shim);
        let whole: f64 = arcs.iter().map(|(_, _, probability)| probability).sum();
        let mut sum = 0.0;
        let ends: Vec<u64> = arcs
            .iter()
            .map(|(_, _, probability)| {
                sum += probability / whole;
                (sum * 2f64.powi(64)) as u64
            })
            .collect();
        let bits = ends.len().next_power_of_two().trailing_zeros().max(1);
        let shift = 64 - bits;
        let first = |top: u64| ends.partition_point(|end| *end <= top << shift) as u32;
        ScaleWorkload {
            naming,
            head: popularity.head.len(),
            tags: if tail.is_some() { tags(placement, seed) } else { Vec::new() },
            tail,
            targets: arcs.iter().map(|(_, target, _)| *target).collect(),
            guide: (0..1 << bits).map(first).collect(),
            shift,
            ends,
            writes: (write_ratio * 2f64.powi(32)) as u64,
            point: mix(seed ^ GOLDEN),
        }
    }

    /// The object of this rank among the hottest ones.
    pub(super) fn head_name(&self, rank: usize) -> Bytes {
        name(self.naming, rank as u64)
    }

    /// The next request.
    pub(super) fn draw(&mut self) -> Command {
        self.point = self.point.wrapping_add(GOLDEN);
        let mut arc = self.guide[(self.point >> self.shift) as usize] as usize;
        while arc + 1 < self.ends.len() && self.ends[arc] <= self.point {
            arc += 1;
        }
        let begin = if arc == 0 { 0 } else { self.ends[arc - 1] };
        let length = (self.ends[arc] - begin).max(1);
        let part = (u128::from(self.point - begin) << 32) / u128::from(length);
        let (part, writes) = (u64::try_from(part).unwrap_or(u64::MAX).min(u64::from(u32::MAX)), self.writes);
        let write = part < writes;
        // Again a part of 2^32, of the reads or of the writes.
        let within =
            if write { (part << 32) / writes } else { ((part - writes) << 32) / ((1 << 32) - writes) };
        let key = match self.targets[arc] {
            ScaleTarget::Head(rank) => name(self.naming, u64::from(rank)),
            ScaleTarget::Tail(shim) => self.tail_name(shim, within),
        };
        match write {
            true => Command::from_args(&[b"SET".as_slice(), &key, VALUE]),
            false => Command::from_args(&[b"GET".as_slice(), &key]),
        }
    }

    /// One of the server's cold objects; the hash tag says whose it is.
    fn tail_name(&self, shim: ShimId, within: u64) -> Bytes {
        let Some(tail) = &self.tail else { return Bytes::new() };
        let parts = tail.ranks.len() as u64 - 1;
        let (index, rest) = ((within * parts) >> 32, (within * parts) & u64::from(u32::MAX));
        let (from, to) = (tail.ranks[index as usize], tail.ranks[index as usize + 1]);
        let rank = from + ((u128::from(to - from) * u128::from(rest)) >> 32) as u64;
        let servers = self.tags.len() as u64;
        let dealt = (rank - self.head as u64) / servers * servers + u64::from(shim.0);
        let mut key = Vec::with_capacity(34);
        key.push(b'{');
        key.extend_from_slice(&self.tags[usize::from(shim.0)]);
        key.push(b'}');
        key.extend_from_slice(&hexadecimal(dealt));
        key.into()
    }
}

/// For each server a tag of its own.
fn tags(placement: &Placement, seed: u64) -> Vec<[u8; 16]> {
    let servers = placement.map().shims.len();
    let mut tags = vec![None; servers];
    let (mut missing, mut number) = (servers, 0u64);
    while missing > 0 {
        let tag = hexadecimal(mix(!seed ^ mix(number)));
        let shim = placement.shim(&placement.key(0, Bytes::copy_from_slice(&tag)));
        let own = &mut tags[usize::from(shim.0)];
        if own.is_none() {
            *own = Some(tag);
            missing -= 1;
        }
        number += 1;
    }
    tags.into_iter().flatten().collect()
}

fn name(naming: Naming, rank: u64) -> Bytes {
    match naming {
        Naming::Mixed(seed) => Bytes::copy_from_slice(&hexadecimal(mix(mix(seed) ^ rank))),
        Naming::Numbered => Bytes::copy_from_slice(&trace::key_name(rank)),
    }
}

fn hexadecimal(number: u64) -> [u8; 16] {
    std::array::from_fn(|place| b"0123456789abcdef"[(number >> (60 - 4 * place) & 15) as usize])
}

/// A bijection of 64-bit words without a visible pattern (two rounds of xor-shift and multiplication).
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 32
}
