//! A queue in front of a role that may serve only so many requests per second, bounded in time. Emulates slower
//! machines.
//!
//! First in, first out. A request that could only be served late is refused at once: late is 250 ms, or, of a queue that
//! has not been empty for as long, 50 ms. So bursts are served and a standing queue stays short, whatever the load; what
//! is served is served in time, and so goodput does not fall. Fills may always wait for 250 ms: what makes many hits comes
//! before what is only itself.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use wire::message::{Fill, Reply};
use wire::{LayerSet, Message, Status};

use crate::time::Time;

/// Requests that may be served in one go after a pause, as time at the rate: two ticks.
const BURST_US: u64 = 20_000;
/// How long a burst may take to be served. Whoever asks rather hears at once that somebody else must be asked than waits
/// for a reply that comes too late. Shorter, and a burst of pipelined requests is refused.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long anything but fills may wait in a standing queue: some ticks, or the rate would not be used up.
const STANDING_PATIENCE: Duration = Duration::from_millis(50);
/// A queue shorter than this would refuse the ordinary bursts of a few clients.
const QUEUE_MIN: usize = 16;
/// Nobody is served who has waited for this long, because the role did not run: its router has asked elsewhere.
const LIFE: Duration = Duration::from_millis(500);

/// What is said to a request that is not taken, with `value` as the error for its client. None if it is no request: what
/// makes less work, or is under way already, is always taken.
pub fn refusal(message: &Message, value: Bytes) -> Option<Message> {
    let request = match message {
        Message::Read(read) => read.request,
        Message::Execute(execute) => execute.request,
        Message::Fetch(fetch) => {
            return Some(Message::Fill(Fill {
                session: fetch.session,
                fill: fetch.fill,
                key: fetch.key.clone(),
                view: fetch.view,
                version: 0,
                granted: false,
                status: Status::Busy,
                cached: LayerSet::EMPTY,
                ttl_ms: None,
                value,
            }));
        }
        _ => return None,
    };
    Some(Message::Reply(Reply { request, status: Status::Busy, value, ..Reply::default() }))
}

/// What became of a request that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    /// To be served now.
    Serve(T),
    Queued,
    /// It would be served too late, or the queue is full: to be refused now.
    Refuse(T),
}

/// What is to be done with a request that was queued.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<T> {
    Serve(T),
    Refuse(T),
}

#[derive(Clone, Debug)]
pub struct Inbox<T> {
    /// Requests per second; 0 is no limit.
    rate_max: u64,
    queue_max: usize,
    /// Millionths of a request.
    credit: u64,
    counted: Time,
    queue: VecDeque<(Time, T)>,
    /// When the queue was empty last.
    empty: Time,
}

impl<T> Inbox<T> {
    pub fn new(rate_max: u64, queue_max: usize) -> Inbox<T> {
        Inbox { rate_max, queue_max, credit: 0, counted: Time(0), queue: VecDeque::new(), empty: Time(0) }
    }

    /// What waits already is served at the new rate.
    pub fn set_limits(&mut self, rate_max: u64, queue_max: usize) {
        (self.rate_max, self.queue_max) = (rate_max, queue_max);
    }

    /// `fill`: it may wait for its turn even in a standing queue.
    pub fn arrive(&mut self, now: Time, request: T, fill: bool) -> Arrival<T> {
        if self.rate_max == 0 {
            return Arrival::Serve(request);
        }
        if self.queue.is_empty() {
            self.empty = now;
            if self.spend(now) {
                return Arrival::Serve(request);
            }
        }
        let standing = !fill && now.since(self.empty) >= PATIENCE;
        let patience = if standing { STANDING_PATIENCE } else { PATIENCE };
        let in_time = self.rate_max.saturating_mul(patience.as_micros() as u64) / 1_000_000;
        let in_time = usize::try_from(in_time).unwrap_or(usize::MAX).max(QUEUE_MIN);
        if self.queue.len() >= self.queue_max.min(in_time) {
            return Arrival::Refuse(request);
        }
        self.queue.push_back((now, request));
        Arrival::Queued
    }

    /// What to do with the next queued request, if the rate allows one more.
    pub fn next(&mut self, now: Time) -> Option<Due<T>> {
        let (arrived, _) = self.queue.front()?;
        let late = now.since(*arrived) >= LIFE;
        if !late && !self.spend(now) {
            return None;
        }
        let (_, request) = self.queue.pop_front()?;
        if self.queue.is_empty() {
            self.empty = now;
        }
        Some(if late { Due::Refuse(request) } else { Due::Serve(request) })
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn spend(&mut self, now: Time) -> bool {
        let earned = (now.since(self.counted).as_micros() as u64).saturating_mul(self.rate_max);
        self.counted = self.counted.max(now);
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
    use super::*;

    /// What happened in the second half of ten seconds.
    #[derive(Debug, Default)]
    struct Outcome {
        served: u64,
        refused: u64,
        /// Longest wait of those served, in milliseconds.
        wait_ms: u64,
    }

    /// `per_ms(millisecond)` requests arrive; queued ones are served at ticks of 10 ms.
    fn run(rate: u64, queue_max: usize, per_ms: impl Fn(u64) -> u64, fill: bool) -> Outcome {
        let mut inbox = Inbox::new(rate, queue_max);
        let mut outcome = Outcome::default();
        for ms in 0..10_000u64 {
            let (now, counts) = (Time(7_000_000 + ms * 1000), u64::from(ms >= 5000));
            for _ in 0..per_ms(ms) {
                match inbox.arrive(now, ms, fill) {
                    Arrival::Serve(_) => outcome.served += counts,
                    Arrival::Queued => {}
                    Arrival::Refuse(_) => outcome.refused += counts,
                }
            }
            while ms % 10 == 0
                && let Some(due) = inbox.next(now)
            {
                match due {
                    Due::Serve(arrived) => {
                        outcome.served += counts;
                        outcome.wait_ms = outcome.wait_ms.max(counts * (ms - arrived));
                    }
                    Due::Refuse(_) => outcome.refused += counts,
                }
            }
        }
        outcome
    }

    #[test]
    fn no_limit_passes_everything() {
        let mut inbox = Inbox::new(0, 0);
        for request in 0..10_000 {
            assert_eq!(inbox.arrive(Time(5), request, false), Arrival::Serve(request));
        }
    }

    #[test]
    fn two_five_and_twenty_times_the_rate_are_served_at_the_rate_and_in_time() {
        for rate in [1000, 10_000, 50_000] {
            for factor in [2, 5, 20] {
                let found = run(rate, 1 << 16, |_| rate * factor / 1000, false);
                assert!(found.served.abs_diff(rate * 5) <= rate / 20, "{rate} x {factor}: {found:?}");
                assert!(found.wait_ms <= 60, "{rate} x {factor}: {found:?}");
            }
        }
    }

    #[test]
    fn fills_wait_longer_and_in_time() {
        let found = run(10_000, 1 << 16, |_| 20, true);
        assert!(found.served.abs_diff(50_000) <= 2500 && (240..=260).contains(&found.wait_ms), "{found:?}");
    }

    #[test]
    fn bursts_below_the_rate_are_served_whole() {
        // Fifty milliseconds' worth at once, ten times a second: half the rate.
        let found = run(10_000, 1 << 16, |ms| if ms % 100 == 0 { 500 } else { 0 }, false);
        assert_eq!((found.served, found.refused), (25_000, 0), "{found:?}");
    }

    #[test]
    fn a_slow_member_takes_the_bursts_of_a_few_clients() {
        let mut slow = Inbox::new(1, usize::MAX);
        let queued = (0..100).filter(|n| slow.arrive(Time(0), *n, false) == Arrival::Queued).count();
        assert_eq!(queued, QUEUE_MIN);
    }

    #[test]
    fn the_queue_is_bounded_in_number_too() {
        let found = run(50_000, 100, |_| 100, false);
        assert!(found.refused > 0 && found.wait_ms <= 10, "{found:?}");
    }

    #[test]
    fn who_waited_while_the_role_was_stopped_is_refused() {
        let mut inbox = Inbox::new(1000, 100);
        let start = Time(1_000_000);
        while let Arrival::Serve(()) = inbox.arrive(start, (), false) {}
        inbox.arrive(start, (), false);
        let later = start.after(Duration::from_secs(3));
        assert_eq!((inbox.next(later), inbox.next(later)), (Some(Due::Refuse(())), Some(Due::Refuse(()))));
        assert!(inbox.is_empty());
    }
}
