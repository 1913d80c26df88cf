//! A bounded queue in front of a role that may serve only so many requests per second. Emulates slower machines.

use std::collections::VecDeque;

/// Requests that may be served in one go after a pause, in microseconds of the rate: two ticks.
const BURST_US: u64 = 20_000;

/// Longest that a request may queue, in microseconds: whoever asks rather hears at once that somebody else must be
/// asked than waits for a reply that comes too late. Shorter, and a burst of pipelined requests is refused.
const WAIT_US_MAX: u64 = 250_000;
/// A queue shorter than this would refuse the ordinary bursts of a few clients.
const QUEUE_MIN: usize = 16;

/// What became of a request that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    /// To be served now.
    Serve(T),
    Queued,
    /// The queue is full: to be refused now.
    Overflow(T),
}

/// First in, first out, at `rate_max` requests per second; 0 is no limit. No more than `queue_max` requests wait, and
/// no more than can be served while a client is patient.
#[derive(Debug)]
pub struct Inbox<T> {
    rate_max: u64,
    queue_max: usize,
    /// Millionths of a request.
    credit: u64,
    counted_us: u64,
    queue: VecDeque<T>,
}

impl<T> Inbox<T> {
    pub fn new(rate_max: u64, queue_max: usize) -> Inbox<T> {
        let timely = usize::try_from(rate_max.saturating_mul(WAIT_US_MAX) / 1_000_000).unwrap_or(usize::MAX);
        let queue_max = queue_max.min(timely.max(QUEUE_MIN));
        Inbox { rate_max, queue_max, credit: 0, counted_us: 0, queue: VecDeque::new() }
    }

    pub fn arrive(&mut self, now_us: u64, request: T) -> Arrival<T> {
        if self.rate_max == 0 || (self.queue.is_empty() && self.spend(now_us)) {
            return Arrival::Serve(request);
        }
        if self.queue.len() >= self.queue_max {
            return Arrival::Overflow(request);
        }
        self.queue.push_back(request);
        Arrival::Queued
    }

    /// The next queued request, if the rate allows one more.
    pub fn next(&mut self, now_us: u64) -> Option<T> {
        if self.queue.is_empty() || !self.spend(now_us) {
            return None;
        }
        self.queue.pop_front()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn spend(&mut self, now_us: u64) -> bool {
        let earned = now_us.saturating_sub(self.counted_us).saturating_mul(self.rate_max);
        self.counted_us = self.counted_us.max(now_us);
        let most = (BURST_US * self.rate_max).max(1_000_000);
        self.credit = self.credit.saturating_add(earned).min(most);
        let affordable = self.credit >= 1_000_000;
        if affordable {
            self.credit -= 1_000_000;
        }
        affordable
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrival, Inbox};

    #[test]
    fn no_limit_passes_everything() {
        let mut inbox = Inbox::new(0, 0);
        for request in 0..10_000 {
            assert_eq!(inbox.arrive(5, request), Arrival::Serve(request));
        }
    }

    #[test]
    fn a_second_serves_the_rate_in_order_and_the_rest_waits_or_overflows() {
        let mut inbox = Inbox::new(1000, 200);
        let (mut served, mut overflowed) = (Vec::new(), 0);
        let start_us = 7_000_000;
        inbox.arrive(start_us, 0);
        for tick in 1..=100u64 {
            let now_us = start_us + tick * 10_000;
            for request in 0..20 {
                match inbox.arrive(now_us, tick * 20 + request) {
                    Arrival::Serve(request) => served.push(request),
                    Arrival::Queued => {}
                    Arrival::Overflow(_) => overflowed += 1,
                }
            }
            while let Some(request) = inbox.next(now_us) {
                served.push(request);
            }
        }
        assert!((990..=1021).contains(&served.len()), "{}", served.len());
        assert!(served.is_sorted());
        assert_eq!(inbox.len(), 190, "full, less the last ten served");
        assert!(overflowed > 750, "{overflowed}");
    }

    #[test]
    fn whoever_is_queued_is_served_while_it_is_patient() {
        for rate_max in [100, 1000, 50_000] {
            let mut inbox = Inbox::new(rate_max, usize::MAX);
            let queued = (0..rate_max * 5).filter(|n| inbox.arrive(0, *n) == Arrival::Queued).count() as u64;
            assert!(queued <= rate_max / 4 && queued > 0, "{queued} of {rate_max} per second");
            let (mut served, mut now_us) = (0, 0);
            while now_us < super::WAIT_US_MAX + super::BURST_US {
                now_us += 10_000;
                served += std::iter::from_fn(|| inbox.next(now_us)).count() as u64;
            }
            assert_eq!((served, inbox.is_empty()), (queued, true), "{rate_max} per second");
        }
        let mut slow = Inbox::new(1, usize::MAX);
        assert_eq!((0..100).filter(|n| slow.arrive(0, *n) == Arrival::Queued).count(), super::QUEUE_MIN);
    }
}
