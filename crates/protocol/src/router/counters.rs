//! What a router counts, latencies included. Not how they are published.

use std::time::Duration;

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands accepted from clients.
    pub requests: u64,
    pub clients_opened: u64,
    /// Parts of fan-outs count one each, here and in the next ones.
    pub reads_to_nodes: u64,
    pub reads_to_shims: u64,
    /// Commands other than cacheable reads that were sent to shims.
    pub executes: u64,
    /// Replies that a node gave from its copy.
    pub hits: u64,
    /// Reads asked again because their node vanished or hung.
    pub reads_lost: u64,
    /// Reads asked again because somebody was busy.
    pub retries: u64,
    /// Reads that could have been asked again, but for the budget.
    pub retries_denied: u64,
    /// Busy replies that clients got because nobody else was left to ask.
    pub exhausted: u64,
    /// Times that a node was left alone because it hung or refused everything.
    pub breakers_opened: u64,
    /// Commands that had to wait for earlier ones of their client.
    pub ordered_waits: u64,
    /// Commands refused by the router itself: unknown, malformed, or not possible here.
    pub refusals: u64,
    /// Commands that their client's user may not run, those before authentication included.
    pub denials: u64,
    /// Wrong names and passwords.
    pub authentication_failures: u64,
    /// Commands not sent because the shim was not reachable.
    pub unavailable: u64,
    /// Commands in flight to a shim when it vanished.
    pub lost: u64,
    /// Commands that had to wait for room at a node or shim, and those that had to wait for too long.
    pub turns_awaited: u64,
    pub turns_expired: u64,
    /// Commands answered `-BUSY` because too many were pending.
    pub sheds: u64,
    /// Published messages given to clients.
    pub pushes: u64,
    /// Error replies from storage or from a shim.
    pub errors: u64,
    /// Large replies that came in parts.
    pub streamed: u64,
    /// Clients closed because the rest of such a reply could not be had.
    pub broken_off: u64,
    /// Clients closed because all together held too much, because they did not read, and because they did not show who they
    /// are in time.
    pub closed_for_memory: u64,
    pub closed_unread: u64,
    pub closed_unauthenticated: u64,
    /// Replies to requests that no longer exist, or from someone who was not asked.
    pub late_replies: u64,
}

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// Log-linear histogram of microseconds, 16 steps for each power of two: within 6.25 %, a few ns per record.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Vec<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: vec![0; BUCKETS] }
    }
}

impl Latencies {
    pub fn record(&mut self, latency: Duration) {
        self.counts[bucket(latency.as_micros() as u64)] += 1;
    }

    /// Gives every filled step as (microseconds, count) and starts anew.
    pub fn drain(&mut self, mut each: impl FnMut(u64, u64)) {
        for (index, count) in self.counts.iter_mut().enumerate() {
            if *count > 0 {
                each(floor(index), std::mem::take(count));
            }
        }
    }
}

fn bucket(microseconds: u64) -> usize {
    if microseconds < SUB as u64 {
        return microseconds as usize;
    }
    let shift = microseconds.ilog2() - SUB_BITS;
    (shift as usize + 1) * SUB + ((microseconds >> shift) as usize & (SUB - 1))
}

fn floor(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = bucket / SUB - 1;
    ((SUB + bucket % SUB) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_the_step_that_starts_at_or_below_it() {
        for value in (0..5_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX]) {
            let index = bucket(value);
            assert!(floor(index) <= value);
            assert!(value - floor(index) <= value / 16, "{value} is too far from {}", floor(index));
        }
    }

    #[test]
    fn draining_empties() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_micros(7));
        latencies.record(Duration::from_micros(7));
        let mut seen = Vec::new();
        latencies.drain(|value, count| seen.push((value, count)));
        assert_eq!(seen, [(7, 2)]);
        latencies.drain(|_, _| panic!("it was drained"));
    }
}
