//! Erase blocks by how many valid pages they hold, so that the emptiest is at hand. Not which pages those are.

const NONE: u32 = u32::MAX;

/// One list per number of valid pages, oldest block first; the links are in arrays by block.
#[derive(Debug)]
pub(super) struct Victims {
    heads: Vec<u32>,
    tails: Vec<u32>,
    links: Vec<VictimLink>,
    /// No list before this one has a block.
    lowest: usize,
}

#[derive(Clone, Copy, Debug)]
struct VictimLink {
    before: u32,
    after: u32,
    /// The list the block is on, or `NONE`.
    valid: u32,
}

impl Victims {
    pub(super) fn new(blocks: u32, block_pages: u32) -> Victims {
        let lists = block_pages as usize + 1;
        let link = VictimLink { before: NONE, after: NONE, valid: NONE };
        Victims {
            heads: vec![NONE; lists],
            tails: vec![NONE; lists],
            links: vec![link; blocks as usize],
            lowest: lists,
        }
    }

    pub(super) fn insert(&mut self, block: u32, valid: u32) {
        let list = valid as usize;
        let before = self.tails[list];
        self.links[block as usize] = VictimLink { before, after: NONE, valid };
        match before {
            NONE => self.heads[list] = block,
            before => self.links[before as usize].after = block,
        }
        self.tails[list] = block;
        self.lowest = self.lowest.min(list);
    }

    /// One valid page less, if the block is here.
    pub(super) fn decrement(&mut self, block: u32) {
        let valid = self.links[block as usize].valid;
        if valid != NONE {
            self.remove(block);
            self.insert(block, valid - 1);
        }
    }

    /// Takes out the block with the fewest valid pages, of those the one that came to that number first.
    pub(super) fn take(&mut self) -> Option<u32> {
        while *self.heads.get(self.lowest)? == NONE {
            self.lowest += 1;
        }
        let block = self.heads[self.lowest];
        self.remove(block);
        Some(block)
    }

    fn remove(&mut self, block: u32) {
        let VictimLink { before, after, valid } = self.links[block as usize];
        let list = valid as usize;
        match before {
            NONE => self.heads[list] = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.tails[list] = before,
            after => self.links[after as usize].before = before,
        }
        self.links[block as usize].valid = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::Victims;

    /// Against a list that is searched.
    #[test]
    fn the_emptiest_comes_first_and_of_equals_the_oldest() {
        let mut victims = Victims::new(6, 3);
        let mut twin: Vec<(u32, u32)> = Vec::new();
        for (block, valid) in [(0, 3), (1, 2), (2, 3), (3, 2), (4, 0), (5, 3)] {
            victims.insert(block, valid);
            twin.push((valid, block));
        }
        for block in [0, 3, 5, 0, 5] {
            victims.decrement(block);
            let at = twin.iter().position(|(_, other)| *other == block).unwrap();
            let (valid, _) = twin.remove(at);
            twin.push((valid - 1, block));
        }
        while !twin.is_empty() {
            // The first of the least, as blocks stand in the order in which they came to their number.
            let at = (0..twin.len()).min_by_key(|at| twin[*at].0).unwrap();
            assert_eq!(victims.take(), Some(twin.remove(at).1));
        }
        assert_eq!(victims.take(), None);
        victims.decrement(4);
        victims.insert(2, 1);
        assert_eq!((victims.take(), victims.take()), (Some(2), None));
    }
}
