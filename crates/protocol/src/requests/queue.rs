//! Requests in the order in which they are begun, at a rate if there is one, which emulates slower machines.
//!
//! With `Overload::Refuse` a request that could only be begun late is refused at once: late is 250 ms, or, of a queue that has
//! not been empty for as long, 50 ms. So bursts are served and a standing queue stays short, whatever the load; what is
//! served is served in time, and so goodput does not fall. Fills may always wait for 250 ms: what makes many hits comes before
//! what is only itself.
//!
//! With `Overload::Wait` fills come first, everything else in the order of its arrival, and nothing is refused that has not
//! waited for as long as it may.

use std::collections::VecDeque;
use std::time::Duration;

use super::RequestLimits;
use crate::time::Time;

/// Requests that may be begun in one go after a pause, as time at the rate: two ticks.
const BURST_US: u64 = 20_000;
/// How long a burst may take to be served where overload is refused. Whoever asks rather hears at once that somebody else
/// must be asked than waits for a reply that comes too late. Shorter, and a burst of pipelined requests is refused.
const BURST_PATIENCE: Duration = Duration::from_millis(250);
/// How long anything but fills may wait in a standing queue: some ticks, or the rate would not be used up.
const STANDING_PATIENCE: Duration = Duration::from_millis(50);
/// A queue shorter than this would refuse the ordinary bursts of a few clients.
const QUEUE_MIN: usize = 16;
/// Where overload is refused nobody is served who has waited for this long, because the role did not run: its router has
/// asked elsewhere.
pub(super) const LIFE: Duration = Duration::from_millis(500);

/// What a request is, for the order in which requests are begun or turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestClass {
    /// Whatever a client asks for. Writes are no better than reads: each of a hot key costs a fill per layer, so that with
    /// more room for them less would be done in all.
    Client,
    /// A fill of a hot key takes many reads off storage.
    Fill,
}

/// What became of a request that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    /// To be begun now.
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
struct Entry<T> {
    /// When it came, less what it had waited before.
    since: Time,
    request: T,
}

#[derive(Clone, Debug)]
pub struct RequestQueue<T> {
    limits: RequestLimits,
    /// Millionths of a request that may be begun; below zero what was begun in advance.
    credit: i64,
    counted: Time,
    fills: VecDeque<Entry<T>>,
    queue: VecDeque<Entry<T>>,
    /// When the queue was empty last.
    empty: Time,
}

impl<T> RequestQueue<T> {
    pub fn new(limits: RequestLimits) -> RequestQueue<T> {
        let (fills, queue) = (VecDeque::new(), VecDeque::new());
        RequestQueue { limits, credit: 0, counted: Time(0), fills, queue, empty: Time(0) }
    }

    pub fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// Acts on `limits` from now on; what waits already is served at the new rate.
    pub fn set_limits(&mut self, limits: RequestLimits) {
        self.limits = limits;
    }

    /// Takes a request that had waited for `waited` elsewhere. `room`: it could be begun now, as far as the rate goes.
    pub fn arrive(
        &mut self,
        now: Time,
        request: T,
        class: RequestClass,
        waited: Duration,
        room: bool,
    ) -> Arrival<T> {
        let waits = self.limits.waits();
        let first = self.fills.is_empty() && (self.queue.is_empty() || waits && class == RequestClass::Fill);
        if first {
            if self.queue.is_empty() {
                self.empty = now;
            }
            if room && self.spend(now) {
                return Arrival::Serve(request);
            }
        }
        if self.len() >= self.queue_max(now, class) {
            return Arrival::Refuse(request);
        }
        let since = Time(now.0.saturating_sub(waited.as_micros() as u64));
        match class {
            RequestClass::Fill if waits => self.fills.push_back(Entry { since, request }),
            _ => self.queue.push_back(Entry { since, request }),
        }
        Arrival::Queued
    }

    /// So many may wait when one more comes.
    fn queue_max(&self, now: Time, class: RequestClass) -> usize {
        if self.limits.waits() || self.limits.rate_max == 0 {
            return self.limits.queue_max;
        }
        let standing = class == RequestClass::Client && now.since(self.empty) >= BURST_PATIENCE;
        let patience = if standing { STANDING_PATIENCE } else { BURST_PATIENCE };
        let in_time = self.limits.rate_max.saturating_mul(patience.as_micros() as u64) / 1_000_000;
        let in_time = usize::try_from(in_time).unwrap_or(usize::MAX).max(QUEUE_MIN);
        self.limits.queue_max.min(in_time)
    }

    /// The request that is next, for its member to tell whether there is room for it.
    pub fn first(&self) -> Option<&T> {
        self.fills.front().or_else(|| self.queue.front()).map(|entry| &entry.request)
    }

    /// What to do with the next queued request, and since when it has waited; nothing if the rate does not allow one more, or
    /// there is no room for it.
    pub fn next(&mut self, now: Time, room: bool) -> Option<Due<(Time, T)>> {
        let queue = if self.fills.is_empty() { &mut self.queue } else { &mut self.fills };
        let waited = now.since(queue.front()?.since);
        let late = waited >= self.limits.patience().unwrap_or(LIFE);
        if !late && (!room || !self.spend(now)) {
            return None;
        }
        let queue = if self.fills.is_empty() { &mut self.queue } else { &mut self.fills };
        let Entry { since, request } = queue.pop_front()?;
        if self.is_empty() {
            self.empty = now;
        }
        Some(if late { Due::Refuse((since, request)) } else { Due::Serve((since, request)) })
    }

    /// Takes out what has waited for too long, wherever it stands.
    pub fn expired(&mut self, now: Time) -> Vec<T> {
        let Some(patience) = self.limits.patience() else { return Vec::new() };
        let late = |entry: &Entry<T>| now.since(entry.since) >= patience;
        let mut expired = Vec::new();
        for queue in [&mut self.fills, &mut self.queue] {
            if queue.iter().any(late) {
                let (gone, kept): (VecDeque<_>, VecDeque<_>) =
                    std::mem::take(queue).into_iter().partition(late);
                *queue = kept;
                expired.extend(gone.into_iter().map(|entry| entry.request));
            }
        }
        expired
    }

    /// Forgets what nobody waits for any more.
    pub fn retain(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        self.fills.retain(|entry| wanted(&entry.request));
        self.queue.retain(|entry| wanted(&entry.request));
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.fills.iter().chain(&self.queue).map(|entry| &entry.request)
    }

    pub fn len(&self) -> usize {
        self.fills.len() + self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fills.is_empty() && self.queue.is_empty()
    }

    /// Work that is done whether or not there is time for it is paid for by what comes later.
    pub fn charge(&mut self, now: Time, requests: u32) {
        self.earn(now);
        self.credit -= i64::from(requests) * 1_000_000;
    }

    fn earn(&mut self, now: Time) {
        let passed_us = i64::try_from(now.since(self.counted).as_micros()).unwrap_or(i64::MAX);
        let rate_max = i64::try_from(self.limits.rate_max).unwrap_or(i64::MAX);
        self.counted = self.counted.max(now);
        // Less than one request more, and a slow member would lose what it earns between two ticks.
        let most = (BURST_US as i64).saturating_mul(rate_max).saturating_add(1_000_000);
        self.credit = self.credit.saturating_add(passed_us.saturating_mul(rate_max)).min(most);
    }

    fn spend(&mut self, now: Time) -> bool {
        if self.limits.rate_max == 0 {
            return true;
        }
        self.earn(now);
        let affordable = self.credit >= 1_000_000;
        if affordable {
            self.credit -= 1_000_000;
        }
        affordable
    }
}

#[cfg(test)]
mod tests {
    use super::RequestClass::{Client, Fill};
    use super::*;
    use crate::requests::Overload;

    /// What happened in the second half of ten seconds.
    #[derive(Debug, Default)]
    struct Outcome {
        served: u64,
        refused: u64,
        /// Longest wait of those served, in milliseconds.
        wait_ms: u64,
    }

    fn refusing<T>(rate_max: u64, queue_max: usize) -> RequestQueue<T> {
        RequestQueue::new(RequestLimits { rate_max, queue_max, ..RequestLimits::default() })
    }

    fn waiting<T>(rate_max: u64, patience_ms: u64) -> RequestQueue<T> {
        let overload = Overload::Wait { patience: Duration::from_millis(patience_ms) };
        RequestQueue::new(RequestLimits { rate_max, overload, ..RequestLimits::default() })
    }

    /// `per_ms(millisecond)` requests arrive; queued ones are served at ticks of 10 ms.
    fn run(rate: u64, queue_max: usize, per_ms: impl Fn(u64) -> u64, class: RequestClass) -> Outcome {
        let mut queue = refusing(rate, queue_max);
        let mut outcome = Outcome::default();
        for ms in 0..10_000u64 {
            let (now, counts) = (Time(7_000_000 + ms * 1000), u64::from(ms >= 5000));
            for _ in 0..per_ms(ms) {
                match queue.arrive(now, ms, class, Duration::ZERO, true) {
                    Arrival::Serve(_) => outcome.served += counts,
                    Arrival::Queued => {}
                    Arrival::Refuse(_) => outcome.refused += counts,
                }
            }
            while ms % 10 == 0
                && let Some(due) = queue.next(now, true)
            {
                match due {
                    Due::Serve((_, arrived)) => {
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
        let mut queue = refusing(0, 0);
        for request in 0..10_000 {
            let arrival = queue.arrive(Time(5), request, Client, Duration::ZERO, true);
            assert_eq!(arrival, Arrival::Serve(request));
        }
    }

    #[test]
    fn two_five_and_twenty_times_the_rate_are_served_at_the_rate_and_in_time() {
        for rate in [1000, 10_000, 50_000] {
            for factor in [2, 5, 20] {
                let found = run(rate, 1 << 16, |_| rate * factor / 1000, Client);
                assert!(found.served.abs_diff(rate * 5) <= rate / 20, "{rate} x {factor}: {found:?}");
                assert!(found.wait_ms <= 60, "{rate} x {factor}: {found:?}");
            }
        }
    }

    #[test]
    fn fills_wait_longer_and_in_time() {
        let found = run(10_000, 1 << 16, |_| 20, Fill);
        assert!(found.served.abs_diff(50_000) <= 2500 && (240..=260).contains(&found.wait_ms), "{found:?}");
    }

    #[test]
    fn bursts_below_the_rate_are_served_whole() {
        // Fifty milliseconds' worth at once, ten times a second: half the rate.
        let found = run(10_000, 1 << 16, |ms| if ms % 100 == 0 { 500 } else { 0 }, Client);
        assert_eq!((found.served, found.refused), (25_000, 0), "{found:?}");
    }

    #[test]
    fn a_slow_member_takes_the_bursts_of_a_few_clients() {
        let mut slow = refusing(1, usize::MAX);
        let queued = (0..100)
            .filter(|n| slow.arrive(Time(0), *n, Client, Duration::ZERO, true) == Arrival::Queued)
            .count();
        assert_eq!(queued, QUEUE_MIN);
    }

    #[test]
    fn the_queue_is_bounded_in_number_too() {
        let found = run(50_000, 100, |_| 100, Client);
        assert!(found.refused > 0 && found.wait_ms <= 10, "{found:?}");
    }

    #[test]
    fn who_waited_while_the_role_was_stopped_is_refused() {
        let mut queue = refusing(1000, 100);
        let start = Time(1_000_000);
        while let Arrival::Serve(()) = queue.arrive(start, (), Client, Duration::ZERO, true) {}
        queue.arrive(start, (), Client, Duration::ZERO, true);
        let later = start.after(Duration::from_secs(3));
        assert_eq!(
            (queue.next(later, true), queue.next(later, true)),
            (Some(Due::Refuse((start, ()))), Some(Due::Refuse((start, ()))))
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn who_may_wait_is_served_at_the_rate_and_refused_after_exactly_as_long() {
        let mut queue = waiting(1000, 500);
        let start = Time(1_000_000);
        let mut served: Vec<u32> = Vec::new();
        for request in 0..1000 {
            match queue.arrive(start, request, Client, Duration::ZERO, true) {
                Arrival::Serve(request) => served.push(request),
                Arrival::Queued => {}
                Arrival::Refuse(request) => panic!("{request} is refused at once"),
            }
        }
        for ms in (10..500).step_by(10) {
            let now = start.after(Duration::from_millis(ms));
            assert!(queue.expired(now).is_empty());
            while let Some(Due::Serve((_, request))) = queue.next(now, true) {
                served.push(request);
            }
        }
        assert!(served.is_sorted(), "in the order of their arrival");
        assert!((490..=520).contains(&served.len()), "{}", served.len());
        let refused = queue.expired(start.after(Duration::from_millis(500)));
        assert_eq!(refused.len(), 1000 - served.len());
        assert!(queue.is_empty());
    }

    #[test]
    fn what_was_waited_before_counts() {
        let mut queue = waiting(0, 500);
        let start = Time(1_000_000);
        assert_eq!(queue.arrive(start, 1, Client, Duration::from_millis(400), false), Arrival::Queued);
        assert_eq!(queue.arrive(start, 2, Client, Duration::ZERO, false), Arrival::Queued);
        let now = start.after(Duration::from_millis(100));
        assert_eq!(queue.expired(now), [1]);
        assert_eq!(queue.next(now, true), Some(Due::Serve((start, 2))));
    }

    #[test]
    fn fills_come_first_where_requests_wait() {
        let mut queue = waiting(0, 500);
        let start = Time(1_000_000);
        assert_eq!(queue.arrive(start, "read", Client, Duration::ZERO, false), Arrival::Queued);
        assert_eq!(queue.arrive(start, "fill", Fill, Duration::ZERO, false), Arrival::Queued);
        assert_eq!(queue.arrive(start, "late", Client, Duration::ZERO, true), Arrival::Queued, "in order");
        assert_eq!(queue.first(), Some(&"fill"));
        let order: Vec<_> = std::iter::from_fn(|| queue.next(start, true)).collect();
        assert_eq!(order, ["fill", "read", "late"].map(|request| Due::Serve((start, request))));
        assert_eq!(queue.arrive(start, "free", Fill, Duration::ZERO, true), Arrival::Serve("free"));
    }

    #[test]
    fn a_slow_member_uses_its_rate_up() {
        for rate in [7, 33, 62, 99, 150] {
            let mut queue = waiting(rate, 60_000);
            let start = Time(1_000_000);
            for _ in 0..10_000 {
                queue.arrive(start, (), Client, Duration::ZERO, true);
            }
            let tick = |ms| start.after(Duration::from_millis(ms));
            let served: usize = (0..10_000u64)
                .step_by(10)
                .map(|ms| std::iter::from_fn(|| queue.next(tick(ms), true)).count())
                .sum();
            assert!(served.abs_diff(rate as usize * 10) <= 2, "{served} in ten seconds at {rate}/s");
        }
    }

    #[test]
    fn work_that_cannot_wait_is_paid_for_later() {
        let mut queue = refusing(1000, 100);
        let start = Time(1_000_000);
        queue.charge(start, 31);
        assert_eq!(queue.arrive(start, (), Client, Duration::ZERO, true), Arrival::Queued);
        assert_eq!(queue.next(start.after(Duration::from_millis(10)), true), None);
        assert_eq!(queue.next(start.after(Duration::from_millis(11)), true), Some(Due::Serve((start, ()))));
    }
}
