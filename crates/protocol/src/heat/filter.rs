//! A Bloom filter: whether an item was seen in this window. It may take a new item for a seen one, never the reverse.

use super::{ROWS_MAX, RowHashes};

/// Rows of bits, one bit of each per item. With 10,000 items in 3 x 256K bits one new item in 20,000 is missed,
/// until the next window.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    words: Vec<u64>,
    rows: usize,
    words_per_row: usize,
    hashes: RowHashes,
}

impl Filter {
    pub(super) fn new(rows: usize, bits: usize, seed: u64) -> Filter {
        let (rows, words_per_row) = (rows.clamp(1, ROWS_MAX), bits.div_ceil(64).max(1));
        let hashes = RowHashes::new(seed, words_per_row * 64);
        Filter { words: vec![0; rows * words_per_row], rows, words_per_row, hashes }
    }

    /// Adds the item; true if it was new.
    pub(super) fn insert(&mut self, item: u64) -> bool {
        let mut new = false;
        for pair in 0..self.rows.div_ceil(2) {
            let rows = (2 * pair..self.rows).zip(self.hashes.pair(pair, item));
            for (row, column) in rows {
                let word = &mut self.words[row * self.words_per_row + column / 64];
                let bit = 1 << (column % 64);
                new |= *word & bit == 0;
                *word |= bit;
            }
        }
        new
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }
}
