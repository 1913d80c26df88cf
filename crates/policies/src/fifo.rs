//! FIFO: the object that came first leaves first, whatever is requested. No second chance.

use std::collections::VecDeque;

use super::{ObjectRequest, Policy};

/// Objects leave in the order in which they came, so those that are cached are those with the last numbers of arrival:
/// nothing is written when one leaves, and the queue need not know which it is, only its size.
#[derive(Clone, Debug)]
pub struct Fifo {
    capacity: u64,
    used: u64,
    /// Each object's number of arrival, from 1 on; 0 before it first comes.
    arrivals: Vec<u32>,
    /// The sizes of those that are cached, the oldest first.
    queue: VecDeque<u32>,
    /// The number of the oldest that is cached, or the next number where none is.
    oldest: u32,
}

impl Fifo {
    pub fn new(capacity: u64) -> Fifo {
        Fifo { capacity, used: 0, arrivals: Vec::new(), queue: VecDeque::new(), oldest: 1 }
    }

    /// Numbers start again before they are used up.
    #[cold]
    fn renumber(&mut self) {
        for arrival in &mut self.arrivals {
            *arrival = if *arrival < self.oldest { 0 } else { *arrival - self.oldest + 1 };
        }
        self.oldest = 1;
    }
}

impl Policy for Fifo {
    fn reserve(&mut self, objects: usize) {
        self.arrivals.resize(objects, 0);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let object = request.object as usize;
        if self.arrivals[object] >= self.oldest {
            return true;
        }
        let bytes = u64::from(request.bytes);
        if bytes > self.capacity {
            return false;
        }
        while self.used + bytes > self.capacity {
            let Some(evicted) = self.queue.pop_front() else { break };
            self.used -= u64::from(evicted);
            self.oldest += 1;
        }
        let number = self.oldest + self.queue.len() as u32;
        self.arrivals[object] = number;
        self.used += bytes;
        self.queue.push_back(request.bytes);
        if number == u32::MAX - 1 {
            self.renumber();
        }
        false
    }

    fn memory(&self) -> usize {
        (self.arrivals.capacity() + self.queue.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_arrival_start_again() {
        let mut fifo = Fifo::new(2);
        fifo.reserve(4);
        fifo.oldest = u32::MAX - 3;
        let mut hits = Vec::new();
        for object in [0, 1, 0, 2, 0, 2, 1, 3, 0] {
            hits.push(fifo.request(&ObjectRequest::of(object)));
        }
        // 0 1 | hit | 2 puts 0 out | 0 puts 1 out | hit | 1 puts 2 out | 3 puts 0 out | 0 puts 1 out
        assert_eq!(hits, [false, false, true, false, false, true, false, false, false]);
        assert!(fifo.oldest < 10, "{}", fifo.oldest);
    }
}
