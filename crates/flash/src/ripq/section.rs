//! Blocks and the sections they make up: their order and their sums. Not which object is in which block.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// Has bytes of objects, on the device or in a buffer.
    Device,
    /// The new place in the queue of objects whose bytes stay where they are (section 4.3.2).
    Virtual,
}

/// An object counts in the one block that tells its place in the queue: the virtual one if it has been updated.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) kind: BlockKind,
    pub(super) bytes: u64,
    pub(super) objects: u32,
    /// Objects whose bytes are in this block, wherever in the queue they count.
    pub(super) residents: u32,
    pub(super) active: bool,
    pub(super) section: usize,
    /// Rises within a section from its tail to its head.
    pub(super) order: u64,
    /// Bytes of the section below this block, as of the section's last change of blocks.
    pub(super) below: u64,
    /// Mean of the lowest value (Table 4.2) at which its objects got their priorities.
    pub(super) lowest: f64,
}

/// Sealed blocks from tail to head, and the active ones at the head.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) sealed: VecDeque<u32>,
    pub(super) active_device: Option<u32>,
    pub(super) active_virtual: Option<u32>,
    pub(super) bytes: u64,
}

impl Section {
    pub(super) fn active(&self, kind: BlockKind) -> Option<u32> {
        match kind {
            BlockKind::Device => self.active_device,
            BlockKind::Virtual => self.active_virtual,
        }
    }

    pub(super) fn active_mut(&mut self, kind: BlockKind) -> &mut Option<u32> {
        match kind {
            BlockKind::Device => &mut self.active_device,
            BlockKind::Virtual => &mut self.active_virtual,
        }
    }

    /// All blocks from tail to head.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u32> {
        self.sealed.iter().copied().chain(self.active_device).chain(self.active_virtual)
    }
}

/// Blocks under their numbers; a number is used again once its block is gone.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    slots: Vec<Option<Block>>,
    free: Vec<u32>,
}

impl Blocks {
    pub(super) fn insert(&mut self, block: Block) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(block);
                id
            }
            None => {
                self.slots.push(Some(block));
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub(super) fn remove(&mut self, id: u32) -> Block {
        let block = self.slots[id as usize].take().expect("a block that exists");
        self.free.push(id);
        block
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.slots.get(id as usize).is_some_and(Option::is_some)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Block>>() + self.free.capacity() * size_of::<u32>()
    }
}

impl std::ops::Index<u32> for Blocks {
    type Output = Block;

    fn index(&self, id: u32) -> &Block {
        self.slots[id as usize].as_ref().expect("a block that exists")
    }
}

impl std::ops::IndexMut<u32> for Blocks {
    fn index_mut(&mut self, id: u32) -> &mut Block {
        self.slots[id as usize].as_mut().expect("a block that exists")
    }
}
