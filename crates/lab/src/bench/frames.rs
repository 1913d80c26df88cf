//! The bytes of the requests that the load generator sends. Not which keys it asks for.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Ready-made GET and SET frames in which only the name of the key is filled in.
pub(crate) struct Frames {
    get: Vec<u8>,
    set_head: Vec<u8>,
    set_tail: Vec<u8>,
}

impl Frames {
    /// Values are `value_bytes` letters and digits, the same for every key.
    pub(crate) fn new(value_bytes: usize, seed: u64) -> Frames {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let mut random = SmallRng::seed_from_u64(seed);
        let mut set_tail = format!("\r\n${value_bytes}\r\n").into_bytes();
        set_tail.extend((0..value_bytes).map(|_| LETTERS[random.random_range(0..LETTERS.len())]));
        set_tail.extend_from_slice(b"\r\n");
        Frames { get: b"*2\r\n$3\r\nGET\r\n$".to_vec(), set_head: b"*3\r\n$3\r\nSET\r\n$".to_vec(), set_tail }
    }

    /// Bytes of one SET.
    pub(crate) fn set_bytes(&self) -> usize {
        self.set_head.len() + "16\r\n".len() + trace::key_name(0).len() + self.set_tail.len()
    }

    /// Appends `GET key:%012d`; objects of traces may have more digits.
    pub(crate) fn get(&self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.get);
        name(key, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends MGET of so many keys.
    pub(crate) fn mget(&self, keys: impl Iterator<Item = u64>, count: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("*{}\r\n$4\r\nMGET\r\n", count + 1).as_bytes());
        for key in keys {
            out.push(b'$');
            name(key, out);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends `SET key:%012d value`.
    pub(crate) fn set(&self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.set_head);
        name(key, out);
        out.extend_from_slice(&self.set_tail);
    }
}

/// Appends the length of the key's name, and the name.
fn name(key: u64, out: &mut Vec<u8>) {
    if key < trace::KEYS_MAX {
        out.extend_from_slice(b"16\r\n");
        out.extend_from_slice(&trace::key_name(key));
    } else {
        let digits = key.to_string();
        out.extend_from_slice(format!("{}\r\nkey:{digits}", "key:".len() + digits.len()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::resp::Command;

    use super::*;

    #[test]
    fn frames_are_well_formed_commands() {
        let frames = Frames::new(5, 1);
        let mut get = Vec::new();
        frames.get(42, &mut get);
        let get = Command::parse(Bytes::from(get)).expect("a command");
        assert_eq!((get.arg(0), get.arg(1)), (&b"GET"[..], &b"key:000000000042"[..]));

        let mut set = Vec::new();
        frames.set(999_999_999_999, &mut set);
        let set = Command::parse(Bytes::from(set)).expect("a command");
        assert_eq!((set.arg(0), set.arg(1)), (&b"SET"[..], &b"key:999999999999"[..]));
        assert_eq!(set.arg(2).len(), 5);

        let mut mget = Vec::new();
        frames.mget([7, 42].into_iter(), 2, &mut mget);
        let mget = Command::parse(Bytes::from(mget)).expect("a command");
        assert!(mget.args().eq([&b"MGET"[..], b"key:000000000007", b"key:000000000042"]));

        for (key, expected) in
            [(1_000_000_000_000, "key:1000000000000"), (u64::MAX, "key:18446744073709551615")]
        {
            let mut get = Vec::new();
            frames.get(key, &mut get);
            let get = Command::parse(Bytes::from(get)).expect("a command");
            assert_eq!(get.arg(1), expected.as_bytes());
        }
    }
}
