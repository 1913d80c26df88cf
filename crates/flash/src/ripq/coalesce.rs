//! Joining virtual blocks that have become small, so that their number is bounded. Device blocks are never joined.
//!
//! A virtual block lives until its last object moves on, and requests alone seal new ones. Neighbours in a section that
//! fit one block become one, the upper, so objects only rise. Who they were is in the index, which is read as a whole;
//! that happens once in so many sealed blocks that a request pays a few nanoseconds for it.

use super::queue::RipqQueue;
use super::section::BlockKind;
use super::state::RipqState;

impl RipqState {
    pub(super) fn bound_blocks(&mut self) {
        // Joined, two neighbours hold more than a block: there are at most two for each block of capacity.
        let most = 4 * self.blocks() as usize + 4096;
        if self.queue.blocks.len() > most {
            self.coalesce();
        }
    }

    pub(super) fn coalesce(&mut self) {
        let into = self.queue.join_virtual();
        let index = &mut self.index;
        index.update_all(|mut place| {
            place.moved_to =
                place.moved_to.map(|block| into.get(block as usize).copied().flatten().unwrap_or(block));
            Some(place)
        });
    }
}

impl RipqQueue {
    /// Joins neighbours; for each block that is gone the one that has its objects.
    fn join_virtual(&mut self) -> Vec<Option<u32>> {
        let mut into = Vec::new();
        for section in 0..self.sections.len() {
            let sealed = self.sections[section].sealed.iter().copied();
            let small: Vec<u32> = sealed.filter(|id| self.blocks[*id].kind == BlockKind::Virtual).collect();
            let mut joined: Option<u32> = None;
            for upper in small {
                let lower = joined.replace(upper);
                let Some(lower) = lower else { continue };
                if self.blocks[lower].bytes + self.blocks[upper].bytes > self.block_bytes {
                    continue;
                }
                self.join(lower, upper);
                if into.len() <= lower as usize {
                    into.resize(lower as usize + 1, None);
                }
                into[lower as usize] = Some(upper);
            }
            self.recount(section);
        }
        // A block that was joined to one that was joined later is where that one is.
        for id in 0..into.len() {
            while let Some(next) = into[id].and_then(|target| into.get(target as usize).copied().flatten()) {
                into[id] = Some(next);
            }
        }
        into
    }

    fn join(&mut self, lower: u32, upper: u32) {
        let block = &mut self.blocks[lower];
        let (bytes, objects, lowest) = (block.bytes, block.objects, block.lowest);
        (block.bytes, block.objects) = (0, 0);
        let block = &mut self.blocks[upper];
        block.bytes += bytes;
        block.objects += objects;
        let share = bytes as f64 / block.bytes.max(1) as f64;
        block.lowest = lowest * share + block.lowest * (1.0 - share);
        self.remove(lower);
    }
}
