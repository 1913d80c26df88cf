//! The hashes by which other software places keys, as it has them, oddities included. Not what becomes of a hash.
//!
//! Bytes have a sign where the software's `char` has one on the machines that it is built for (x86-64).

use md5::{Digest as _, Md5};
use wire::{PoolHash, WideHash};
use xxhash_rust::xxh64::xxh64;

const CRC_16: [u16; 256] = crc_16_table();
const CRC_32: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

const FNV_64_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_64_PRIME: u64 = 0x0100_0000_01b3;
const FNV_32_START: u32 = 0x811c_9dc5;
const FNV_32_PRIME: u32 = 0x0100_0193;

/// With which `ShardedJedis` hashes.
const JEDIS_SEED: u64 = 0x1234_abcd;

/// As twemproxy hashes what it places by; nothing at all hashes to 0 whatever the hash.
pub(super) fn pool_hash(hash: PoolHash, bytes: &[u8]) -> u32 {
    let signed = || bytes.iter().map(|&byte| i64::from(byte as i8) as u64);
    if bytes.is_empty() {
        return 0;
    }
    match hash {
        PoolHash::OneAtATime => one_at_a_time(bytes),
        PoolHash::Md5 => word(&Md5::digest(bytes)),
        PoolHash::Crc16 => bytes.iter().fold(0, |crc, &byte| {
            // Nobody cuts it to 16 bits.
            crc << 8 ^ u32::from(CRC_16[usize::from((crc >> 8) as u8 ^ byte)])
        }),
        PoolHash::Crc32 => CRC_32.checksum(bytes) >> 16 & 0x7fff,
        PoolHash::Crc32a => CRC_32.checksum(bytes),
        PoolHash::Fnv1_64 => {
            signed().fold(FNV_64_START, |hash, byte| hash.wrapping_mul(FNV_64_PRIME) ^ byte) as u32
        }
        // In 32 bits, its name notwithstanding.
        PoolHash::Fnv1a64 => {
            let step = |hash: u32, byte: u64| (hash ^ byte as u32).wrapping_mul(FNV_64_PRIME as u32);
            signed().fold(FNV_64_START as u32, step)
        }
        PoolHash::Fnv1_32 => {
            signed().fold(FNV_32_START, |hash, byte| hash.wrapping_mul(FNV_32_PRIME) ^ byte as u32)
        }
        PoolHash::Fnv1a32 => {
            signed().fold(FNV_32_START, |hash, byte| (hash ^ byte as u32).wrapping_mul(FNV_32_PRIME))
        }
        PoolHash::Hsieh => hsieh(bytes),
        PoolHash::Murmur => murmur2(bytes),
        PoolHash::Jenkins => jenkins(bytes),
    }
}

pub(super) fn wide_hash(hash: WideHash, bytes: &[u8]) -> u64 {
    match hash {
        WideHash::Xxh64 => xxh64(bytes, 0),
        WideHash::Murmur64a => murmur64a(bytes),
    }
}

/// Bob Jenkins' hash.
pub(super) fn one_at_a_time(bytes: &[u8]) -> u32 {
    let mixed = bytes.iter().fold(0u32, |hash, &byte| {
        let hash = hash.wrapping_add(i32::from(byte as i8) as u32);
        let hash = hash.wrapping_add(hash << 10);
        hash ^ hash >> 6
    });
    let mixed = mixed.wrapping_add(mixed << 3);
    let mixed = mixed ^ mixed >> 11;
    mixed.wrapping_add(mixed << 15)
}

/// The first four bytes.
pub(super) fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

const fn crc_16_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

/// Paul Hsieh's SuperFastHash from 0, which does not begin with the length.
fn hsieh(bytes: &[u8]) -> u32 {
    let half = |bytes: &[u8]| u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let mut hash = 0u32;
    let (quads, rest) = bytes.split_at(bytes.len() & !3);
    for quad in quads.chunks_exact(4) {
        hash = hash.wrapping_add(half(quad));
        hash = hash << 16 ^ half(&quad[2..]) << 11 ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    }
    match *rest {
        [_, _, last] => {
            hash = hash.wrapping_add(half(rest));
            hash ^= hash << 16;
            hash ^= (i32::from(last as i8) as u32) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [_, _] => {
            hash = hash.wrapping_add(half(rest));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [last] => {
            hash = hash.wrapping_add(u32::from(last));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    for (left, right) in [(3, 5), (4, 17), (25, 6)] {
        hash ^= hash << left;
        hash = hash.wrapping_add(hash >> right);
    }
    hash
}

/// Austin Appleby's MurmurHash2, with the length in its seed.
fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let length = bytes.len() as u32;
    let mut hash = 0xdead_beef_u32.wrapping_mul(length) ^ length;
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    for quad in words {
        let mixed = word(quad).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (mixed ^ mixed >> 24).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |last, &byte| last << 8 | u32::from(byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// Bob Jenkins' lookup3 from 13.
fn jenkins(bytes: &[u8]) -> u32 {
    const START: u32 = 0xdead_beef + 13;
    let mut state = [START.wrapping_add(bytes.len() as u32); 3];
    let blocks = bytes.len().div_ceil(12);
    for (index, block) in bytes.chunks(12).enumerate() {
        let mut whole = [0; 12];
        whole[..block.len()].copy_from_slice(block);
        for (part, quad) in state.iter_mut().zip(whole.chunks_exact(4)) {
            *part = part.wrapping_add(word(quad));
        }
        if index + 1 < blocks {
            jenkins_mix(&mut state);
        }
    }
    let [mut a, mut b, mut c] = state;
    let end = |target: &mut u32, source: u32, bits: u32| {
        *target = (*target ^ source).wrapping_sub(source.rotate_left(bits));
    };
    end(&mut c, b, 14);
    end(&mut a, c, 11);
    end(&mut b, a, 25);
    end(&mut c, b, 16);
    end(&mut a, c, 4);
    end(&mut b, a, 14);
    end(&mut c, b, 24);
    c
}

fn jenkins_mix([a, b, c]: &mut [u32; 3]) {
    fn turn(target: &mut u32, source: &mut u32, other: u32, bits: u32) {
        *target = target.wrapping_sub(*source) ^ source.rotate_left(bits);
        *source = source.wrapping_add(other);
    }
    turn(a, c, *b, 4);
    turn(b, a, *c, 6);
    turn(c, b, *a, 8);
    turn(a, c, *b, 16);
    turn(b, a, *c, 19);
    turn(c, b, *a, 4);
}

/// Austin Appleby's MurmurHash64A.
fn murmur64a(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = JEDIS_SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for eight in words {
        let mut part = [0; 8];
        part.copy_from_slice(eight);
        let mixed = u64::from_le_bytes(part).wrapping_mul(M);
        hash = (hash ^ (mixed ^ mixed >> 47).wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |last, &byte| last << 8 | u64::from(byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}
