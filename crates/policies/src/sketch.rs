//! How often objects were requested lately, about: a count-min sketch of 4-bit counters that are halved from time to time
//! (TinyLFU). Not exact, and in memory that does not grow with what was ever requested.
//!
//! The layout is that of Caffeine: an object's four counters lie in one block of eight words, which is one cache line.

const BLOCK_WORDS: usize = 8;
const COUNTERS: u32 = 4;
const COUNTER_MAX: u64 = 15;
/// Counters are halved after this many requests for each object that the cache can hold.
const SAMPLE: u64 = 10;
/// The lowest bit of every counter, and all but the highest.
const ONES: u64 = 0x1111_1111_1111_1111;
const HALVES: u64 = 0x7777_7777_7777_7777;

#[derive(Clone, Debug)]
pub struct FrequencySketch {
    words: Vec<u64>,
    /// Objects that it is made for.
    objects: usize,
    counted: u64,
}

impl Default for FrequencySketch {
    fn default() -> FrequencySketch {
        FrequencySketch::new()
    }
}

impl FrequencySketch {
    pub fn new() -> FrequencySketch {
        FrequencySketch { words: vec![0; BLOCK_WORDS], objects: 0, counted: 0 }
    }

    /// Makes it wide enough for this many cached objects. It forgets all counts where it becomes wider.
    pub fn reserve(&mut self, objects: usize) {
        self.objects = self.objects.max(objects);
        if self.objects > self.words.len() {
            self.words = vec![0; self.objects.next_power_of_two()];
            self.counted = 0;
        }
    }

    #[inline]
    pub fn increment(&mut self, object: u32) {
        let hash = mix(object);
        let block = self.block(hash);
        let mut added = 0;
        for row in 0..COUNTERS {
            let (word, shift) = counter(hash, row);
            let word = &mut block[word];
            let add = u64::from(*word >> shift & COUNTER_MAX != COUNTER_MAX);
            *word += add << shift;
            added |= add;
        }
        self.counted += added;
        if self.counted >= SAMPLE * self.objects.max(1) as u64 {
            self.halve();
        }
    }

    #[inline]
    pub fn frequency(&mut self, object: u32) -> u64 {
        let hash = mix(object);
        let block = self.block(hash);
        let count = |row| {
            let (word, shift) = counter(hash, row);
            block[word] >> shift & COUNTER_MAX
        };
        (0..COUNTERS).map(count).min().unwrap_or(0)
    }

    pub fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    fn block(&mut self, hash: u64) -> &mut [u64] {
        let blocks = self.words.len() / BLOCK_WORDS;
        let first = (hash >> 32) as usize & (blocks - 1);
        &mut self.words[first * BLOCK_WORDS..][..BLOCK_WORDS]
    }

    fn halve(&mut self) {
        let mut odd = 0;
        for word in &mut self.words {
            odd += u64::from((*word & ONES).count_ones());
            *word = *word >> 1 & HALVES;
        }
        self.counted = (self.counted - odd / u64::from(COUNTERS)) / 2;
    }
}

/// Which word of the block, and which of its bits: eight bits of the hash for each row.
fn counter(hash: u64, row: u32) -> (usize, u32) {
    let bits = (hash >> (row * 8)) as u32;
    ((row * 2 + (bits & 1)) as usize, (bits >> 1 & 15) * 4)
}

fn mix(object: u32) -> u64 {
    let mut bits = (u64::from(object) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ (bits >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_never_too_low_before_it_is_halved() {
        let mut sketch = FrequencySketch::new();
        sketch.reserve(1000);
        for object in 0..1000 {
            for _ in 0..object % 9 {
                sketch.increment(object);
            }
        }
        let exact = (0..1000).filter(|object| sketch.frequency(*object) == u64::from(object % 9)).count();
        assert!((0..1000).all(|object| sketch.frequency(object) >= u64::from(object % 9)));
        assert!(exact > 800, "{exact}");
    }

    #[test]
    fn counts_end_at_fifteen_and_are_halved() {
        let mut sketch = FrequencySketch::new();
        sketch.reserve(8);
        for _ in 0..40 {
            sketch.increment(3);
        }
        assert_eq!((sketch.frequency(3), sketch.counted), (15, 15));
        for object in 0..65 {
            sketch.increment(object % 8 + 10);
        }
        assert!(sketch.frequency(3) < 15, "80 are counted, and all is halved");
    }
}
