//! What a run did, as one number and on demand as text. Not what it should have done.

use std::fmt::Write;

use wire::Message;

/// Odd, with bits all over: FxHash's.
const FACTOR: u64 = 0x517c_c1b7_2722_0a95;

/// Covers every delivered event. Built from bytes of fixed order, so it is the same on every machine.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    buffer: Vec<u8>,
    text: Option<String>,
}

impl Trace {
    pub(crate) fn new(seed: u64, with_text: bool) -> Trace {
        Trace { hash: seed, events: 0, buffer: Vec::with_capacity(512), text: with_text.then(String::new) }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// One event: what kind, when, at whom.
    pub(crate) fn event(&mut self, now: u64, kind: u8, host: usize) {
        self.events += 1;
        self.word(now);
        self.word(u64::from(kind) << 32 | host as u64);
    }

    pub(crate) fn message(&mut self, message: &Message) {
        self.buffer.clear();
        let mut buffer = std::mem::take(&mut self.buffer);
        wire::encode(message, &mut buffer);
        self.bytes(&buffer);
        self.buffer = buffer;
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.word(chunk.try_into().map_or(0, u64::from_le_bytes));
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.word(u64::from_le_bytes(last));
    }

    pub(crate) fn word(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }

    pub(crate) fn note(&mut self, now: u64, what: impl FnOnce() -> String) {
        if let Some(text) = &mut self.text {
            let _ = writeln!(text, "{:>12} {}", now, what());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Trace;

    #[test]
    fn every_byte_and_its_place_count() {
        let hash = |bytes: &[u8]| {
            let mut trace = Trace::new(1, false);
            trace.bytes(bytes);
            trace.hash()
        };
        assert_eq!(hash(b"DistCache"), 246_371_034_062_302_356);
        assert_ne!(hash(b"DistCachf"), hash(b"DistCache"));
        assert_ne!(hash(b"DistCach\0"), hash(b"DistCach"));
    }
}
