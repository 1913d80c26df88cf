//! Cached objects by a rank that only rises, the lowest first. Not how a rank is computed.
//!
//! A hit need not tell the ranking: each object stands in the heap once, with a rank that it had at some time and that its
//! present rank is not below. If the lowest of those is out of date it is raised and the heap looks again; an object whose
//! rank is up to date and the lowest of all is the lowest indeed. Objects that are hit often are hardly ever touched.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

#[derive(Clone, Debug)]
pub(crate) struct Ranking<R: Ord> {
    heap: BinaryHeap<Reverse<(R, u32)>>,
}

impl<R: Ord + Copy> Ranking<R> {
    pub(crate) fn new() -> Ranking<R> {
        Ranking { heap: BinaryHeap::new() }
    }

    pub(crate) fn insert(&mut self, object: u32, rank: R) {
        self.heap.push(Reverse((rank, object)));
    }

    /// Takes out the object whose present rank is the lowest.
    pub(crate) fn pop(&mut self, present: impl Fn(u32) -> R) -> Option<(u32, R)> {
        loop {
            let mut lowest = self.heap.peek_mut()?;
            let Reverse((rank, object)) = *lowest;
            let now = present(object);
            if rank == now {
                PeekMut::pop(lowest);
                return Some((object, rank));
            }
            *lowest = Reverse((now, object));
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<Reverse<(R, u32)>>()
    }
}
