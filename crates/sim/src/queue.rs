//! What will happen, by virtual time and then in the order in which it was planned. Not what it does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Events lie still while their times are sorted.
    events: Vec<Option<E>>,
    free: Vec<u32>,
    serial: u64,
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> EventQueue<E> {
        EventQueue { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), serial: 0 }
    }

    pub(crate) fn push(&mut self, time: u64, event: E) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.events.push(None);
                self.events.len() as u32 - 1
            }
        };
        self.events[slot as usize] = Some(event);
        self.serial += 1;
        self.heap.push(Reverse((time, self.serial, slot)));
    }

    pub(crate) fn next_time(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, ..))| *time)
    }

    /// The next event, if it is due by `until`.
    pub(crate) fn pop(&mut self, until: u64) -> Option<(u64, E)> {
        let Reverse((time, ..)) = *self.heap.peek()?;
        if time > until {
            return None;
        }
        let Reverse((time, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        Some((time, self.events[slot as usize].take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::EventQueue;

    #[test]
    fn time_comes_first_and_then_the_order_of_planning() {
        let mut queue = EventQueue::new();
        for (time, name) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            queue.push(time, name);
        }
        assert_eq!(queue.next_time(), Some(3));
        let order: String = std::iter::from_fn(|| queue.pop(5)).map(|(_, name)| name).collect();
        assert_eq!(order, "abcd");
        assert_eq!(queue.pop(8), None);
        assert_eq!(queue.pop(9), Some((9, 'e')));
    }
}
