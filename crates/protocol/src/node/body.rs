//! A key and a reply one behind the other in one piece of memory, which a hit hands out. Not what they mean.

use bytes::Bytes;

/// Bytes that come with their count of references, so that neither a second allocation nor its pointer is needed.
struct Block<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> AsRef<[u8]> for Block<BYTES> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn block<const BYTES: usize>(key: &[u8], reply: &[u8]) -> Bytes {
    let (mut bytes, len) = ([0; BYTES], key.len() + reply.len());
    bytes[..key.len()].copy_from_slice(key);
    bytes[key.len()..len].copy_from_slice(reply);
    let mut body = Bytes::from_owner(Block(bytes));
    body.truncate(len);
    body
}

/// A block for each number of steps of [`STEP`] bytes; allocators round as much.
macro_rules! blocks {
    ($($steps:literal)*) => {
        [$(block::<{ $steps * STEP }>),*]
    };
}

/// Makes one piece of a key and a reply.
type Joined = fn(&[u8], &[u8]) -> Bytes;

const STEP: usize = 16;
const BLOCKS: [Joined; 33] =
    blocks![0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32];

/// A copy of both. What is longer than the largest block costs a count of its own.
pub(super) fn joined(key: &[u8], reply: &[u8]) -> Bytes {
    let len = key.len() + reply.len();
    if let Some(block) = BLOCKS.get(len.div_ceil(STEP)) {
        return block(key, reply);
    }
    let mut body = Vec::with_capacity(len);
    body.extend_from_slice(key);
    body.extend_from_slice(reply);
    body.into()
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS, STEP, joined};

    #[test]
    fn both_are_there_whatever_their_length() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * BLOCKS.len() * STEP).collect();
        for len in 0..2 * BLOCKS.len() * STEP {
            for key in [0, 1, 15, 16, 17, 300].into_iter().filter(|key| *key <= len) {
                let body = joined(&bytes[..key], &bytes[key..len]);
                assert_eq!(body, bytes[..len], "a key of {key} bytes of {len}");
                assert_eq!(body.slice(key..).clone(), bytes[key..len]);
            }
        }
    }
}
