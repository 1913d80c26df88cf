//! Buffers between a read and the driver: a scratch to read into and a shared chunk to cut from. Not parsing.

use bytes::{Bytes, BytesMut};

/// One read takes at most this much. Zeroed once; larger saves system calls only on bulk transfers.
const SCRATCH_BYTES: usize = 256 << 10;
/// Reads up to `SHARED_BYTES_MAX` are cut from chunks of this size, so that a small request allocates nothing.
const CHUNK_BYTES: usize = 64 << 10;
/// Larger reads get a buffer of their own, which an unfinished frame can then grow in place.
const SHARED_BYTES_MAX: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) scratch: Box<[u8]>,
    chunk: BytesMut,
}

impl Input {
    pub(crate) fn new() -> Input {
        Input {
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            chunk: BytesMut::with_capacity(CHUNK_BYTES),
        }
    }

    /// What the driver gets after `count` bytes were read: the rest of before and the new ones.
    pub(crate) fn take(&mut self, rest: &mut BytesMut, count: usize) -> Bytes {
        let fresh = &self.scratch[..count];
        let total = rest.len() + count;
        if total <= SHARED_BYTES_MAX {
            if self.chunk.capacity() < total {
                self.chunk.reserve(CHUNK_BYTES);
            }
            self.chunk.extend_from_slice(rest);
            self.chunk.extend_from_slice(fresh);
            *rest = BytesMut::new();
            return self.chunk.split().freeze();
        }
        rest.extend_from_slice(fresh);
        std::mem::take(rest).freeze()
    }
}

/// Keeps what a driver gave back until more comes. A large rest stays in its own buffer, which then grows by
/// doubling, so that a frame that arrives in many reads is copied a constant number of times. A small one is
/// copied, so that it does not hold on to a whole chunk.
pub(crate) fn keep(rest: Bytes) -> BytesMut {
    if rest.len() <= SHARED_BYTES_MAX {
        return BytesMut::from(&rest[..]);
    }
    rest.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]))
}

#[cfg(test)]
mod tests {
    use super::{Input, SHARED_BYTES_MAX, keep};
    use bytes::BytesMut;

    #[test]
    fn the_rest_comes_back_before_the_new_bytes() {
        let mut input = Input::new();
        for size in [1, 100, SHARED_BYTES_MAX, SHARED_BYTES_MAX + 1, 100_000] {
            let mut rest = BytesMut::new();
            input.scratch[..size].fill(1);
            let first = input.take(&mut rest, size);
            rest = keep(first.slice(size / 2..));
            input.scratch[..size].fill(2);
            let second = input.take(&mut rest, size);
            let mut expected = vec![1; size - size / 2];
            expected.resize(expected.len() + size, 2);
            assert_eq!(second, expected, "{size}");
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_large_frame_grows_in_place() {
        let mut input = Input::new();
        let mut rest = BytesMut::new();
        let mut moves = 0;
        let mut last = std::ptr::null();
        for round in 1..=256 {
            let bytes = input.take(&mut rest, 65_536);
            assert_eq!(bytes.len(), round * 65_536);
            moves += usize::from(bytes.as_ptr() != last);
            last = bytes.as_ptr();
            rest = keep(bytes);
        }
        assert!(moves <= 16, "16 MiB in 256 reads moved {moves} times");
    }
}
