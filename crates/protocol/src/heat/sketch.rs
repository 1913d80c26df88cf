//! A Count-Min sketch of the current and the previous window. Not when windows change.

use super::{ROWS_MAX, RowHashes};

/// Rows of counters; an item's count is the least of its counters.
///
/// A cell holds the current window in its low half and the previous one in its high half: one cache line serves
/// both, and flipping buffers is one shift over the table (1 MiB, some 50 microseconds, once per window).
///
/// The update is conservative: only counters below the item's new count are raised. The paper's switch adds to
/// all rows because its pipeline sees each row once; software can look first and so errs less by a factor.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    cells: Vec<u32>,
    rows: usize,
    counters: usize,
    hashes: RowHashes,
}

const CURRENT: u32 = 0xffff;

impl Sketch {
    pub(super) fn new(rows: usize, counters: usize, seed: u64) -> Sketch {
        let (rows, counters) = (rows.clamp(1, ROWS_MAX), counters.max(1));
        Sketch { cells: vec![0; rows * counters], rows, counters, hashes: RowHashes::new(seed, counters) }
    }

    /// Counts one request; returns the item's counts in the current and the previous window.
    pub(super) fn record(&mut self, item: u64) -> (u32, u32) {
        let mut places = [0; ROWS_MAX];
        for pair in 0..self.rows.div_ceil(2) {
            let columns = self.hashes.pair(pair, item);
            for (row, column) in (2 * pair..).zip(columns) {
                places[row] = row * self.counters + column;
            }
        }
        let places = &places[..self.rows];
        let (mut current, mut previous) = (CURRENT, CURRENT);
        for &place in places {
            let cell = self.cells[place];
            current = current.min(cell & CURRENT);
            previous = previous.min(cell >> 16);
        }
        if current == CURRENT {
            return (current, previous);
        }
        let count = current + 1;
        for &place in places {
            let cell = &mut self.cells[place];
            if *cell & CURRENT < count {
                *cell = *cell & !CURRENT | count;
            }
        }
        (count, previous)
    }

    /// The current window becomes the previous one.
    pub(super) fn flip(&mut self) {
        for cell in &mut self.cells {
            *cell <<= 16;
        }
    }

    pub(super) fn clear(&mut self) {
        self.cells.fill(0);
    }
}
