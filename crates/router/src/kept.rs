//! What a client has sent ahead and cannot be handed in yet, as chunks in their order. Not when it may be.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Small pieces are copied together into chunks of this size. Larger, and a short command that is in flight holds on to
/// more; smaller, and more commands lie across two chunks.
const CHUNK_BYTES: usize = 64 << 10;
/// Reads up to here may lie in a buffer that clients share, which a client with little to say must not hold on to.
const SHARED_BYTES_MAX: usize = 16 << 10;
/// A command that lies across chunks is first looked for in so many bytes: most are shorter.
const JOINED_BYTES_MIN: usize = 512;

/// A chunk and the memory that it holds on to, which is more once commands have been taken off it.
#[derive(Debug)]
struct Chunk {
    bytes: Bytes,
    memory_bytes: usize,
}

/// A queue of bytes. Its front is taken out to take commands off, and put back or joined with what follows.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    chunks: VecDeque<Chunk>,
    /// Small pieces, behind all chunks.
    tail: BytesMut,
    /// Bytes at the end of the front, joined from two chunks, that the first of `chunks` starts with too.
    overlap: usize,
    memory_bytes: usize,
    /// Bytes of the front that are taken out.
    front_bytes: usize,
}

impl Kept {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.tail.is_empty()
    }

    /// Memory that it holds on to.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes + self.tail.capacity()
    }

    /// The same with a front that is out. No less than `memory_bytes` once that is put back.
    pub(crate) fn memory_bytes_with_front(&self) -> usize {
        self.memory_bytes() + self.front_bytes
    }

    /// Appends what is left of a read of `read_bytes`.
    pub(crate) fn push(&mut self, bytes: Bytes, read_bytes: usize) {
        if bytes.len() > SHARED_BYTES_MAX && bytes.len() >= read_bytes / 2 {
            self.seal();
            self.memory_bytes += read_bytes;
            self.chunks.push_back(Chunk { bytes, memory_bytes: read_bytes });
            return;
        }
        self.tail.extend_from_slice(&bytes);
        if self.tail.len() >= CHUNK_BYTES {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let memory_bytes = self.tail.capacity();
            let bytes = std::mem::take(&mut self.tail).freeze();
            self.memory_bytes += memory_bytes;
            self.chunks.push_back(Chunk { bytes, memory_bytes });
        }
    }

    /// Takes the front out. Empty only if nothing is kept.
    pub(crate) fn take_front(&mut self) -> Bytes {
        if self.chunks.is_empty() {
            self.seal();
        }
        let Some(Chunk { bytes, memory_bytes }) = self.chunks.pop_front() else { return Bytes::new() };
        self.memory_bytes -= memory_bytes;
        self.front_bytes = memory_bytes;
        if self.chunks.is_empty() {
            // A deque keeps its largest size otherwise.
            self.chunks = VecDeque::new();
        }
        bytes
    }

    /// What was read just now, so many bytes, counts as the front that is out.
    pub(crate) fn set_front(&mut self, read_bytes: usize) {
        self.front_bytes = read_bytes;
    }

    /// Puts back what is left of the front.
    pub(crate) fn put_back(&mut self, front: Bytes) {
        let front_bytes = std::mem::take(&mut self.front_bytes);
        if front.is_empty() {
            if self.overlap > 0 {
                self.skip_overlap(0);
            }
        } else if self.is_empty() {
            self.push(front, front_bytes);
        } else {
            self.memory_bytes += front_bytes;
            self.chunks.push_front(Chunk { bytes: front, memory_bytes: front_bytes });
        }
    }

    /// The rest of a joined front is the start of the next chunk too, which goes on in its place.
    fn skip_overlap(&mut self, left: usize) {
        let used = std::mem::take(&mut self.overlap) - left;
        if let Some(chunk) = self.chunks.front_mut() {
            chunk.bytes.advance(used);
        }
    }

    /// Goes on behind a front that is only part of a command of at least `needs` bytes. `Err`: that is all there is, and
    /// now nothing is kept. A command is copied a constant number of times, however many chunks it came in.
    pub(crate) fn join(&mut self, front: Bytes, needs: usize) -> Result<Bytes, Bytes> {
        if self.overlap > 0 && front.len() <= self.overlap {
            self.skip_overlap(front.len());
            return Ok(self.take_front());
        }
        if self.is_empty() {
            return Err(front);
        }
        if front.is_empty() {
            return Ok(self.take_front());
        }
        let own = front.len() - std::mem::take(&mut self.overlap);
        let wanted = needs.max(2 * front.len()).max(JOINED_BYTES_MIN);
        let mut joined = BytesMut::with_capacity(wanted.min(own + self.memory_bytes()));
        joined.extend_from_slice(&front[..own]);
        while joined.len() < wanted {
            let chunk = self.take_front();
            if chunk.is_empty() {
                break;
            }
            let count = chunk.len().min(wanted - joined.len());
            joined.extend_from_slice(&chunk[..count]);
            if count < chunk.len() {
                self.overlap = count;
                self.memory_bytes += self.front_bytes;
                self.chunks.push_front(Chunk { bytes: chunk, memory_bytes: self.front_bytes });
            }
        }
        self.front_bytes = joined.capacity();
        let whole = joined.len() >= needs;
        let joined = joined.freeze();
        if whole { Ok(joined) } else { Err(joined) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};
    use wire::memcached::{self, RequestReader};
    use wire::resp::{RespLimits, RespTaken, next_command};

    use super::{CHUNK_BYTES, Kept};

    /// Commands of one client's stream as words, taken off the start of a buffer.
    trait Reader: Default {
        /// `Err`: so many bytes are needed.
        fn next(&mut self, bytes: &mut Bytes) -> Result<String, usize>;
        fn write(random: &mut SmallRng, out: &mut Vec<u8>);
    }

    #[derive(Default)]
    struct Resp;

    impl Reader for Resp {
        fn next(&mut self, bytes: &mut Bytes) -> Result<String, usize> {
            match next_command(bytes, &RespLimits::default()).unwrap() {
                RespTaken::Command(command) => Ok(format!("{:?}", command.args().collect::<Vec<_>>())),
                RespTaken::Needs(needs) => Err(needs),
            }
        }

        fn write(random: &mut SmallRng, out: &mut Vec<u8>) {
            let value = vec![b'a' + random.random_range(0..26); length(random)];
            match random.random_range(0..8) {
                0 => out.extend_from_slice(b"\r\n*0\r\n"),
                1..4 => out.extend_from_slice(format!("GET key-{}\r\n", random.random::<u16>()).as_bytes()),
                _ => {
                    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len());
                    out.extend_from_slice(head.as_bytes());
                    out.extend_from_slice(&value);
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }

    #[derive(Default)]
    struct Memcached(RequestReader);

    impl Reader for Memcached {
        fn next(&mut self, bytes: &mut Bytes) -> Result<String, usize> {
            // Larger values are skipped, for which the reader keeps state.
            let limits = memcached::MemcachedLimits {
                value_bytes_max: 100_000,
                ..memcached::MemcachedLimits::default()
            };
            match self.0.next(bytes, &limits) {
                memcached::MemcachedTaken::Request(request) => Ok(format!("{request:?}")),
                memcached::MemcachedTaken::Needs(needs) => Err(needs),
                memcached::MemcachedTaken::Hangup(told) => panic!("hung up: {told:?}"),
            }
        }

        fn write(random: &mut SmallRng, out: &mut Vec<u8>) {
            let value = vec![b'a' + random.random_range(0..26); length(random)];
            match random.random_range(0..3) {
                0 => out.extend_from_slice(format!("get key-{}\r\n", random.random::<u16>()).as_bytes()),
                _ => {
                    out.extend_from_slice(format!("set k 0 0 {}\r\n", value.len()).as_bytes());
                    out.extend_from_slice(&value);
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }

    fn length(random: &mut SmallRng) -> usize {
        let max = [10, 10, 100, 100, 1_000, 2_000, 20_000, 300_000][random.random_range(0..8)];
        random.random_range(0..max)
    }

    /// All that a reader takes off bytes that lie in one piece.
    fn in_one_piece<R: Reader>(bytes: &[u8]) -> (Vec<String>, usize) {
        let (mut reader, mut bytes, mut found) = (R::default(), Bytes::copy_from_slice(bytes), Vec::new());
        while let Ok(command) = reader.next(&mut bytes) {
            found.push(command);
        }
        (found, bytes.len())
    }

    /// The same through a queue that is filled and emptied by turns.
    fn in_chunks<R: Reader>(random: &mut SmallRng, mut bytes: &[u8]) -> (Vec<String>, usize) {
        let (mut reader, mut kept, mut found) = (R::default(), Kept::default(), Vec::new());
        let mut rest = Bytes::new();
        while !bytes.is_empty() || !kept.is_empty() {
            while !bytes.is_empty() && random.random_ratio(3, 4) {
                let read_max = [100, 3_000, 70_000, 262_144][random.random_range(0..4)];
                let read = random.random_range(1..=read_max);
                let (first, later) = bytes.split_at(read.min(bytes.len()));
                bytes = later;
                let whole = [&rest[..], first].concat();
                rest = Bytes::new();
                let read = whole.len();
                // What is kept may be the end of a read only.
                let mut whole = Bytes::from(whole);
                while kept.is_empty() && random.random() {
                    match reader.next(&mut whole) {
                        Ok(command) => found.push(command),
                        Err(_) => break,
                    }
                }
                match kept.is_empty() {
                    true => {
                        kept.set_front(read);
                        kept.put_back(whole);
                    }
                    false => kept.push(whole, read),
                }
            }
            if kept.is_empty() {
                continue;
            }
            let mut front = kept.take_front();
            for _ in 0..random.random_range(0..50) {
                match reader.next(&mut front) {
                    Ok(command) => found.push(command),
                    Err(needs) => match kept.join(std::mem::take(&mut front), needs) {
                        Ok(more) => front = more,
                        Err(all) => {
                            assert!(kept.is_empty());
                            rest = all;
                            break;
                        }
                    },
                }
            }
            kept.put_back(front);
        }
        assert_eq!(kept.memory_bytes(), 0);
        (found, rest.len())
    }

    fn check<R: Reader>(seed: u64) {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut bytes = Vec::new();
        (0..random.random_range(1..100)).for_each(|_| R::write(&mut random, &mut bytes));
        if random.random() {
            bytes.truncate(bytes.len() - random.random_range(0..bytes.len().min(1_000)));
        }
        assert_eq!(in_chunks::<R>(&mut random, &bytes), in_one_piece::<R>(&bytes), "seed {seed}");
    }

    #[test]
    fn commands_come_out_of_chunks_as_out_of_one_piece() {
        (0..40).for_each(check::<Resp>);
        (0..40).for_each(check::<Memcached>);
        for _ in 0..20 {
            let seed = rand::random();
            check::<Resp>(seed);
            check::<Memcached>(seed);
        }
    }

    #[test]
    fn small_pieces_do_not_hold_on_to_large_buffers() {
        let mut kept = Kept::default();
        let read = Bytes::from(vec![b'x'; 200_000]);
        kept.push(read.slice(199_900..), read.len());
        drop(read);
        assert!(kept.memory_bytes() <= 256, "{} bytes for 100", kept.memory_bytes());
        for _ in 0..10_000 {
            kept.push(Bytes::from_static(b"0123456789"), 10);
        }
        let memory_bytes = kept.memory_bytes();
        assert!((100_100..100_100 + 2 * CHUNK_BYTES).contains(&memory_bytes), "{memory_bytes}");
    }

    #[test]
    fn a_command_in_many_chunks_is_joined_once() {
        let mut kept = Kept::default();
        let value = vec![b'v'; 8 << 20];
        let mut bytes = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).into_bytes();
        bytes.extend_from_slice(&value);
        bytes.extend_from_slice(b"\r\nPING\r\n");
        bytes.chunks(1_000).for_each(|piece| kept.push(Bytes::copy_from_slice(piece), piece.len()));
        let (mut front, mut joins) = (kept.take_front(), 0);
        let mut found = Vec::new();
        loop {
            match next_command(&mut front, &RespLimits::default()).unwrap() {
                RespTaken::Command(command) => {
                    found.push(command.args().map(<[u8]>::len).collect::<Vec<_>>())
                }
                RespTaken::Needs(needs) => match kept.join(front, needs) {
                    Ok(more) => (front, joins) = (more, joins + 1),
                    Err(_) => break,
                },
            }
        }
        assert_eq!(found, [vec![3, 1, value.len()], vec![4]]);
        assert!(joins <= 4, "{joins} joins");
    }
}
